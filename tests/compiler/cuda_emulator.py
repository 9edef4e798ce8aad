"""CUDA C++ kernels executed and checked on the CPU: compiles a source after cuda_emulator.h and launches what it makes.

    library = build(source, trampoline("run", "my_kernel(tensors[0], tensors[1], semaphore)"), folder)
    messages = library.launch([x, y], [True, False], grid=4, block=128, shared_bytes=1024)

What is checked, and what a message says, stands at the head of cuda_emulator.h.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..kept import kept, session_folder

HEADER = Path(__file__).with_name("cuda_emulator.h")

_COMPILE = ("g++", "-std=c++17", "-O0", "-fPIC")
_MESSAGE_BYTES = 16384  # more than the 20 messages that the emulator keeps can be


class CudaCompileError(Exception):
    """A source that g++ refuses, with what it said."""


class _Allocation(ctypes.Structure):
    _fields_ = [("pointer", ctypes.c_void_p), ("bytes", ctypes.c_longlong), ("initialised", ctypes.c_int)]


class _Launch(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.c_uint),
        ("block", ctypes.c_uint),
        ("shared_bytes", ctypes.c_longlong),
        ("resident_blocks", ctypes.c_uint),
        ("seed", ctypes.c_ulonglong),
        ("switch_per_mille", ctypes.c_int),
        ("allocations", ctypes.POINTER(_Allocation)),
        ("allocation_count", ctypes.c_int),
        ("messages", ctypes.c_char_p),
        ("message_bytes", ctypes.c_longlong),
    ]


@dataclass(frozen=True)
class Emulated:
    """A library of emulated kernels. Launches of one library must not overlap in time."""

    library: ctypes.CDLL

    def launch(
        self,
        tensors: Sequence[npt.NDArray[np.generic]],
        initialised: Sequence[bool],
        grid: int,
        block: int,
        shared_bytes: int,
        resident_blocks: int | None = None,
        seed: int = 0,
        switch_per_mille: int = 5,
        semaphore: npt.NDArray[np.uint32] | None = None,
        entry: str = "run",
    ) -> list[str]:
        """Runs `grid` blocks of `block` threads on C-contiguous arrays, in place; what the emulator found wrong, one line each.

        An array that is not `initialised` may be read only where the kernel has written it. `resident_blocks` of the blocks are
        live at a time (None: all). The seed decides the order of threads; `switch_per_mille` how often one is interrupted at an
        access of memory. `semaphore` is one uint32 (None: a fresh zero). `entry` names the trampoline.
        """
        if not all(tensor.flags.c_contiguous for tensor in tensors):
            raise ValueError("the tensors of a launch must be C-contiguous")
        allocations = (_Allocation * len(tensors))(
            *(
                _Allocation(tensor.ctypes.data, tensor.nbytes, given)
                for tensor, given in zip(tensors, initialised, strict=True)
            )
        )
        pointers = (ctypes.c_void_p * len(tensors))(*(tensor.ctypes.data for tensor in tensors))
        counter = np.zeros(1, np.uint32) if semaphore is None else semaphore
        messages = ctypes.create_string_buffer(_MESSAGE_BYTES)
        launch = _Launch(
            grid=grid,
            block=block,
            shared_bytes=shared_bytes,
            resident_blocks=resident_blocks or 0,
            seed=seed,
            switch_per_mille=switch_per_mille,
            allocations=allocations,
            allocation_count=len(tensors),
            messages=ctypes.cast(messages, ctypes.c_char_p),
            message_bytes=_MESSAGE_BYTES,
        )
        faults = self.library[entry](pointers, ctypes.c_void_p(counter.ctypes.data), ctypes.byref(launch))
        lines = messages.value.decode(errors="replace").splitlines()
        if bool(faults) != bool(lines):
            raise AssertionError(f"{faults} faults, but {len(lines)} messages")
        return lines


def trampoline(name: str, call: str) -> str:
    """The C function that a launch enters by: `call` may use `tensors` (void**) and `semaphore` (unsigned*)."""
    return (
        f'extern "C" __attribute__((visibility("default")))\n'
        f"int {name}(void** tensors, unsigned* semaphore, const emulator::Launch* launch) {{\n"
        f"  return emulator::launch(*launch, [&] {{ {call}; }});\n"
        f"}}\n"
    )


def build(
    source: str, trampoline: str, unset: Literal["pattern", "zero"] = "pattern", folder: Path | None = None
) -> Emulated:
    """The library of a CUDA C++ source and its trampolines (one or more).

    unset: the bits of a register that a kernel reads before it writes it, so that it is not right by chance. folder: where the
    library is where none is kept from run to run; None: where it goes when the tests end.

    Raises CudaCompileError with the compiler's words.
    """
    text = f"// unset: {unset}\n{source}\n{trampoline}"
    options = ("-shared", f"-ftrivial-auto-var-init={unset}")

    def compile_to(written: Path, library: Path) -> None:
        _compile(*options, "-x", "c++", "-include", _precompiled_header(), written, "-o", library)

    library = kept(text, "\n".join((_identity(), *options)), "emulated.cu", compile_to, folder)
    return Emulated(ctypes.CDLL(str(library)))


@lru_cache(maxsize=1)
def _identity() -> str:
    """What a library is made of beside its own text."""
    version = subprocess.run(["g++", "--version"], capture_output=True, text=True, check=True).stdout
    return "\n".join((version, *_COMPILE, HEADER.read_text()))


@lru_cache(maxsize=1)
def _precompiled_header() -> Path:
    """The header beside its precompiled form, which g++ then takes: that halves the time of a small source."""
    header = session_folder() / HEADER.name
    shutil.copyfile(HEADER, header)
    _compile("-x", "c++-header", header, "-o", header.with_name(f"{header.name}.gch"))
    return header


def _compile(*arguments: str | Path) -> None:
    done = subprocess.run([*_COMPILE, *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CudaCompileError(done.stderr)
