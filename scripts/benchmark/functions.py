"""`scripts/bench --functions`: time per element of the kernels' elementary functions, compared with glibc's vector library.

Each function (codegen/c/kernel_math.h) is compiled as generated kernels are, in a loop over elements in the first-level cache. So is
a call of the C library's function, which gcc takes from libmvec if the machine has it (glibc 2.35); if not, it is left out. Both run
on ordinary numbers and on data of which half is masked: -1e9, -100, -Inf, NaN. The contestants take turns; a figure is the median
over the rounds. Subnormals are flushed to zero, as in TensorFlow's threads. All figures include loads and stores.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import pathlib
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stitchfleet.compiler.codegen.cpu.kernel_text import translation_unit
from stitchfleet.compiler.toolchain.host import CompilerFailedError, Toolchain, find_toolchain

from . import machine
from .turns import in_turns

Numbers = npt.NDArray[Any]
ELEMENTS: Final = 4096
CALLS: Final = 25
FORMAT: Final = 1
ONE: Final = ("exp", "expm1", "log", "log1p", "cbrt", "tanh", "logistic", "erf", "sin", "cos", "tan")
TWO: Final = ("pow", "atan2")
RANGES: Final[Mapping[str, tuple[float, float]]] = {
    "log": (1e-3, 100.0),
    "log1p": (-0.9, 100.0),
    "cbrt": (-100.0, 100.0),
    "pow": (1e-3, 8.0),
}
"""Range of the ordinary numbers; -8 to 8 for the functions not listed."""
MASKS: Final[Mapping[str, float]] = {"-1e9": -1e9, "-100": -100.0, "-inf": -np.inf, "nan": np.nan}
TYPES: Final[Mapping[str, type]] = {"float": np.float32, "double": np.float64}

LOOP: Final = """
extern "C" STITCH_EXPORT void {symbol}({arguments}, {ctype}* __restrict y, long long count) {{
  #pragma omp simd
  for (long long i = 0; i < count; ++i) y[i] = {value};
}}
"""
REPEAT: Final = """
#ifdef __x86_64__
struct Flushed { /* subnormals, for as long as it lives */
  unsigned before = __builtin_ia32_stmxcsr();
  Flushed() { __builtin_ia32_ldmxcsr(before | 0x8040); }
  ~Flushed() { __builtin_ia32_ldmxcsr(before); }
};
#else
struct Flushed { Flushed() {} };
#endif
extern "C" STITCH_EXPORT void repeat1(void (*f)(const void*, void*, long long), const void* x, void* y,
                                      long long n, long long times) {
  Flushed flushed;
  for (long long i = 0; i < times; ++i) f(x, y, n);
}
extern "C" STITCH_EXPORT void repeat2(void (*f)(const void*, const void*, void*, long long), const void* x, const void* z, void* y,
                                      long long n, long long times) {
  Flushed flushed;
  for (long long i = 0; i < times; ++i) f(x, z, y, n);
}
"""


@dataclass(frozen=True)
class Figure:
    """Nanoseconds per element of one function on one kind of data. libmvec_ns: None if the machine has no libmvec."""

    function: str
    ctype: str
    data: str
    ns: float
    libmvec_ns: float | None


def main(words: Sequence[str]) -> int:
    """The command. Returns exit code 0, or 2 for a mistake on the command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench --functions", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = (*ONE, *TWO)
    parser.add_argument("--only", default=",".join(names), metavar="A,B", help="functions (default: all)")
    parser.add_argument("--rounds", type=int, default=15, metavar="N", help="turns of each contestant (default 15)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all results to FILE")
    arguments = parser.parse_args(words)
    wanted = [name.strip() for name in arguments.only.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in names]
    if unknown or not wanted:
        parser.error(f"--only: there is no function {', '.join(unknown) or 'given'}; there are: {', '.join(names)}")
    if arguments.rounds < 1:
        parser.error("--rounds: at least 1")
    figures: list[Figure] = []
    print(_head())
    with tempfile.TemporaryDirectory(prefix="stitchfleet-functions-") as folder:
        bench = Bench(pathlib.Path(folder), wanted, find_toolchain())
        for name in wanted:
            for ctype in TYPES:
                row = [bench.measure(name, ctype, data, arguments.rounds) for data in ("ordinary", *MASKS)]
                figures += row
                print(_row(row), flush=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(document(figures), indent=1) + "\n")
    return 0


class Bench:
    """The compiled functions `names`, in both types: ours, and the vector library's if it can be linked. `folder` gets the files of
    the compilation."""

    def __init__(self, folder: pathlib.Path, names: Sequence[str], toolchain: Toolchain) -> None:
        self.ours = _built(
            folder / "ours", [_loop(name, ctype, True) for name in names for ctype in TYPES], toolchain, ()
        )
        self.libmvec: ctypes.CDLL | None = None
        if platform.machine() in ("x86_64", "AMD64") and not toolchain.is_clang:
            texts = [_loop(name, ctype, False) for name in names for ctype in TYPES]
            try:
                self.libmvec = _built(folder / "libmvec", texts, toolchain, ("-Wl,--no-as-needed", "-lmvec"))
            except (CompilerFailedError, OSError):
                self.libmvec = None

    def measure(self, name: str, ctype: str, data: str, rounds: int) -> Figure:
        """Times function `name` in turns, the median over `rounds` rounds. ctype, data: as in `numbers`."""
        operands = numbers(name, ctype, data)
        contestants = {"ours": partial(self._once, self.ours, f"{name}_{ctype}", operands)}
        if self.libmvec is not None:
            contestants["libmvec"] = partial(self._once, self.libmvec, f"{name}_{ctype}", operands)
        times = in_turns(contestants, rounds, 1, lambda contestant: contestants[contestant]())
        medians = {contestant: statistics.median(found) for contestant, found in times.items()}
        return Figure(name, ctype, data, medians["ours"], medians.get("libmvec"))

    def _once(self, library: ctypes.CDLL, symbol: str, operands: Sequence[Numbers]) -> float:
        result = np.empty_like(operands[0])
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*operands, result)]
        function = ctypes.cast(library[symbol], ctypes.c_void_p)
        repeat = self.ours.repeat1 if len(operands) == 1 else self.ours.repeat2
        started = time.perf_counter_ns()
        repeat(function, *pointers, ctypes.c_longlong(ELEMENTS), ctypes.c_longlong(CALLS))
        return (time.perf_counter_ns() - started) / ELEMENTS / CALLS


def numbers(name: str, ctype: str, data: str) -> list[Numbers]:
    """The operands of function `name`: one or two arrays of ELEMENTS numbers of type `ctype` (a key of TYPES). data: "ordinary", or a
    key of MASKS, whose value a random half of the first operand then has."""
    rng = np.random.default_rng(5)
    first = rng.uniform(*RANGES.get(name, (-8.0, 8.0)), ELEMENTS)
    if data in MASKS:
        first = np.where(rng.random(ELEMENTS) < 0.5, MASKS[data], first)
    found = [first, rng.uniform(-3, 3, ELEMENTS)] if name in TWO else [first]
    return [array.astype(TYPES[ctype]) for array in found]


def _loop(name: str, ctype: str, ours: bool) -> str:
    operands = ("x", "z") if name in TWO else ("x",)
    values = ", ".join(f"{operand}[i]" for operand in operands)
    arguments = ", ".join(f"const {ctype}* __restrict {operand}" for operand in operands)
    head, value = "", f"stitch_{name}({values})"
    if not ours:
        called = ("exp" if name == "logistic" else name) + ("f" if ctype == "float" else "")
        head = f'extern "C" __attribute__((simd("notinbranch"))) {ctype} {called}({", ".join([ctype] * len(operands))}) noexcept;'
        value = f"1 / (1 + {called}(-x[i]))" if name == "logistic" else f"{called}({values})"
    return head + LOOP.format(symbol=f"{name}_{ctype}", arguments=arguments, ctype=ctype, value=value)


def _built(stem: pathlib.Path, texts: Sequence[str], toolchain: Toolchain, extra: Sequence[str]) -> ctypes.CDLL:
    source, library = stem.with_suffix(".cc"), stem.with_suffix(".so")
    source.write_text(translation_unit([*texts, REPEAT]))
    toolchain.build(source, library, extra)
    return ctypes.CDLL(str(library))


# ---- out -----------------------------------------------------------------------------------------------------------


def _head() -> str:
    columns = "".join(f"{data:>17}" for data in ("ordinary", *(f"half {mask}" for mask in MASKS)))
    return f"{machine.cpu_name()}; nanoseconds an element, ours / libmvec\n{'function':<17}{columns}"


def _row(figures: Sequence[Figure]) -> str:
    cells = [
        f"{figure.ns:.3f} / {'-' if figure.libmvec_ns is None else f'{figure.libmvec_ns:.3f}'}" for figure in figures
    ]
    return f"{figures[0].function + ' ' + figures[0].ctype:<17}" + "".join(f"{cell:>17}" for cell in cells)


def document(figures: Sequence[Figure]) -> dict[str, Any]:
    """All results as JSON."""
    return {
        "format": FORMAT,
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": {"cpu": machine.cpu_name(), "cores": machine.cores()},
        "versions": {**machine.versions(), "c_library": "-".join(platform.libc_ver())},
        "functions": [asdict(figure) for figure in figures],
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
