"""Raises after some steps: the traceback and the exit code must be the script's own."""

import sys

import tensorflow as tf

v = tf.Variable(tf.ones([4]))


@tf.function
def step(x):
    v.assign_add(tf.tanh(x) * 2.0)
    return tf.reduce_sum(v)


for _ in range(20):
    step(tf.ones([4]))
if len(sys.argv) > 1:
    sys.exit(int(sys.argv[1]))
raise RuntimeError("the user's own error")
