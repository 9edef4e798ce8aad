"""A loop around one tf.function with DistributedGradientTape and an optimizer in the function. tape.py FOLDER STEPS [SECONDS]

SHORT=N in the environment: each N-th batch of rank 1 has fewer rows, as the last one of an epoch.
RARE=N: from step N on, rank 1 has a number in its data that the loss cuts off, so that it changes nothing in plain.
"""

import os

import horovod.tensorflow as hvd
import model
import tensorflow as tf

folder, steps, pause = model.arguments()
hvd.init()
tf.keras.utils.set_random_seed(7)
weights = tf.Variable(tf.random.normal([model.WIDTH, model.WIDTH], seed=1) * 0.1)
scale, offset = tf.Variable(tf.ones([model.WIDTH])), tf.Variable(tf.zeros([model.WIDTH]))
variables = [weights, scale, offset]
optimizer = tf.keras.optimizers.legacy.SGD(0.05, momentum=0.9)


@tf.function(input_signature=[tf.TensorSpec([None, model.WIDTH], tf.float32)] if "SHORT" in os.environ else None)
def train(x, targets=None):
    with tf.GradientTape() as tape:
        hidden = tf.nn.gelu(tf.matmul(x, weights))
        mean, variance = tf.nn.moments(hidden, [-1], keepdims=True)
        y = (hidden - mean) * tf.math.rsqrt(variance + 1e-6) * scale + offset
        target = x if targets is None else tf.reduce_mean(tf.minimum(targets, 2.0), 0)
        loss = tf.reduce_mean(tf.square(y - target))
    tape = hvd.DistributedGradientTape(tape)
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
    return loss


x = tf.constant(model.data(hvd.rank()))
rare = int(os.environ["RARE"]) if "RARE" in os.environ else None
short = int(os.environ.get("SHORT", "0")) if hvd.rank() == 1 else 0
targets = None if rare is None else tf.stack([x, x])
losses = []
for number in range(steps):
    if number == 14:
        model.rest(pause)
    model.fault(number)
    if number == rare and hvd.rank() == 1:
        targets = tf.tensor_scatter_nd_update(targets, [[0, 0, 0]], [2e4])
    losses.append(float(train(x[:480] if short and number % short == 0 else x, targets)))
    if number == 0:
        hvd.broadcast_variables([*variables, *optimizer.variables()], root_rank=0)
model.finish(folder, hvd.rank(), losses, [variable.numpy() for variable in variables])
