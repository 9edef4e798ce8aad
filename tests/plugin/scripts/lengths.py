"""A network whose batches change in length from step to step; prints the losses as JSON.

lengths.py STEPS KIND SECONDS: KIND "some": training, 24 lengths come again and again; "never": inference, every step has its own.
After some of the steps the loop pauses for so long at most.
"""

import json
import sys
import time

import tensorflow as tf
from resting import rest

steps, kind, pause = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
weights = tf.Variable(tf.random.stateless_normal([16, 16], seed=[1, 2]) * 0.1)


@tf.function(input_signature=[tf.TensorSpec([None, None, 16], tf.float32)])
def train(x):
    with tf.GradientTape() as tape:
        hidden = tf.matmul(x, weights)
        attention = tf.nn.softmax(tf.matmul(hidden, x, transpose_b=True) * 0.25 + 0.125)
        loss = tf.reduce_mean(tf.square(tf.matmul(attention, tf.tanh(hidden)) - x))
    if kind == "some":
        weights.assign_sub(0.05 * tape.gradient(loss, weights))
    return loss


losses = []
for i in range(steps):
    if i == 12 or (kind == "some" and i % 30 == 29 and i < 300):
        rest(pause)
    time.sleep(0.01)
    length = 20 + i * 7 % 24 if kind == "some" else 20 + i
    losses.append(float(train(tf.random.stateless_normal([4, length, 16], seed=[3, i]))))
print(json.dumps(losses))
