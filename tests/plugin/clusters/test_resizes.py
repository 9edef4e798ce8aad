"""Resizes of images and their gradients in the compiled body: the positions and weights of TensorFlow's kernels."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stitchfleet.plugin.clusters.clusters import find_clusters
from stitchfleet.plugin.graph import to_hlo
from stitchfleet.plugin.graph.placed_graph import PlacedGraph

from ..conftest import Plugin

Array = np.ndarray[Any, Any]
MODES = {
    "corner": {},
    "centers": {"half_pixel_centers": True},
    "aligned": {"align_corners": True},
}
SIZES = (
    # of the image, and of the result
    ((5, 7), (10, 21)),
    ((4, 6), (13, 7)),
    ((9, 8), (4, 3)),
    ((3, 1), (1, 5)),
    ((1, 2), (3, 2)),
    ((16, 15), (49, 45)),
)
LARGE = np.float32(3e38)
"""The gradient's sum along one axis overflows where TensorFlow, which weights each term with both axes' weights, may not."""
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, LARGE, -LARGE, 1e-40], np.float32)


def resize(op: str, image: tuple[int, int], result: tuple[int, int], **mode: bool) -> Callable[[Any], Any]:
    """The operator as a function of what it reads: images, or a result's gradients."""
    import tensorflow as tf

    raw = tf.raw_ops
    return {
        "nearest": lambda x: raw.ResizeNearestNeighbor(images=x, size=result, **mode),
        "bilinear": lambda x: raw.ResizeBilinear(images=x, size=result, **mode),
        "nearest gradient": lambda x: raw.ResizeNearestNeighborGrad(grads=x, size=image, **mode),
        "bilinear gradient": lambda x: raw.ResizeBilinearGrad(
            grads=x, original_image=tf.zeros([*x.shape[:1], *image, *x.shape[3:]]), **mode
        ),
    }[op]


def body_and_operator(plugin: Plugin, compute: Callable[[Any], Any], operand: Array) -> tuple[Array, Array]:
    """What the body of the operator's cluster computes, and what TensorFlow does."""
    import tensorflow as tf

    def step(x: Any) -> Any:
        return tf.identity(compute(tf.stop_gradient(x)))

    plugin.active, plugin.clusters = True, []
    try:
        tf.function(step, autograph=False)(tf.constant(operand))
    finally:
        plugin.active = False
    (cluster,) = plugin.clusters
    assert any(op.startswith("Resize") for op in cluster.op_counts)
    assert plugin.graph is not None
    given = []
    for port in cluster.arguments:
        node = plugin.graph.nodes[port.node]
        given.append(operand if node.op == "_Arg" else tf.make_ndarray(node.proto.attr["value"].tensor))
    (value,) = tf.function(to_hlo.body_function(cluster.body), autograph=False, jit_compile=True)(*given)
    return np.asarray(value), np.asarray(tf.function(step, autograph=False)(tf.constant(operand)))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("op", ["nearest", "bilinear", "nearest gradient", "bilinear gradient"])
def test_a_body_resizes_as_tensorflow_does(plugin: Plugin, op: str, mode: str) -> None:
    rng = np.random.default_rng(7)
    for image, result in SIZES:
        compute = resize(op, image, result, **MODES[mode])
        operand = rng.standard_normal((2, *(result if "gradient" in op else image), 3), np.float32)
        value, expected = body_and_operator(plugin, compute, operand)
        assert value.dtype == expected.dtype
        assert value.shape == expected.shape
        if op == "nearest":
            np.testing.assert_array_equal(value, expected)
            continue
        if op == "bilinear":  # six roundings, at the size of the four positions
            terms, sizes = 6.0, np.abs(operand).max()
        else:  # sums round at the size of what they add
            terms, sizes = np.prod(result) / np.prod(image) + 8, body_and_operator(plugin, compute, np.abs(operand))[1]
        assert (np.abs(value - expected) <= terms * np.finfo(np.float32).eps * sizes).all()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("op", ["nearest", "bilinear", "bilinear gradient"])
def test_special_values_reach_the_positions_that_they_reach_in_tensorflow(plugin: Plugin, op: str, mode: str) -> None:
    rng = np.random.default_rng(8)
    special = SPECIAL[np.abs(SPECIAL) != LARGE] if "gradient" in op else SPECIAL
    for image, result in SIZES[:3]:
        shape = (2, *(result if "gradient" in op else image), 3)
        operand = np.where(rng.random(shape) < 0.2, rng.choice(special, shape), rng.standard_normal(shape)).astype(
            np.float32
        )
        value, expected = body_and_operator(plugin, resize(op, image, result, **MODES[mode]), operand)
        for kind in (np.isnan, np.isposinf, np.isneginf):
            np.testing.assert_array_equal(kind(value), kind(expected))


@pytest.mark.parametrize(
    ("op", "dtype"), [*itertools.product(["nearest", "bilinear"], ["uint8", "int32", "float64", "float16"])]
)
def test_images_of_other_types(plugin: Plugin, op: str, dtype: str) -> None:
    operand = (np.random.default_rng(9).standard_normal((2, 4, 6, 3)) * 50 + 100).astype(dtype)
    value, expected = body_and_operator(plugin, resize(op, (4, 6), (8, 9), half_pixel_centers=True), operand)
    assert value.dtype == expected.dtype
    np.testing.assert_allclose(value, expected, rtol=1e-6)


def test_a_batch_of_any_size_is_resized(plugin: Plugin) -> None:
    import tensorflow as tf

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            large = tf.image.resize(tf.tanh(x), [8, 10], "bilinear")
            loss = tf.reduce_sum(tf.image.resize(large, [16, 30], "nearest") ** 2)
        return tape.gradient(loss, x)

    images = tf.constant(np.random.default_rng(3).standard_normal((5, 4, 5, 2)), tf.float32)
    signature = [tf.TensorSpec([None, 4, 5, 2], tf.float32)]
    expected = tf.function(step, signature, autograph=False)(images)
    plugin.active, plugin.clusters = True, []
    try:
        given = tf.function(step, signature, autograph=False)(images)
    finally:
        plugin.active = False
    ops = {op for cluster in plugin.clusters for op in cluster.op_counts if op.startswith("Resize")}
    assert ops == {"ResizeBilinear", "ResizeBilinearGrad", "ResizeNearestNeighbor", "ResizeNearestNeighborGrad"}
    np.testing.assert_allclose(given, expected, rtol=1e-5, atol=1e-5)


def test_a_resize_of_unknown_extents_stays_and_so_does_one_that_tensorflow_refuses(plugin: Plugin) -> None:
    import tensorflow as tf

    def unknown(x: Any) -> Any:
        return tf.image.resize(tf.tanh(x) * 2.0, [8, 10])

    def planned(step: Callable[[Any], Any], spec: Any) -> dict[str, Any]:
        plugin.active = True
        try:
            tf.function(step, [spec], autograph=False)(tf.zeros([1, 4, 5, 2]))
        finally:
            plugin.active = False
        assert plugin.graph is not None
        plan = find_clusters(PlacedGraph(plugin.graph.graph), plugin.definitions, set(), remote=True)
        return plan.left_out["its extents are not known before the job runs"]

    assert set(planned(unknown, tf.TensorSpec([1, None, 5, 2]))) == {"ResizeBilinear"}
    refused = resize("nearest", (4, 5), (8, 10), half_pixel_centers=True, align_corners=True)
    with pytest.raises(tf.errors.InvalidArgumentError, match="align_corners must be False"):
        planned(lambda x: refused(tf.tanh(x) * 2.0), tf.TensorSpec([1, 4, 5, 2]))
    assert not any("ResizeNearestNeighbor" in cluster.op_counts for cluster in plugin.clusters)
