"""A small network with a LayerNorm and a seeded dropout, trained by a loop around one tf.function; prints the losses as JSON.

loop.py STEPS [SECONDS [LATER]]: after some steps the loop pauses for so long, as one does that evaluates or waits for data,
and once more after 100 steps.
"""

import json
import sys

import tensorflow as tf
from resting import rest

steps = int(sys.argv[1])
pause = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
later = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
tf.random.set_seed(7)
weights = tf.Variable(tf.random.normal([64, 64], seed=1) * 0.1)
scale, offset = tf.Variable(tf.ones([64])), tf.Variable(tf.zeros([64]))


@tf.function
def train(x):
    with tf.GradientTape() as tape:
        hidden = tf.nn.dropout(tf.nn.gelu(tf.matmul(x, weights)), 0.1)
        mean, variance = tf.nn.moments(hidden, [-1], keepdims=True)
        y = (hidden - mean) * tf.math.rsqrt(variance + 1e-6) * scale + offset
        loss = tf.reduce_mean(tf.square(y - x))
    variables = [weights, scale, offset]
    for variable, gradient in zip(variables, tape.gradient(loss, variables)):
        variable.assign_sub(0.05 * gradient)
    return loss


x = tf.random.normal([128, 64], seed=2)
losses = []
for i in range(steps):
    if i == 12:
        rest(pause)
    if i == 100:
        rest(later)
    losses.append(float(train(x)))
print(json.dumps(losses))
