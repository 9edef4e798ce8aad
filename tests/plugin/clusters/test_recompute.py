"""What one cluster computes again instead of reading it from another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stitchfleet.plugin.clusters import recompute
from stitchfleet.plugin.clusters.clusters import Cluster, find_clusters

from ..conftest import Plugin

ROWS, WIDTH = 6, 8


def network(activation: Any) -> Any:
    """A training step: product, activation, product; its gradients by both products' weights."""
    import tensorflow as tf

    rng = np.random.default_rng(3)
    first, second, bias = (
        tf.constant(rng.normal(size=shape).astype(np.float32)) for shape in ([WIDTH, WIDTH], [WIDTH, WIDTH], [WIDTH])
    )

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([first, second])
            hidden = activation(tf.nn.bias_add(tf.matmul(x, first), bias))
            loss = tf.reduce_sum(tf.square(tf.matmul(hidden, second)))
        return tape.gradient(loss, [first, second])

    return step


def run(plugin: Plugin, step: Any) -> tuple[list[Any], list[Any]]:
    import tensorflow as tf

    x = tf.constant(np.random.default_rng(4).normal(size=[ROWS, WIDTH]).astype(np.float32))
    (expected,), (actual,) = plugin.both(lambda: step(x), times=1)
    return expected, actual


def copied(cluster: Cluster) -> set[int]:
    return set(cluster.order) - set(cluster.members)


def gelu(x: Any) -> Any:
    import tensorflow as tf

    return tf.nn.gelu(x)


def normalized(x: Any) -> Any:
    import tensorflow as tf

    return tf.tanh(x - tf.reduce_mean(x, axis=-1, keepdims=True))


def test_gelus_gradient_computes_again_what_gelu_would_have_to_write(plugin: Plugin) -> None:
    expected, actual = run(plugin, network(gelu))
    np.testing.assert_array_equal(actual, expected)
    backward = next(cluster for cluster in plugin.clusters if copied(cluster))
    (error_function,) = backward.op_counts.keys() & {"Erf", "Erfc"}
    forward = next(
        cluster for cluster in plugin.clusters if cluster.op_counts.get(error_function) and not copied(cluster)
    )
    assert forward.name.startswith("gelu_")
    assert len(forward.results) == 1
    assert backward.op_counts[error_function] == 1
    assert not set(forward.results) & set(backward.arguments)


def peaked(x: Any) -> Any:
    import tensorflow as tf

    t = tf.tanh(x)
    return t * tf.exp(t * 0.5) * tf.sin(x) - tf.reduce_max(t, axis=-1, keepdims=True)


@pytest.mark.parametrize("careless", [False, True])
def test_what_is_compared_with_the_largest_is_not_computed_again(
    plugin: Plugin, careless: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tanh in another loop may differ in the last bit: then no element equals the maximum, and its gradient would be lost."""
    if careless:  # to see that such copies would be made
        monkeypatch.setattr(recompute, "_is_put_to_continuous_use", lambda *_: True)
    expected, actual = run(plugin, network(peaked))
    np.testing.assert_array_equal(actual, expected)
    assert plugin.graph is not None
    compared = [cluster for cluster in plugin.clusters if cluster.op_counts.get("Equal")]
    assert compared
    copies = {plugin.graph.nodes[i].op for cluster in compared for i in copied(cluster)}
    assert ("Tanh" in copies) is careless


def test_what_hangs_on_a_sum_is_handed_over(plugin: Plugin) -> None:
    expected, actual = run(plugin, network(normalized))
    np.testing.assert_array_equal(actual, expected)
    assert not any(copied(cluster) for cluster in plugin.clusters)


@pytest.mark.parametrize("excluded", [False, True])
def test_a_cluster_that_is_left_out_computes_nothing_again(plugin: Plugin, excluded: bool) -> None:
    run(plugin, network(gelu))
    assert plugin.graph is not None
    names = {cluster.name for cluster in plugin.clusters if copied(cluster)}
    again = find_clusters(
        plugin.graph, plugin.definitions, set(), remote=True, is_excluded=lambda name: excluded and name in names
    )
    assert any(copied(cluster) for cluster in again.clusters) is not excluded
    handed_over = {port for cluster in again.clusters for port in cluster.results}
    members = {i for cluster in again.clusters for i in cluster.members}
    for cluster in again.clusters:
        assert all(port in handed_over for port in cluster.arguments if port.node in members)


def test_copies_in_a_branch(plugin: Plugin) -> None:
    """A branch that is not taken is dead, with its copies, and nobody else waits for them."""
    import tensorflow as tf

    def step(x: Any) -> Any:
        def taken() -> Any:
            hidden = tf.nn.gelu(tf.matmul(x, tf.ones([WIDTH, WIDTH])))
            return tf.gradients(tf.square(tf.matmul(hidden, tf.ones([WIDTH, WIDTH]))), x)[0]

        return (tf.cond(tf.reduce_sum(x) > 0.0, taken, lambda: x * 2.0 - 1.0),)

    expected, actual = run(plugin, step)
    np.testing.assert_array_equal(actual, expected)
    assert any(copied(cluster) for cluster in plugin.clusters)
