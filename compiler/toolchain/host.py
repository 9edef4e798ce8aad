"""Finds the machine's C++ compiler, identifies it, and runs it as a child process that does not disturb the training.

The flags, with the reasons:
- `-O3 -march=native`: kernels run where they are built (the CPU's features are part of the cache's key).
- `-fno-math-errno -fno-trapping-math`: without them gcc vectorises neither a square root nor a select around a division.
  Neither flag changes a value.
- `-fno-thread-jumps` (gcc): if two selects follow each other, as in a clamp, jump threading turns them into branches before
  they can become vector selects: five more instructions on top of exp's twenty. No branch in a kernel profits from it.
- `-fno-tree-loop-distribute-patterns` (gcc): with AVX2, gcc makes a memcpy of a loop that copies 16 elements and expands it into
  moves of 16 bytes; a load of a whole vector behind it must then wait for these stores. Measured on a Zen 3: running sums along the
  last axis 0.25 times, transposes 0.3 to 0.7 times as long, the workloads' kernels 0.95 to 1.02 times.
- `-fno-loop-unroll-and-jam` (gcc): where a row begins with a number that is read under a guard (a row of a concatenation), gcc jams
  rows together and then finds no vectors in the loop over the row: a row of 768 times a matrix of 768 x 1024 took 300 us on a Zen 4
  instead of 43. 45 of the workloads' kernels take 0.90 to 1.05 times as long without it, 0.99 on average.
- `-ffp-contract=off`: an element-wise op rounds once, as HLO defines and as TensorFlow's op-by-op kernels do. Fused
  multiply-adds would be more exact one by one, but comparisons, floors and differences of equal terms would then disagree
  with TensorFlow; kernels that are bound by memory gain nothing from them.
- `-mprefer-vector-width=512` (gcc, x86): on a CPU with AVX-512, gcc would use half of the vector width. Measured on a Cascade
  Lake: GELU 1.9 -> 1.2 ns an element, an LSTM cell's gates 11 -> 6 us, cross-entropy 20 -> 13 ms; the time of memory-bound
  kernels does not change.
- `-mno-stv` (gcc, x86): gcc makes a vector minimum of a scalar one, such as an index's clamp, and stores the scalar as 4 bytes to
  load 16 of them, which waits for the store. Reading rows of 8 numbers by index on a Zen 4: 17 ns a row with it, 4 without.
- `-fwrapv` is not used: the op table's text makes integer ops wrap.
- `-nostdlib` (zig): a kernel needs no library function that the loading process does not have already (fmod, memset). Without
  the flag zig first builds stubs of a C library: 3 s and 47 MB on a fast machine, half a minute on a busy one, instead of 0.1 s.
- never `-ffast-math`: it changes values, and linking with it sets flush-to-zero for the whole process.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

FLAGS = (
    "-std=c++17",
    "-O3",
    "-march=native",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=off",
    "-fopenmp-simd",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-asynchronous-unwind-tables",
    "-fno-semantic-interposition",
    "-fvisibility=hidden",
    "-w",
    "-fPIC",
    "-shared",
)
GCC_FLAGS = (
    "-fno-plt",
    "-fno-thread-jumps",
    "-fno-tree-loop-distribute-patterns",
    "-fno-loop-unroll-and-jam",
)
GCC_X86_FLAGS = ("-mprefer-vector-width=512", "-mno-stv")
LIBRARIES = ("-Wl,--as-needed", "-lm")
ZIG_LIBRARIES = ("-nostdlib",)
DEFAULT_TIMEOUT_S = 120.0
STDERR_KEPT = 2000  # characters of a compiler's stderr that an error keeps


class ToolchainError(Exception):
    """Base class of the compiler's errors; the text is one line."""


class CompilerMissingError(ToolchainError):
    """No C++ compiler was found."""


class CompilerFailedError(ToolchainError):
    """The compiler failed, or did not end in time. `details`: the tail of its stderr. `is_certain`: the source has an error, so
    that compiling it again fails again; False if the compiler may have been killed or run out of memory or disk space."""

    def __init__(self, message: str, details: str = "", is_certain: bool = False) -> None:
        super().__init__(message)
        self.details = details
        self.is_certain = is_certain


def cpu_features() -> str:
    """The CPU as the kernel reports it: its model and feature flags, which determine what -march=native means."""
    with contextlib.suppress(OSError):
        wanted = {}
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            key = key.strip()
            if (
                key in ("vendor_id", "cpu family", "model", "stepping", "flags", "Features", "CPU part")
                and key not in wanted
            ):
                wanted[key] = value.strip()
        return " ".join(f"{key}={value}" for key, value in sorted(wanted.items()))
    return platform.processor()


def c_library() -> str:
    """Name and version of the C library, which provides fmod; "unknown" if it cannot be found out."""
    return "-".join(platform.libc_ver()) or "unknown"


_OWN_GROUP: Final[dict[str, Any]] = {"process_group": 0} if sys.version_info >= (3, 11) else {"preexec_fn": os.setpgrp}
"""How a compiler is started: in a process group of its own, so that it can be killed with its children, but in its caller's session
(a new session would get a share of the processors of its own, whatever its priority: sched(7), autogroup)."""


@dataclass(frozen=True)
class Toolchain:
    """A C++ compiler and how to call it. It runs with its caller's priority and in its caller's session."""

    command: tuple[str, ...]
    timeout_s: float = DEFAULT_TIMEOUT_S

    @cached_property
    def version(self) -> str:
        """The first line of `--version`; "unknown" if it prints nothing. Raises ToolchainError if the compiler cannot be run."""
        result = self._run(["--version"], min(20.0, self.timeout_s))
        return result.stdout.splitlines()[0].strip() if result.stdout else "unknown"

    @cached_property
    def is_clang(self) -> bool:
        """Whether the compiler is clang, or zig, which contains clang. Raises ToolchainError if it cannot be run."""
        return "clang" in self.version.lower() or self.is_zig

    @property
    def is_zig(self) -> bool:
        """Whether the compiler is the ziglang module."""
        return "ziglang" in self.command

    @property
    def libraries(self) -> tuple[str, ...]:
        """Linker flags that follow the source."""
        return ZIG_LIBRARIES if self.is_zig else LIBRARIES

    @cached_property
    def identity(self) -> str:
        """Everything of the compiler and the machine that a binary depends on, as text. Raises ToolchainError if the compiler cannot
        be run."""
        flags = " ".join((*self.flags, *self.libraries))
        return f"{self.version}|{flags}|{platform.machine()}|{cpu_features()}|{c_library()}"

    @cached_property
    def digest(self) -> str:
        """A SHA-256 hash (hex) of `identity`."""
        return hashlib.sha256(self.identity.encode()).hexdigest()

    @property
    def flags(self) -> tuple[str, ...]:
        """Compiler flags for a kernel; see the module's docstring."""
        if self.is_clang:
            return FLAGS
        return (*FLAGS, *GCC_FLAGS, *(GCC_X86_FLAGS if platform.machine() in ("x86_64", "AMD64") else ()))

    def build(self, source: Path, output: Path, extra: Sequence[str] = ()) -> None:
        """Compiles one C++ file to a shared object. `output` exists only if this succeeds. Raises CompilerMissingError or
        CompilerFailedError."""
        scratch = output.with_name(output.name + ".partial")
        arguments = [*self.flags, *extra, str(source), "-o", str(scratch)]
        result = self._run([*arguments, *self.libraries], self.timeout_s)
        if result.returncode:
            with contextlib.suppress(OSError):
                scratch.unlink()
            raise CompilerFailedError(
                f"{self.command[0]} failed with status {result.returncode}: {_first_error(result.stderr)}",
                result.stderr[-STDERR_KEPT:],
                is_certain=result.returncode > 0 and _finds_fault(result.stderr),
            )
        os.replace(scratch, output)

    def build_c(self, source: Path, output: Path, include: Path) -> None:
        """Compiles a C helper (the test runtime) to the shared object `output`; `include` is a folder of headers. Raises
        CompilerMissingError or CompilerFailedError."""
        scratch = output.with_name(f"{output.name}.{os.getpid()}")
        arguments = ["-x", "c", "-std=c11", "-O2", "-fPIC", "-shared", "-pthread", "-I", str(include), str(source)]
        result = self._run(
            [*arguments, "-o", str(scratch), *(zig_libraries_for_c() if self.is_zig else ())], self.timeout_s
        )
        if result.returncode:
            raise CompilerFailedError(f"{self.command[0]}: {_first_error(result.stderr)}", result.stderr[-STDERR_KEPT:])
        os.replace(scratch, output)

    def _run(self, arguments: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "LC_ALL": "C"}
        # A compiler started from a training process must not activate stitchfleet itself, so PYTHONPATH is removed.
        if not self.is_zig:  # ziglang may be importable by PYTHONPATH only
            environment.pop("PYTHONPATH", None)
        with tempfile.TemporaryDirectory(prefix="stitchfleet-") as scratch:
            if self.is_zig:
                environment["ZIG_GLOBAL_CACHE_DIR"] = environment["ZIG_LOCAL_CACHE_DIR"] = scratch
            try:
                process = subprocess.Popen(
                    [*self.command, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    errors="replace",
                    env=environment,
                    **_OWN_GROUP,
                )
            except OSError as error:
                raise CompilerMissingError(f"cannot start {self.command[0]}: {error.strerror}") from error
            try:
                stdout, stderr = process.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired as error:
                with contextlib.suppress(OSError):
                    os.killpg(process.pid, 9)
                process.communicate()
                raise CompilerFailedError(f"{self.command[0]} did not end within {timeout_s:.0f} s") from error
            return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def zig_libraries_for_c() -> tuple[str, ...]:
    """zig's flags for a C helper. -nostdlib also leaves out the C library's headers, and an image may have none of its own."""
    spec = importlib.util.find_spec("ziglang")
    found = spec.submodule_search_locations if spec is not None else None
    declarations = Path(found[0] if found else "", "lib", "libc", "include")
    machine = "x86" if platform.machine() in ("x86_64", "AMD64") else platform.machine()
    names = (f"{machine}-linux-gnu", "generic-glibc", f"{machine}-linux-any", "any-linux-any")
    return (*ZIG_LIBRARIES, *(word for name in names for word in ("-isystem", str(declarations / name))))


_NOT_THE_SOURCE = re.compile(r"fatal error|internal compiler error|No space left|memory|Killed|signal|I/O error", re.I)


def _finds_fault(stderr: str) -> bool:
    """Whether the compiler reports an error in a line of the source, and nothing that could have another cause."""
    return re.search(r":\d+:\d+: error: ", stderr) is not None and _NOT_THE_SOURCE.search(stderr) is None


def _first_error(stderr: str) -> str:
    lines = stderr.splitlines()
    return next((line for line in lines if "error" in line), lines[-1] if lines else "no message").strip()[:300]


ZIG: Final = "ziglang"
"""The Python module that contains a whole clang; a pod's payload includes it."""


def candidates(environment: Mapping[str, str]) -> Iterable[tuple[str, ...]]:
    """Compiler commands in the order in which they are tried: $CXX, g++, clang++, c++, and the ziglang module."""
    if environment.get("CXX"):
        yield tuple(shlex.split(environment["CXX"]))
    for name in ("g++", "clang++", "c++"):
        found = shutil.which(name, path=environment.get("PATH"))
        if found:
            yield (found,)
    if importlib.util.find_spec(ZIG) is not None:
        yield (sys.executable, "-m", ZIG, "c++")


def find_toolchain(environment: Mapping[str, str] = os.environ) -> Toolchain:
    """The first compiler that answers `--version`. Raises CompilerMissingError, which lists what was tried."""
    tried = []
    for command in candidates(environment):
        toolchain = Toolchain(command)
        try:
            if toolchain.version != "unknown":
                return toolchain
        except ToolchainError as error:
            tried.append(str(error))
        else:
            tried.append(f"{command[0]} does not report its version")
    what = "; ".join(tried) or "$CXX is not set, and g++, clang++ and c++ are not on the PATH"
    raise CompilerMissingError(f"no C++ compiler: {what}")


VECTOR_SYMBOL = re.compile(rb"_ZGV[a-zA-Z][NM]\d+v+_[a-z0-9_]+")


def vector_symbols(binary: Path) -> tuple[str, ...]:
    """Names of the vector functions in a shared object, read from its string table. They are kernel_trigonometry.h's own, such as
    `_ZGVdN8v_stitch_sin_f32`: a kernel calls no library's vector functions. Raises OSError if the file cannot be read."""
    return tuple(sorted({match.decode() for match in VECTOR_SYMBOL.findall(binary.read_bytes())}))
