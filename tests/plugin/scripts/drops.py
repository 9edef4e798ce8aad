"""Dropout with and without a seed, in turn; prints the share that each kept at each step, and the sum of what the seeded one kept.

drops.py STEPS [SECONDS]: after some steps the loop pauses for so long at most.
"""

import json
import sys

import tensorflow as tf
from resting import rest

steps = int(sys.argv[1])
pause = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
x = tf.random.stateless_uniform([64, 50], [1, 2], 1.0, 2.0)
position = tf.range(64 * 50, dtype=tf.float32)


def dropped(x, seed):
    kept = tf.nn.dropout(tf.tanh(x) + 1.0, 0.25, seed=seed)
    return tf.reduce_mean(tf.cast(kept > 0, tf.float32)), tf.reduce_sum(tf.reshape(kept, [-1]) * tf.sin(position))


@tf.function
def step(x):
    seeded, total = dropped(x, 3)
    return tf.stack([seeded, total, *dropped(tf.sqrt(x), None)])


found = []
for i in range(steps):
    if i == 12:
        rest(pause)
    found.append(step(x).numpy().tolist())
print(json.dumps(found))
