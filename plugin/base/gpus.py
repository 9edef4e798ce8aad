"""The GPUs of this machine as NVIDIA's driver tells of them, for `stitchfleet doctor`: by ctypes, no CUDA toolkit needed.

A job's own ops ask the driver themselves (native/device_stitch_op.cc), in the context that TensorFlow has made.
"""

from __future__ import annotations

import ctypes
import pathlib
from dataclasses import dataclass

from stitchfleet.compiler.targets.cuda_attributes import cuda_attributes


@dataclass(frozen=True)
class Gpu:
    """One device. capability: (major, minor)."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int


def find_gpus(driver: pathlib.Path | None = None) -> list[Gpu]:
    """The devices that this process may use. driver: the library; None: libcuda.so.1. Raises OSError with one line where there is no
    driver, or it fails."""
    library = ctypes.CDLL(str(driver or "libcuda.so.1"))

    def call(name: str, *arguments: object) -> None:
        function = getattr(library, name, None)
        if function is None:
            raise OSError(f"{driver or 'libcuda.so.1'} has no {name}")
        if status := function(*arguments):
            raise OSError(f"{name} fails with {status}")

    count = ctypes.c_int()
    call("cuInit", 0)
    call("cuDeviceGetCount", ctypes.byref(count))
    found = []
    for number in range(count.value):
        device, name = ctypes.c_int(), ctypes.create_string_buffer(128)
        call("cuDeviceGet", ctypes.byref(device), number)
        call("cuDeviceGetName", name, len(name), device)
        figures = []
        for figure in ("major", "minor", "multiprocessors"):
            value = ctypes.c_int()
            call("cuDeviceGetAttribute", ctypes.byref(value), cuda_attributes()[figure], device)
            figures.append(value.value)
        major, minor, multiprocessors = figures
        found.append(Gpu(name.value.decode(errors="replace"), (major, minor), multiprocessors))
    return found
