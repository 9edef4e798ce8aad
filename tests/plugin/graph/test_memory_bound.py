"""Which matrix products count as memory-bound, and that their shapes are TensorFlow's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stitchfleet.plugin.graph import fused
from stitchfleet.plugin.graph.memory_bound import PartialShape, mark
from stitchfleet.plugin.graph.placed_graph import PlacedGraph
from stitchfleet.plugin.graph.tf_ops import MEMORY_BOUND

from ..conftest import Plugin

FLOAT, HALF = 1, 19
YES: dict[str, tuple[str, PartialShape, PartialShape, dict[str, bool]]] = {
    "outer": ("BatchMatMulV2", (16, 512, 26, 1), (16, 512, 1, 26), {}),
    "outer, both turned": ("BatchMatMulV2", (8, 1, 26), (8, 64, 1), {"adj_x": True, "adj_y": True}),
    "outer, not in a batch": ("MatMul", (512, 1), (1, 64), {}),
    "outer, turned": ("MatMul", (512, 1), (64, 1), {"transpose_b": True}),
    "outer of unknown extents": ("BatchMatMulV2", (-2, -3, 1), (-2, 1, -4), {}),
    "matrices with vectors": ("BatchMatMulV2", (128, 50, 36), (128, 36, 1), {}),
    "vectors with matrices": ("BatchMatMulV2", (128, 1, 50), (128, 50, 36), {}),
    "vectors with matrices, turned": ("BatchMatMulV2", (-2, 50, 1), (-2, 50, 36), {"adj_x": True}),
    "dots": ("BatchMatMulV2", (128, 1, 50), (128, 1, 50), {"adj_y": True}),
}
NO: dict[str, tuple[str, PartialShape | None, PartialShape | None, dict[str, bool]]] = {
    "a product": ("BatchMatMulV2", (128, 50, 36), (128, 36, 8), {}),
    "a matrix with a vector": ("MatMul", (512, 64), (64, 1), {}),
    "a batch of one": ("BatchMatMulV2", (1, 512, 64), (1, 64, 1), {}),
    "an operand for the whole batch": ("BatchMatMulV2", (128, 50, 36), (1, 36, 1), {}),
    "perhaps one for the whole batch": ("BatchMatMulV2", (-1, 50, 36), (-1, 36, 1), {}),
    "other unknown extents": ("BatchMatMulV2", (-2, 50, 1), (-3, 1, 8), {}),
    "unknown extents": ("BatchMatMulV2", (128, -2, -3), (128, -3, -4), {}),
    "an unknown rank": ("BatchMatMulV2", None, (128, 1, 1), {}),
}


EQUATIONS: dict[str, tuple[PartialShape, PartialShape, bool]] = {
    "bij,bj->bi": ((20, 17, 12), (20, 12), True),
    "bi,bj->bij": ((20, 17), (20, 12), True),
    "i,j->ij": ((17,), (12,), True),
    "bhd, bhd -> bh": ((20, 4, 64), (20, 4, 64), True),
    "aecd,abcd->acbe": ((8, 64, 4, 32), (8, 1, 4, 32), True),
    "acbe,aecd->abcd": ((8, 4, 64, 64), (8, 64, 4, 32), False),
    "ij,j->i": ((17, 12), (12,), False),
    "bij,jk->bik": ((20, 17, 12), (12, 8), False),
    "...i,...i->...": ((20, 17, 12), (20, 17, 12), False),
    "bij,bjk->bk": ((20, 1, 12), (20, 12, 8), False),
    "bii,bi->b": ((20, 4, 4), (20, 4), False),
}


@pytest.mark.parametrize("equation", EQUATIONS)
def test_an_einsum_is_judged_by_its_letters(equation: str) -> None:
    first, second, expected = EQUATIONS[equation]
    graph = product("Einsum", {})
    graph.node[0].attr["equation"].s = equation.encode()
    assert mark(graph, lambda nodes: {"product": [first, second]}) == expected


def product(op: str, attributes: dict[str, bool], dtype: int = FLOAT) -> Any:
    from tensorflow.core.framework import graph_pb2

    graph: Any = graph_pb2.GraphDef()
    node = graph.node.add(name="product", op=op, input=["a", "b"])
    node.attr["T"].type = dtype
    for name, value in attributes.items():
        node.attr[name].b = value
    return graph


@pytest.mark.parametrize("name", [*YES, *NO])
def test_a_product_with_an_extent_of_one_is_memory_bound(name: str) -> None:
    op, first, second, attributes = (YES | NO)[name]
    graph = product(op, attributes)
    assert mark(graph, lambda nodes: {"product": [first, second]}) == (name in YES)
    assert (MEMORY_BOUND in graph.node[0].attr) == (name in YES)


def attention_scores(*fused_ops: str) -> Any:
    """One query's scores in each of 32 heads, with what TensorFlow has fused onto them."""
    graph = product(fused.FUSED_BATCH, {"adj_x": False, "adj_y": True})
    (node,) = graph.node
    node.attr["fused_ops"].list.s.extend(op.encode() for op in fused_ops)
    node.attr["num_args"].i = len(fused_ops)
    node.input.extend(f"operand_{number}" for number in range(len(fused_ops)))
    for name in node.input:
        graph.node.add(name=name, op="Placeholder").attr["dtype"].type = FLOAT
    return graph


SCORES: list[PartialShape | None] = [(8, 4, 1, 64), (8, 4, 30, 64), (), (8, 1, 1, 30)]


def test_what_is_fused_onto_a_batch_is_taken_apart_and_fused_again_where_tensorflow_computes() -> None:
    graph = attention_scores("Mul", "Add")
    before = graph.node[0].SerializeToString(deterministic=True)
    assert mark(graph, lambda nodes: {"product": SCORES}) == 1
    parts = {node.name: node for node in graph.node if node.op != "Placeholder"}
    assert [node.op for node in parts.values()] == ["AddV2", "BatchMatMulV2", "Mul"]
    batch = parts["product/stitchfleet_product"]
    assert batch.attr[MEMORY_BOUND].b
    assert (batch.attr["adj_x"].b, batch.attr["adj_y"].b) == (False, True)
    (found,) = fused.find(PlacedGraph(graph), range(len(graph.node)))
    assert [PlacedGraph(graph).nodes[port.node].name for port in found.inputs] == ["a", "b", "operand_0", "operand_1"]
    assert fused.restore(graph) == 1
    (restored,) = (node for node in graph.node if node.op == fused.FUSED_BATCH)
    assert restored.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize(
    ("fused_ops", "shapes"),
    [
        (("Mul", "Novel"), SCORES),
        (("Mul", "Add"), [(8, 4, 30, 64), (8, 4, 30, 64), (), (8, 1, 1, 30)]),
        (("Mul", "Add"), [None, *SCORES[1:]]),
        (("Mul",), []),
    ],
)
def test_other_batches_stay_whole(fused_ops: tuple[str, ...], shapes: list[PartialShape | None]) -> None:
    graph = attention_scores(*fused_ops)
    before = graph.SerializeToString(deterministic=True)
    assert mark(graph, lambda nodes: {"product": shapes}) == 0
    assert graph.SerializeToString(deterministic=True) == before


def test_only_floats_whose_sums_are_floats_are_taken_and_nothing_is_asked_for_other_graphs() -> None:
    operands = {"product": [(8, 26, 1), (8, 1, 26)]}
    assert mark(product("BatchMatMulV2", {}, HALF), lambda nodes: operands) == 0
    assert mark(product("Conv2D", {}), lambda nodes: pytest.fail("no product")) == 0
    assert mark(product("BatchMatMulV2", {}), lambda nodes: {}) == 0  # TensorFlow could not infer the shapes


PRODUCTS: dict[str, tuple[Any, tuple[int, ...], tuple[int, ...]]] = {
    "outer": (lambda tf, x, y: tf.matmul(x, y), (6, 5, 7, 1), (6, 5, 1, 9)),
    "outer, turned": (lambda tf, x, y: tf.matmul(x, y, transpose_a=True, transpose_b=True), (30, 1, 7), (30, 9, 1)),
    "outer, not in a batch": (lambda tf, x, y: tf.matmul(x, y), (70, 1), (1, 30)),
    "matrices with vectors": (lambda tf, x, y: tf.matmul(x, y), (20, 17, 12), (20, 12, 1)),
    "vectors with matrices": (lambda tf, x, y: tf.matmul(x, y), (20, 1, 17), (20, 17, 12)),
    "dots": (lambda tf, x, y: tf.matmul(x, y, transpose_b=True), (20, 1, 40), (20, 1, 40)),
    "with a scale and a mask": (
        lambda tf, x, y: (
            tf.matmul(x, y) * 0.25 + tf.constant(np.linspace(-1, 1, 60, dtype=np.float32).reshape(5, 1, 1, 12))
        ),
        (5, 4, 1, 17),
        (5, 4, 17, 12),
    ),
    "an einsum": (lambda tf, x, y: tf.einsum("bij,bj->bi", x, y), (20, 17, 12), (20, 12)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_memory_bound_product_is_in_a_cluster_with_its_neighbours(plugin: Plugin, name: str) -> None:
    import tensorflow as tf

    compute, first, second = PRODUCTS[name]
    rng = np.random.default_rng(3)
    x, y = (tf.Variable(rng.standard_normal(shape).astype(np.float32)) for shape in (first, second))
    plain, stitched = plugin.both(lambda: tf.tanh(compute(tf, tf.sin(x), tf.cos(y))) * 2.0)
    (cluster,) = plugin.clusters
    assert plugin.graph is not None
    ops = {plugin.graph.nodes[i].op for i in cluster.members}
    assert {"Sin", "Cos", "Tanh"} < ops
    assert ops & {"MatMul", "BatchMatMulV2", "Einsum"}
    assert all(np.array_equal(a, b) for a, b in zip(plain, stitched, strict=True))  # the fallback, so TensorFlow's own


def test_a_product_stays_outside(plugin: Plugin) -> None:
    import tensorflow as tf

    x = tf.Variable(np.ones((20, 8, 12), np.float32))
    plugin.both(lambda: tf.tanh(tf.matmul(tf.sin(x), tf.cos(x), transpose_b=True)) * 2.0)
    assert plugin.graph is not None
    assert not any(plugin.graph.nodes[i].op == "BatchMatMulV2" for c in plugin.clusters for i in c.members)


@pytest.mark.parametrize(("stride", "multiplier"), [(1, 1), (2, 3)])
def test_depthwise_convolutions_and_their_gradients_are_in_clusters(
    plugin: Plugin, stride: int, multiplier: int
) -> None:
    import tensorflow as tf

    rng = np.random.default_rng(3)
    x, w = (tf.constant(rng.standard_normal(s).astype(np.float32)) for s in ((2, 9, 8, 6), (3, 3, 6, multiplier)))

    def step() -> Any:
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            y = tf.nn.depthwise_conv2d(tf.sin(x), tf.tanh(w), [1, stride, stride, 1], "SAME")
            loss = tf.reduce_sum(tf.sin(y))
        return tape.gradient(loss, [x, w])

    plain, stitched = plugin.both(step)
    assert plugin.graph is not None
    ops = {plugin.graph.nodes[i].op for cluster in plugin.clusters for i in cluster.members}
    name = "DepthwiseConv2dNative"
    assert {name, f"{name}BackpropInput", f"{name}BackpropFilter"} <= ops
    for one, other in zip(tf.nest.flatten(plain), tf.nest.flatten(stitched), strict=True):
        assert np.array_equal(one, other)  # the fallback, so TensorFlow's own
