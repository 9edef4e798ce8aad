"""The stand-alone runtime of CUDA kernels: loads, runs, times and tunes them on a GPU of this machine, outside of TensorFlow, by
pycuda.

    Gpu(number)              a device with a context and a stream; `target`: its figures, for planning
    Gpu.load(entry)          a kernel of the cache, with memory for its tensors
    kernel.run(arrays)       numpy arrays in and out, one launch
    kernel.durations_ns()    measured by events, on the tensors of the last run
    tune(graph, cache, gpu)  the launch search's candidates, each judged by the float64 oracle and timed; keeps the fastest

Only the first Gpu imports pycuda (the extra `gpu`): kernels are compiled without it. pycuda has devices, contexts, memory, streams
and events, but no cooperative launch, so modules are loaded and launched by the driver API itself, in pycuda's context and on its
stream.
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
from ..support.sequences import zip_strict
from ..targets.cuda_attributes import ask_device
from ..targets.targets import target_of_device
from .backend import Progress, silent
from .cuda import build_for_gpu
from .launch import Launch

SEMAPHORE_BYTES: Final = 64
"""Size of the grid barrier's semaphore."""
BATCHES: Final = 15
MOST_IN_BATCH: Final = 20
BATCH_NS: Final = 1e6
"""A batch is as many launches as take about BATCH_NS, at most MOST_IN_BATCH, because events have a resolution of 0.5 us."""


class GpuError(Exception):
    """There is no GPU or no pycuda, or the driver reports an error; the text is one line."""


def _pycuda() -> Any:
    """pycuda's module `driver`. Raises GpuError if it cannot be loaded."""
    try:
        import pycuda.driver
    except ImportError as error:
        reason = str(error).splitlines()[0]
        hint = "pip install 'stitchfleet[gpu]' brings it; it needs NVIDIA's driver"
        raise GpuError(f"pycuda cannot be loaded: {reason} ({hint})") from None
    return pycuda.driver


class Gpu:
    """GPU `number` of this machine. Its primary context is current in this thread until `close`. Raises GpuError if there is no such
    GPU or pycuda or the driver fails."""

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
        """Releases the stream, and pops the context."""
        self._stream = None
        self._context.pop()

    def load(self, entry: CacheEntry) -> GpuKernel:
        """Loads a kernel. Raises GpuError if this device cannot run it, or has too little memory for its tensors."""
        return GpuKernel(self, entry.library.read_bytes(), entry.metadata)

    def copy_ns(self, byte_count: int) -> float:
        """Time in ns of a copy within the device's memory that moves `byte_count` bytes in all (half read, half written): the median
        of batches."""
        half = max(byte_count // 2, 4)
        source, target = self.allocate(half), self.allocate(half)

        return statistics.median(self.durations_ns(lambda: self.copy(target, source, half)))

    def copy(self, target: Any, source: Any, byte_count: int) -> None:
        """Puts a copy within the device's memory into the stream."""
        self._pycuda.memcpy_dtod_async(int(target), int(source), byte_count, self._stream)

    def durations_ns(self, begin: Callable[[], None]) -> list[float]:
        """Times in ns of the work that one call of `begin` puts into the stream, measured by events: the means of BATCHES batches.
        Raises GpuError if the work fails."""
        found: list[float] = []
        count = 1

        def batch() -> None:
            for _ in range(count):
                begin()

        for _ in range(BATCHES + 1):
            found.append(self.elapsed_ns(batch) / count)
            count = max(1, min(MOST_IN_BATCH, int(BATCH_NS / max(found[0], 1.0))))
        return found[1:]

    def elapsed_ns(self, begin: Callable[[], None]) -> float:
        """Time in ns that the device needs for what `begin` puts into the stream, measured by two events. Raises GpuError if it
        fails."""
        first, last = self._pycuda.Event(), self._pycuda.Event()
        first.record(self._stream)
        begin()
        last.record(self._stream)
        self.synchronize()
        return float(first.time_till(last)) * 1e6

    def allocate(self, byte_count: int) -> Any:
        """Device memory of at least one byte; it is freed with the object. Raises GpuError if there is not enough."""
        try:
            return self._pycuda.mem_alloc(max(1, byte_count))
        except self._pycuda.Error as error:
            raise GpuError(f"{byte_count} bytes of device memory cannot be allocated: {error}") from None

    def to_device(self, memory: Any, array: Array) -> None:
        """Copies an array into device memory, and waits. Raises GpuError."""
        if array.nbytes:
            self._pycuda.memcpy_htod_async(memory, np.ascontiguousarray(array), self._stream)
            self.synchronize()

    def to_host(self, array: Array, memory: Any) -> None:
        """Copies device memory into an array, and waits. Raises GpuError."""
        if array.nbytes:
            self._pycuda.memcpy_dtoh_async(array, memory, self._stream)
            self.synchronize()

    def synchronize(self) -> None:
        """Waits for the stream. Raises GpuError if a kernel has failed."""
        try:
            self._stream.synchronize()
        except self._pycuda.Error as error:
            raise GpuError(f"the device has stopped: {error}") from None

    def call(self, name: str, *arguments: object) -> None:
        """Calls a function of the driver API. Raises GpuError with the driver's name of the error."""
        if status := self._driver[name](*arguments):
            text = ctypes.c_char_p()
            self._driver.cuGetErrorName(status, ctypes.byref(text))
            raise GpuError(f"{name}: {text.value.decode() if text.value else f'error {status}'}")

    @property
    def stream(self) -> ctypes.c_void_p:
        """The stream as the driver API's handle."""
        return ctypes.c_void_p(self._stream.handle)

    def _described(self, number: int) -> dict[str, int | str]:
        handle, value = ctypes.c_int(), ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(handle), number)

        def ask(attribute: int) -> int:
            self.call("cuDeviceGetAttribute", ctypes.byref(value), attribute, handle)
            return value.value

        return ask_device(self._pycuda.Device(number).name(), ask)


class GpuKernel:
    """A kernel of the cache on a device, with memory for its tensors. Made by `Gpu.load`."""

    def __init__(self, gpu: Gpu, image: bytes, metadata: KernelMetadata) -> None:
        launch = metadata.launch
        if launch is None:
            raise GpuError(f"{metadata.symbol} is a kernel for the processor")
        self.gpu, self.metadata, self._launch = gpu, metadata, launch
        self._module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        gpu.call("cuModuleLoadData", ctypes.byref(self._module), image)
        gpu.call("cuModuleGetFunction", ctypes.byref(self._function), self._module, metadata.symbol.encode())
        self._inputs = [gpu.allocate(tensor.size_bytes) for tensor in metadata.inputs]
        self._outputs = [gpu.allocate(tensor.size_bytes) for tensor in metadata.outputs]
        self._scratch = gpu.allocate(metadata.scratch_bytes)
        self._semaphore = gpu.allocate(SEMAPHORE_BYTES)
        gpu.to_device(self._semaphore, np.zeros(SEMAPHORE_BYTES, np.uint8))
        held = {"input": self._inputs, "output": self._outputs, "scratch": [self._scratch]}
        addresses = np.array([int(held[kind][number]) for kind, number in launch.tensors], np.uint64)
        self._table = gpu.allocate(addresses.nbytes)
        gpu.to_device(self._table, addresses)
        # The function's parameters: the tensors' addresses, or the address of a table of them, and the semaphore's address.
        self._given = (
            np.array([int(self._table)], np.uint64) if launch.by_table else addresses,
            np.array([int(self._semaphore)], np.uint64),
        )
        self._parameters = (ctypes.c_void_p * 2)(*(array.ctypes.data for array in self._given))

    def close(self) -> None:
        """Unloads the kernel. Its memory is freed with the object."""
        self.gpu.call("cuModuleUnload", self._module)

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """One launch on copies of `inputs` (dense, of the metadata's types); returns the outputs. Raises KernelError if the inputs
        do not fit, GpuError if the driver reports an error or the kernel fails."""
        check_inputs(self.metadata, inputs)
        for memory, array in zip_strict(self._inputs, inputs):
            self.gpu.to_device(memory, array)
        results = [np.empty(tensor.shape, tensor.numpy) for tensor in self.metadata.outputs]
        for memory, array in zip_strict(self._outputs, results):
            array.reshape(-1).view(np.uint8)[...] = (
                0xA5  # so that an element that the kernel does not write is not right by chance
            )
            self.gpu.to_device(memory, array)
        self.launch()
        self.gpu.synchronize()
        for memory, array in zip_strict(self._outputs, results):
            self.gpu.to_host(array, memory)
        return results

    def launch(self) -> None:
        """Puts one launch into the device's stream. Raises GpuError."""
        launch, stream = self._launch, self.gpu.stream
        shape = (launch.grid, 1, 1, launch.block, 1, 1, launch.shared_bytes, stream, self._parameters)
        if launch.cooperative:
            self.gpu.call("cuLaunchCooperativeKernel", self._function, *shape)
        else:
            self.gpu.call("cuLaunchKernel", self._function, *shape, None)

    def durations_ns(self) -> list[float]:
        """Times in ns of a launch on the tensors of the last run, measured by events: the means of BATCHES batches. Raises
        GpuError."""
        return self.gpu.durations_ns(self.launch)


def tune(
    graph: Graph, cache: KernelCache, gpu: Gpu, seed: int = 0, progress: Progress = silent
) -> tuple[CacheEntry, Launch]:
    """Finds the kernel of `graph` that is fastest on this GPU and puts it into the cache, replacing any other for the device; jobs
    take it from there. A candidate that the oracle finds wrong, or that the driver rejects, is dropped. Raises CudaError or
    NvrtcError, as build_for_gpu does."""
    inputs = random_inputs(graph, np.random.default_rng(seed), Regime.NORMAL)

    def measured(entry: CacheEntry) -> float | None:
        try:
            with contextlib.closing(gpu.load(entry)) as kernel:
                verdict = judge(graph, inputs, kernel.run(inputs))
                if verdict.ok:
                    return statistics.median(kernel.durations_ns())
                progress(f"{graph.name}: a candidate is dropped: {verdict}")
        except GpuError as error:
            progress(f"{graph.name}: a candidate is dropped: {error}")
        return None

    return build_for_gpu(graph, cache, gpu.target, progress=progress, measured=measured)


__all__ = ["Gpu", "GpuError", "GpuKernel", "tune"]
