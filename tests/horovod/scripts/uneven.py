"""As tape.py, with fewer steps on rank 1, which joins; then some steps of all. uneven.py FOLDER STEPS [SECONDS]"""

import horovod.tensorflow as hvd
import model
import tensorflow as tf

folder, steps, pause = model.arguments()
hvd.init()
tf.keras.utils.set_random_seed(7)
weights = tf.Variable(tf.random.normal([model.WIDTH, model.WIDTH], seed=1) * 0.1)
optimizer = tf.keras.optimizers.legacy.SGD(0.05)


@tf.function
def train(x):
    with tf.GradientTape() as tape:
        hidden = tf.nn.gelu(tf.matmul(x, weights))
        mean, variance = tf.nn.moments(hidden, [-1], keepdims=True)
        loss = tf.reduce_mean(tf.square((hidden - mean) * tf.math.rsqrt(variance + 1e-6) - x))
    tape = hvd.DistributedGradientTape(tape)
    optimizer.apply_gradients(zip(tape.gradient(loss, [weights]), [weights]))
    return loss


x = tf.constant(model.data(hvd.rank()))
losses = []
for number in range(steps - 100 * hvd.rank()):
    if number == 14:
        model.rest(pause)
    losses.append(float(train(x)))
    if number == 0:
        hvd.broadcast_variables([weights], root_rank=0)
hvd.join()
hvd.broadcast_variables([weights], root_rank=0)
losses += [float(train(x)) for _ in range(50)]
model.finish(folder, hvd.rank(), losses, [weights.numpy()])
