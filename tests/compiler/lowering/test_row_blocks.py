"""Rows in blocks of which each pass is done before the next one begins: normalizations and softmaxes of short rows."""

from __future__ import annotations

import numpy as np
import pytest

from stitchfleet.compiler.check.random_inputs import Regime, random_inputs
from stitchfleet.compiler.explaining.words import explain
from stitchfleet.compiler.ir.graph import DType, Graph
from stitchfleet.compiler.planning import execution
from stitchfleet.compiler.planning.plan import plan_graph
from stitchfleet.compiler.targets.targets import CPU, V100, CpuTarget, Target

from ...marks import slow
from ..library import Maker, layer_norm, layer_norm_gradient, softmax
from ..native import STRESS, build_all, complaints

LENGTHS, ROWS = (32, 33, 47, 64, 100), (64, 203, 1000)
"""Rows of whole vectors and others; rows that are left after the last whole block or task."""


def masked(rows: int, length: int) -> Graph:
    """A softmax whose result is also added up over rows, with a number for each row."""
    m, shape = Maker(f"masked_{rows}x{length}"), (rows, length)
    x = m.op("multiply", m.parameter(*shape), m.spread(m.op("tanh", m.parameter(rows)), shape, 0))
    e = m.op("exp", m.op("subtract", x, m.spread(m.reduce(x, 1, kind="max"), shape, 0)))
    y = m.op("divide", e, m.spread(m.reduce(e, 1), shape, 0))
    return m.done(y, m.reduce(y, 0))


def scaled_to_range(rows: int, length: int) -> Graph:
    """The smallest and the largest element come from one loop; as numbers of 16 bits each is rounded when its lanes are combined."""
    m, shape = Maker(f"scaled_to_range_{rows}x{length}"), (rows, length)
    x = m.parameter(*shape, dtype=DType.BF16)
    low, high = (m.spread(m.reduce(x, 1, kind=kind), shape, 0) for kind in ("min", "max"))
    return m.done(m.op("divide", m.op("subtract", x, low), m.op("subtract", high, low)))


GRAPHS = [
    make(rows, length)
    for make in (layer_norm, layer_norm_gradient, softmax, masked, scaled_to_range)
    for length in LENGTHS
    for rows in ROWS
]


def _together(graph: Graph, target: Target = CPU) -> int:
    return max(each.passes_together for each in plan_graph(graph, target).executions)


@pytest.mark.parametrize("target", [CPU, slow(STRESS)], ids=lambda target: target.name)
def test_all_results_are_right(target: CpuTarget) -> None:
    assert complaints(GRAPHS, target) == []


def test_short_rows_of_several_sums_do_each_pass_for_a_block_of_rows() -> None:
    assert {_together(graph) for graph in (softmax(1000, 64), layer_norm(1000, 100), scaled_to_range(1000, 100))} == {
        execution.PASSES_TOGETHER
    }
    long = [softmax(1000, 65), layer_norm(1000, 101), layer_norm(16, 64), softmax(20_000, 64)]
    assert [_together(graph) for graph in long] == [1] * len(long)
    assert _together(softmax(1000, 64), V100) == 1


def test_a_plan_says_so() -> None:
    assert "each loop over a row runs for 8 rows" in explain(plan_graph(softmax(1000, 64)))


def test_one_sum_is_waited_for() -> None:
    m, shape = Maker("one_sum"), (1000, 64)
    y, above = m.parameter(*shape), m.parameter(*shape)
    total = m.spread(m.reduce(m.op("multiply", y, above), 1), shape, 0)
    assert _together(m.done(m.op("multiply", y, m.op("subtract", above, total)))) == 1


def test_the_results_are_those_of_one_row_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = [make(203, 47) for make in (layer_norm, softmax)]  # no sums over rows: those follow the tasks

    def results() -> list[np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
        given = [random_inputs(graph, np.random.default_rng(1), Regime.UNIT) for graph in graphs]
        return [
            output for one, inputs in zip(build_all(graphs), given, strict=True) for output in one.load().run(inputs)
        ]

    in_blocks = results()
    monkeypatch.setattr(execution, "passes_together", lambda *_: 1)
    assert all(np.array_equal(one, other) for one, other in zip(in_blocks, results(), strict=True))
