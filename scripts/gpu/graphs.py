"""CUDA graphs by the driver API: launches are recorded once, and replayed without the processor."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from stitchfleet.compiler.pipeline.cuda_runtime import Gpu, GpuError

_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED


class RecordedLaunches:
    """What `begin` puts into the device's stream, as a CUDA graph. Raises GpuError if the driver cannot record it."""

    def __init__(self, gpu: Gpu, begin: Callable[[], None]) -> None:
        self._gpu = gpu
        self._graph, self._ready = ctypes.c_void_p(), ctypes.c_void_p()
        try:
            gpu.call("cuStreamBeginCapture_v2", gpu.stream, _RELAXED)
            try:
                begin()
            finally:
                gpu.call("cuStreamEndCapture", gpu.stream, ctypes.byref(self._graph))
            gpu.call("cuGraphInstantiateWithFlags", ctypes.byref(self._ready), self._graph, ctypes.c_ulonglong(0))
        except AttributeError as error:
            raise GpuError(f"the driver has no CUDA graphs: {error}") from None

    def launch(self) -> None:
        """Puts one replay into the stream. Raises GpuError."""
        self._gpu.call("cuGraphLaunch", self._ready, self._gpu.stream)

    def close(self) -> None:
        """Frees the graph."""
        self._gpu.call("cuGraphExecDestroy", self._ready)
        self._gpu.call("cuGraphDestroy", self._graph)
