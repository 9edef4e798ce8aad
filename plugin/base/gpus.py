"""Lists the GPUs of this machine for `stitchfleet doctor`: asks NVIDIA's driver by ctypes, without a CUDA toolkit.

A job's ops ask the driver themselves (native/gpu/device_stitch_op.cc), in the context that TensorFlow has created.
"""

from __future__ import annotations

import ctypes
import pathlib
from dataclasses import dataclass

from stitchfleet.compiler.targets.cuda_attributes import cuda_attributes


@dataclass(frozen=True)
class VisibleGpu:
    """One GPU. capability: its compute capability, (major, minor)."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int


def find_gpus(driver: pathlib.Path | None = None) -> list[VisibleGpu]:
    """The GPUs that this process may use. driver: the driver's library; None: libcuda.so.1. Raises OSError with one line if there is
    no driver, or if it returns an error."""
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
        found.append(VisibleGpu(name.value.decode(errors="replace"), (major, minor), multiprocessors))
    return found
