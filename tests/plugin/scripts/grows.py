"""Keeps more and more memory from step 300 on. grows.py STEPS SECONDS, as loop.py."""

import sys
import time

import numpy as np
import tensorflow as tf
from resting import rest

v = tf.Variable(tf.ones([64, 64]))


@tf.function
def step(x):
    v.assign(tf.tanh(v) * x + tf.nn.softmax(v))
    return tf.reduce_sum(v)


kept = []
for i in range(int(sys.argv[1])):
    if i == 12:
        rest(float(sys.argv[2]))
    step(tf.ones([64, 64]))
    if i >= 300:
        kept.append(np.ones(200_000))
        time.sleep(0.004)
