"""The function that a Stitch op falls back to is its own cluster's, however many functions a job makes and drops."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ..conftest import Plugin

ROUNDS = 40


@pytest.mark.slow
def test_functions_come_and_go(plugin: Plugin) -> None:
    import tensorflow as tf

    computations: list[Callable[[Any], Any]] = [
        lambda x: tf.tanh(x) * 2.0,
        lambda x: tf.exp(x) - 1.0,
        lambda x: tf.sqrt(tf.abs(x)) + x,
        lambda x: (x + 3.0) * x,
        lambda x: tf.maximum(x, 0.5) / 7.0,
    ]
    operand = tf.constant(np.linspace(-2, 2, 48, dtype=np.float32).reshape(6, 8))
    expected = [tf.function(compute, autograph=False)(operand).numpy() for compute in computations]
    random = np.random.default_rng(7)
    plugin.active = True
    try:
        before = plugin.stitched
        for _ in range(ROUNDS):
            for k in random.permutation(len(computations)):
                function = tf.function(computations[k], autograph=False)
                np.testing.assert_array_equal(function(operand).numpy(), expected[k])
                del function
                gc.collect(0)
        assert plugin.stitched - before >= ROUNDS * 3  # TensorFlow's own optimizers leave one operator of some
    finally:
        plugin.active = False


def test_equal_clusters_of_two_shapes_run_at_once(plugin: Plugin) -> None:
    """oneDNN's kernel of a batch normalization keeps the number of channels; two ops must not share it."""
    import tensorflow as tf

    def normalize(image: Any, zeros: Any, ones: Any) -> Any:
        found = tf.compat.v1.nn.fused_batch_norm(
            tf.sin(image), ones, zeros, mean=zeros, variance=ones, is_training=True, exponential_avg_factor=0.5
        )
        return [tf.nn.relu(found[0]) * 2.0, *found[1:]]

    rng = np.random.default_rng(0)
    images = [tf.constant(rng.standard_normal([2, 16, 16, channels]), tf.float32) for channels in (3, 120)]
    operands = [(image, tf.zeros([image.shape[-1]]), tf.ones([image.shape[-1]])) for image in images]
    expected = [[value.numpy() for value in tf.function(normalize)(*given)] for given in operands]
    functions = [tf.function(normalize) for _ in images]
    names = set()
    plugin.active = True
    try:
        for function, given in zip(functions, operands):
            function(*given)
            names.add(tuple(cluster.name for cluster in plugin.clusters))
    finally:
        plugin.active = False
    assert len(names) == 1
    wrong: list[str] = []

    def call(k: int) -> None:
        for number in range(300):
            for name, a, b in zip(("image", "mean", "variance"), expected[k], functions[k](*operands[k])):
                if not np.array_equal(a, b.numpy()):
                    wrong.append(f"call {number} of function {k}: {name}")

    threads = [threading.Thread(target=call, args=(k,)) for k in range(len(images))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[:5]
