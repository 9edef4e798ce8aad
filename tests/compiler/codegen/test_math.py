"""The kernels' elementary functions: errors, special values, and that nothing about them is scalar or a library's.

References have 64 bits of significand (x87's long double, by numpy and glibc), eleven more than a double. Where they are looked at:
random bit patterns of the whole format, special values and their neighbours, a dense sample where the function is not flat, near 0 by
relative error, near 1 (log), and near multiples of pi/2. float's exp and log are tried on all bit
patterns there are (`--all`)."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from stitchfleet.compiler.codegen.cpu.kernel_text import translation_unit
from stitchfleet.compiler.ir.graph import DType
from stitchfleet.compiler.ops.table import OPS
from stitchfleet.compiler.toolchain.host import cpu_features

from ...marks import slow
from ..library import LIBRARY, Maker
from ..native import build_all, toolchain

Array = npt.NDArray[Any]
Long = np.longdouble

pytestmark = pytest.mark.skipif(np.finfo(Long).nmant < 63, reason="no long double to compare with")


@dataclass(frozen=True)
class Function:
    """`most`: beyond what argument (float, double) it is flat or out of range. `op`: its row of the op table, if that is
    called something else."""

    reference: Callable[..., Array]
    most: tuple[float, float] = (100.0, 100.0)
    operands: int = 1
    op: str = ""


def logistic(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


FUNCTIONS: Mapping[str, Function] = {
    "exp": Function(np.exp, (110, 760)),
    "expm1": Function(np.expm1, (110, 760)),
    "log": Function(np.log),
    "log1p": Function(np.log1p),
    "cbrt": Function(np.cbrt),
    "tanh": Function(np.tanh, (12, 25)),
    "logistic": Function(logistic, (110, 760)),
    "erf": Function(lambda x: _erf(x), (5, 7)),
    "sin": Function(np.sin),
    "cos": Function(np.cos),
    "tan": Function(np.tan),
    "pow": Function(np.power, operands=2, op="power"),
    "atan2": Function(np.arctan2, operands=2),
}
BOUNDED_BY_ONE = ("tanh", "erf", "sin", "cos", "logistic")
DTYPES = {"float": np.dtype(np.float32), "double": np.dtype(np.float64)}
WITHOUT_FUSED = 0.75
"""Units in the last place by which bounds are larger where there are no fused multiply-adds; what the header states."""

LOOP = """
extern "C" STITCH_EXPORT void {name}_{ctype}({arguments}, {ctype}* __restrict y, long long count) {{
  #pragma omp simd
  for (long long i = 0; i < count; ++i) y[i] = stitch_{name}({values});
}}
extern "C" STITCH_EXPORT void {name}_{ctype}_one({arguments}, {ctype}* y, long long) {{
  const int i = 0;
  *y = stitch_{name}({values});
}}
"""
REFERENCES = """
extern "C" long double erfl(long double) noexcept;
extern "C" double exp(double) noexcept;
extern "C" double log(double) noexcept;
extern "C" STITCH_EXPORT void erf_reference(const long double* x, long double* y, long long count) {
  for (long long i = 0; i < count; ++i) y[i] = erfl(x[i]);
}
/* The largest error of float's log, as of exp below; subnormals, which a thread may flush, are left to the samples. */
extern "C" STITCH_EXPORT double worst_log(unsigned long long first, unsigned long long last, unsigned long long step,
                                          unsigned* where) {
  double worst = 0;
  for (unsigned long long bits = first; bits < last; bits += step) {
    const float x = stitch_bits<float>((unsigned)bits);
    const double right = log((double)x);
    const unsigned long long exponent = stitch_bits<unsigned long long>(right) >> 52 & 2047;
    const double error = __builtin_fabs((double)stitch_log(x) - right) / stitch_bits<double>((exponent - 23) << 52);
    if (!(error <= worst) && x != 1) worst = error, *where = (unsigned)bits;
  }
  return worst;
}
/* The largest error of float's exp, in units in the last place, over every `step`th bit pattern; *where: of which. */
extern "C" STITCH_EXPORT double worst_exp(unsigned long long first, unsigned long long last, unsigned long long step,
                                          unsigned* where) {
  double worst = 0;
  for (unsigned long long bits = first; bits < last; bits += step) {
    const float x = stitch_bits<float>((unsigned)bits);
    const float y = stitch_exp(x);
    double error;
    if (x != x) {
      error = y != y ? 0 : __builtin_inf();
    } else if (x > 88.75f || x < -104.5f) {
      error = y == (x > 0 ? __builtin_inff() : 0.0f) ? 0 : __builtin_inf();
    } else {
      const double right = exp((double)x);
      if (right >= 0x1.ffffffp127) { /* rounds to Inf */
        error = y == __builtin_inff() ? 0 : __builtin_inf();
      } else {
        const unsigned long long exponent = stitch_bits<unsigned long long>(right) >> 52;
        const double unit = stitch_bits<double>((exponent < 897 ? 897 - 23 : exponent - 23) << 52);
        error = __builtin_fabs((double)y - right) / unit;
      }
    }
    if (!(error <= worst)) worst = error, *where = (unsigned)bits;
  }
  return worst;
}
"""

VARIANTS: Mapping[str, tuple[str, ...]] = {
    "native": (),
    "baseline": ("-march=x86-64",),
    "avx2": ("-march=x86-64-v3",),
}


def stated() -> dict[tuple[str, str], float]:
    """The bounds in the header's own table, with fused multiply-adds: by name and C++ type."""
    text = (resources.files("stitchfleet.compiler.codegen.c") / "kernel_math.h").read_text()
    rows = re.findall(r"\b([a-z][a-z0-9, ]*?) +(\d\.\d+) +(\d\.\d+)", text.split("#ifndef")[0])
    return {
        (name.strip(), ctype): float(value)
        for names, *values in rows
        for name in names.split(",")
        for ctype, value in zip(DTYPES, values, strict=True)
    }


STATED = stated()


def _texts() -> list[str]:
    texts = []
    for name, function in FUNCTIONS.items():
        for ctype in DTYPES:
            names = [f"x{k}" for k in range(function.operands)]
            arguments = ", ".join(f"const {ctype}* __restrict {x}" for x in names)
            values = ", ".join(f"{x}[i]" for x in names)
            texts.append(LOOP.format(name=name, ctype=ctype, arguments=arguments, values=values))
    return texts


@pytest.fixture(scope="module", params=["native", "baseline", pytest.param("avx2", marks=pytest.mark.slow)])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ctypes.CDLL]:
    variant = str(request.param)
    if variant != "native" and "vendor_id" not in cpu_features():
        pytest.skip("another processor's flag")
    if variant == "avx2" and not {"avx2", "fma"} <= set(cpu_features().split()):
        pytest.skip("this processor has no AVX2")
    folder: Path = tmp_path_factory.mktemp("math")
    (folder / "math.cc").write_text(translation_unit([*_texts(), REFERENCES]))
    toolchain().build(folder / "math.cc", folder / "math.so", VARIANTS[variant])
    found = ctypes.CDLL(str(folder / "math.so"))
    found.worst_exp.restype = found.worst_log.restype = ctypes.c_double
    return variant, found


_ERF: list[ctypes.CDLL] = []


def _erf(x: Array) -> Array:
    x = np.ascontiguousarray(x, Long)
    y = np.empty_like(x)
    _ERF[-1].erf_reference(*(ctypes.c_void_p(array.ctypes.data) for array in (x, y)), ctypes.c_longlong(x.size))
    return y


def call(library: ctypes.CDLL, name: str, ctype: str, operands: Sequence[Array], one: bool = False) -> Array:
    y = np.empty_like(operands[0])
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*operands, y)]
    library[f"{name}_{ctype}{'_one' if one else ''}"](*pointers, ctypes.c_longlong(y.size))
    return y


def right(library: ctypes.CDLL, name: str, operands: Sequence[Array]) -> Array:
    _ERF.append(library)
    with np.errstate(all="ignore"):
        return FUNCTIONS[name].reference(*(x.astype(Long) for x in operands))


def specials(dtype: np.dtype[Any]) -> Array:
    about = np.finfo(dtype)
    sizes = [0.0, 1.0, 2.0, 3.0, 0.5, 1e-3, about.tiny, about.smallest_subnormal, about.max, 1e3, 1e9, 1e10, np.inf]
    sizes += [88.72284, 103.97, 709.78, 745.13, 3.92, 5.9, np.pi / 2, np.pi, 2.0**16, 2.0**27, 2.0**40, 1e22]
    with np.errstate(all="ignore"):
        positive = np.array(sizes).astype(dtype)
        near = np.concatenate(
            [positive, np.nextafter(positive, dtype.type(np.inf)), np.nextafter(positive, dtype.type(0))]
        )
    return np.concatenate([near, -near, np.array([np.nan], dtype)])


def sample(name: str, dtype: np.dtype[Any], count: int, seed: int) -> list[Array]:
    function, rng = FUNCTIONS[name], np.random.default_rng(seed)
    most = function.most[dtype == np.float64]

    def numbers() -> Array:
        bits = (
            rng.integers(0, 1 << (8 * dtype.itemsize), count, dtype=np.uint64).astype(f"u{dtype.itemsize}").view(dtype)
        )
        sign = rng.choice([-1.0, 1.0], count)
        parts = [
            rng.uniform(-most, most, count),
            rng.uniform(-1, 1, count),
            sign * 10 ** rng.uniform(-8, 8, count),
            1 + sign * 10 ** rng.uniform(-8, 0, count),
            np.rint(rng.uniform(-1e4, 1e4, count)) * (np.pi / 2),
        ]
        return np.concatenate([bits, specials(dtype), *(part.astype(dtype) for part in parts)])

    first = numbers()
    if function.operands == 1:
        return [first]
    second = rng.permutation(numbers())
    if name == "pow":  # most of the pairs so that the power is within range, half of the bases positive
        first = np.where(rng.random(first.size) < 0.5, np.abs(first), first)
        limit = float(np.log(np.finfo(dtype).max))
        with np.errstate(all="ignore"):
            fitting = (rng.uniform(-limit, limit, first.size) / np.log(np.abs(first.astype(Long)))).astype(dtype)
        second = np.where(rng.random(first.size) < 0.7, fitting, second)
    return [first, second]


def units(y: Array, exact: Array) -> Array:
    """How far `y` is from `exact` in units in the last place of y's format. Inf where only one is NaN or infinite."""
    about = np.finfo(y.dtype)
    with np.errstate(all="ignore"):
        size = np.abs(exact)
        exponent = np.floor(np.log2(np.where(size > 0, size, Long(about.tiny))))
        unit = np.exp2(np.maximum(exponent, np.log2(Long(about.tiny))) - about.nmant)
        error = np.abs(y.astype(Long) - exact) / unit
        rounded = exact.astype(y.dtype)
    error = np.where(np.isinf(rounded) | np.isinf(y), np.where(y == rounded, 0, np.inf), error)
    error = np.where(np.isnan(exact), np.where(np.isnan(y), 0, np.inf), error)
    return np.where(np.isnan(error), np.inf, error)


def complaint(library: tuple[str, ctypes.CDLL], name: str, ctype: str, operands: Sequence[Array]) -> str | None:
    variant, functions = library
    y, exact = call(functions, name, ctype, operands), right(functions, name, operands)
    error = units(y, exact)
    if name == "logistic":  # 1 / Inf
        error = np.where((np.abs(exact) < np.finfo(y.dtype).tiny) & (y == 0), 0, error)
    most = STATED[name, ctype] + (0 if variant != "baseline" and "fma" in cpu_features().split() else WITHOUT_FUSED)
    at = int(error.argmax())
    if error[at] <= most:
        return None
    given = ", ".join(repr(x[at]) for x in operands)
    return f"{name}({given}) = {y[at]!r}, right {exact[at]!r}: {float(error[at]):.2f} units, {most} stated"


@pytest.mark.parametrize("ctype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_errors_are_as_small_as_stated(library: tuple[str, ctypes.CDLL], name: str, ctype: str) -> None:
    assert complaint(library, name, ctype, sample(name, DTYPES[ctype], 20_000, 1)) is None


@pytest.mark.slow
@pytest.mark.parametrize("ctype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_errors_are_as_small_as_stated_in_a_denser_sample(
    library: tuple[str, ctypes.CDLL], name: str, ctype: str
) -> None:
    for seed in range(2, 12):
        assert complaint(library, name, ctype, sample(name, DTYPES[ctype], 200_000, seed)) is None


def _worst(library: tuple[str, ctypes.CDLL], name: str, first: int, last: int, step: int) -> tuple[float, float]:
    where = ctypes.c_uint()
    ends = (ctypes.c_ulonglong(first), ctypes.c_ulonglong(last), ctypes.c_ulonglong(step))
    worst = float(getattr(library[1], f"worst_{name}")(*ends, ctypes.byref(where)))
    return worst, float(np.array(where.value, np.uint32).view(np.float32))


EVERY = pytest.mark.parametrize("step", [1009, pytest.param(1, marks=pytest.mark.slow)])


@EVERY
def test_exp_of_all_floats(library: tuple[str, ctypes.CDLL], step: int) -> None:
    worst, where = _worst(library, "exp", 0, 1 << 32, step)
    assert worst <= STATED["exp", "float"] + (0 if library[0] == "native" else WITHOUT_FUSED), where


@EVERY
def test_log_of_all_positive_normal_floats(library: tuple[str, ctypes.CDLL], step: int) -> None:
    worst, where = _worst(library, "log", 0x00800000, 0x7F800000, step)
    assert worst <= STATED["log", "float"] + (0 if library[0] == "native" else WITHOUT_FUSED), where


@pytest.mark.parametrize("ctype", DTYPES)
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
@pytest.mark.parametrize("among", [1, 2, 16])
def test_arguments_far_out_of_range_are_right_alone_and_in_company(
    library: tuple[str, ctypes.CDLL], name: str, ctype: str, among: int
) -> None:
    """One in `among` is huge, of every exponent there is; Inf and NaN among them."""
    dtype = DTYPES[ctype]
    rng = np.random.default_rng(6)
    most = np.finfo(dtype).maxexp
    huge = np.ldexp(rng.uniform(1, 2, 20_000), rng.integers(10, most, 20_000)) * rng.choice([-1.0, 1.0], 20_000)
    huge[::97], huge[5::1009] = np.inf, np.nan
    # The nearest a number of the format comes to a multiple of pi/2 (J.-M. Muller, Elementary Functions, 11.2.2).
    huge[:2] = {"float": (16367173.0 * 2.0**72, 1e38), "double": (6381956970095103.0 * 2.0**797, 1e300)}[ctype]
    x = np.where(np.arange(20_000) % among == 0, huge, rng.uniform(-10, 10, 20_000)).astype(dtype)
    assert complaint(library, name, ctype, [x]) is None


@pytest.mark.parametrize("ctype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values_are_right_to_the_sign_of_a_zero(
    library: tuple[str, ctypes.CDLL], name: str, ctype: str
) -> None:
    """Where the function is exact: at zeros, infinities, NaN, one, and numbers so small that nothing can be added to them."""
    dtype = DTYPES[ctype]
    tiny = float(np.finfo(dtype).tiny)
    values = np.array(
        [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, tiny, -tiny, tiny / 4, -tiny / 4, 2.0, -2.0, 3.0, 0.5], dtype
    )
    operands = [values]
    if FUNCTIONS[name].operands == 2:
        operands = [np.repeat(values, values.size), np.tile(values, values.size)]
    y, exact = call(library[1], name, ctype, operands), right(library[1], name, operands)
    with np.errstate(all="ignore"):
        rounded = exact.astype(dtype)
    same = (y == rounded) | (np.isnan(y) & np.isnan(rounded))
    same &= np.signbit(y) == np.signbit(rounded)
    same |= np.isnan(rounded) & np.isnan(y)
    known = np.isin(rounded, [0.0, 1.0, -1.0]) | ~np.isfinite(rounded) | (np.abs(rounded) <= tiny)
    assert known.any()
    assert (same | ~known).all(), [(*(x[i] for x in operands), y[i], rounded[i]) for i in np.flatnonzero(known & ~same)]


@pytest.mark.parametrize("ctype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_vector_and_scalar_code_agree_to_the_last_bit(library: tuple[str, ctypes.CDLL], name: str, ctype: str) -> None:
    operands = [np.ascontiguousarray(x[::41]) for x in sample(name, DTYPES[ctype], 5_000, 3)]
    together = call(library[1], name, ctype, operands)
    apart = [call(library[1], name, ctype, [x[i : i + 1] for x in operands], True)[0] for i in range(together.size)]
    assert np.array_equal(together, np.array(apart), equal_nan=True)


@pytest.mark.parametrize("ctype", DTYPES)
@pytest.mark.parametrize("name", BOUNDED_BY_ONE)
def test_no_result_leaves_the_functions_range(library: tuple[str, ctypes.CDLL], name: str, ctype: str) -> None:
    """A tanh or a sine beyond 1 would make a NaN of sqrt(1 - y^2)."""
    (x,) = sample(name, DTYPES[ctype], 100_000, 4)
    y = call(library[1], name, ctype, [x[np.isfinite(x)]])
    assert (np.abs(y) <= 1).all()


@pytest.mark.parametrize(("ctype", "saturated"), [("float", 3.92), ("double", 5.93)])
def test_erf_and_tanh_are_one_exactly_where_one_is_nearest(
    library: tuple[str, ctypes.CDLL], ctype: str, saturated: float
) -> None:
    dtype = DTYPES[ctype]
    x = np.array(
        [saturated, saturated + 0.1, 6.1, 10.0, 88.0 / np.sqrt(2), 1e9, 1e38, np.finfo(dtype).max, np.inf], dtype
    )
    for sign in (-1, 1):
        assert (call(library[1], "erf", ctype, [sign * x]) == sign).all()
        assert (call(library[1], "tanh", ctype, [np.minimum(x, dtype.type(1e30)) * sign * 4]) == sign).all()


def test_the_op_table_allows_no_more_than_the_functions_need() -> None:
    """Its bounds are those of the larger of our functions' errors and of CUDA's."""
    cuda = {
        "exp": 1,
        "expm1": 1,
        "log": 1,
        "log1p": 1,
        "cbrt": 1,
        "tanh": 2,
        "logistic": 0,
        "erf": 2,
        "sin": 2,
        "cos": 2,
    }
    cuda |= {"tan": 4, "pow": 4, "atan2": 3}
    for name, function in FUNCTIONS.items():
        needed = max(cuda[name], *(STATED[name, ctype] for ctype in DTYPES))
        assert needed <= OPS[function.op or name].ulps <= needed + WITHOUT_FUSED, name


@pytest.mark.parametrize("march", ["native", slow("x86-64-v3")])
def test_the_compiler_makes_vectors_of_every_function(tmp_path: Path, march: str) -> None:
    found, features = toolchain(), cpu_features().split()
    if found.is_clang or "avx2" not in features:
        pytest.skip("asks gcc on a processor with AVX2")
    width = 64 if march == "native" and "avx512f" in features else 32
    loops = [
        f'#line {1000 * (k + 1)} "{name}_{ctype}.cc"\n{text}'
        for k, ((name, ctype), text) in enumerate(
            zip(((name, ctype) for name in FUNCTIONS for ctype in DTYPES), _texts(), strict=True)
        )
    ]
    (tmp_path / "math.cc").write_text(translation_unit(loops))
    command = [*found.command, *found.flags, f"-march={march}", "-fopt-info-vec-optimized", "math.cc", "-o", "math.so"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stderr
    vectorised = set(
        re.findall(rf"^(\w+)\.cc:\d+:\d+: optimized: loop vectorized using {width} byte", said, re.MULTILINE)
    )
    assert vectorised >= {f"{name}_{ctype}" for name in FUNCTIONS for ctype in DTYPES}


def undefined_symbols(library: Path) -> set[str]:
    listed = subprocess.run(["nm", "--undefined-only", str(library)], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1].partition("@")[0] for line in listed.splitlines() if line.split()[0] != "w"}


@pytest.mark.costly
def test_no_kernel_calls_a_vector_library_or_an_elementary_function_of_the_c_library() -> None:
    graphs = [graph() for graph in LIBRARY.values()]
    for dtype in (DType.F32, DType.F64, DType.BF16):
        for name, function in FUNCTIONS.items():
            m = Maker(f"{name}_{dtype.value}")
            operands = [m.parameter(100, 64, dtype=dtype) for _ in range(function.operands)]
            graphs.append(m.done(m.op(function.op or name, *operands)))
    libraries = {built.library for built in build_all(graphs)}
    called = {symbol for library in libraries for symbol in undefined_symbols(library)}
    assert called <= {"fmod", "fmodf", "memcpy", "memset", "memmove"}
