"""The machine's arithmetic, measured: floating-point operations per second from registers alone, on one core and on all.

No program can do more. A matrix product that reaches 85% of it has nothing left to gain from another kernel.
"""

from __future__ import annotations

import ctypes
import pathlib
import tempfile
import threading
import time
from dataclasses import dataclass

from stitchfleet.compiler.toolchain.host import find_toolchain

from . import machine

SOURCE = pathlib.Path(__file__).with_name("arithmetic.cc")
_REPEATS = 5
_SECONDS = 0.1
"""Length of a measurement."""


@dataclass(frozen=True)
class Peak:
    """Floating-point operations per second (a multiply-add counts as two). one: a core alone. all: all cores at once."""

    one: float
    all: float


@dataclass(frozen=True)
class Arithmetic:
    """float32: by the widest vectors. bfloat16_tiles: by AMX; None if this machine has none."""

    float32: Peak
    bfloat16_tiles: Peak | None


def measure() -> Arithmetic:
    """Measures for about two seconds. Raises ToolchainError if there is no C++ compiler."""
    with tempfile.TemporaryDirectory(prefix="stitchfleet-arithmetic-") as folder:
        library = pathlib.Path(folder) / "arithmetic.so"
        find_toolchain().build(SOURCE, library)
        loaded = ctypes.CDLL(str(library))
        found = _peak(loaded.float32)
        assert found is not None
        return Arithmetic(found, _peak(loaded.bfloat16_tiles))


def _peak(function: ctypes._NamedFuncPointer) -> Peak | None:
    function.argtypes, function.restype = [ctypes.c_long], ctypes.c_double
    turns = 1000
    while True:
        started = time.perf_counter()
        if not function(turns):
            return None
        if (took := time.perf_counter() - started) > _SECONDS / 10:
            break
        turns *= 4
    turns = max(1, int(turns * _SECONDS / took))
    return Peak(*(max(_rate(function, turns, threads) for _ in range(_REPEATS)) for threads in (1, machine.cores())))


def _rate(function: ctypes._NamedFuncPointer, turns: int, threads: int) -> float:
    """Operations per second of so many threads at once."""
    done: list[float] = []  # appended by each thread; ctypes lets the others run meanwhile
    workers = [threading.Thread(target=lambda: done.append(function(turns))) for _ in range(threads)]
    started = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(done) / (time.perf_counter() - started)
