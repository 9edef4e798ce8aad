"""What a graph goes through before its clusters are looked for."""

from __future__ import annotations

from typing import Any

import numpy as np

from .conftest import Plugin


def test_the_scratch_of_a_batch_normalization_is_handed_to_nobody(plugin: Plugin) -> None:
    """Its shape is each implementation's own, so that the guard would find a kernel's wrong."""
    import tensorflow as tf

    layer, first, last = tf.keras.layers.LayerNormalization(), tf.keras.layers.Dense(8), tf.keras.layers.Dense(1)
    x = tf.constant(np.random.default_rng(0).standard_normal([6, 8]), tf.float32)
    last(layer(first(x)))

    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(last(layer(first(x)))))
        return tape.gradient(loss, [*layer.trainable_variables, *first.trainable_variables])

    expected, actual = plugin.both(step)
    for one, other in zip(tf.nest.flatten(expected), tf.nest.flatten(actual), strict=True):
        np.testing.assert_allclose(
            other, one, rtol=1e-5, atol=1e-5
        )  # oneDNN has operators of its own outside functions
    assert plugin.graph is not None
    forward = {node.index for node in plugin.graph.nodes if node.op == "FusedBatchNormV3"}
    assert forward & {i for cluster in plugin.clusters for i in cluster.members}
    assert not [
        port for cluster in plugin.clusters for port in cluster.results if port.node in forward and port.index == 5
    ]
