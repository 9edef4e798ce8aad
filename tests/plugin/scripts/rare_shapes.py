"""A network whose batches have 32 rows but for some that come once and never again; prints the losses as JSON.

rare_shapes.py STEPS SECONDS: after 12 steps the loop pauses for so long. Of the hundred steps after it every fourth has rows of
its own; in these steps kernels are verified.
"""

import json
import sys

import tensorflow as tf
from resting import rest

steps, pause = int(sys.argv[1]), float(sys.argv[2])
weights = tf.Variable(tf.random.stateless_normal([24, 24], seed=[1, 2]) * 0.1)


@tf.function(input_signature=[tf.TensorSpec([None, 24], tf.float32)])
def train(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(tf.nn.softmax(tf.tanh(tf.matmul(x, weights)) * 3.0) - x))
    gradient = tape.gradient(loss, weights)
    weights.assign_sub(0.05 * gradient)
    return loss


losses = []
for i in range(steps):
    if i == 12:
        rest(pause)
    rows = 40 + i if 13 <= i < 120 and i % 4 == 0 else 32
    losses.append(float(train(tf.random.stateless_normal([rows, 24], seed=[3, i]))))
print(json.dumps(losses))
