"""Seeded random operators of every kind that has a stateless twin, in one tf.function; prints all numbers of all steps."""

import json
import sys

import tensorflow as tf

tf.random.set_seed(3)
counter = tf.Variable(0)


@tf.function
def step(n):
    counter.assign_add(1)
    shape = [n, 3]
    draws = [
        tf.random.uniform(shape),
        tf.random.uniform(shape, seed=5),
        tf.random.normal(shape),
        tf.random.truncated_normal(shape),
        tf.cast(tf.random.uniform(shape, 0, 1000, tf.int32), tf.float32),
        tf.cast(tf.random.uniform(shape, dtype=tf.float64), tf.float32),
    ]
    return tf.stack(draws)


found = []
for i in range(int(sys.argv[1])):
    # two traces of one function, each with streams of its own, as in TensorFlow
    found.append(step(tf.constant(4) if i % 3 else 2).numpy().ravel().tolist())
print(json.dumps(found))
