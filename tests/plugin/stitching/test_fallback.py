"""The function that a Stitch op falls back to is its own cluster's, however many functions a job makes and drops."""

from __future__ import annotations

import gc
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
