"""Makes functions that are called a few times and thrown away, then one that is called often."""

import gc

import tensorflow as tf

x = tf.ones([32, 32])
for number in range(40):
    short = tf.function(lambda t: tf.reduce_sum(tf.nn.softmax(tf.exp(t) * 2.0 + number) * tf.tanh(t)))  # noqa: B023
    for _ in range(4):
        short(x)
del short
gc.collect()


@tf.function
def long_lived(t):
    return tf.reduce_sum(tf.nn.softmax(tf.sigmoid(t)) * tf.tanh(t) + 1.0)


for _ in range(4000):
    long_lived(x)
