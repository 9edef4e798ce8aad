"""What a transpose moves is stored in order first, if the loops would read several tensors across memory."""

from __future__ import annotations

import pytest

from stitchfleet.compiler.ir.graph import DType, Graph
from stitchfleet.compiler.planning.execution import Mode
from stitchfleet.compiler.planning.plan import plan_graph
from stitchfleet.compiler.targets.targets import CPU, V100, Target

from ..library import Maker
from ..native import complaints

REVERSED = (2, 1, 0)


def softmax_of(
    shape: tuple[int, ...], axis: int, before: bool = False, after: bool = False, dtype: DType = DType.F32
) -> Graph:
    """A softmax along a dimension, of a transposed tensor or with a transposed result."""
    m = Maker(f"softmax_{'x'.join(map(str, shape))}_{axis}_{before}_{after}_{dtype.value}")
    x = m.parameter(*(shape[::-1] if before else shape), dtype=dtype)
    x = m.op("transpose", x, permutation=REVERSED) if before else x
    kept = [i for i in range(3) if i != axis]
    e = m.op("exp", m.op("subtract", x, m.spread(m.reduce(x, axis, kind="max"), shape, *kept)))
    y = m.op("divide", e, m.spread(m.reduce(e, axis), shape, *kept))
    return m.done(m.op("transpose", y, permutation=REVERSED) if after else y)


def gradient_of(shape: tuple[int, ...], axis: int, before: bool = False, after: bool = False) -> Graph:
    """A softmax's gradient, from two tensors."""
    m = Maker(f"gradient_{'x'.join(map(str, shape))}_{axis}_{before}_{after}")
    y, above = (m.parameter(*(shape[::-1] if before else shape)) for _ in range(2))
    if before:
        y, above = (m.op("transpose", each, permutation=REVERSED) for each in (y, above))
    total = m.spread(m.reduce(m.op("multiply", y, above), axis), shape, *(i for i in range(3) if i != axis))
    result = m.op("multiply", y, m.op("subtract", above, total))
    return m.done(m.op("transpose", result, permutation=REVERSED) if after else result)


def sum_of_orders(*orders: tuple[int, ...]) -> Graph:
    """The sum of a tensor and of some whose dimensions are in another order in memory."""
    shape = (32, 48, 64)
    m = Maker("orders")
    total = m.parameter(*shape)
    for order in orders:
        other = m.parameter(*(shape[order.index(i)] for i in range(3)))
        total = m.op("add", total, m.op("transpose", other, permutation=order))
    return m.done(total)


def _is_stored_first(graph: Graph, target: Target = CPU) -> bool:
    plan = plan_graph(graph, target)
    return any(candidate.reason.startswith("loops that read it across") for candidate in plan.candidates.values())


def test_a_transposed_result_of_several_tensors_is_stored_in_order_and_moved_by_a_nest_of_its_own() -> None:
    plan = plan_graph(gradient_of((32, 64, 96), 2, after=True))
    assert [execution.mode for execution in plan.executions] == [Mode.ROWS, Mode.SQUARES]
    (_, moving) = plan.nests
    assert moving.reads == {plan.nests[0].placed[-1][0].node}
    assert len(plan.intermediates) == 1  # neither the sums nor anything else


@pytest.mark.parametrize("axis", range(3))
def test_so_are_tensors_that_are_transposed_before(axis: int) -> None:
    assert _is_stored_first(gradient_of((32, 64, 96), axis, before=True))


def test_one_tensor_that_is_read_across_memory_is_not_stored_first() -> None:
    assert not _is_stored_first(sum_of_orders((2, 1, 0)))
    assert not _is_stored_first(softmax_of((32, 64, 96), 2))


def test_small_tensors_are_not_stored_first() -> None:
    assert _is_stored_first(gradient_of((16, 32, 32), 2, after=True))
    assert not _is_stored_first(gradient_of((16, 16, 32), 2, after=True))


def test_a_gpu_has_tiles_for_them() -> None:
    assert not _is_stored_first(gradient_of((32, 64, 96), 2, after=True), V100)


def test_the_results_are_right() -> None:
    graphs = [
        make(shape, axis, **where)
        for shape in ((32, 64, 48), (17, 33, 65))
        for axis in range(3)
        for make in (softmax_of, gradient_of)
        for where in ({"before": True}, {"after": True}, {"before": True, "after": True})
    ]
    graphs += [softmax_of((24, 48, 40), 1, after=True, dtype=DType.F64), sum_of_orders((2, 1, 0), (1, 0, 2), (2, 0, 1))]
    assert sum(map(_is_stored_first, graphs)) > len(graphs) / 3
    assert complaints(graphs) == []
