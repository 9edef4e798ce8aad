"""Chooses the backend for the device that a job asks for."""

from __future__ import annotations

from collections.abc import Mapping

from ..targets.targets import target_of_device
from .backend import Backend
from .cpu import CpuBackend
from .cuda import CudaBackend


def backend_for(device: Mapping[str, int | str] | None) -> Backend:
    """The backend for a GPU that reports its figures (`targets.target_of_device`) or, for None, for this machine's CPU. Raises
    ValueError if no backend makes kernels for the device."""
    return CpuBackend() if device is None else CudaBackend(target_of_device(device))
