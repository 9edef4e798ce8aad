"""Transposes move behind reductions, and no result changes."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stitchfleet.compiler.ir.graph import DType, Graph, GraphBuilder
from stitchfleet.compiler.ops.attributes import integers
from stitchfleet.compiler.ops.interpreter import evaluate
from stitchfleet.compiler.ops.table import build
from stitchfleet.compiler.ops.verify import verify
from stitchfleet.compiler.passes.transposes_last import transposes_last

from ..strategies import graphs


@st.composite
def transposed_graphs(draw: st.DrawFn) -> Graph:
    """Graphs of integers, whose sums are exact in any order: transposes, broadcasts, element-wise ops and reductions."""
    builder = GraphBuilder("random")
    rank = draw(st.integers(2, 4))
    sizes = [draw(st.sampled_from((1, 2, 3, 5, 16, 17))) for _ in range(rank)]
    found: list[int] = []

    def parameter(shape: tuple[int, ...]) -> int:
        number = sum(node.op == "parameter" for node in builder.nodes)
        return build(builder, "parameter", number=number, shape=shape, dtype=DType.S32)

    found += [parameter(tuple(draw(st.permutations(sizes)))) for _ in range(draw(st.integers(1, 2)))]
    for _ in range(draw(st.integers(2, 14))):
        x = draw(st.sampled_from(found))
        shape = builder.nodes[x].shape
        axes = list(range(len(shape)))
        kind = draw(st.sampled_from(("transpose", "unary", "binary", "small", "iota", "reduce", "reshape")))
        if kind == "transpose":
            x = build(builder, "transpose", (x,), permutation=tuple(draw(st.permutations(axes))))
        elif kind == "unary":
            x = build(builder, draw(st.sampled_from(("negate", "abs"))), (x,))
        elif kind == "reshape":
            x = build(builder, "reshape", (x,), shape=(*shape, 1))
        elif kind == "reduce":
            gone = draw(st.sets(st.sampled_from(axes))) if axes else set()
            x = build(
                builder, "reduce", (x,), dimensions=tuple(sorted(gone)), kind=draw(st.sampled_from(("sum", "max")))
            )
        else:
            if kind == "iota" and axes:
                other = build(builder, "iota", shape=shape, dtype=DType.S32, dimension=draw(st.sampled_from(axes)))
            elif kind == "small":
                kept = sorted(draw(st.sets(st.sampled_from(axes)))) if axes else []
                fits = [k for k in found if builder.nodes[k].shape == tuple(shape[i] for i in kept)]
                small = draw(st.sampled_from(fits)) if fits else parameter(tuple(shape[i] for i in kept))
                other = build(builder, "broadcast", (small,), shape=shape, dimensions=tuple(kept))
            else:
                fits = [k for k in found if builder.nodes[k].shape == shape]
                other = draw(st.sampled_from(fits))
            x = build(builder, draw(st.sampled_from(("add", "subtract", "maximum"))), (x, other))
        found.append(x)
    outputs = draw(st.lists(st.sampled_from(found), min_size=1, max_size=3))
    return builder.finish(tuple(outputs))


def _check(graph: Graph, seed: int) -> None:
    moved = transposes_last(graph)
    verify(moved)
    assert [moved.nodes[i].type_text for i in moved.parameters] == [graph.nodes[i].type_text for i in graph.parameters]
    rng = np.random.default_rng(seed)
    inputs = [rng.integers(-50, 50, graph.nodes[i].shape).astype(np.int32) for i in graph.parameters]
    for before, after in zip(evaluate(graph, inputs), evaluate(moved, inputs), strict=True):
        assert before.shape == after.shape
        assert np.array_equal(before, after), f"{graph}\n{moved}"


@settings(max_examples=300, deadline=None)
@given(transposed_graphs(), st.integers(0, 2**32))
def test_no_result_changes(graph: Graph, seed: int) -> None:
    _check(graph, seed)


@settings(max_examples=100, deadline=None)
@given(graphs(max_ops=30))
def test_any_graph_stays_valid_and_keeps_the_types_of_its_outputs(graph: Graph) -> None:
    moved = transposes_last(graph)
    verify(moved)
    types = [[each.nodes[i].type_text for i in each.outputs] for each in (graph, moved)]
    assert types[0] == types[1]


def _sum_of_transposed(shape: tuple[int, ...], permutation: tuple[int, ...], axis: int) -> Graph:
    builder = GraphBuilder("sum")
    x = build(builder, "parameter", number=0, shape=shape, dtype=DType.F32)
    scale = build(builder, "parameter", number=1, shape=(shape[permutation[0]],), dtype=DType.F32)
    moved = build(builder, "transpose", (x,), permutation=permutation)
    spread = build(builder, "broadcast", (scale,), shape=builder.nodes[moved].shape, dimensions=(0,))
    product = build(builder, "multiply", (moved, spread))
    return builder.finish((build(builder, "reduce", (product,), dimensions=(axis,), kind="sum"),))


def test_a_sum_walks_its_tensor_as_it_lies_in_memory() -> None:
    moved = transposes_last(_sum_of_transposed((5, 7, 96), (2, 0, 1), 2))
    (total,) = (node for node in moved.nodes if node.op == "reduce")
    assert integers(total, "dimensions") == (1,)
    assert moved.nodes[total.operands[0]].shape == (5, 7, 96)
    assert moved.nodes[moved.outputs[0]].op == "transpose"  # of [5, 96]
    assert [node.shape for node in moved.nodes if node.op == "transpose"] == [(96, 5)]


def test_no_transpose_is_left_if_the_result_has_its_order_anyway() -> None:
    moved = transposes_last(_sum_of_transposed((5, 7, 96), (0, 2, 1), 2))
    assert not any(node.op == "transpose" for node in moved.nodes)


def test_pieces_of_a_cache_line_stay_where_they_are() -> None:
    graph = _sum_of_transposed((5, 7, 16), (1, 0, 2), 2)
    assert transposes_last(graph) is graph
    shorter = _sum_of_transposed((5, 7, 15), (1, 0, 2), 2)
    assert transposes_last(shorter) is not shorter


def test_two_tensors_in_different_orders_stay_as_they_are() -> None:
    builder = GraphBuilder("sum")
    x = build(builder, "parameter", number=0, shape=(64, 96), dtype=DType.F32)
    y = build(builder, "parameter", number=1, shape=(96, 64), dtype=DType.F32)
    both = build(builder, "add", (build(builder, "transpose", (x,), permutation=(1, 0)), y))
    graph = builder.finish((build(builder, "reduce", (both,), dimensions=(0,), kind="sum"),))
    assert transposes_last(graph) is graph
