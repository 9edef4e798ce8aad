"""What is known of a built kernel: all that a runtime has to know to call it, as JSON beside the binary and in the compile service's
answers."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np

from ..ir.graph import DType, Shape

ABI_VERSION: Final = 2
"""STITCH_ABI_VERSION of stitch_abi.h that this compiler writes kernels for."""


class KernelError(Exception):
    """A kernel cannot be loaded or run as asked; the text says what was given and what was expected."""


@dataclass(frozen=True)
class TensorType:
    dtype: str  # HLO's spelling: f32
    shape: Shape

    @property
    def numpy(self) -> np.dtype[np.generic]:
        return DType(self.dtype).numpy

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * self.numpy.itemsize


@dataclass(frozen=True)
class GpuLaunch:
    """How a CUDA kernel's one function is launched. tensors: what it takes, ("input", number), ("output", number), ("scratch", 0);
    by_table: by the address of a table of their addresses. cooperative: its blocks wait for each other."""

    arch: str
    grid: int
    block: int
    shared_bytes: int
    cooperative: bool
    by_table: bool
    tensors: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class CheckReport:
    """The self-check that the kernel passed: input regimes tried, and the largest error in units of what was
    allowed."""

    checked: bool = False
    regimes: tuple[str, ...] = ()
    worst_of_allowed: float = 0.0
    against_reference: bool = False


@dataclass(frozen=True)
class KernelMetadata:
    """All that a runtime has to know to call a kernel, and a person to judge it. Bytes are per call."""

    symbol: str
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    scratch_bytes: int
    aliases: tuple[
        tuple[int, int], ...
    ]  # (output, input) that may be the same memory, any number of disjoint pairs at once
    bytes_read: int
    bytes_written: int
    intermediate_bytes: int
    op_count: int
    phases: int
    parallel_phases: int
    estimated_ns: float
    tolerances: tuple[tuple[float, float], ...]  # per output: relative, of the largest magnitude
    graph_digest: str
    generator: str
    compiler: str
    vector_symbols: tuple[str, ...] = ()
    check: CheckReport = field(default_factory=CheckReport)
    parameters: tuple[int, ...] = ()
    """Of a binary for many shapes: the 64-bit words that make it this shape's (`parametric`)."""
    launch: GpuLaunch | None = None
    """Of a CUDA kernel, whose binary is a cubin; None: one for the processor."""
    abi_version: int = ABI_VERSION

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> KernelMetadata:
        """Raises KernelError for text that is no metadata of this version."""
        try:
            return cls.of(json.loads(text))
        except ValueError as error:
            raise KernelError(f"not a kernel's metadata: {error}") from error

    @classmethod
    def of(cls, described: dict[str, Any]) -> KernelMetadata:
        """Of `dataclasses.asdict(metadata)` as it comes back from JSON. Raises KernelError where it is none of this version."""
        try:
            data = dict(described)
            for key in ("inputs", "outputs"):
                data[key] = tuple(TensorType(item["dtype"], tuple(item["shape"])) for item in data[key])
            for key in ("aliases", "tolerances"):
                data[key] = tuple(tuple(pair) for pair in data[key])
            data["vector_symbols"] = tuple(data["vector_symbols"])
            data["parameters"] = tuple(data["parameters"])
            check = data["check"]
            data["check"] = CheckReport(**{**check, "regimes": tuple(check["regimes"])})
            if (launch := data.get("launch")) is not None:
                data["launch"] = GpuLaunch(**{**launch, "tensors": tuple(tuple(pair) for pair in launch["tensors"])})
            return cls(**data)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise KernelError(f"not a kernel's metadata: {error}") from error
