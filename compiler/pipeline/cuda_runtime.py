"""The stand-alone runtime of CUDA kernels: loaded, run, timed and tuned on a GPU of this machine, outside of TensorFlow, by pycuda.

    Gpu(number)              a device with a context and a stream; `target`: what the planner has to know of it
    Gpu.load(entry)          a kernel of the cache, with memory for its tensors
    kernel.run(arrays)       numpy arrays in and out, one launch
    kernel.durations_ns()    by events, on the tensors of the last run
    tune(graph, cache, gpu)  the launch search's candidates, each judged by the float64 oracle and timed; the fastest is kept

pycuda (the extra `gpu`) is imported by the first Gpu and by nothing else: kernels are compiled without it. It has devices, contexts,
memory, streams and events, but no cooperative launch, so modules are loaded and launched by the driver API itself, in pycuda's
context and on its stream.
"""

from __future__ import annotations

import contextlib
import ctypes
import statistics
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from ..check.judge import judge
from ..check.random_inputs import Regime, random_inputs
from ..ir.graph import Array, Graph
from ..kernel.cache import CacheEntry, KernelCache
from ..kernel.host_kernel import check_inputs
from ..kernel.metadata import KernelMetadata
from ..targets.cuda_attributes import ask_device
from ..targets.targets import target_of_device
from .backend import Progress, silent
from .cuda import build_for_gpu
from .launch import Launch

SEMAPHORE_BYTES: Final = 64
"""Of the grid barrier's."""
BATCHES: Final = 15
MOST_IN_BATCH: Final = 20
BATCH_NS: Final = 1e6
"""Between two events, whose resolution is half a microsecond, are as many launches as take so long, at most MOST_IN_BATCH."""


class GpuError(Exception):
    """There is no GPU or no pycuda, or the driver refuses; one line."""


def _pycuda() -> Any:
    """pycuda's module `driver`."""
    try:
        import pycuda.driver
    except ImportError as error:
        reason = str(error).splitlines()[0]
        hint = "pip install 'stitchfleet[gpu]' brings it; it needs NVIDIA's driver"
        raise GpuError(f"pycuda cannot be loaded: {reason} ({hint})") from None
    return pycuda.driver


class Gpu:
    """A device, its primary context made current in this thread until `close`. Raises GpuError."""

    def __init__(self, number: int = 0) -> None:
        self._pycuda = _pycuda()
        self._driver = ctypes.CDLL("libcuda.so.1")  # pycuda has loaded it
        try:
            self._pycuda.init()
            count = self._pycuda.Device.count()
            if not 0 <= number < count:
                raise GpuError(f"there is no GPU {number}: the driver shows {count}")
            self.target = target_of_device(self._described(number))
            self._context = self._pycuda.Device(number).retain_primary_context()
            self._context.push()
            self._stream = self._pycuda.Stream()
        except (self._pycuda.Error, ValueError) as error:
            raise GpuError(str(error)) from None

    def __enter__(self) -> Gpu:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._stream = None
        self._context.pop()

    def load(self, entry: CacheEntry) -> GpuKernel:
        """Raises GpuError for a kernel that this device cannot run, and where its memory does not hold the tensors."""
        return GpuKernel(self, entry.library.read_bytes(), entry.metadata)

    def copy_ns(self, byte_count: int) -> float:
        """A copy within the device's memory that reads and writes `byte_count` bytes in all: the median of some."""
        half = max(byte_count // 2, 4)
        source, target = self.allocate(half), self.allocate(half)

        def copy() -> None:
            self._pycuda.memcpy_dtod_async(int(target), int(source), half, self._stream)

        return statistics.median(self.durations_ns(copy))

    def durations_ns(self, begin: Callable[[], None]) -> list[float]:
        """What `begin` puts into the stream, by events: the means of BATCHES batches. Raises GpuError where it fails."""
        found: list[float] = []
        count = 1
        for _ in range(BATCHES + 1):
            first, last = self._pycuda.Event(), self._pycuda.Event()
            first.record(self._stream)
            for _ in range(count):
                begin()
            last.record(self._stream)
            self.synchronize()
            found.append(first.time_till(last) * 1e6 / count)
            count = max(1, min(MOST_IN_BATCH, int(BATCH_NS / max(found[0], 1.0))))
        return found[1:]

    def allocate(self, byte_count: int) -> Any:
        """Device memory, at least a byte of it, given back with the object."""
        try:
            return self._pycuda.mem_alloc(max(1, byte_count))
        except self._pycuda.Error as error:
            raise GpuError(f"{byte_count} bytes of the device's memory cannot be had: {error}") from None

    def to_device(self, memory: Any, array: Array) -> None:
        if array.nbytes:
            self._pycuda.memcpy_htod_async(memory, np.ascontiguousarray(array), self._stream)
            self.synchronize()

    def to_host(self, array: Array, memory: Any) -> None:
        if array.nbytes:
            self._pycuda.memcpy_dtoh_async(array, memory, self._stream)
            self.synchronize()

    def synchronize(self) -> None:
        """Waits for the stream. Raises GpuError where a kernel has failed."""
        try:
            self._stream.synchronize()
        except self._pycuda.Error as error:
            raise GpuError(f"the device has stopped: {error}") from None

    def call(self, name: str, *arguments: object) -> None:
        """A function of the driver API. Raises GpuError with the driver's name of the fault."""
        if status := self._driver[name](*arguments):
            text = ctypes.c_char_p()
            self._driver.cuGetErrorName(status, ctypes.byref(text))
            raise GpuError(f"{name}: {text.value.decode() if text.value else f'error {status}'}")

    @property
    def stream(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._stream.handle)

    def _described(self, number: int) -> dict[str, int | str]:
        handle, value = ctypes.c_int(), ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(handle), number)

        def ask(attribute: int) -> int:
            self.call("cuDeviceGetAttribute", ctypes.byref(value), attribute, handle)
            return value.value

        return ask_device(self._pycuda.Device(number).name(), ask)


class GpuKernel:
    """A kernel of the cache on a device, with the memory of its tensors. Made by `Gpu.load`."""

    def __init__(self, gpu: Gpu, image: bytes, metadata: KernelMetadata) -> None:
        launch = metadata.launch
        if launch is None:
            raise GpuError(f"{metadata.symbol} is a kernel for the processor")
        self.gpu, self.metadata, self._launch = gpu, metadata, launch
        self._module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        gpu.call("cuModuleLoadData", ctypes.byref(self._module), image)
        gpu.call("cuModuleGetFunction", ctypes.byref(self._function), self._module, metadata.symbol.encode())
        self._inputs = [gpu.allocate(one.size_bytes) for one in metadata.inputs]
        self._outputs = [gpu.allocate(one.size_bytes) for one in metadata.outputs]
        self._scratch = gpu.allocate(metadata.scratch_bytes)
        self._semaphore = gpu.allocate(SEMAPHORE_BYTES)
        gpu.to_device(self._semaphore, np.zeros(SEMAPHORE_BYTES, np.uint8))
        held = {"input": self._inputs, "output": self._outputs, "scratch": [self._scratch]}
        addresses = np.array([int(held[kind][number]) for kind, number in launch.tensors], np.uint64)
        self._table = gpu.allocate(addresses.nbytes)
        gpu.to_device(self._table, addresses)
        # The function's parameters: the addresses, or that of their table, and the semaphore's.
        self._given = (
            np.array([int(self._table)], np.uint64) if launch.by_table else addresses,
            np.array([int(self._semaphore)], np.uint64),
        )
        self._parameters = (ctypes.c_void_p * 2)(*(one.ctypes.data for one in self._given))

    def close(self) -> None:
        """Unloads it. Its memory goes with the object."""
        self.gpu.call("cuModuleUnload", self._module)

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """One launch on copies of `inputs` (dense, of the metadata's types). Raises KernelError for other types, GpuError where the
        driver refuses or the kernel fails."""
        check_inputs(self.metadata, inputs)
        for memory, array in zip(self._inputs, inputs, strict=True):
            self.gpu.to_device(memory, array)
        results = [np.empty(one.shape, one.numpy) for one in self.metadata.outputs]
        for memory, array in zip(self._outputs, results, strict=True):
            array.reshape(-1).view(np.uint8)[...] = 0xA5  # an element that the kernel leaves out is not right by chance
            self.gpu.to_device(memory, array)
        self.launch()
        self.gpu.synchronize()
        for memory, array in zip(self._outputs, results, strict=True):
            self.gpu.to_host(array, memory)
        return results

    def launch(self) -> None:
        """Puts one launch into the device's stream."""
        one, stream = self._launch, self.gpu.stream
        shape = (one.grid, 1, 1, one.block, 1, 1, one.shared_bytes, stream, self._parameters)
        if one.cooperative:
            self.gpu.call("cuLaunchCooperativeKernel", self._function, *shape)
        else:
            self.gpu.call("cuLaunchKernel", self._function, *shape, None)

    def durations_ns(self) -> list[float]:
        """A launch on the tensors of the last run, by events: the means of batches."""
        return self.gpu.durations_ns(self.launch)


def tune(
    graph: Graph, cache: KernelCache, gpu: Gpu, seed: int = 0, progress: Progress = silent
) -> tuple[CacheEntry, Launch]:
    """The kernel of `graph` that is fastest on this GPU, put into the cache in the place of any other for the device: jobs take it
    from there. A candidate that the oracle calls wrong, or that the driver refuses, is out. Raises as build_for_gpu does."""
    inputs = random_inputs(graph, np.random.default_rng(seed), Regime.NORMAL)

    def measured(entry: CacheEntry) -> float | None:
        try:
            with contextlib.closing(gpu.load(entry)) as kernel:
                verdict = judge(graph, inputs, kernel.run(inputs))
                if verdict.ok:
                    return statistics.median(kernel.durations_ns())
                progress(f"{graph.name}: a candidate is out: {verdict}")
        except GpuError as error:
            progress(f"{graph.name}: a candidate is out: {error}")
        return None

    return build_for_gpu(graph, cache, gpu.target, progress=progress, measured=measured)


__all__ = ["Gpu", "GpuError", "GpuKernel", "tune"]
