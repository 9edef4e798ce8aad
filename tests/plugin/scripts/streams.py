"""Seeded random operators in several traces of one function, on two device scopes, and restarted by set_seed: TensorFlow gives
each trace a stream of its own, and begins all streams again when the seed is set."""

import json

import tensorflow as tf

tf.random.set_seed(1)
drawn = []


@tf.function
def sample(n):
    return tf.reduce_sum(tf.random.normal([n, 2]))


drawn += [float(sample(n)) for n in (3, 3, 2, 3, 2, 2, 3)]


@tf.function
def tagged(x, tag):  # the traces' graphs are equal: nothing but their names tells them apart
    return tf.reduce_sum(tf.nn.relu(x) * tf.exp(tf.random.uniform([4, 4])) + 1.0)


x = tf.ones([4, 4])
folds = []
for _ in range(3):
    tf.random.set_seed(100)
    folds.append([float(tagged(x, step % 3)) for step in range(30)])
assert folds[1] == folds[2], "set_seed did not begin the streams again"
for _ in range(15):
    with tf.device("/cpu:0"):
        drawn.append(float(tagged(x, 0)))
    drawn.append(float(tagged(x, 0)))
print(json.dumps(drawn + folds))
