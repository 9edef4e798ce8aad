"""A step with an operator in its middle that no kernel can be made of (a bitcast that changes the width)."""

import json
import sys

import tensorflow as tf
from resting import rest

v = tf.Variable(tf.random.stateless_uniform([64, 32], [1, 2]))


@tf.function
def step(x):
    hidden = tf.tanh(v * x) + tf.square(v)
    bits = tf.cast(tf.bitcast(hidden, tf.uint8), tf.float32)
    mixed = tf.nn.softmax(tf.reduce_mean(bits, -1) * 0.01) + tf.sin(hidden)
    v.assign(v * 0.999 + 0.001 * mixed)
    return tf.reduce_mean(mixed)


losses = []
for i in range(int(sys.argv[1])):
    if i in (12, 20):
        rest(float(sys.argv[2]))
    losses.append(float(step(tf.constant(0.5))))
print(json.dumps(losses))
