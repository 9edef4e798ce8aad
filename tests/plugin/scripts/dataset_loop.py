"""Trains in a loop inside a tf.function: over a dataset, or (with the word "iterator") over its iterator. Words: STEPS [iterator]
[seeded]. Prints the loss of each call."""

import json
import sys

import numpy as np
import tensorflow as tf

if "seeded" in sys.argv:
    tf.random.set_seed(3)
dataset = tf.data.Dataset.from_tensor_slices(np.linspace(-1, 1, 64 * 32, dtype="f").reshape(64, 32)).batch(16)
weights = [tf.Variable(np.eye(32, dtype="f") * scale) for scale in (0.5, 1.5)]


@tf.function
def epoch(batches):
    total = tf.constant(0.0)
    for x in batches:
        with tf.GradientTape() as tape:
            kept = tf.cast(tf.random.uniform(tf.shape(x)) < 1.0, tf.float32)
            y = tf.nn.gelu(x @ weights[0]) * kept @ weights[1]
            loss = tf.reduce_mean(tf.square(y - tf.sin(x)))
        for variable, gradient in zip(weights, tape.gradient(loss, weights)):
            variable.assign_sub(0.01 * gradient)
        total += loss
    return total


print(json.dumps([float(epoch(iter(dataset) if "iterator" in sys.argv else dataset)) for _ in range(int(sys.argv[1]))]))
