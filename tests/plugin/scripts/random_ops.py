"""Seeded random operators of every kind, in one tf.function or (with the word "session") a session of TensorFlow 1; prints all
numbers of all steps."""

import json
import sys

import tensorflow as tf


def draw(n):
    shape = [n, 3]
    numbers = tf.cast(tf.reshape(tf.range(n * 3), shape), tf.float32)
    draws = [  # those that have a stateless twin, then the others
        tf.random.uniform(shape),
        tf.random.uniform(shape, seed=5),
        tf.random.normal(shape),
        tf.random.truncated_normal(shape),
        tf.cast(tf.random.uniform(shape, 0, 1000, tf.int32), tf.float32),
        tf.cast(tf.random.uniform(shape, dtype=tf.float64), tf.float32),
        tf.random.shuffle(numbers, seed=7),
        tf.random.poisson([], numbers + 0.5),
        tf.random.gamma([], numbers + 0.5),
        tf.cast(tf.random.categorical(numbers * 0.1, 3), tf.float32),
        tf.raw_ops.ParameterizedTruncatedNormal(
            shape=shape, means=0.5, stdevs=1.0, minvals=-1.0, maxvals=2.0, seed=11, seed2=12
        ),
    ]
    sampled, expected, others = tf.random.uniform_candidate_sampler(
        tf.zeros([n, 1], tf.int64), 1, num_sampled=6, unique=True, range_max=50, seed=3
    )
    sampled = tf.cast(sampled, tf.float32) + others
    return tf.concat([tf.reshape(tf.stack(draws) * 2, [-1]), tf.reshape(expected, [-1]), sampled], 0)


def sizes():
    """Two traces of one function, each with streams of its own, as in TensorFlow."""
    for i in range(int(sys.argv[1])):
        yield 4 if i % 3 else 2


tf.random.set_seed(3)
found = []
if "session" in sys.argv:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.random.set_seed(3)
        size = tf.compat.v1.placeholder(tf.int32, [])
        drawn = draw(size)
        for n in sizes():
            found.append(session.run(drawn, {size: n}).tolist())
else:
    counter = tf.Variable(0)

    @tf.function
    def step(n):
        counter.assign_add(1)
        return draw(n)

    for n in sizes():
        found.append(step(n if n == 2 else tf.constant(n)).numpy().tolist())
print(json.dumps(found))
