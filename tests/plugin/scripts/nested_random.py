"""A seeded dropout inside a function that TensorFlow does not inline, as Keras' recurrent layers have it; prints the sums."""

import json
import sys

import tensorflow as tf

tf.random.set_seed(3)
v = tf.Variable(tf.ones([32]))


@tf.function(experimental_attributes={"_noinline": True})
def nested(x):
    return tf.nn.dropout(tf.tanh(x) * 2.0, 0.5)


@tf.function
def step():
    v.assign(0.9 * v + 0.1 * nested(tf.sin(v)))
    return tf.reduce_sum(v)


print(json.dumps([float(step()) for _ in range(int(sys.argv[1]))]))
