"""The prelude's helpers that work on more than one number: random words, and lanes folded into one."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from stitchfleet.compiler.codegen.cpu.kernel_text import translation_unit
from stitchfleet.compiler.ir.graph import BFLOAT16
from stitchfleet.compiler.ops.reference import philox
from stitchfleet.compiler.toolchain.host import cpu_features

from ..native import toolchain

WORDS = """
extern "C" STITCH_EXPORT int words_of(unsigned long long* state, long long count, unsigned long long index, unsigned* out) {
  static unsigned room[1 << 12];
  const unsigned* words = stitch_philox_words(room, count, state[0], state[1], state[2], index);
  int different = 0;
  for (long long i = 0; i < count; ++i) {
    out[i] = words[i];
    different += words[i] != stitch_philox(state[0], state[1], state[2], index + i);
  }
  return different;
}
"""

FOLD = """
extern "C" STITCH_EXPORT void fold_{dtype}_{lanes}({dtype}* lane, {dtype}* sum, {dtype}* largest) {{
  alignas(64) {dtype} copy[{lanes}];
  for (int i = 0; i < {lanes}; ++i) copy[i] = lane[i];
  *sum = stitch_fold<{lanes}>(lane, [](auto a, auto b) {{ return (a + b); }});
  *largest = stitch_fold<{lanes}>(copy, [](auto a, auto b) {{ return stitch_max(a, b); }});
}}
"""
EXTREME = """
template <bool largest> float extreme_of_{lanes}(const float* values, long long count, bool flagged, bool at_once) {{
  alignas(64) float lane[{lanes}];
  alignas(64) int nan[{lanes}] = {{}};
  for (int i = 0; i < {lanes}; ++i) lane[i] = largest ? -__builtin_inff() : __builtin_inff();
  const auto further = [](auto a, auto b) {{ return largest ? stitch_max(a, b) : stitch_min(a, b); }};
  for (long long k = 0; k < count; k += {lanes}) {{
    #pragma omp simd
    for (int i = 0; i < {lanes}; ++i) {{
      if (flagged) stitch_extreme<largest>(lane[i], nan[i], values[k + i]);
      else lane[i] = further(lane[i], values[k + i]);
    }}
  }}
  if (!at_once) return stitch_fold<{lanes}>(lane, further);
  return flagged ? stitch_fold_extreme<{lanes}, largest>(lane, nan) : stitch_fold_extreme<{lanes}, largest>(lane);
}}
extern "C" STITCH_EXPORT void extreme_{lanes}(const float* values, long long count, float* found) {{
  for (int way = 0; way < 3; ++way) {{
    found[2 * way] = extreme_of_{lanes}<true>(values, count, way == 0, way < 2);
    found[2 * way + 1] = extreme_of_{lanes}<false>(values, count, way == 0, way < 2);
  }}
}}
"""
ROUNDED = """
extern "C" STITCH_EXPORT void rounded(const StitchHalfBits* a, const StitchHalfBits* b, long long count, StitchHalfBits* out) {
  #pragma omp simd
  for (long long i = 0; i < count; ++i) {
    const float x = stitch_from_bf16(a[i]), y = stitch_from_bf16(b[i]);
    out[i] = stitch_to_bf16(stitch_round_bf16_result(x + y));
    out[count + i] = stitch_to_bf16(stitch_round_bf16_result(x - y));
    out[2 * count + i] = stitch_to_bf16(stitch_round_bf16_result(x * y));
    out[3 * count + i] = stitch_to_bf16(stitch_round_bf16_result(x / y));
    out[4 * count + i] = stitch_to_bf16(stitch_round_bf16_result(__builtin_sqrtf(x)));
  }
}
"""
FOLDS = [(dtype, lanes) for dtype in ("float", "double", "int", "bool") for lanes in (1, 2, 4, 8, 16, 32, 64)]


@pytest.fixture(scope="module", params=["native", "x86-64-v3"])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    march = str(request.param)
    if march != "native" and "avx2" not in cpu_features().split():
        pytest.skip("another processor's flag")
    folder: Path = tmp_path_factory.mktemp("prelude")
    source = folder / "prelude.cc"
    texts = [WORDS, ROUNDED, *(FOLD.format(dtype=dtype, lanes=lanes) for dtype, lanes in FOLDS)]
    texts += [EXTREME.format(lanes=lanes) for lanes in (1, 8, 16, 32, 64)]
    source.write_text(translation_unit(texts))
    toolchain().build(source, folder / "prelude.so", (f"-march={march}",))
    return ctypes.CDLL(str(folder / "prelude.so"))


@pytest.mark.parametrize(
    "state", [(123, 7, 9), (5, (1 << 32) - 5, 3), (1 << 63, (1 << 64) - 20, (1 << 64) - 1), (1, 0xFFFFFFFEFFFFFFFF, 77)]
)
@pytest.mark.parametrize("index", [0, 1, 2, 3, 77, 1_000_003])
def test_philox_words_drawn_at_once_are_the_streams(
    library: ctypes.CDLL, state: tuple[int, int, int], index: int
) -> None:
    """By numpy's reference, for counts and places that are no multiples of a block, and counters that carry."""
    for count in (1, 3, 64, 65, 511, 512):
        words, parts = np.empty(count, np.uint32), np.array(state, np.uint64)
        place = ctypes.c_void_p(parts.ctypes.data), ctypes.c_longlong(count), ctypes.c_ulonglong(index)
        assert library.words_of(*place, ctypes.c_void_p(words.ctypes.data)) == 0
        expected = philox(*parts, np.arange(index, index + count, dtype=np.uint64))
        np.testing.assert_array_equal(words, expected)


@pytest.mark.parametrize(
    "other", [0x0000, 0x8000, 0x3F80, 0x3F81, 0xC2F7, 0x7F7F, 0x0080, 0x7F80, 0xFF80, 0x7FC0, 0xFFFF]
)
def test_results_of_bf16_arithmetic_are_rounded_to_nearest_even(library: ctypes.CDLL, other: int) -> None:
    """Of every bf16 with `other`, every NaN among them, by numpy's float32 and ml_dtypes' rounding."""
    if BFLOAT16 is None:
        pytest.skip("without ml_dtypes there is no bf16")
    bits = np.arange(1 << 16, dtype=np.uint16)
    a, b = bits, np.full_like(bits, other)
    found = np.empty((5, bits.size), np.uint16)
    place = [ctypes.c_void_p(array.ctypes.data) for array in (a, b)]
    library.rounded(*place, ctypes.c_longlong(bits.size), ctypes.c_void_p(found.ctypes.data))
    x, y = (each.view(BFLOAT16).astype(np.float32) for each in (a, b))
    with np.errstate(all="ignore"):
        expected = np.stack([x + y, x - y, x * y, x / y, np.sqrt(x)]).astype(BFLOAT16)
    is_nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(found.view(BFLOAT16)), is_nan)
    np.testing.assert_array_equal(found[~is_nan], expected.view(np.uint16)[~is_nan])


@pytest.mark.parametrize(
    ("dtype", "lanes", "special"),
    [
        (dtype, lanes, special)
        for dtype, lanes in FOLDS
        for special in (None, np.nan, np.inf)
        if special is None or dtype in ("float", "double")
    ],
)
def test_lanes_are_folded_half_onto_half(library: ctypes.CDLL, dtype: str, lanes: int, special: float | None) -> None:
    kind = np.dtype({"float": np.float32, "double": np.float64, "int": np.int32, "bool": np.bool_}[dtype])
    for seed in range(20):
        rng = np.random.default_rng(seed)
        room = np.empty(lanes + 64, kind)
        start = -room.ctypes.data % 64 // kind.itemsize
        lane = room[start : start + lanes]
        wide = rng.standard_normal(lanes) * 10.0 ** rng.integers(-3, 8, lanes)
        lane[...] = (wide > 2e5 if kind.kind == "b" else wide).astype(kind)
        if special is not None:
            lane[rng.integers(lanes)] = special
        expected = lane.copy()
        while expected.size > 1:
            expected = expected[: expected.size // 2] + expected[expected.size // 2 :]
        largest = lane.max()  # NaN where there is one
        found = np.empty((2, 1), kind)
        library[f"fold_{dtype}_{lanes}"](*(ctypes.c_void_p(array.ctypes.data) for array in (lane, found[0], found[1])))
        assert np.array_equal(found[0], expected, equal_nan=True)
        assert np.array_equal(found[1], [largest], equal_nan=True)


@pytest.mark.parametrize("lanes", [1, 8, 16, 32, 64])
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_an_extreme_is_what_comparing_step_by_step_gives_to_the_sign_of_a_zero(
    library: ctypes.CDLL, lanes: int, steps: int
) -> None:
    rng = np.random.default_rng(lanes)

    def extremes(values: np.ndarray) -> np.ndarray:
        found = np.empty(6, np.float32)
        given, into = (ctypes.c_void_p(array.ctypes.data) for array in (values, found))
        library[f"extreme_{lanes}"](given, ctypes.c_longlong(values.size), into)
        return found

    for _ in range(300):
        values = rng.choice(np.array([0.0, -0.0, 1.5, -2.0, np.inf, -np.inf], np.float32), steps * lanes)
        found = extremes(values)
        assert np.array_equal(found[:2].view(np.uint32), found[4:].view(np.uint32))
        assert np.array_equal(found[2:4].view(np.uint32), found[4:].view(np.uint32))
        assert found[0] == values.max()
        assert found[1] == values.min()
        values[rng.integers(values.size)] = np.nan
        assert np.isnan(extremes(values)).all()
