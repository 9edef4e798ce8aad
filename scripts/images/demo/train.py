"""Trains a small text classifier on made-up data: a transformer's feed-forward block with layer normalization, Keras' Adam.

python train.py [--steps 600]

SIGTERM ends it after the step that it is at, as a preemption does.
"""

from __future__ import annotations

import argparse
import signal
import threading
import time

import numpy as np
import tensorflow as tf
from classifier import CLASSES, LENGTH, TOKENS, make_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch", type=int, default=16)
    arguments = parser.parse_args()
    random = np.random.default_rng(7)
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
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    is_asked_to_end = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_asked_to_end.set())
    for number, (some_tokens, some_classes) in enumerate(data.take(arguments.steps)):
        loss = step(some_tokens, some_classes)
        if number == 0 or (number + 1) % 100 == 0:
            print(f"{time.time():.2f} step {number + 1} loss {float(loss):.4f}", flush=True)
        if is_asked_to_end.is_set():
            break


if __name__ == "__main__":
    main()
