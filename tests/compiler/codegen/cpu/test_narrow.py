"""Booleans, bf16 and f16 beside floats in loops over few elements: they are widened before and narrowed after it, so that floats are
computed in whole vectors."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from stitchfleet.compiler.codegen.cpu.kernel_text import render, translation_unit
from stitchfleet.compiler.ir.graph import DType, Graph
from stitchfleet.compiler.lowering.kernel_loops import lower
from stitchfleet.compiler.planning.plan import plan_graph
from stitchfleet.compiler.targets.targets import CPU, CpuTarget

from ....marks import slow
from ...library import Maker
from ...native import INSTRUCTION_SETS, STRESS, complaints, library_for, said_of_vectors, toolchain

LENGTHS = (5, 8, 9, 12, 16, 20, 31, 33, 40, 60, 64, 65, 90, 128, 130)
ROWS = 40


def dropped_gradient(length: int, dtype: DType = DType.F32) -> Graph:
    """The gradient of a softmax with dropout: a row is read by a sum and by what reads the sum."""
    m, shape = Maker(f"dropped_gradient_{length}_{dtype.value}"), (ROWS, length)
    keep = m.parameter(*shape, dtype=DType.PRED)
    given, softmax = (m.convert(m.parameter(*shape, dtype=dtype), DType.F32) for _ in range(2))
    gradient = m.scaled(m.op("select", keep, given, m.constant(0.0, shape)), 1.1)
    total = m.reduce(m.op("multiply", gradient, softmax), 1)
    result = m.op("multiply", softmax, m.op("subtract", gradient, m.spread(total, shape, 0)))
    return m.done(m.convert(result, dtype))


def dropped(length: int) -> Graph:
    """Dropout: which elements are kept is a result too."""
    m, shape = Maker(f"dropped_{length}"), (ROWS, length)
    x, random = m.parameter(*shape), m.parameter(*shape)
    keep = m.op("compare", random, m.constant(0.1, shape), direction="GE", total_order=False)
    kept = m.op("select", keep, x, m.constant(0.0, shape))
    return m.done(keep, m.op("multiply", kept, m.spread(m.reduce(kept, 1), shape, 0)))


def opposite(length: int) -> Graph:
    """A boolean that may be written where another one was read."""
    m, shape = Maker(f"opposite_{length}"), (ROWS, length)
    keep, x = m.parameter(*shape, dtype=DType.PRED), m.parameter(*shape)
    return m.done(m.op("not", keep), m.reduce(m.op("select", keep, x, m.constant(0.0, shape)), 1))


GRAPHS = [
    graph
    for length in LENGTHS
    for graph in (
        dropped_gradient(length),
        dropped_gradient(length, DType.BF16),
        dropped_gradient(length, DType.F16),
        dropped(length),
        opposite(length),
    )
]


def text_of(graph: Graph) -> str:
    return render(lower(plan_graph(graph)), "k")


@pytest.mark.costly
@pytest.mark.parametrize("target", [CPU, slow(STRESS)], ids=lambda target: target.name)
def test_all_results_are_right(target: CpuTarget) -> None:
    assert complaints(GRAPHS, target) == []


def test_what_is_small_is_widened_and_narrowed_in_every_strip_and_after_them() -> None:
    text = text_of(dropped_gradient(60, DType.BF16))
    for each in ("pred<16>", "pred<12>", "bf16<16>", "bf16<12>"):
        assert text.count(f"stitch_widen_{each}(") >= 2, "in the sum, and in what reads it"
    assert "stitch_narrow_bf16<16>(" in text
    assert "stitch_narrow_bf16<12>(" in text
    text = text_of(dropped(60))
    assert "stitch_narrow_pred<16>(" in text
    assert "stitch_narrow_pred<12>(" in text


def test_whole_vectors_of_small_elements_stay_as_they_are() -> None:
    """A sum goes in strips of 32; what reads it is a loop over all elements, which is cut behind its whole vectors of booleans."""
    assert text_of(dropped_gradient(128)).count("stitch_widen_pred<32>(") == 1
    assert text_of(dropped_gradient(128)).count("stitch_widen") == 1
    text = text_of(dropped_gradient(90))
    assert "for (int k90_1 = 0; k90_1 < 64; ++k90_1)" in text
    assert "for (int k90_1_base = 64; k90_1_base < 80; k90_1_base += 16)" in text


def test_a_loop_that_only_compares_or_gathers_stays_as_it_is() -> None:
    m, shape = Maker("compares"), (ROWS, 50)
    positions, lengths = m.parameter(50, dtype=DType.S32), m.parameter(ROWS, dtype=DType.S32)
    less = m.op(
        "compare", m.spread(positions, shape, 1), m.spread(lengths, shape, 0), direction="LT", total_order=False
    )
    assert "stitch_narrow" not in text_of(m.done(less))
    m = Maker("gathers")
    keep, across = m.parameter(*shape, dtype=DType.PRED), m.parameter(50, 6)
    column = m.reshape(m.op("slice", across, start=(0, 3), limit=(50, 4), strides=(1, 1)), 50)
    chosen = m.op("select", keep, m.spread(column, shape, 1), m.constant(0.0, shape))
    assert "stitch_widen" not in text_of(m.done(m.reduce(chosen, 1)))


def test_floats_are_computed_in_whole_vectors(tmp_path: Path) -> None:
    """g++ made vectors of 8 bytes: two floats."""
    if toolchain().is_clang:
        pytest.skip("asks gcc")
    for graph in (dropped_gradient(60), dropped(60)):
        text = translation_unit([text_of(graph)])
        first = text[: text.index("static void k_nest0")].count("\n")
        said = said_of_vectors(text, tmp_path, "-fopt-info-vec-optimized")
        found = re.findall(r"k\.cc:(\d+):\d+: optimized: loop vectorized using (\d+) byte vectors", said)
        sizes = [int(size) for line, size in found if int(line) > first]
        assert sizes
        assert min(sizes) >= 16, f"{graph.name}: {sizes}"


COUNTS = (1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 48)
CONVERSIONS = "".join(
    f'extern "C" STITCH_EXPORT void widen_{name}_{count}({wide}* to, const {small}* from) {{\n'
    f"  stitch_widen_{name}<{count}>(to, from);\n}}\n"
    f'extern "C" STITCH_EXPORT void narrow_{name}_{count}({small}* to, const {wide}* from) {{\n'
    f"  stitch_narrow_{name}<{count}>(to, from);\n}}\n"
    for name, wide, small in (
        ("pred", "int", "unsigned char"),
        ("bf16", "float", "StitchHalfBits"),
        ("f16", "float", "StitchHalfBits"),
    )
    for count in COUNTS
)


def _converted(function: object, given: np.ndarray, dtype: type[np.generic], count: int) -> np.ndarray:
    """What a function makes of `count` elements, with one more, which it must not touch."""
    result = np.full(count + 1, 77, dtype)
    function(ctypes.c_void_p(result.ctypes.data), ctypes.c_void_p(given.ctypes.data))  # type: ignore[operator]
    assert result[count] == np.full(1, 77, dtype)[0]
    return result[:count]


@INSTRUCTION_SETS
def test_every_instruction_set_converts_every_number_of_elements(flags: tuple[str, ...], tmp_path: Path) -> None:
    library = library_for(flags, CONVERSIONS, tmp_path)
    rng = np.random.default_rng(0)
    halves = np.arange(1 << 16, dtype=np.uint16)
    for name, form in (("bf16", ml_dtypes.bfloat16), ("f16", np.float16)):
        with np.errstate(invalid="ignore"):
            expected = halves.view(form).astype(np.float32)
        for count in COUNTS:
            widen, narrow = getattr(library, f"widen_{name}_{count}"), getattr(library, f"narrow_{name}_{count}")
            for start in range(0, 1 << 16, 16) if count == 16 else rng.integers(0, (1 << 16) - count, 50):
                wide = _converted(widen, halves[start : start + count].copy(), np.float32, count)
                assert np.array_equal(wide, expected[start : start + count], equal_nan=True)
                small = _converted(narrow, wide, np.uint16, count)
                with np.errstate(invalid="ignore"):  # signalling NaN become quiet
                    again = small.view(form).astype(np.float32)
                assert np.array_equal(again, expected[start : start + count], equal_nan=True)
    for count in COUNTS:
        given = rng.integers(0, 2, count).astype(np.uint8)
        wide = _converted(getattr(library, f"widen_pred_{count}"), given, np.int32, count)
        assert np.array_equal(wide, given)
        assert np.array_equal(_converted(getattr(library, f"narrow_pred_{count}"), wide, np.uint8, count), given)
