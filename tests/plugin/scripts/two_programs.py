"""A function that is called twice and never again, then two training functions with equal operators, in turn; prints both losses.

two_programs.py STEPS [SECONDS]: after some steps the loop pauses for so long.
"""

import json
import sys

import tensorflow as tf
from resting import rest

steps = int(sys.argv[1])
pause = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
first, second = (tf.Variable(tf.random.normal([64, 64], seed=seed) * 0.1) for seed in (1, 2))


@tf.function
def prepare(x):
    return tf.tanh(x * 3.0 + 1.0) * tf.exp(-x * x)


def trainer(weights):
    @tf.function
    def train(x):
        with tf.GradientTape() as tape:
            hidden = tf.nn.gelu(tf.matmul(x, weights))
            mean, variance = tf.nn.moments(hidden, [-1], keepdims=True)
            y = (hidden - mean) * tf.math.rsqrt(variance + 1e-6)
            loss = tf.reduce_mean(tf.square(y - x))
        weights.assign_sub(0.05 * tape.gradient(loss, weights))
        return loss

    return train


x = tf.random.normal([128, 64], seed=3)
x = prepare(prepare(x))
trainers = [trainer(first), trainer(second)]
losses = []
for i in range(steps):
    if i == 12:
        rest(pause)
    losses.append([float(train(x)) for train in trainers])
print(json.dumps([loss for pair in losses for loss in pair]))
