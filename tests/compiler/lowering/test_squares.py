"""Nests that transpose work in squares that are turned in registers (cpp_text._turned): they move every bit where it belongs,
whether a square is whole, cut by the tensor's end, or jumps within."""

from __future__ import annotations

import ctypes
import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from stitchfleet.compiler.codegen.cpu.kernel_text import render
from stitchfleet.compiler.ir.graph import DType, Graph
from stitchfleet.compiler.lowering.kernel_loops import lower
from stitchfleet.compiler.planning.plan import plan_graph
from stitchfleet.compiler.targets.targets import CPU

from ..library import Maker
from ..native import INSTRUCTION_SETS, STRESS, complaints, library_for

SHAPES = (
    (16, 32, 48),
    (5, 33, 64),
    (20, 16, 80),
    (3, 48, 17),
    (16, 64, 64),
    (16, 72, 40),
    (32, 23, 29),
    (35, 21, 67),
    (6, 64, 40),
)
TURN = """
extern "C" STITCH_EXPORT void turn(const unsigned* from, long long stride, unsigned* to) { stitch_turn_square(from, stride, to); }
"""


def transposed(shape: tuple[int, ...], permutation: tuple[int, ...], dtype: DType, biased: bool) -> Graph:
    m = Maker(f"transposed_{'x'.join(map(str, shape))}_{''.join(map(str, permutation))}")
    x = m.op("transpose", m.parameter(*shape, dtype=dtype), permutation=permutation)
    return m.done(m.op("add", x, m.parameter(*m.shape(x), dtype=dtype)) if biased else x)


GRAPHS = [
    transposed(shape, permutation, dtype, biased)
    for shape in SHAPES
    for permutation in itertools.permutations(range(3))
    for dtype, biased in ((DType.F32, False), (DType.S32, True))
    if permutation != (0, 1, 2)
]


@pytest.mark.costly
@pytest.mark.parametrize("target", [CPU, STRESS], ids=lambda target: target.name)
def test_transposes_move_every_element_where_it_belongs(target: object) -> None:
    assert isinstance(target, type(CPU))
    assert complaints(GRAPHS, target) == []


def test_rows_go_in_the_order_of_what_is_read() -> None:
    """Neighbours in the tensor belong to rows 128 apart: all squares are whole, and read side by side."""
    text = render(lower(plan_graph(transposed((64, 128, 128), (2, 1, 0), DType.F32, False))), "k")
    assert "stitch_turn_square" in text
    assert "b1[(r % 128) * 8192 + (r / 128) * 64" in text


def test_rows_that_do_not_divide_into_squares_are_turned_whole_and_in_blocks_that_cross_no_wrap() -> None:
    text = render(lower(plan_graph(transposed((63, 65, 67), (2, 1, 0), DType.F32, False))), "k")
    assert re.search(r"stitch_turn\(t\d+_turned, 63, .*, \(int\)\(block_last - block_first\), 63\)", text)
    text = render(lower(plan_graph(transposed((6, 64, 40), (0, 2, 1), DType.F32, False))), "k")
    assert "if (block_last > block_first - block_first % 40 + 40)" in text


def test_squares_of_many_short_rows_are_taken_lanes_by_lanes() -> None:
    """Not where rows are long, or in another order than they lie in memory."""

    def text(shape: tuple[int, ...], *permutation: int) -> str:
        return render(lower(plan_graph(transposed(shape, permutation, DType.F32, False))), "k")

    found = text((64, 128, 128), 1, 2, 0)
    assert "panel_first += 256" in found
    assert found.index("panel_first += 256") < found.index("k64_16 < 4") < found.index("block_first = panel_first")
    assert "panel" in text((128, 2, 128), 1, 2, 0)
    assert "panel" not in text((256, 2, 128), 1, 2, 0)  # rows of 1 KiB
    assert "panel" not in text((64, 128, 128), 2, 1, 0)  # neighbours are 128 rows apart
    assert "panel" not in text((16, 64, 64), 1, 2, 0)  # all lanes of a row at once


def test_both_kinds_of_squares_are_turned() -> None:
    """Of neighbouring rows, and of neighbours within a row."""
    texts = [render(lower(plan_graph(graph)), "k") for graph in GRAPHS]
    turned = [text for text in texts if "stitch_turn_square" in text]
    assert any("block_first" in text for text in turned)
    assert any("block_first" not in text for text in turned)
    assert any(
        "block_first % " in text for text in turned
    )  # a square within which the position jumps goes the other way


@INSTRUCTION_SETS
def test_a_square_is_turned_by_every_instruction_set(flags: tuple[str, ...], tmp_path: Path) -> None:
    library = library_for(flags, TURN, tmp_path)
    x = (
        np.random.default_rng(0).integers(0, 1 << 32, (16, 37), dtype=np.uint64).astype(np.uint32)
    )  # NaN payloads among them
    y = np.zeros((16 * 16 + 16,), np.uint32)
    start = -y.ctypes.data % 64 // 4
    result = y[start : start + 256].reshape(16, 16)
    library.turn(ctypes.c_void_p(x.ctypes.data), ctypes.c_longlong(37), ctypes.c_void_p(result.ctypes.data))
    assert np.array_equal(result, x[:, :16].T)
