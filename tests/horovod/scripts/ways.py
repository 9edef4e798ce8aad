"""Horovod's ways to reduce gradients, WAY in the environment. ways.py FOLDER STEPS [SECONDS]

compression  as float16        adasum  by Adasum, on as many ranks as a power of two        sparse  rows of an embedding, gathered
set          in a process set of this rank alone, all ranks having the same rows
eager        outside of the function that computes them
seldom       in every other step, as a number of the script's own decides
"""

import os

import horovod.tensorflow as hvd
import model
import tensorflow as tf

folder, steps, pause = model.arguments()
hvd.init()
way = os.environ["WAY"]
options = {}
if way == "compression":
    options["compression"] = hvd.Compression.fp16
elif way == "adasum":
    options["op"] = hvd.Adasum
elif way == "set":
    options["process_set"] = [hvd.add_process_set([rank]) for rank in range(hvd.size())][hvd.rank()]
tf.keras.utils.set_random_seed(7)
table = tf.Variable(tf.random.normal([100, model.WIDTH], seed=3))
weights = tf.Variable(tf.random.normal([model.WIDTH, model.WIDTH], seed=1) * 0.1)
variables = [weights, table] if way == "sparse" else [weights]
optimizer = tf.keras.optimizers.legacy.SGD(0.05, momentum=0.9)
number_of_step = tf.Variable(0)


def loss_of(x, rows):
    hidden = tf.nn.gelu(tf.matmul(x + tf.nn.embedding_lookup(table, rows) if way == "sparse" else x, weights))
    mean, variance = tf.nn.moments(hidden, [-1], keepdims=True)
    return tf.reduce_mean(tf.square((hidden - mean) * tf.math.rsqrt(variance + 1e-6) - x))


@tf.function
def train(x, rows):
    with tf.GradientTape() as tape:
        loss = loss_of(x, rows)
    if way not in ("eager", "seldom"):
        tape = hvd.DistributedGradientTape(tape, **options)
    gradients = tape.gradient(loss, variables)
    if way == "seldom":
        number_of_step.assign_add(1)
        reduces = number_of_step % 2 == 0
        gradients = tf.cond(reduces, lambda: [hvd.allreduce(each) for each in gradients], lambda: gradients)
        gradients = [each * tf.cast(reduces, tf.float32) for each in gradients]
    if way != "eager":
        optimizer.apply_gradients(zip(gradients, variables))
    return (loss, *gradients) if way == "eager" else (loss,)


x = tf.constant(model.data(0 if way == "set" else hvd.rank()))
rows = tf.constant([(7 * number + hvd.rank()) % 100 for number in range(len(x))])
losses = []
for number in range(steps):
    if number == 14:
        model.rest(pause)
    loss, *gradients = train(x, rows)
    if way == "eager":
        optimizer.apply_gradients(zip([hvd.allreduce(gradient) for gradient in gradients], variables))
    losses.append(float(loss))
    if number == 0:
        hvd.broadcast_variables([*variables, *optimizer.variables()], root_rank=0)
model.finish(folder, hvd.rank(), losses, [variable.numpy() for variable in variables])
