"""The table of backends, which the compile service, `stitchfleet compile` and the tests of every backend read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from ..check.selfcheck import CheckOptions
from ..targets.targets import CPU, GPUS, GpuTarget, Target, target_of_device
from .backend import Backend
from .cpu import CpuBackend
from .cuda import CudaBackend


@dataclass(frozen=True)
class Effort:
    """What a backend may spend on a kernel. search: it may build a kernel several times to find the best launch. check: it runs a
    kernel, if it can, before the kernel gets into the cache."""

    search: bool = True
    check: bool = True


@dataclass(frozen=True)
class BackendKind:
    """A row of the table. targets: the devices that the backend makes kernels for, by architecture; `usual` is one of them."""

    targets: Mapping[str, Target]
    usual: str
    make: Callable[[Target, Effort], Backend]

    @property
    def stages(self) -> tuple[str, ...]:
        """The names of the backend's stages, in order."""
        return tuple(stage.name for stage in self.make(self.targets[self.usual], Effort()).stages())


def _cpu(target: Target, effort: Effort) -> Backend:
    return CpuBackend(check=None if effort.check else CheckOptions(skip=True), target=target)


def _cuda(target: Target, effort: Effort) -> Backend:
    assert isinstance(target, GpuTarget)
    return CudaBackend(target, search=effort.search)


BACKENDS: Final[Mapping[str, BackendKind]] = MappingProxyType(
    {"cpu": BackendKind({"host": CPU}, "host", _cpu), "cuda": BackendKind(GPUS, "sm_90", _cuda)}
)
"""The backends, by the name that `stitchfleet compile --target` knows them by."""


def backend_for(device: Mapping[str, int | str] | None) -> Backend:
    """The backend for a GPU that reports its figures (`targets.target_of_device`) or, for None, for this machine's CPU. Raises
    ValueError if no backend makes kernels for the device."""
    if device is None:
        return BACKENDS["cpu"].make(CPU, Effort())
    return BACKENDS["cuda"].make(target_of_device(device), Effort())
