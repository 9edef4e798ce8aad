"""Trains the classifier on all ranks: Horovod averages the gradients.

mpirun -np 2 python train.py [--steps 400]
"""

from __future__ import annotations

import argparse
import os
import time

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from classifier import CLASSES, LENGTH, TOKENS, make_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=16)
    arguments = parser.parse_args()
    hvd.init()
    random = np.random.default_rng(7 + hvd.rank())
    tokens = random.integers(0, TOKENS, (512, LENGTH), dtype=np.int32)
    classes = (tokens.sum(axis=1) % CLASSES).astype(np.int32)
    data = tf.data.Dataset.from_tensor_slices((tokens, classes)).repeat().batch(arguments.batch)
    tf.keras.utils.set_random_seed(7)
    model = make_model()
    optimizer = tf.keras.optimizers.Adam(1e-3)
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def step(tokens: tf.Tensor, classes: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_of(classes, model(tokens, training=True))
        tape = hvd.DistributedGradientTape(tape, sparse_as_dense=True)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    for number, (some_tokens, some_classes) in enumerate(data.take(arguments.steps)):
        loss = step(some_tokens, some_classes)
        if number == 0:
            hvd.broadcast_variables([*model.variables, *optimizer.variables], root_rank=0)
        if number == 0 or (number + 1) % 100 == 0:
            print(f"{time.time():.2f} rank {hvd.rank()} step {number + 1} loss {float(loss):.4f}", flush=True)
    weights = sum(float(tf.reduce_sum(tf.abs(variable))) for variable in model.trainable_variables)
    print(f"rank {hvd.rank()} of {hvd.size()} on {os.uname().nodename} ends with weights {weights:.6f}", flush=True)


if __name__ == "__main__":
    main()
