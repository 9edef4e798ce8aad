"""Positions of extremes of rows are two reductions where that gives the same, and stay one where it might not."""

from __future__ import annotations

import numpy as np
import pytest

from stitchfleet.compiler.check.random_inputs import Regime
from stitchfleet.compiler.ir.graph import DType, Graph, GraphBuilder, Literal
from stitchfleet.compiler.ops.reference import reduce_identity
from stitchfleet.compiler.ops.table import build
from stitchfleet.compiler.passes.simplify import simplify
from stitchfleet.compiler.planning.plan import plan_graph
from stitchfleet.compiler.planning.searches import NO_POSITION, searches_as_reductions
from stitchfleet.compiler.targets.targets import CPU, H200, Target

from ...marks import slow
from ..native import STRESS, build_all, complaint
from ..strategies import argmax_body

LENGTHS = (1, 2, 5, 8, 12, 16, 21, 24, 31, 32, 33, 40, 63, 64, 100, 127, 128, 1000, 30_000)


def search(
    length: int,
    *,
    largest: bool = True,
    value: DType = DType.F32,
    position: DType = DType.S32,
    ordered: bool = True,
    dimension: int = 1,
    results: tuple[int, ...] = (1,),
    first_position: int = 0,
    body: Graph | None = None,
    rows: int = 6,
) -> Graph:
    """The position of the extreme of each row. ordered: of select(x > -1000, x, -1000), in which no element is NaN."""
    builder = GraphBuilder("search")
    shape = (rows, length) if dimension == 1 else (length, rows)
    x = build(builder, "parameter", number=0, shape=shape, dtype=value)
    if ordered:
        limit = np.array(-1000 if largest else 1000).astype(value.numpy)
        worst = build(builder, "constant", literal=Literal(limit))
        beside = build(builder, "broadcast", (worst,), shape=shape, dimensions=())
        better = build(builder, "compare", (x, beside), direction="GT" if largest else "LT", total_order=False)
        x = build(builder, "select", (better, x, beside))
    places = build(builder, "iota", shape=shape, dtype=position, dimension=dimension)
    start = build(builder, "constant", literal=Literal(reduce_identity("max" if largest else "min", value)))
    first = build(builder, "constant", literal=Literal(np.array(first_position).astype(position.numpy)))
    operands, region = (x, places, start, first), body or argmax_body(value, position, largest)
    found = [
        build(builder, "reduce_general", operands, dimensions=(dimension,), body=region, result=result)
        for result in results
    ]
    return simplify(builder.finish(found))


def becomes_two(graph: Graph, target: Target = CPU) -> bool:
    return "reduce_general" not in [node.op for node in searches_as_reductions(graph, target).nodes]


@pytest.mark.parametrize("target", [CPU, slow(STRESS)], ids=lambda target: target.name)
def test_the_positions_are_the_oracles(target: Target) -> None:
    graphs = [search(length, largest=largest) for length in LENGTHS for largest in (True, False)]
    graphs += [search(37, value=value, position=DType.S64) for value in (DType.F64, DType.BF16, DType.F16)]
    graphs += [search(70, value=value, ordered=False) for value in (DType.S32, DType.U8, DType.S64)]
    assert all(map(becomes_two, graphs))
    for number, built in enumerate(build_all(graphs, target)):
        assert "reduce_general" not in [node.op for node in plan_graph(built.graph, target).graph.nodes]
        for regime in (Regime.NORMAL, Regime.SPECIAL, Regime.HUGE):
            assert complaint(built, regime, seed=number) is None, built.graph.name


def test_of_equal_elements_the_first_is_found() -> None:
    """Both zeros, NaN and infinities among them, and rows in which nothing is better than what the search starts from."""
    graphs = [search(length) for length in LENGTHS]
    draw = np.random.default_rng(0)
    for built in build_all(graphs):
        length = built.graph.nodes[0].shape[1]
        x = draw.choice(np.array([-1e30, -1.0, -0.0, 0.0, 2.0, np.nan], np.float32), (6, length))
        x[0], x[1] = -np.inf, np.nan  # none is larger than the limit
        (found,) = built.load().run([x])
        with np.errstate(invalid="ignore"):
            ordered = np.where(x > -1000, x, np.float32(-1000))
        np.testing.assert_array_equal(found, ordered.argmax(1))


def test_what_is_read_again_by_a_function_is_found_again() -> None:
    """The second reduction reads what was computed for the first, or computes it again, to the bit: else no element would equal the
    extreme."""
    for length in (24, 100, 50_000):  # a row that is kept, and one that is too long
        builder = GraphBuilder("of a function")
        x = build(builder, "parameter", number=0, shape=(3, length), dtype=DType.F32)
        power = build(builder, "tanh", (build(builder, "exp", (x,)),))
        least = build(builder, "constant", literal=Literal(np.array(-1, np.float32)))
        none = build(builder, "broadcast", (least,), shape=(3, length), dimensions=())
        is_more = build(builder, "compare", (power, none), direction="GT", total_order=False)
        x = build(builder, "select", (is_more, power, none))
        places = build(builder, "iota", shape=(3, length), dtype=DType.S32, dimension=1)
        starts = np.array(-np.inf, np.float32), np.array(0, np.int32)
        start, first = (build(builder, "constant", literal=Literal(value)) for value in starts)
        body = argmax_body(DType.F32, DType.S32, True)
        found = build(builder, "reduce_general", (x, places, start, first), dimensions=(1,), body=body, result=1)
        graph = builder.finish((found, x))
        (built,) = build_all([graph])
        assert becomes_two(graph)
        values = np.random.default_rng(length).normal(-3, 1, (3, length)).astype(np.float32)
        positions, computed = built.load().run([values])
        np.testing.assert_array_equal(positions, computed.argmax(1))


def last_of_equals() -> Graph:
    builder = GraphBuilder("last")
    numbered = enumerate((DType.F32, DType.S32, DType.F32, DType.S32))
    a, i, b, j = (build(builder, "parameter", number=number, shape=(), dtype=dtype) for number, dtype in numbered)
    larger = build(builder, "compare", (a, b), direction="GT", total_order=False)
    return builder.finish((build(builder, "select", (larger, a, b)), build(builder, "select", (larger, i, j))))


@pytest.mark.parametrize(
    "graph",
    [
        search(40, ordered=False),  # one may be NaN
        search(40, dimension=0),
        search(40, results=(0, 1)),
        search(40, first_position=7),
        search(40, body=last_of_equals()),
        search(40, body=argmax_body(DType.F32, DType.S32, False)),  # the smallest, from minus infinity
    ],
)
def test_what_is_not_the_same_stays(graph: Graph) -> None:
    assert searches_as_reductions(graph, CPU) == graph


def test_a_gpus_graph_stays() -> None:
    assert not becomes_two(search(40), H200)


def test_no_position_is_behind_all_of_them() -> None:
    assert 30_000 < NO_POSITION < reduce_identity("min", DType.S32)
