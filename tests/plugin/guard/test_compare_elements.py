"""The comparison of a kernel's output with TensorFlow's: looked at in vectors, it finds what one element after the other gives."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from stitchfleet.compiler.toolchain.host import find_toolchain
from stitchfleet.plugin.native import library

Array = npt.NDArray[Any]
WRAPPER = """
#include "guard/compare_elements.h"
using namespace stitchfleet;
template <typename T> void Of(const T* e, const T* a, int64_t count, const double* tolerance, double* found) {
  const Comparison c = CompareFloats(e, a, count, {tolerance[0], tolerance[1], tolerance[2]});
  const double all[] = {double(c.agree), double(c.worst_index), c.expected, c.actual, c.largest_error, c.worst_ratio};
  std::copy(all, all + 6, found);
}
struct Bf16 {
  uint16_t bits;
  explicit operator float() const {
    const uint32_t wide = uint32_t(bits) << 16;
    float x;
    std::memcpy(&x, &wide, 4);
    return x;
  }
};
extern "C" {
void compare_f32(const float* e, const float* a, int64_t n, const double* t, double* f) { Of(e, a, n, t, f); }
void compare_f64(const double* e, const double* a, int64_t n, const double* t, double* f) { Of(e, a, n, t, f); }
void compare_bf16(const Bf16* e, const Bf16* a, int64_t n, const double* t, double* f) { Of(e, a, n, t, f); }
int64_t first_different(const char* e, const char* a, int64_t bytes) { return FirstDifferent(e, a, bytes); }
}
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder: Path = tmp_path_factory.mktemp("compare")
    (folder / "wrapper.cc").write_text(WRAPPER)
    command = [*find_toolchain().command, "-std=c++17", "-O2", "-shared", "-fPIC", f"-I{library.SOURCES}"]
    subprocess.run([*command, "wrapper.cc", "-o", "wrapper.so"], cwd=folder, check=True)
    loaded = ctypes.CDLL(str(folder / "wrapper.so"))
    loaded.first_different.restype = ctypes.c_int64
    return loaded


def one_by_one(expected: Array, actual: Array, tolerance: tuple[float, float, float]) -> list[float]:
    """agree, worst index, its two values, largest error, worst ratio: as compare_elements.h defines them."""
    e, a = expected.astype(np.float64), actual.astype(np.float64)
    finite = np.isfinite(e)
    floor = tolerance[1] * (np.abs(e[finite]).max() if finite.any() else 0.0) + tolerance[2]
    with np.errstate(all="ignore"):
        both = finite & np.isfinite(a) & (e != a)
        errors = np.where(both, np.abs(a - e), 0.0)
        allowed = tolerance[0] * np.abs(e) + floor
        ratio = np.where(both, np.where(allowed > 0, errors / allowed, np.inf), 0.0)
    ratio[~both & (e != a) & ~(np.isnan(e) & np.isnan(a))] = np.inf
    at = int(np.argmax(ratio)) if ratio.size else 0
    if not ratio.size or ratio[at] == 0:
        return [1.0, -1.0, 0.0, 0.0, errors.max(initial=0.0), 0.0]
    return [float(ratio[at] <= 1), float(at), e[at], a[at], errors.max(), ratio[at]]


def found(compiled: ctypes.CDLL, expected: Array, actual: Array, tolerance: tuple[float, float, float]) -> list[float]:
    result = np.zeros(6)
    name = {2: "bf16", 4: "f32", 8: "f64"}[expected.dtype.itemsize]
    pointers = [x.ctypes.data_as(ctypes.c_void_p) for x in (expected, actual)]
    limits = np.array(tolerance)
    getattr(compiled, f"compare_{name}")(
        *pointers,
        ctypes.c_int64(expected.size),
        *(x.ctypes.data_as(ctypes.c_void_p) for x in (limits, result)),
    )
    return list(result)


SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-45, 3.4028235e38]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    count=st.sampled_from([0, 1, 3, 4, 5, 1023, 1024, 1025, 5000]),
    kind=st.sampled_from(["float32", "float64", "bfloat16"]),
    noise=st.sampled_from([0.0, 1e-7, 1e-3, 1.0]),
    special=st.sampled_from([0.0, 0.001, 0.3]),
    tolerance=st.sampled_from(
        [(0.0, 0.0, 0.0), (1e-5, 1e-6, 0.0), (1e-5, 0.0, 0.0), (0.0, 1e-6, 1e-30), (0.0, 0.0, 1e3)]
    ),
    seed=st.integers(0, 1 << 30),
)
@example(count=5000, kind="float32", noise=0.0, special=0.3, tolerance=(1e-5, 1e-6, 0.0), seed=1)
@example(count=5000, kind="float32", noise=1e-3, special=0.0, tolerance=(1e-5, 0.0, 0.0), seed=2)
@example(count=5000, kind="float64", noise=1e-3, special=0.0, tolerance=(1e-5, 0.0, 0.0), seed=3)
@example(count=5000, kind="bfloat16", noise=1.0, special=0.001, tolerance=(1e-2, 1e-3, 0.0), seed=4)
@example(count=5000, kind="float32", noise=1e-3, special=0.0, tolerance=(0.0, 1e-4, 0.0), seed=5)
def test_it_finds_what_one_element_after_the_other_gives(
    compiled: ctypes.CDLL,
    count: int,
    kind: str,
    noise: float,
    special: float,
    tolerance: tuple[float, float, float],
    seed: int,
) -> None:
    import ml_dtypes

    dtype = np.dtype(ml_dtypes.bfloat16) if kind == "bfloat16" else np.dtype(kind)
    random = np.random.default_rng(seed)
    expected = random.standard_normal(count) * 10.0 ** random.integers(-3, 4)
    actual = expected + noise * random.standard_normal(count) * np.abs(expected)
    for x in (expected, actual):
        chosen = random.random(count) < special / 2
        x[chosen] = random.choice(SPECIAL, int(chosen.sum()))
    same = random.random(count) < special / 2
    expected[same] = actual[same] = random.choice(SPECIAL, int(same.sum()))
    with np.errstate(all="ignore"):
        e, a = expected.astype(dtype), actual.astype(dtype)
    np.testing.assert_allclose(found(compiled, e, a, tolerance), one_by_one(e, a, tolerance), rtol=1e-12)


@pytest.mark.parametrize("at", [0, 1, 1023, 1024, 4000, 4999])
@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1.1])
def test_one_wrong_element_is_found_wherever_it_is(compiled: ctypes.CDLL, at: int, wrong: float) -> None:
    expected = np.ones(5000, np.float32)
    actual = expected * np.float32(1 + 1e-6)
    actual[at] = wrong
    agree, worst_index, *_ = found(compiled, expected, actual, (1e-5, 0.0, 0.0))
    assert (agree, worst_index) == (0.0, at)


@pytest.mark.parametrize("at", [None, 0, 1023, 1024, 2500, 2999])
def test_the_first_different_byte(compiled: ctypes.CDLL, at: int | None) -> None:
    expected = np.arange(3000, dtype=np.uint8)
    actual = expected.copy()
    if at is not None:
        actual[at:] += 1
    pointers = [x.ctypes.data_as(ctypes.c_void_p) for x in (expected, actual)]
    assert compiled.first_different(*pointers, ctypes.c_int64(3000)) == (-1 if at is None else at)
