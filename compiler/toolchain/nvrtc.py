"""NVRTC, NVIDIA's CUDA C compiler as a library: found in its pip wheel (no toolkit, driver or GPU is needed) and called by ctypes.

The flags, with the reasons:
- `--fmad=false`: an element-wise op rounds once, as HLO defines; kernels that are bound by memory gain nothing from fused
  multiply-adds. A helper that needs one calls `fmaf`.
- `--std=c++17`, and none of the fast-math options: they change values.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ..support.sequences import zip_strict

FLAGS = ("--std=c++17", "--fmad=false", "--ptxas-options=-v", "-w")
PACKAGE = "nvidia-cuda-nvrtc-cu12"
_LIBRARY = "libnvrtc.so.12"


class NvrtcError(ValueError):
    """NVRTC is not installed, does not know the architecture, or rejects the source. The first line of the text is for the user.
    `is_certain`: NVRTC would reject the same source again."""

    def __init__(self, message: str, is_certain: bool = False) -> None:
        super().__init__(message)
        self.is_certain = is_certain


@dataclass(frozen=True)
class CudaBinary:
    """NVRTC's output for one architecture. registers: per thread; spill_bytes: bytes stored per thread because registers ran out."""

    ptx: bytes
    cubin: bytes
    registers: int
    spill_bytes: int


def build(source: str, arch: str, besides: Collection[str] = ()) -> CudaBinary:
    """Compiles the CUDA C text `source` to PTX and machine code for `arch` ("sm_90"). `registers` and `spill_bytes` of the result are
    the largest of any kernel that is not named in `besides`. Raises NvrtcError."""
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
        kernels_log = _of_kernels(log, besides)
        return CudaBinary(
            _text(library, program, "PTX").rstrip(b"\0"),
            _text(library, program, "CUBIN"),
            _number(r"Used (\d+) registers", kernels_log),
            _number(r"(\d+) bytes spill stores", kernels_log),
        )
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


@lru_cache(maxsize=1)
def architectures() -> tuple[int, ...]:
    """The compute capabilities that the installed NVRTC compiles for: (70, 75, 80, ...). Raises NvrtcError if it is not installed."""
    library = _load()
    count = ctypes.c_int()
    _check(library, library.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
    numbers = (ctypes.c_int * count.value)()
    _check(library, library.nvrtcGetSupportedArchs(numbers))
    return tuple(sorted({int(number) for number in numbers} | _deprecated()))


@lru_cache(maxsize=1)
def version() -> str:
    """The installed NVRTC's version, such as "12.9"; "none" if it is not installed."""
    if not is_installed():
        return "none"
    library = _load()
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(library, library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return f"{major.value}.{minor.value}"


def _deprecated() -> set[int]:
    """Architectures that NVRTC compiles for but may not list: 12.x compiles for Volta, with a warning, listed or not."""
    return {70} if version().startswith("12.") else set()


def is_installed() -> bool:
    """Whether NVRTC is installed, so that CUDA kernels can be built."""
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
    """The assembler's log without the parts about the kernels named in `besides`."""
    first, *parts = re.split(r"Compiling entry function '(\w+)'", log)
    return first + "".join(text for name, text in zip_strict(parts[::2], parts[1::2]) if name not in besides)


def _number(pattern: str, log: str) -> int:
    """The largest number that `pattern` finds in the log, which has one for each kernel and each function that was not inlined; 0 if
    there is none."""
    found: Sequence[str] = re.findall(pattern, log)
    return max(map(int, found), default=0)
