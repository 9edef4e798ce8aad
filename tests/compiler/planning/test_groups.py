"""Dominants and groups as AStitch section 4.3 has them, with the guards that the paper is silent about."""

from __future__ import annotations

import pytest

from stitchfleet.compiler.ir.graph import DType, GatherDimensions, WindowDimension
from stitchfleet.compiler.planning.groups import carriers, find_candidates, find_groups
from stitchfleet.compiler.planning.plan import plan_graph
from stitchfleet.compiler.planning.schemes import Scheme
from stitchfleet.compiler.targets.targets import CPU

from ..library import Maker, adam, figure_nine


def by_op(graph_nodes: object, nodes: tuple[int, ...]) -> list[str]:
    return sorted(graph_nodes[i].op for i in nodes if graph_nodes[i].op not in ("parameter", "constant"))  # type: ignore[index]


def test_the_worked_example_has_the_papers_two_groups() -> None:
    graph = figure_nine()
    first, second = find_groups(graph)
    names = graph.nodes
    # {Pr1, Pr2, B1, A1, R1*, D1, Pw1(sub)}: connected through the shared parameter Pr2; the other broadcast is power's
    # exponent.
    assert names[first.dominant].op == "reduce"
    assert [names[i].op for i in first.sub_dominants] == ["power"]
    assert by_op(names, first.ops) == ["add", "broadcast", "broadcast", "divide", "power", "reduce"]
    # {Pr3, B2, D2, R2*, B3, M1(sub)}
    assert names[second.dominant].op == "reduce"
    assert [names[i].op for i in second.sub_dominants] == ["multiply"]
    assert by_op(names, second.ops) == ["broadcast", "broadcast", "divide", "multiply", "reduce"]


def test_on_a_cpu_all_of_the_worked_example_is_one_loop_over_rows() -> None:
    """On a GPU Pw1 and R2 are global in the figure (two grid barriers), because the groups' thread mappings differ.
    Here a row of both is one core's, so every edge is regional or local and nothing goes through memory."""
    plan = plan_graph(figure_nine())
    assert len(plan.nests) == 1
    assert len(plan.levels) == 1
    schemes = {plan.graph.nodes[i].op: plan.scheme_of(i).scheme for i in plan.candidates}
    assert schemes["reduce"] is Scheme.REGIONAL
    assert Scheme.GLOBAL not in schemes.values()
    assert not plan.placement.partial


def test_two_reductions_over_different_spaces_do_not_meet_through_a_parameter() -> None:
    m = Maker("two_spaces")
    x, v = m.parameter(8, 16), m.parameter(8)
    wide = m.reduce(m.op("multiply", x, m.spread(v, (8, 16), 0)), 1)
    narrow = m.reduce(m.op("exp", v), 0)
    graph = m.done(wide, narrow)
    assert sorted(group.dominant for group in find_groups(graph)) == sorted([wide, narrow])


def test_a_light_output_that_is_consumed_inside_cuts_nothing() -> None:
    m = Maker("light_output")
    x = m.parameter(8, 16)
    light = m.op("add", x, x)
    total = m.reduce(light, 1)
    graph = m.done(light, total)
    assert not find_candidates(graph)[light].cuts
    (group,) = find_groups(graph)
    assert group.candidates == (light, total)


def test_a_learning_rate_does_not_join_the_tensors_that_it_scales() -> None:
    graph = adam([(4, 4), (16,), (3,)])
    assert len(find_groups(graph)) == 3
    assert graph.parameters[0] not in carriers(graph)


def test_dead_code_is_in_no_group() -> None:
    m = Maker("dead")
    x, y = m.parameter(4), m.parameter(4)
    m.op("exp", y)
    graph = m.done(m.op("negate", x))
    (group,) = find_groups(graph)
    assert all(graph.nodes[i].op != "exp" for i in group.ops)


@pytest.mark.parametrize(
    ("op", "stride", "is_stored"), [("patches", 1, True), ("patches", 3, False), ("pool", 1, True)]
)
def test_what_overlapping_windows_read_is_stored(op: str, stride: int, is_stored: bool) -> None:
    """Else it is computed as often as windows read it."""
    maker = Maker("windows")
    x = maker.op("tanh", maker.parameter(4, 30, 8))
    padded = maker.op("pad", x, maker.constant(0.0), low=(0, 1, 0), high=(0, 1, 0), interior=(0, 0, 0))
    if op == "patches":
        terms = maker.op("patches", padded, dimensions=(1,), sizes=(3,), strides=(stride,), dilations=(1,))
        graph = maker.done(maker.op("reduce", terms, dimensions=(2,), kind="sum"))
    else:
        window = (WindowDimension(1), WindowDimension(3, stride), WindowDimension(1))
        graph = maker.done(maker.op("reduce_window", padded, maker.constant(0.0), window=window, kind="sum"))
    assert (x in plan_graph(graph, CPU).candidates) == is_stored


def pooled(maker: Maker, x: int, size: int, stride: int) -> int:
    window = (WindowDimension(1), WindowDimension(size, stride), WindowDimension(1))
    return maker.op("reduce_window", x, maker.constant(0.0), window=window, kind="sum")


def test_few_ops_are_computed_as_often_as_windows_read_them() -> None:
    maker = Maker("light")
    x = maker.op("negate", maker.parameter(4, 33, 8))
    graph = maker.done(pooled(maker, x, 3, 1))
    assert x not in plan_graph(graph, CPU).candidates


def test_windows_read_an_output_rather_than_what_few_ops_make_of_it() -> None:
    """It is in memory anyway."""
    maker = Maker("output")
    stored = maker.op("tanh", maker.parameter(4, 33, 8))
    x = maker.op("negate", stored)
    graph = maker.done(stored, pooled(maker, x, 3, 1))
    plan = plan_graph(graph, CPU)
    assert plan.candidates[stored].apart
    assert x not in plan.candidates


@pytest.mark.parametrize(("ops", "is_stored"), [(2, False), (6, True)])
def test_what_several_paddings_read_is_stored_if_it_takes_many_ops(ops: int, is_stored: bool) -> None:
    maker = Maker("paddings")
    x = y = maker.parameter(40, 64)
    for _ in range(ops):
        x = maker.op("multiply", x, y)
    total = x
    for low in (1, 2, 3):
        shifted = maker.op("pad", x, maker.constant(0.0), low=(low, 0), high=(-low, 0), interior=(0, 0))
        total = maker.op("add", total, shifted)
    assert (x in plan_graph(maker.done(total), CPU).candidates) == is_stored


@pytest.mark.parametrize("innermost", [True, False])
def test_what_is_broadcast_to_many_rows_is_stored_if_it_takes_many_ops(innermost: bool) -> None:
    """A number that is the same for all of a row is computed once a row."""
    maker = Maker("broadcast")
    x = y = maker.parameter(64, 64)
    for _ in range(4):
        x = maker.op("multiply", x, y)
    shape, dimensions = ((64, 8, 64), (0, 2)) if innermost else ((64, 64, 8), (0, 1))
    spread = maker.spread(x, shape, *dimensions)
    graph = maker.done(maker.op("multiply", spread, maker.parameter(*shape)))
    assert (x in plan_graph(graph, CPU).candidates) == innermost


@pytest.mark.parametrize(("parts", "times", "is_stored"), [(6, 16, True), (2, 16, False), (6, 2, False)])
def test_a_concatenation_of_many_tensors_is_stored_if_it_is_broadcast(parts: int, times: int, is_stored: bool) -> None:
    """Else each element that reads it compares as often as there are tensors, and computes an element of each."""
    maker = Maker("joined")
    joined = maker.op("concatenate", *(maker.parameter(32, 1, 8) for _ in range(parts)), dimension=1)
    turned = maker.op("transpose", joined, permutation=(2, 0, 1))
    repeated = maker.spread(turned, (8, 32, times, parts), 0, 1, 3)
    graph = maker.done(maker.op("multiply", repeated, maker.parameter(8, 32, times, parts)))
    plan = plan_graph(graph, CPU)
    assert (joined in plan.candidates) == is_stored
    assert len(plan.levels) == 1 + is_stored


@pytest.mark.parametrize("kind", ["scatter", "scan"])
@pytest.mark.parametrize(("ops", "nests", "is_stored"), [(9, 4, True), (4, 2, True), (3, 2, False), (9, 1, False)])
def test_what_several_scatters_or_scans_compute_with_is_stored(
    kind: str, ops: int, nests: int, is_stored: bool
) -> None:
    """Each has a nest of its own. The last value before they part is stored, not one before or behind it."""
    maker = Maker("lone")
    x = y = maker.parameter(96, 8)
    before = []
    for _ in range(ops):
        before.append(x)
        x = maker.op("multiply", x, y)
    zeros = maker.constant(0.0, (40, 8)) if kind == "scatter" else maker.parameter(8)
    results, scaled = [], []
    for k in range(nests):
        scaled.append(maker.op("multiply", x, maker.parameter(96, 8)))
        if kind == "scatter":
            indices = maker.parameter(96, dtype=DType.S32)
            numbers = GatherDimensions((1,), (0,), (0,), 1)
            results.append(maker.op("scatter", zeros, indices, scaled[k], scatter=numbers, kind="sum"))
        else:
            results.append(maker.op("scan", scaled[k], zeros, kind="sum", dimension=0, reverse=False, exclusive=False))
    plan = plan_graph(maker.done(*results, maker.op("negate", x)), CPU)
    assert (x in plan.candidates) == is_stored
    assert not {*before, *scaled} & set(plan.candidates)


def test_what_scatters_read_a_slice_of_each_is_not_stored() -> None:
    maker = Maker("slices")
    x = maker.parameter(96, 8)
    for _ in range(9):
        x = maker.op("multiply", x, x)
    numbers = GatherDimensions((1,), (0,), (0,), 1)
    zeros, results = maker.constant(0.0, (40, 8)), []
    for k in range(4):
        part = maker.op("slice", x, start=(24 * k, 0), limit=(24 * k + 24, 8), strides=(1, 1))
        indices = maker.parameter(24, dtype=DType.S32)
        results.append(maker.op("scatter", zeros, indices, part, scatter=numbers, kind="sum"))
    assert x not in plan_graph(maker.done(*results), CPU).candidates
