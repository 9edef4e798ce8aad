"""Small products in loops are in clusters, with what TensorFlow has fused onto them; others stay, and so do TensorFlow's numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stitchfleet.compiler.hlo.small_products import FOR_ANY_ROWS, FOR_SOME_ROWS, MOST_TERMS, is_small
from stitchfleet.plugin.base.settings import read_settings
from stitchfleet.plugin.graph import fused
from stitchfleet.plugin.graph.memory_bound import PartialShape
from stitchfleet.plugin.graph.placed_graph import PlacedGraph
from stitchfleet.plugin.graph.small_products import mark
from stitchfleet.plugin.graph.tf_ops import MEMORY_BOUND

from ..conftest import Plugin

FLOAT, HALF = 1, 19
GPU = "/job:localhost/replica:0/task:0/device:GPU:0"


def test_a_product_is_small_if_its_right_factor_stays_in_a_cache() -> None:
    assert is_small(None, 64, FOR_ANY_ROWS // 64)
    assert is_small(1 << 20, 64, FOR_ANY_ROWS // 64)
    assert not is_small(None, 65, FOR_ANY_ROWS // 64)
    assert is_small(MOST_TERMS // FOR_SOME_ROWS, 256, FOR_SOME_ROWS // 256)
    assert not is_small(MOST_TERMS // FOR_SOME_ROWS + 1, 256, FOR_SOME_ROWS // 256)
    assert not is_small(2, 257, FOR_SOME_ROWS // 256)


def test_a_single_row_s_product_may_have_a_large_matrix() -> None:
    assert is_small(1, 768, 1024)
    assert not is_small(1, 1 << 11, (1 << 10) + 1)


def loop_with(op: str = "MatMul", dtype: int = FLOAT, device: str = "/device:CPU:0", **flags: bool) -> Any:
    """A GraphDef with a product in a loop's frame."""
    from tensorflow.core.framework import graph_pb2

    graph: Any = graph_pb2.GraphDef()
    for name in ("x", "w"):
        graph.node.add(name=name, op="Placeholder", device=device)
        enter = graph.node.add(name=f"enter_{name}", op="Enter", input=[name], device=device)
        enter.attr["frame_name"].s = b"loop"
    node = graph.node.add(name="product", op=op, input=["enter_x", "enter_w"], device=device)
    node.attr["T"].type = dtype
    for name, value in {"transpose_a": False, "transpose_b": False, **flags}.items():
        node.attr[name].b = value
    return graph


def is_marked(graph: Any, first: PartialShape | None = (-1, 36), second: PartialShape | None = (36, 72)) -> bool:
    count = mark(graph, lambda names: {"product": [first, second]})
    assert [node.op for node in graph.node if MEMORY_BOUND in node.attr] == ["MatMul"] * count
    return bool(count)


def test_which_products_are_taken() -> None:
    assert is_marked(loop_with())
    assert is_marked(loop_with(transpose_b=True), (-1, 36), (72, 36))
    assert is_marked(loop_with(), (16, 256), (256, 256))
    assert not is_marked(loop_with(), (-1, 256), (256, 256))
    assert not is_marked(loop_with(), (64, 512), (512, 512))
    assert not is_marked(loop_with(), None, (36, 72))
    assert not is_marked(loop_with(), (-1, 36), (36, -2))
    assert not is_marked(loop_with(transpose_a=True), (36, -1), (36, 72))
    assert not is_marked(loop_with(dtype=HALF))
    assert not is_marked(loop_with(device=GPU))
    outside = loop_with()
    outside.node[-1].input[:] = ["x", "w"]
    assert not is_marked(outside)
    assert mark(outside, lambda names: {"product": [(-1, 36), (36, 72)]}, everywhere=True) == 1


def with_fused(*ops: str) -> Any:
    graph = loop_with("_FusedMatMul")
    graph.node[-1].attr["fused_ops"].list.s.extend(op.encode() for op in ops)
    for op in ops:
        if op in ("BiasAdd", "Add"):
            graph.node.add(name=f"side_{op}", op="Placeholder")
            graph.node[4].input.append(f"side_{op}")
    return graph


def test_what_is_fused_onto_a_product_is_taken_apart_and_fused_again_where_tensorflow_computes() -> None:
    graph = with_fused("BiasAdd", "Tanh")
    before = graph.node[4].SerializeToString(deterministic=True)
    assert is_marked(graph)
    ops = {node.name: node.op for node in graph.node}
    assert ops["product"] == "Tanh"
    assert sorted(op for op in ops.values() if op not in ("Placeholder", "Enter")) == ["BiasAdd", "MatMul", "Tanh"]
    (found,) = fused.find(PlacedGraph(graph), range(len(graph.node)))
    assert [PlacedGraph(graph).nodes[port.node].name for port in found.inputs] == ["enter_x", "enter_w", "side_BiasAdd"]
    assert fused.restore(graph) == 1
    (restored,) = (node for node in graph.node if node.op == "_FusedMatMul")
    assert restored.SerializeToString(deterministic=True) == before


def test_a_product_with_something_unknown_on_it_stays_whole() -> None:
    graph = with_fused("BiasAdd", "Novel")
    assert not is_marked(graph)
    assert [node.op for node in graph.node if node.name == "product"] == ["_FusedMatMul"]


@pytest.mark.parametrize("layer", ["GRU", "LSTM", "SimpleRNN"])
def test_an_iteration_of_a_recurrent_layer_is_one_kernel_with_its_product(plugin: Plugin, layer: str) -> None:
    import tensorflow as tf

    tf.keras.utils.set_random_seed(1)
    model = getattr(tf.keras.layers, layer)(24)
    x = tf.constant(np.random.default_rng(2).standard_normal((5, 7, 12)).astype(np.float32))
    model(x)
    plain, stitched = plugin.both(lambda: model(x))
    assert plugin.graph is not None
    with_products = [c for c in plugin.clusters if any(plugin.graph.nodes[i].op == "MatMul" for i in c.members)]
    assert len(with_products) == 1
    # The first calls are the fallback's: TensorFlow's own kernels, the fused ones among them.
    assert all(np.array_equal(one, other) for one, other in zip(plain, stitched, strict=True))


@pytest.mark.parametrize(
    ("given", "in_kernels"), [("0", (0, 0)), ("loops", (1, 0)), ("all", (1, 1)), ("some", (1, 0))], ids=str
)
def test_the_setting_says_which_products_are_in_kernels(
    plugin: Plugin, monkeypatch: pytest.MonkeyPatch, given: str, in_kernels: tuple[int, int]
) -> None:
    """One product in a loop, one after it."""
    import tensorflow as tf

    from .. import conftest

    complaints: list[str] = []
    settings = read_settings({"STITCHFLEET_PRODUCTS": given}, complaints.append)
    expected = "STITCHFLEET_PRODUCTS='some' is none of 0, loops, all; the default is used"
    assert complaints == ([expected] if given == "some" else [])
    original = conftest.prepare
    monkeypatch.setattr(conftest, "prepare", lambda *words: original(*words, settings.products))
    w, v = (tf.Variable(np.random.default_rng(seed).standard_normal((24, 24)).astype(np.float32)) for seed in (1, 2))

    def step() -> Any:
        state = tf.ones([5, 24])
        for _ in tf.range(3):
            state = tf.tanh(tf.matmul(tf.sin(state), w) * 0.5)
        return tf.tanh(tf.matmul(tf.cos(state), v) * 0.5)

    plain, stitched = plugin.both(step)
    assert plugin.graph is not None
    taken = [name for c in plugin.clusters for i in c.members if "MatMul" in (name := plugin.graph.nodes[i].op)]
    assert len(taken) == sum(in_kernels)
    assert all(np.array_equal(one, other) for one, other in zip(plain, stitched, strict=True))
