"""A training job on the tests' GPU: layer norm, GELU, softmax cross-entropy, Adam. Prints {"losses", "device", "checksum"}.

gpu_train.py STEPS SECONDS adam|sgd|many|shaped|language: after some steps the loop pauses for up to so long. many: Adam, a hundred
variables more. shaped: gradient descent, and a tensor as wide as a number in the processor's memory says. language: gradient descent,
rows looked up in a table that is trained, and a cross-entropy whose labels are numbers.
Knows nothing of stitchfleet.
"""

import ctypes
import json
import os
import sys

import numpy as np
import tensorflow as tf
from resting import rest

ctypes.CDLL(os.environ["TEST_GPU"])

STEPS, PAUSE = int(sys.argv[1]), float(sys.argv[2])
BATCH, WIDTH, CLASSES = 24, 40, 10

random = np.random.default_rng(7)
inputs = [tf.constant(random.standard_normal((BATCH, WIDTH)).astype("f4")) for _ in range(4)]
labels = [tf.constant(random.integers(0, CLASSES, BATCH).astype("i4")) for _ in range(4)]
start = [(random.standard_normal((WIDTH, columns)) * 0.2).astype("f4") for columns in (WIDTH, CLASSES)]
with tf.device("/GPU:0"):
    weights = [tf.Variable(value) for value in start]
    scale, shift = tf.Variable(tf.ones((WIDTH,))), tf.Variable(tf.zeros((WIDTH,)))
    more = [tf.Variable(np.full(7, k / 50.0, np.float32)) for k in range(100 if sys.argv[3] == "many" else 0)]
    table = [tf.Variable(random.standard_normal((CLASSES, WIDTH)).astype("f4"))] if sys.argv[3] == "language" else []
    variables = [*weights, scale, shift, *more, *table]
    slots = [(tf.Variable(tf.zeros(v.shape)), tf.Variable(tf.zeros(v.shape))) for v in variables]


@tf.function(autograph=False)
def step(x, label, power, shape):
    with tf.device("/GPU:0"):
        with tf.GradientTape() as tape:
            for rows in table:
                x += tf.tanh(tf.gather(rows, (label * 7 + 3) % CLASSES) * 0.5)
            hidden = tf.matmul(x, weights[0])
            mean = tf.reduce_mean(hidden, -1, keepdims=True)
            variance = tf.reduce_mean(tf.math.squared_difference(hidden, mean), -1, keepdims=True)
            normal = (hidden - mean) * tf.math.rsqrt(variance + 1e-5) * scale + shift
            if sys.argv[3] == "shaped":
                normal += tf.broadcast_to(tf.tanh(shift), shape)
            active = 0.5 * normal * (1.0 + tf.math.erf(normal * 0.70710678))
            logits = tf.matmul(active, weights[1])
            if table:
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(label, logits))
            else:
                chances = tf.nn.softmax(logits)
                wanted = tf.one_hot(label, CLASSES)
                loss = tf.reduce_mean(tf.reduce_sum(tf.math.squared_difference(chances, wanted), -1))
            for variable in more:
                loss += 1e-4 * tf.reduce_sum(tf.math.squared_difference(variable, 0.5))
        for variable, (m, v), gradient in zip(variables, slots, tape.gradient(loss, variables), strict=True):
            if sys.argv[3] in ("sgd", "shaped", "language"):
                gradient = tf.convert_to_tensor(gradient)
                tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=0.05, delta=gradient)
            else:
                tf.raw_ops.ResourceApplyAdam(
                    var=variable.handle,
                    m=m.handle,
                    v=v.handle,
                    beta1_power=power[0],
                    beta2_power=power[1],
                    lr=0.01,
                    beta1=0.9,
                    beta2=0.999,
                    epsilon=1e-7,
                    grad=gradient,
                )
        return loss


losses = []
for number in range(STEPS):
    power = tf.constant([0.9 ** (number + 1), 0.999 ** (number + 1)])
    losses.append(float(step(inputs[number % 4], labels[number % 4], power, tf.constant([BATCH, WIDTH]))))
    if number == 8:
        rest(PAUSE)
print(
    json.dumps(
        {
            "losses": losses,
            "device": weights[0].device,
            "checksum": [float(tf.reduce_sum(tf.identity(v))) for v in variables],
        }
    )
)
