"""NVRTC, NVIDIA's compiler of CUDA C as a library: found in its pip wheel (no toolkit, driver or GPU needed) and called by ctypes.

Flags, and why:
- `--fmad=false`: an element-wise op rounds once, as HLO says; kernels that are bound by memory gain nothing from fused
  multiply-adds. Where a helper wants one, it says so (`fmaf`).
- `--std=c++17`, and no fast-math option: they change values.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

FLAGS = ("--std=c++17", "--fmad=false", "--ptxas-options=-v", "-w")
PACKAGE = "nvidia-cuda-nvrtc-cu12"
_LIBRARY = "libnvrtc.so.12"


class NvrtcError(ValueError):
    """NVRTC is not there, does not know the architecture, or refuses the source; the first line is for the user. `is_certain`:
    it would refuse it again."""

    def __init__(self, message: str, is_certain: bool = False) -> None:
        super().__init__(message)
        self.is_certain = is_certain


@dataclass(frozen=True)
class CudaBinary:
    """What NVRTC made of a source for one architecture. registers: of a thread; spill_bytes: stored for want of them."""

    ptx: bytes
    cubin: bytes
    registers: int
    spill_bytes: int


def build(source: str, arch: str, besides: Collection[str] = ()) -> CudaBinary:
    """PTX and machine code of `source` for `arch` ("sm_90"); its figures leave out the kernels named in `besides`. Raises
    NvrtcError."""
    library = _load()
    number = arch.removeprefix("sm_")
    known = architectures()
    if not arch.startswith("sm_") or not number.isdigit() or int(number) not in known:
        raise NvrtcError(f"architecture {arch!r}: this NVRTC knows {', '.join(f'sm_{each}' for each in known)}")
    program = ctypes.c_void_p()
    _check(library, library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None))
    try:
        options = [f"--gpu-architecture={arch}".encode(), *(flag.encode() for flag in FLAGS)]
        status = library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        log = _text(library, program, "ProgramLog").decode(errors="replace").rstrip("\0\n")
        if status:
            raise NvrtcError(f"NVRTC refuses the kernel for {arch}: {_first_error(log)}\n{log}", is_certain=True)
        told = _of_kernels(log, besides)
        return CudaBinary(
            _text(library, program, "PTX").rstrip(b"\0"),
            _text(library, program, "CUBIN"),
            _number(r"Used (\d+) registers", told),
            _number(r"(\d+) bytes spill stores", told),
        )
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


@lru_cache(maxsize=1)
def architectures() -> tuple[int, ...]:
    """The compute capabilities that the installed NVRTC compiles for: (70, 75, 80, ...)."""
    library = _load()
    count = ctypes.c_int()
    _check(library, library.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
    numbers = (ctypes.c_int * count.value)()
    _check(library, library.nvrtcGetSupportedArchs(numbers))
    return tuple(sorted({int(number) for number in numbers} | _deprecated()))


@lru_cache(maxsize=1)
def version() -> str:
    """The installed NVRTC's version, "12.9"; "none" where it is not installed."""
    if not is_installed():
        return "none"
    library = _load()
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(library, library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return f"{major.value}.{minor.value}"


def _deprecated() -> set[int]:
    """12.9 compiles for Volta, with a warning, whether or not it lists it."""
    return {70} if version().startswith("12.") else set()


def is_installed() -> bool:
    """Whether anything can be built here."""
    return _find() is not None


def _find() -> Path | None:
    spec = importlib.util.find_spec("nvidia")
    folders = spec.submodule_search_locations or () if spec is not None else ()
    paths = [Path(folder) / "cuda_nvrtc" / "lib" / _LIBRARY for folder in folders]
    return next((path for path in paths if path.is_file()), None)


@lru_cache(maxsize=1)
def _load() -> ctypes.CDLL:
    path = _find()
    if path is None:
        raise NvrtcError(f"NVRTC is not installed (pip install 'stitchfleet[cuda]', which brings {PACKAGE})")
    return ctypes.CDLL(str(path))


def _check(library: ctypes.CDLL, status: int) -> None:
    if status:
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise NvrtcError(f"NVRTC: {library.nvrtcGetErrorString(status).decode()}")


def _text(library: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(library, getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(library, getattr(library, f"nvrtcGet{what}")(program, buffer))
    return buffer.raw


def _first_error(log: str) -> str:
    return next(
        (line for line in log.splitlines() if "error" in line), log.splitlines()[0] if log else "no reason given"
    )


def _of_kernels(log: str, besides: Collection[str]) -> str:
    """What the assembler tells of all kernels but some."""
    first, *parts = re.split(r"Compiling entry function '(\w+)'", log)
    return first + "".join(text for name, text in zip(parts[::2], parts[1::2], strict=True) if name not in besides)


def _number(pattern: str, log: str) -> int:
    """The largest number that the pattern finds: a kernel's and those of the functions that were not inlined."""
    found: Sequence[str] = re.findall(pattern, log)
    return max(map(int, found), default=0)
