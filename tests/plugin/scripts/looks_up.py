"""A small model that looks its words up in a table (sparse updates), takes the loss of integer labels and divides integers; after its
steps it asks for what TensorFlow raises errors about, and then goes on. Prints the losses and, of each error, the operator and the
reason.

looks_up.py STEPS [SECONDS]: after some steps the loop pauses for so long at most.
"""

import json
import re
import sys

import numpy as np
import tensorflow as tf
from resting import rest

steps = int(sys.argv[1])
pause = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
WORDS, WIDTH, CLASSES, BATCH, LENGTH = 50, 24, 10, 8, 6
random = np.random.default_rng(5)
table = tf.Variable(random.standard_normal((WORDS, WIDTH)).astype(np.float32))
places = tf.constant(random.standard_normal((LENGTH, WIDTH)).astype(np.float32))
weights = tf.Variable(random.standard_normal((WIDTH, CLASSES)).astype(np.float32) * 0.1)


@tf.function
def train_step(words, labels, divisor):
    with tf.GradientTape() as tape:
        hidden = tf.tanh(tf.gather(table, words) + places) * 0.5
        shifted = tf.gather(hidden, (tf.range(LENGTH) // divisor) % LENGTH, axis=1)
        logits = tf.matmul(tf.reduce_mean(hidden + shifted, axis=1), weights)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
    of_table, of_weights = tape.gradient(loss, [table, weights])
    table.scatter_sub(tf.IndexedSlices(0.1 * of_table.values, of_table.indices))
    weights.assign_sub(0.1 * of_weights)
    return loss


def call(words, labels, divisor):
    return float(train_step(tf.constant(words, tf.int32), tf.constant(labels, tf.int64), tf.constant(divisor)))


losses, errors = [], []
for i in range(steps):
    if i == 12:
        rest(pause)
    losses.append(call(random.integers(0, WORDS, (BATCH, LENGTH)), random.integers(0, CLASSES, BATCH), 2))
good = random.integers(0, WORDS, (BATCH, LENGTH))
beyond, below = good.copy(), good.copy()
beyond[3, 2], below[1, 1] = WORDS, -1
some = random.integers(0, CLASSES, BATCH)
for words, labels, divisor in (
    (beyond, some, 2),
    (below, some, 2),
    (good, [*some[:-1], CLASSES], 2),
    (good, some, 0),
):
    before = table.numpy(), weights.numpy()
    try:
        losses.append(call(words, labels, divisor))
        errors.append(["", ""])
    except tf.errors.InvalidArgumentError as error:
        node = re.search(r"Detected at node (\S+) defined at", error.message)
        reason = re.search(r"(indices\[|Received a label|Integer division).*", error.message)
        errors.append([node and node.group(1), reason.group()])
    assert all(np.array_equal(a, b) for a, b in zip(before, (table.numpy(), weights.numpy())))
for _ in range(10):
    losses.append(call(good, some, 2))
print(json.dumps({"losses": losses, "errors": errors}))
