"""What the zoo's scripts share: their options, and the ways in which people train. Nothing here knows of stitching."""

from __future__ import annotations

import argparse
import itertools
import pathlib
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[2] / "workloads"))
import steps

ENDLESS = 1_000_000
LONG_EPOCH = 250
"""Batches of an epoch in which what lies between epochs does not count."""


def options(*models: str) -> argparse.Namespace:
    """The options of the command line; with `models`, the first word says which. Seeds TensorFlow, NumPy and Keras."""
    parser = steps.make_parser(None)
    if models:
        parser.add_argument("model", choices=models)
    arguments = parser.parse_args()
    tf.keras.utils.set_random_seed(arguments.seed + 1)
    return arguments


def batches(*arrays: Any, size: int) -> Iterable[tuple[Any, ...]]:
    """Batches of `size` rows of the arrays, over and over, as tensors."""
    count = len(arrays[0]) // size
    cut = [tuple(tf.constant(array[i * size : (i + 1) * size]) for array in arrays) for i in range(count)]
    return itertools.cycle(cut)


def repeated(examples: Any, size: int) -> tf.data.Dataset:
    """A dataset of batches of `size` rows of the arrays in `examples`, a nest of them, over and over."""

    def cut(given: Any) -> Any:
        if isinstance(given, dict):
            return {name: cut(each) for name, each in given.items()}
        if isinstance(given, (list, tuple)):
            return tuple(map(cut, given))
        count = len(given) // size
        return np.reshape(given[: count * size], (count, size, *given.shape[1:]))

    return steps.feed(tf.data.Dataset.from_tensor_slices(cut(examples)).repeat())


def normal(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def integers(most: int, *shape: int) -> Any:
    return np.random.default_rng(1).integers(0, most, shape).astype(np.int32)


def train(
    loss_of: Callable[..., tf.Tensor],
    variables: Callable[[], Any],
    optimizer: Any,
    data: Iterable[tuple[Any, ...]],
    arguments: argparse.Namespace,
    clip: float | None = None,
) -> None:
    """A training loop as people write it: a `tf.function` with a GradientTape. loss_of: a batch -> the loss. variables: the trainable
    ones, asked for after the first call. clip: largest norm of all gradients."""

    @tf.function(jit_compile=arguments.xla or None)
    def train_step(*batch: Any) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_of(*batch)
        weights = variables()
        gradients = tape.gradient(loss, weights)
        if clip is not None:
            gradients, _ = tf.clip_by_global_norm(gradients, clip)
        optimizer.apply_gradients(zip(gradients, weights))
        return loss

    steps.run(train_step, data, arguments)


def infer(function: Callable[..., tf.Tensor], data: Iterable[tuple[Any, ...]], arguments: argparse.Namespace) -> None:
    """Inference: a `tf.function` whose answers are summed up."""

    @tf.function(jit_compile=arguments.xla or None)
    def answer(*batch: Any) -> tf.Tensor:
        return tf.reduce_mean(tf.cast(function(*batch), tf.float32))

    steps.run(answer, data, arguments)


def fit(
    model: Any,
    inputs: Any,
    labels: Any,
    arguments: argparse.Namespace,
    size: int,
    loss: Any,
    optimizer: Any = "adam",
    metrics: Any = None,
    weights: Any = None,
) -> None:
    """Keras' `compile` and `fit`. size: rows of a batch. weights: of the examples, or of their positions. The logged loss is
    what Keras shows: the epoch's mean so far. An epoch of a few batches would be mostly what Keras does between epochs (a fifth
    of the time was seen), so such data is repeated as a dataset."""
    model.compile(optimizer, loss, metrics=metrics, jit_compile=True if arguments.xla else None)
    with steps.step_log(arguments.log) as log:

        class Note(tf.keras.callbacks.Callback):  # type: ignore[misc]
            def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
                self.start = time.monotonic()

            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                log.note(self.start, time.monotonic() - self.start, float(logs["loss"]))
                if log.count == arguments.steps:
                    raise KeyboardInterrupt

        data: dict[str, Any] = {"x": inputs, "y": labels, "sample_weight": weights, "batch_size": size}
        if len(labels) // size < LONG_EPOCH:
            examples = (inputs, labels) if weights is None else (inputs, labels, weights)
            data = {"x": repeated(examples, size), "steps_per_epoch": LONG_EPOCH}
        model.fit(**data, epochs=ENDLESS, verbose=0, callbacks=[Note()])
