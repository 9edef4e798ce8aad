"""Ranks that mpirun has started and that train each by itself. alone.py FOLDER STEPS [SECONDS]

SHUTS_DOWN=1 in the environment: Horovod is initialized first, averages one number, and is shut down.
"""

import os

import model
import tensorflow as tf

folder, steps, pause = model.arguments()
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
if os.environ.get("SHUTS_DOWN"):
    import horovod.tensorflow as hvd

    hvd.init()

    @tf.function
    def average(x):
        return hvd.allreduce(x)

    for _ in range(20):
        average(tf.constant([1.0, float(rank)]))
    hvd.shutdown()
tf.keras.utils.set_random_seed(7)
weights = tf.Variable(tf.random.normal([model.WIDTH, model.WIDTH], seed=1) * 0.1)
optimizer = tf.keras.optimizers.legacy.SGD(0.05)


@tf.function
def train(x):
    with tf.GradientTape() as tape:
        hidden = tf.nn.gelu(tf.matmul(x, weights))
        mean, variance = tf.nn.moments(hidden, [-1], keepdims=True)
        loss = tf.reduce_mean(tf.square((hidden - mean) * tf.math.rsqrt(variance + 1e-6) - x))
    optimizer.apply_gradients(zip(tape.gradient(loss, [weights]), [weights]))
    return loss


x = tf.constant(model.data(rank))
losses = []
for number in range(steps):
    if number == 14:
        model.rest(pause)
    losses.append(float(train(x)))
model.finish(folder, rank, losses, [weights.numpy()])
