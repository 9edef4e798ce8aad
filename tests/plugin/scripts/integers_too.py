"""A step of two parts that share nothing: one computes with integers, one with floats. Prints what both gave at each step.

integers_too.py STEPS [SECONDS]: after some steps the loop pauses for so long at most.
"""

import json
import sys

import tensorflow as tf
from resting import rest

steps = int(sys.argv[1])
pause = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
numbers, floats = tf.range(40), tf.linspace(0.0, 1.0, 60)


@tf.function
def step(i, x):
    whole = tf.reduce_sum((numbers * i + 3) % 17 * numbers)
    real = tf.reduce_max(tf.tanh(floats * tf.sin(x)) + 0.5)
    return whole, real


found = []
for i in range(steps):
    if i == 12:
        rest(pause)
    found.append([float(value) for value in step(tf.constant(i), tf.constant(0.1 * i))])
print(json.dumps(found))
