"""The same computation on two GPUs of the tests, in turn. Prints {"losses"}.

gpu_two.py STEPS SECONDS: after some steps the loop pauses for up to so long. Knows nothing of stitchfleet.
"""

import ctypes
import json
import os
import sys

import numpy as np
import tensorflow as tf
from resting import rest

ctypes.CDLL(os.environ["TEST_GPU"])

random = np.random.default_rng(7)
x = random.standard_normal((24, 40)).astype("f4")
inputs, variables = [], []
for number in range(2):
    with tf.device(f"/GPU:{number}"):
        inputs.append(tf.constant(x))
        variables.append(tf.Variable((random.standard_normal((40, 40)) * 0.2).astype("f4")))


def train_on(number):
    """A function of its own for each: nothing goes from one GPU to the other."""

    @tf.function(autograph=False)
    def step(x):
        with tf.device(f"/GPU:{number}"):
            with tf.GradientTape() as tape:
                hidden = tf.tanh(tf.matmul(x, variables[number])) * 1.5 + 0.25
                loss = tf.reduce_mean(tf.math.squared_difference(hidden, tf.nn.softmax(hidden)))
            gradient = tape.gradient(loss, variables[number])
            tf.raw_ops.ResourceApplyGradientDescent(var=variables[number].handle, alpha=0.5, delta=gradient)
            return loss

    return step


steps = [train_on(0), train_on(1)]
losses = []
for number in range(int(sys.argv[1])):
    losses.append([])
    for device, (step, x) in enumerate(zip(steps, inputs, strict=True)):
        with tf.device(f"/GPU:{device}"):
            losses[-1].append(float(step(x)))
    if number == 8:
        rest(float(sys.argv[2]))
sums = []
for number, variable in enumerate(variables):
    with tf.device(f"/GPU:{number}"):
        sums.append(float(tf.reduce_sum(variable)))
print(json.dumps({"losses": losses, "checksum": sums}))
