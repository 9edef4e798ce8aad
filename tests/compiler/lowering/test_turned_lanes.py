"""Rows of a few elements as lanes are copied, transposed, before and after: softmax, sums and slices of rows of 5 to 16 elements."""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path

import numpy as np
import pytest

from stitchfleet.compiler.codegen.cpu.kernel_text import render
from stitchfleet.compiler.ir.graph import DType, Graph, Literal
from stitchfleet.compiler.loops.loops import Turn, TurnBack, walk
from stitchfleet.compiler.lowering.kernel_loops import lower
from stitchfleet.compiler.planning.execution import Mode
from stitchfleet.compiler.planning.plan import plan_graph
from stitchfleet.compiler.targets.targets import CPU, CpuTarget

from ...marks import slow
from ..library import Maker, softmax
from ..native import INSTRUCTION_SETS, STRESS, complaints, library_for
from .test_turned_rows import TURN

LENGTHS = (3, 4, 5, 6, 7, 8, 9, 16, 21, 31, 32)
ROWS = (64, 203, 1000)
"""A multiple of a vector, and rows that are left after the last whole vector or block."""


def of_parts(rows: int, length: int) -> Graph:
    """Rows of which a part is read, and rows that become a part of longer rows."""
    m = Maker(f"parts_{rows}x{length}")
    x = m.parameter(rows, length + 9)
    part = m.op("slice", x, start=(0, 2), limit=(rows, 2 + length), strides=(1, 1))
    y = m.op("multiply", part, m.spread(m.parameter(length), (rows, length), 1))
    total = m.reduce(y, 1, kind="max")
    return m.done(m.op("subtract", y, m.spread(total, (rows, length), 0)), total)


def of_all_sizes(rows: int, length: int) -> Graph:
    """f32, s32 and f64, each a result."""
    m, shape = Maker(f"sizes_{rows}x{length}"), (rows, length)
    small, whole, large = (m.parameter(*shape, dtype=dtype) for dtype in (DType.F32, DType.S32, DType.F64))
    both = m.op("add", small, m.convert(large, DType.F32))
    return m.done(m.op("add", both, m.convert(whole, DType.F32)), m.op("add", whole, whole), m.reduce(large, 1))


def of_two(rows: int, length: int) -> Graph:
    """The gradient of a softmax: two tensors in, one result over one of them."""
    m, shape = Maker(f"two_{rows}x{length}"), (rows, length)
    y, above = m.parameter(*shape), m.parameter(*shape)
    total = m.spread(m.reduce(m.op("multiply", y, above), 1), shape, 0)
    return m.done(m.op("multiply", y, m.op("subtract", above, total)))


def of_a_bias(rows: int, length: int) -> Graph:
    """A softmax of logits with a bias, its sum over rows, as the bias's gradient has it, and whether all labels are in range."""
    m, shape = Maker(f"bias_{rows}x{length}"), (rows, length)
    x = m.op("add", m.parameter(*shape), m.spread(m.parameter(length), shape, 1))
    labels = m.parameter(rows, dtype=DType.S32)
    e = m.op("exp", m.op("subtract", x, m.spread(m.reduce(x, 1, kind="max"), shape, 0)))
    y = m.op("divide", e, m.spread(m.reduce(e, 1), shape, 0))
    least = m.spread(m.op("constant", literal=Literal(np.array(0, np.int32))), (rows,))
    in_range = m.op("compare", labels, least, direction="GE", total_order=False)
    return m.done(y, m.reduce(y, 0), m.reduce(in_range, 0, kind="and"), m.reduce(in_range, 0, kind="or"))


def batched_mask(batches: int, rows: int, length: int) -> Graph:
    """A softmax with a mask for each batch of rows: the row's number has digits."""
    m, shape = Maker("masked"), (batches, rows, length)
    x = m.op("add", m.parameter(*shape), m.spread(m.parameter(batches, length), shape, 0, 2))
    e = m.op("exp", m.op("subtract", x, m.spread(m.reduce(x, 2, kind="max"), shape, 0, 1)))
    return m.done(m.op("divide", e, m.spread(m.reduce(e, 2), shape, 0, 1)))


def deep(length: int) -> Graph:
    """Many operations on each element."""
    m = Maker("deep")
    x = m.parameter(1000, length)
    for _ in range(20):
        x = m.op("tanh", m.shifted(x, 0.5))
    return m.done(m.op("multiply", x, m.spread(m.reduce(x, 1), (1000, length), 0)))


GRAPHS = [
    *(
        graph(rows, n)
        for n in LENGTHS
        for rows in ROWS
        for graph in (softmax, of_parts, of_all_sizes, of_two, of_a_bias)
    ),
    batched_mask(10, 100, 7),
    deep(12),
]


def copies(graph: Graph, target: CpuTarget = CPU) -> tuple[list[Turn], list[TurnBack]]:
    every = [
        each for phase in lower(plan_graph(graph, target)).phases for nest in phase.nests for each in walk(nest.body)
    ]
    return [each for each in every if isinstance(each, Turn)], [each for each in every if isinstance(each, TurnBack)]


@pytest.mark.parametrize("target", [CPU, slow(STRESS)], ids=lambda target: target.name)
def test_all_results_are_right(target: CpuTarget) -> None:
    assert complaints(GRAPHS, target) == []


def test_a_row_s_elements_are_copied_for_blocks_of_rows_and_its_results_back() -> None:
    (turn,), (back,) = copies(softmax(1000, 8))
    assert (turn.down, turn.along, turn.stride, turn.pitch) == (8, None, 8, 128)
    assert (back.pitch, back.along, back.stride) == (8, 8, 128)


def test_the_copies_of_a_block_fit_the_first_cache() -> None:
    turns, backs = copies(of_two(1000, 8))
    assert {turn.pitch for turn in turns} | {back.stride for back in backs} == {128}
    m, shape = Maker("many"), (1000, 8)
    sums = [m.parameter(*shape)]
    for _ in range(12):
        sums.append(m.op("add", sums[-1], m.parameter(*shape)))
    turns, _ = copies(m.done(m.op("exp", m.spread(m.reduce(sums[-1], 1), shape, 0)), sums[-1]))
    assert {turn.pitch for turn in turns} == {64}


def test_short_rows_and_those_of_other_sizes_are_read_as_they_are() -> None:
    assert copies(softmax(1000, 4)) == ([], [])
    assert copies(softmax(1000, 8, DType.F64)) == ([], [])
    assert copies(softmax(1000, 8, DType.F16)) == ([], [])
    turns, _ = copies(of_all_sizes(1000, 8))
    assert {turn.dtype for turn in turns} == {DType.F32, DType.S32}


def test_longer_rows_become_lanes_if_that_saves_sums_and_functions() -> None:
    def is_copied(graph: Graph) -> bool:
        return bool(copies(graph)[0])

    copied = [softmax(1000, 9), softmax(1000, 31), of_two(1000, 7), deep(12)]
    left = [softmax(1000, 32), softmax(100, 31), of_two(1000, 9), batched_mask(10, 100, 12), deep(31)]
    assert [is_copied(graph) for graph in copied] == [True] * len(copied)
    assert [is_copied(graph) for graph in left] == [False] * len(left)


def test_rows_that_are_also_added_up_become_lanes_and_keep_their_sums_in_vectors() -> None:
    for length in (3, 5, 7, 10, 31):
        turns, backs = copies(of_a_bias(1000, length))
        assert [turn.down for turn in turns] == [back.along for back in backs] == [length]
    assert copies(of_a_bias(1000, 32)) == ([], [])
    assert copies(of_a_bias(100, 10)) == ([], [])
    text = render(lower(plan_graph(of_a_bias(1000, 10))), "k")
    assert "int lane" in text  # what is asked of all rows, in vectors of the floats' width
    assert "bool lane" not in text


def test_the_sum_over_rows_of_a_gradient_alone_does_not_make_rows_lanes() -> None:
    def with_sum(length: int) -> Graph:
        m, shape = Maker(f"sum_{length}"), (1000, length)
        y, above = m.parameter(*shape), m.parameter(*shape)
        total = m.spread(m.reduce(m.op("multiply", y, above), 1), shape, 0)
        result = m.op("multiply", y, m.op("subtract", above, total))
        return m.done(result, m.reduce(result, 0))

    modes = [plan_graph(with_sum(length)).executions[0].mode for length in (5, 7, 8, 16)]
    assert modes == [Mode.LANES, Mode.LANES, Mode.ROWS, Mode.ROWS]


def test_a_part_of_a_row_is_copied_and_no_more() -> None:
    turns, backs = copies(of_parts(1000, 7))
    (turn,) = turns
    assert (turn.down, turn.stride, turn.index.constant) == (7, 16, 2)
    assert [back.along for back in backs] == [7]


@INSTRUCTION_SETS
def test_rows_of_few_elements_are_turned_within_their_bounds(flags: tuple[str, ...], tmp_path: Path) -> None:
    """What is read or written ends at a page that may not be touched."""
    turn = library_for(flags, TURN, tmp_path).turn
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 3 * page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + 2 * page), page, 0) == 0
    for length in range(1, 17):
        for rows in (1, 7, 8, 9, 16, 40, 63):
            size = rows * length
            x = np.arange(1, size + 1, dtype=np.uint32)
            inside = np.frombuffer(memory, np.uint32, size, 2 * page - 4 * size)
            inside[:] = x
            tile = np.zeros((length, 64), np.uint32)
            end = address + 2 * page - 4 * size
            call(turn, tile.ctypes.data, 64, end, length, length, rows)
            assert np.array_equal(tile[:, :rows], x.reshape(rows, length).T), (length, rows)
            assert not tile[:, rows:].any()
            before = np.frombuffer(memory, np.uint32, 16, 2 * page - 4 * size - 64)
            before[:] = 7
            inside[:] = 0
            call(turn, end, length, tile.ctypes.data, 64, rows, length)
            assert np.array_equal(inside, x), (length, rows)
            assert (before == 7).all()


def call(turn: ctypes._FuncPointer, to: int, pitch: int, source: int, stride: int, down: int, along: int) -> None:
    long = ctypes.c_longlong
    turn(ctypes.c_void_p(to), long(pitch), ctypes.c_void_p(source), long(stride), down, along)
