"""A softmax-like step on data that turn large late: prints each step's loss, and the step where the data changed."""

import json
import sys
import time

import tensorflow as tf
from resting import rest

steps, change, pause = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
weights = tf.Variable(tf.eye(32))


@tf.function
def train(x):
    with tf.GradientTape() as tape:
        hidden = tf.matmul(x, weights)
        scaled = tf.nn.softplus(hidden * 0.5) * 1.5 + 0.25
        loss = tf.reduce_mean(tf.square(scaled - 1.0), axis=-1)
        total = tf.reduce_mean(loss)
    weights.assign_sub(1e-12 * tape.gradient(total, weights))
    return total


small = tf.random.stateless_uniform([64, 32], [1, 2])
large = small * 1e6
losses = []
for i in range(steps):
    if i == 12:
        rest(pause)
    losses.append(float(train(large if i >= change else small)))
    time.sleep(0.002)
print(json.dumps(losses))
