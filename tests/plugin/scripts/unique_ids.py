"""A step whose embedding gradient is summed by unique ids, of which each batch has another number: prints each step's loss."""

import json
import sys

import tensorflow as tf
from resting import rest

steps, pause = int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
table = tf.Variable(tf.random.stateless_normal([500, 16], [3, 4]))
weights = tf.Variable(tf.random.stateless_normal([16, 16], [5, 6]) * 0.1)


@tf.function
def train(ids):
    with tf.GradientTape() as tape:
        rows = tf.gather(table, ids)
        hidden = tf.tanh(tf.matmul(rows, weights) + 0.5) * 0.9
        loss = tf.reduce_mean(tf.square(hidden - 0.25) + tf.abs(rows) * 0.01)
    gradient, dense = tape.gradient(loss, [table, weights])
    unique, places = tf.unique(gradient.indices)
    summed = tf.math.unsorted_segment_sum(gradient.values, places, tf.shape(unique)[0])
    step = summed / (tf.sqrt(tf.reduce_sum(tf.square(summed), axis=1, keepdims=True)) + 1e-3)
    table.scatter_sub(tf.IndexedSlices(step * 0.01, unique))
    weights.assign_sub(dense * 0.05 + weights * 1e-4)
    return loss


losses = []
for i in range(steps):
    if i == 12:
        rest(pause)
    losses.append(float(train(tf.random.stateless_uniform([64], [7, i], 0, 500, tf.int32))))
print(json.dumps(losses))
