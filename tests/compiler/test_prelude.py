"""The prelude's own functions, on numbers from the whole range of floats, against numpy in float64."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from stitchfleet.compiler.cpp import libm_names, translation_unit
from stitchfleet.compiler.ops_numpy import philox
from stitchfleet.compiler.toolchain import vector_symbols

from .native import toolchain

Doubles = npt.NDArray[np.float64]
FUNCTIONS: Mapping[str, tuple[Callable[[Doubles], Doubles], float]] = {
    # name: (reference, largest error in units in the last place)
    "stitch_expf": (np.exp, 1.2),
    "stitch_logisticf": (lambda x: 1 / (1 + np.exp(-x)), 2.5),
    "stitch_tanhf": (np.tanh, 2.0),
}
FLUSHED = {"stitch_logisticf"}
"""Functions of which a result below the normal numbers may be zero."""

LOOP = """
extern "C" STITCH_EXPORT void {name}_of(const float* x, float* y, long long count) {{
  #pragma omp simd
  for (long long i = 0; i < count; ++i) y[i] = {name}(x[i]);
}}
extern "C" STITCH_EXPORT void {name}_one(const float* x, float* y, long long) {{ *y = {name}(*x); }}
"""

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
FOLDS = [(dtype, lanes) for dtype in ("float", "double", "int", "bool") for lanes in (1, 2, 4, 8, 16, 32, 64)]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder: Path = tmp_path_factory.mktemp("prelude")
    source = folder / "prelude.cc"
    texts = [*(LOOP.format(name=name) for name in FUNCTIONS), WORDS]
    texts += [FOLD.format(dtype=dtype, lanes=lanes) for dtype, lanes in FOLDS]
    source.write_text(translation_unit(texts))  # as where there is no vector library
    toolchain().build(source, folder / "prelude.so")
    return ctypes.CDLL(str(folder / "prelude.so"))


def applied(library: ctypes.CDLL, name: str, x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    y = np.empty_like(x)
    pointers: list[Any] = [ctypes.c_void_p(array.ctypes.data) for array in (x, y)]
    library[name](*pointers, ctypes.c_longlong(x.size))
    return y


def numbers() -> npt.NDArray[np.float32]:
    """Every 1009th float there is, and many where these functions are not flat."""
    bits = np.arange(0, 1 << 32, 1009, dtype=np.uint64).astype(np.uint32)
    dense = np.random.default_rng(1).uniform(-110, 110, 1_000_000).astype(np.float32)
    small = np.random.default_rng(2).uniform(-1, 1, 1_000_000).astype(np.float32)
    return np.concatenate([bits.view(np.float32), dense, small])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_errors_are_as_small_as_stated(library: ctypes.CDLL, name: str) -> None:
    reference, most = FUNCTIONS[name]
    x = numbers()
    x = x[~np.isnan(x)]
    y = applied(library, f"{name}_of", x).astype(np.float64)
    with np.errstate(all="ignore"):
        right = reference(x.astype(np.float64))
        rounded = right.astype(np.float32)
        unit = np.spacing(np.abs(rounded)).astype(np.float64)
        unit = np.where(np.isfinite(unit), unit, np.inf)
        if name in FLUSHED:
            unit = np.where(np.abs(right) < 2.0**-126, 2.0**-126, unit)
        error = np.where(np.isinf(rounded) & np.isinf(y), 0.0, np.abs(y - right) / unit)
    assert np.isfinite(error).all()
    assert float(error.max()) <= most, f"at {x[error.argmax()]!r}"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values(library: ctypes.CDLL, name: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e38, -1e38, 1e-45], np.float32)
    y = applied(library, f"{name}_of", x)
    with np.errstate(all="ignore"):
        expected = FUNCTIONS[name][0](x.astype(np.float64)).astype(np.float32)
    assert np.array_equal(y, expected, equal_nan=True)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_vector_and_scalar_code_agree_to_the_last_bit(library: ctypes.CDLL, name: str) -> None:
    x = np.ascontiguousarray(numbers()[::4001])
    together = applied(library, f"{name}_of", x)
    apart = np.array([applied(library, f"{name}_one", x[i : i + 1])[0] for i in range(x.size)])
    assert np.array_equal(together, apart, equal_nan=True)


def test_a_vector_library_is_used_where_there_is_one(tmp_path: Path) -> None:
    if "expf" not in toolchain().vectorised(["expf"]):
        pytest.skip("this machine's C library has no vector functions")
    source = tmp_path / "vector.cc"
    texts = [LOOP.format(name=name) for name in FUNCTIONS]
    source.write_text(translation_unit(texts, toolchain().vectorised(libm_names())))
    toolchain().build(source, tmp_path / "vector.so")
    assert any(symbol.endswith("_expf") for symbol in vector_symbols(tmp_path / "vector.so"))


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
