"""Max pooling and its gradient: a job's numbers stay those of its own graph until a kernel of ours runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stitchfleet.compiler.hlo.selections import MOST_TAPS
from stitchfleet.plugin.graph import pooling
from stitchfleet.plugin.versions.places import is_onednn_on

from ..conftest import Plugin


def training(size: int, stride: int, padding: str = "VALID") -> Callable[[], Any]:
    """The gradient of a pooling behind a normalization and in front of a convolution, which divides the step into two clusters."""
    import tensorflow as tf

    random = np.random.default_rng(size)
    x = tf.Variable(random.standard_normal((4, 24, 24, 16)), dtype=tf.float32)
    w = tf.constant(random.standard_normal((3, 3, 16, 8)), tf.float32)
    ones, zeros = tf.ones(16), tf.zeros(16)

    def step() -> Any:
        with tf.GradientTape() as tape:
            y, _, _ = tf.compat.v1.nn.fused_batch_norm(x * 1.5 + 0.5, ones, zeros, is_training=True)
            pooled = tf.nn.max_pool2d(tf.nn.relu(y), size, stride, padding)
            loss = tf.reduce_sum(tf.sin(tf.nn.conv2d(pooled, w, 1, "SAME")))
        return tape.gradient(loss, x)

    return step


def ops_in_clusters(plugin: Plugin) -> set[str]:
    return {op for cluster in plugin.clusters for op in cluster.op_counts}


def test_the_compiler_takes_the_windows_that_a_cluster_may_have() -> None:
    assert pooling.MOST_TAPS == MOST_TAPS


@pytest.mark.parametrize(
    ("size", "stride", "padding"), [(2, 2, "VALID"), (3, 2, "SAME"), (3, 1, "SAME"), (5, 3, "VALID")]
)
def test_a_fallback_computes_the_gradient_as_the_job_does(size: int, stride: int, padding: str, plugin: Plugin) -> None:
    """With oneDNN, the gradient of a window that overlaps another one is added up in another order without its pooling."""
    plain, stitched = plugin.both(training(size, stride, padding))
    assert {"MaxPool", "MaxPoolGrad"} <= ops_in_clusters(plugin)
    np.testing.assert_array_equal(plain[0], plain[1])
    for each in stitched:
        np.testing.assert_array_equal(each, plain[0])


def test_a_pooling_of_large_windows_stays_with_its_gradient(plugin: Plugin) -> None:
    plain, stitched = plugin.both(training(6, 1))
    kept = {"MaxPoolGrad"} | ({"MaxPool"} if is_onednn_on() else set())
    assert not kept & ops_in_clusters(plugin)
    np.testing.assert_array_equal(stitched[1], plain[0])


def test_of_a_pooling_without_gradient_large_windows_are_taken(plugin: Plugin) -> None:
    import tensorflow as tf

    x = tf.constant(np.random.default_rng(0).standard_normal((2, 12, 12, 4)), tf.float32)
    plain, stitched = plugin.both(lambda: tf.nn.max_pool2d(tf.tanh(x * 2.0), 6, 1, "VALID"))
    assert "MaxPool" in ops_in_clusters(plugin)
    np.testing.assert_array_equal(stitched[1], plain[0])
