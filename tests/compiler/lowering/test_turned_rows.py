"""Nests that read a tensor across memory copy it, transposed, block by block: reductions, normalizations and sums of tensors in
different orders, of even and of awkward extents."""

from __future__ import annotations

import ctypes
import itertools
from pathlib import Path

import numpy as np
import pytest

from stitchfleet.compiler.codegen.cpu.kernel_text import render
from stitchfleet.compiler.ir.graph import DType, GatherDimensions, Graph
from stitchfleet.compiler.loops.loops import Turn, walk
from stitchfleet.compiler.lowering.kernel_loops import lower
from stitchfleet.compiler.planning.plan import plan_graph
from stitchfleet.compiler.targets.targets import CPU, CpuTarget

from ...marks import slow
from ..library import Maker
from ..native import INSTRUCTION_SETS, STRESS, complaints, library_for

SHAPES = ((16, 24, 40), (9, 33, 64), (24, 17, 8), (40, 8, 25), (3, 100, 23))
PERMUTATIONS = [each for each in itertools.permutations(range(3)) if each != (0, 1, 2)]
TURN = """
extern "C" STITCH_EXPORT void turn(unsigned* to, long long pitch, const unsigned* from, long long stride, int down, int along) {
  stitch_turn(to, pitch, from, stride, down, along);
}
"""


def _of_two_orders(shape: tuple[int, ...], permutation: tuple[int, ...], dtype: DType) -> tuple[Maker, int]:
    """The sum of a transposed tensor and one that lies in memory as the result does."""
    m = Maker(f"two_orders_{'x'.join(map(str, shape))}_{''.join(map(str, permutation))}")
    turned = m.op("transpose", m.parameter(*shape, dtype=dtype), permutation=permutation)
    return m, m.op("add", turned, m.parameter(*m.shape(turned), dtype=dtype))


def reduced(shape: tuple[int, ...], permutation: tuple[int, ...], axis: int, dtype: DType = DType.F32) -> Graph:
    m, both = _of_two_orders(shape, permutation, dtype)
    return m.done(m.reduce(both, axis))


def normalized(shape: tuple[int, ...], permutation: tuple[int, ...]) -> Graph:
    """Centred along the last dimension: the row is read twice."""
    m, both = _of_two_orders(shape, permutation, DType.F32)
    whole = m.shape(both)
    mean = m.scaled(m.reduce(both, 2), 1 / whole[2])
    return m.done(m.op("subtract", both, m.spread(mean, whole, 0, 1)))


def transposed_result(shape: tuple[int, ...], permutation: tuple[int, ...]) -> Graph:
    m = Maker(f"result_{'x'.join(map(str, shape))}_{''.join(map(str, permutation))}")
    x = m.parameter(*shape)
    scale = m.op("rsqrt", m.shifted(m.reduce(m.op("multiply", x, x), 2), 1.0))
    return m.done(m.op("transpose", m.op("multiply", x, m.spread(scale, shape, 0, 1)), permutation=permutation))


def of_all_sizes(shape: tuple[int, ...], permutation: tuple[int, ...]) -> Graph:
    """The sum of what a condition chooses of f32 and of f64, all three transposed beside a tensor that is not."""
    m = Maker(f"sizes_{'x'.join(map(str, shape))}_{''.join(map(str, permutation))}")
    dtypes = (DType.PRED, DType.F32, DType.F64)
    which, small, large = (
        m.op("transpose", m.parameter(*shape, dtype=dtype), permutation=permutation) for dtype in dtypes
    )
    chosen = m.op("select", which, small, m.convert(large, DType.F32))
    return m.done(m.reduce(m.op("add", chosen, m.parameter(*m.shape(chosen))), 2))


def gathered_columns_gradient(rows: int, columns: int) -> Graph:
    """The gradient of a gather of columns: TensorFlow turns it so that columns are rows, adds them up and turns the sums back. Two
    results made of it are stacked and added up over rows."""
    m = Maker(f"columns_{rows}x{columns}")
    shape = (rows, columns)
    update = m.op("add", m.parameter(*shape), m.parameter(*shape))
    base, places = m.constant(0.0, (columns, rows)), m.parameter(columns, dtype=DType.S32)
    turned = m.op("transpose", update, permutation=(1, 0))
    summed = m.op("scatter", base, places, turned, scatter=GatherDimensions((1,), (0,), (0,), 1), kind="sum")
    back = m.op("transpose", summed, permutation=(1, 0))
    weight = m.parameter(*shape)
    two = [m.reshape(m.op(op, weight, back), *shape, 1) for op in ("multiply", "subtract")]
    stacked = m.reshape(m.op("concatenate", *two, dimension=2), rows, 2 * columns)
    return m.done(stacked, m.reduce(stacked, 0))


GRAPHS = [
    *(gathered_columns_gradient(*shape) for shape in ((512, 32), (1024, 64), (300, 24), (40, 17), (64, 6))),
    *(
        graph
        for shape in SHAPES
        for permutation in PERMUTATIONS
        for graph in (
            *(reduced(shape, permutation, axis) for axis in range(3)),
            reduced(shape, permutation, 2, DType.S32),
            reduced(shape, permutation, 1, DType.F64),
            normalized(shape, permutation),
            transposed_result(shape, permutation),
            of_all_sizes(shape, permutation),
        )
    ),
]


def _turns(graph: Graph, target: CpuTarget = CPU) -> list[Turn]:
    loops = lower(plan_graph(graph, target))
    return [
        each for phase in loops.phases for nest in phase.nests for each in walk(nest.body) if isinstance(each, Turn)
    ]


@pytest.mark.costly
@pytest.mark.parametrize("target", [CPU, slow(STRESS)], ids=lambda target: target.name)
def test_all_results_are_right(target: CpuTarget) -> None:
    assert complaints(GRAPHS, target) == []


def test_most_are_computed_so() -> None:
    assert sum(bool(_turns(graph)) for graph in GRAPHS) > len(GRAPHS) / 3
    assert any(each.down is None for graph in GRAPHS for each in _turns(graph))
    assert any(each.down is not None for graph in GRAPHS for each in _turns(graph))


def test_rows_that_are_neighbours_are_copied_in_blocks_within_a_run_of_them() -> None:
    graph = reduced((32, 200, 24), (0, 2, 1), 2)
    (turn,) = _turns(graph)
    assert (turn.down, turn.along, turn.stride) == (None, 200, 24)
    text = render(lower(plan_graph(graph)), "k")
    assert "group_last = group_first + 16 < last_row ? group_first + 16 : last_row;" in text
    assert "if (group_last > group_first - group_first % 24 + 24)" in text


def test_neighbours_in_a_row_are_copied_in_blocks_that_fit_the_first_cache() -> None:
    (turn,) = _turns(reduced((16, 576, 64), (0, 2, 1), 1))
    assert (turn.down, turn.along, turn.stride) == (8, 576, 64)
    (turn,) = _turns(reduced((16, 24, 64), (0, 2, 1), 1))
    assert (turn.down, turn.along, turn.stride) == (64, 24, 64)


def test_a_scatter_copies_updates_that_lie_across_memory() -> None:
    """Before its loop over the indices; in blocks of indices if the window is too long. Where the sums are turned back, the two
    results of a stack are read so too, although each is read under a guard."""
    graph = gathered_columns_gradient(512, 32)
    of_update, of_sums = _turns(graph)
    text = render(lower(plan_graph(graph)), "k")
    assert f"= {of_update.local}[b * 256 + w]" in text
    assert f"= {of_sums.local}[" in text
    assert (of_update.down, of_update.along, of_update.stride) == (32, 256, 32)
    assert (of_sums.down, of_sums.along, of_sums.stride) == (None, 32, 512)
    of_update, _ = _turns(gathered_columns_gradient(1024, 64))
    assert (of_update.down, of_update.along, of_update.stride) == (32, 256, 64)


def test_only_elements_of_four_bytes_are_turned() -> None:
    graphs = [of_all_sizes(shape, permutation) for shape in SHAPES for permutation in PERMUTATIONS]
    found = {turn.dtype for graph in graphs for turn in _turns(graph)}
    assert found == {DType.F32}


def test_what_has_no_square_is_read_as_it_is() -> None:
    assert not _turns(reduced((64, 6, 96), (0, 2, 1), 2))  # six lanes; from seven on rows are lanes
    assert not _turns(reduced((16, 200, 24), (0, 2, 1), 2, DType.F64))
    assert not _turns(reduced((64, 24, 32), (1, 0, 2), 2))  # pieces of 32 stay together


@INSTRUCTION_SETS
def test_every_instruction_set_turns_all_sizes(flags: tuple[str, ...], tmp_path: Path) -> None:
    turn = library_for(flags, TURN, tmp_path).turn
    rng = np.random.default_rng(0)
    for down, along in itertools.product((1, 7, 8, 12, 15, 16, 17, 24, 33, 48), repeat=2):
        stride, pitch = down + 3, along + 5
        x = rng.integers(0, 1 << 32, (along, stride), dtype=np.uint64).astype(np.uint32)  # NaN payloads among them
        result = np.full((down, pitch), 7, np.uint32)
        turn(
            ctypes.c_void_p(result.ctypes.data),
            ctypes.c_longlong(pitch),
            ctypes.c_void_p(x.ctypes.data),
            ctypes.c_longlong(stride),
            down,
            along,
        )
        assert np.array_equal(result[:, :along], x[:, :down].T), (down, along)
        assert (result[:, along:] == 7).all()
