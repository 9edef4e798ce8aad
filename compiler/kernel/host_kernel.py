"""Runs a built CPU kernel without a framework."""

from __future__ import annotations

import ctypes
import os
import tempfile
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from ..ir.graph import Array, Shape
from ..support.sequences import zip_strict
from ..toolchain.host import find_toolchain
from .metadata import ABI_VERSION, KernelError, KernelMetadata

ALWAYS_PARALLEL: Final = 0
REVERSED: Final = 1
AS_THE_POOL: Final = 2
"""Kinds of runtimes that test_runtime.c can make: one that always uses all threads, one that runs the tasks one by one in
reverse order, and one that shares work and treats subnormals as a job's thread pool does."""


@lru_cache(maxsize=1)
def _test_runtime() -> ctypes.CDLL:
    """The test runtime (test_runtime.c), built and loaded on first use in this process; a forked child inherits it."""
    toolchain, here = find_toolchain(), Path(__file__).parent
    with tempfile.TemporaryDirectory(prefix="stitchfleet-runtime-") as folder:
        output = Path(folder) / "libtest_runtime.so"
        toolchain.build_c(here / "test_runtime.c", output, here)
        library = ctypes.CDLL(str(output))  # stays loaded when its file is gone
    library.stitch_test_runtime_new.restype = ctypes.c_void_p
    library.stitch_test_runtime_new.argtypes = [ctypes.c_int, ctypes.c_int]
    library.stitch_test_runtime_calls.restype = ctypes.c_longlong
    library.stitch_test_runtime_calls.argtypes = [ctypes.c_void_p]
    library.stitch_test_runtime_delete.argtypes = [ctypes.c_void_p]
    library.stitch_test_copy.restype = None
    library.stitch_test_run_flushed.restype = None
    return library


def prepare_runtime() -> None:
    """Builds and loads the test runtime, so that a forked child need not. Raises ToolchainError."""
    _test_runtime()


def aligned(shape: Shape, dtype: np.dtype[np.generic], fill: int | None = None) -> Array:
    """An array of `shape` and `dtype` whose memory starts on a cache line; if `fill` is given, all its bytes are `fill`."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    if fill is not None:
        raw[:] = fill
    return raw[start : start + size].view(dtype).reshape(shape)


def aligned_copy(array: Array) -> Array:
    """A dense copy whose memory starts on a cache line."""
    copy = aligned(array.shape, array.dtype)
    copy[...] = array
    return copy


def _addresses(inputs: Sequence[Array], parameters: npt.NDArray[np.int64]) -> ctypes.Array[ctypes.c_void_p]:
    """A kernel's first argument: the addresses of its inputs, followed by that of its parameters (for a binary for many shapes)."""
    arrays = [*inputs, parameters]
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))


def check_inputs(metadata: KernelMetadata, inputs: Sequence[Array]) -> None:
    """Checks that the inputs match the metadata in number, shapes and dtypes. Raises KernelError if they do not."""
    types = metadata.inputs
    if len(inputs) != len(types):
        raise KernelError(f"{metadata.symbol}: given {len(inputs)} inputs, expected {len(types)}")
    for number, (array, expected) in enumerate(zip_strict(inputs, types)):
        if array.shape != expected.shape or array.dtype != expected.numpy:
            raise KernelError(
                f"{metadata.symbol}: input {number} given {array.dtype}{list(array.shape)}, "
                f"expected {expected.dtype}{list(expected.shape)}"
            )


class LoadedKernel:
    """A kernel's function, loaded into this process from the shared library `path`. A wrong kernel can crash the process:
    `check.selfcheck` runs new kernels in a child. Raises KernelError if the kernel was built for another ABI version or cannot be
    loaded."""

    def __init__(self, path: Path, metadata: KernelMetadata) -> None:
        if metadata.abi_version != ABI_VERSION:
            raise KernelError(f"{path.name}: given ABI {metadata.abi_version}, expected {ABI_VERSION}")
        try:
            self._library = ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
            self.function = self._library[metadata.symbol]
        except (OSError, AttributeError) as error:
            raise KernelError(f"{path.name}: {error}") from error
        self.metadata = metadata
        self.parameters = np.array(metadata.parameters, np.int64)
        self.phases_run_parallel = 0

    def run(
        self,
        inputs: Sequence[Array],
        threads: int = 2,
        reversed_order: bool = False,
        in_place: Sequence[tuple[int, int]] = (),
    ) -> list[Array]:
        """Runs the kernel on copies of `inputs` (dense, of the metadata's types) and returns its outputs. `threads`: of the test
        runtime. `reversed_order`: one thread instead, every task by itself, the last one first. `in_place`: (output, input) pairs,
        from the metadata's aliases, that share memory. Raises KernelError if the inputs do not fit."""
        check_inputs(self.metadata, inputs)
        given = [aligned_copy(array) for array in inputs]
        shared = dict(in_place)
        results = [
            given[shared[number]] if number in shared else aligned(out.shape, out.numpy, fill=0xA5)
            for number, out in enumerate(self.metadata.outputs)
        ]
        self.call(given, results, threads, reversed_order)
        return results

    def call(
        self, inputs: Sequence[Array], outputs: Sequence[Array], threads: int = 2, reversed_order: bool = False
    ) -> None:
        """Runs the kernel on the arrays' own memory. Nothing is checked or copied."""
        library = _test_runtime()
        runtime = library.stitch_test_runtime_new(threads, REVERSED if reversed_order else ALWAYS_PARALLEL)
        scratch = aligned((self.metadata.scratch_bytes,), np.dtype(np.uint8), fill=0xA5)
        given = _addresses(inputs, self.parameters)
        results = (ctypes.c_void_p * max(1, len(outputs)))(*(array.ctypes.data for array in outputs))
        try:
            self.function(given, results, ctypes.c_void_p(scratch.ctypes.data), ctypes.c_void_p(runtime))
            self.phases_run_parallel = int(library.stitch_test_runtime_calls(runtime))
        finally:
            library.stitch_test_runtime_delete(runtime)

    def durations_ns(
        self, inputs: Sequence[Array], outputs: Sequence[Array], threads: int, calls: int, limit_s: float
    ) -> list[int]:
        """Wall times in ns of up to `calls` calls on the arrays' own memory (at least one call; none begins after `limit_s`
        seconds), in one runtime that shares work as a job's pool does. One call before them is not timed."""
        with Prepared(self, inputs, outputs, threads) as prepared:
            prepared.call()
            found: list[int] = []
            end = time.perf_counter_ns() + int(limit_s * 1e9)
            while not found or (len(found) < calls and time.perf_counter_ns() < end):
                started = time.perf_counter_ns()
                prepared.call()
                found.append(time.perf_counter_ns() - started)
            return found


class Prepared:
    """A kernel prepared for repeated calls on the same memory, with threads that are already running."""

    def __init__(self, kernel: LoadedKernel, inputs: Sequence[Array], outputs: Sequence[Array], threads: int) -> None:
        self._library = _test_runtime()
        self._runtime = ctypes.c_void_p(self._library.stitch_test_runtime_new(threads, AS_THE_POOL))
        self._kept = (
            *inputs,
            *outputs,
            kernel.parameters,
            aligned((kernel.metadata.scratch_bytes,), np.dtype(np.uint8), fill=0xA5),
        )
        self._given = _addresses(inputs, kernel.parameters)
        self._results = (ctypes.c_void_p * max(1, len(outputs)))(*(array.ctypes.data for array in outputs))
        self._scratch = ctypes.c_void_p(self._kept[-1].ctypes.data)
        self._function = kernel.function

    def call(self) -> None:
        """Runs the kernel once."""
        self._library.stitch_test_run_flushed(self._function, self._given, self._results, self._scratch, self._runtime)

    def __enter__(self) -> Prepared:
        return self

    def __exit__(self, *_: object) -> None:
        self._library.stitch_test_runtime_delete(self._runtime)


class PreparedCopy:
    """A copy of `bytes_each` bytes from one array to another by `threads` threads of the test runtime, to compare a kernel with the
    memory's bandwidth."""

    def __init__(self, bytes_each: int, threads: int) -> None:
        self._library = _test_runtime()
        self._runtime = ctypes.c_void_p(self._library.stitch_test_runtime_new(threads, AS_THE_POOL))
        self._from, self._to = (aligned((bytes_each,), np.dtype(np.uint8), fill=1) for _ in range(2))
        self._arguments = (
            ctypes.c_void_p(self._from.ctypes.data),
            ctypes.c_void_p(self._to.ctypes.data),
            ctypes.c_longlong(bytes_each),
            self._runtime,
        )

    def call(self) -> None:
        """Copies once."""
        self._library.stitch_test_copy(*self._arguments)

    def __enter__(self) -> PreparedCopy:
        return self

    def __exit__(self, *_: object) -> None:
        self._library.stitch_test_runtime_delete(self._runtime)
