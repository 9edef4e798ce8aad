"""The metadata of a built kernel: everything that a runtime must know to call it. It is JSON, stored beside the binary and sent in
the compile service's answers."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np

from ..ir.graph import DType, Shape

ABI_VERSION: Final = 2
"""The STITCH_ABI_VERSION of stitch_abi.h for which this compiler writes kernels."""


class KernelError(Exception):
    """A kernel cannot be loaded, or not run as requested; the text says what was given and what was expected."""


@dataclass(frozen=True)
class TensorType:
    """Dtype and shape of a kernel's input or output."""

    dtype: str  # HLO's spelling: f32
    shape: Shape

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The numpy dtype."""
        return DType(self.dtype).numpy

    @property
    def size_bytes(self) -> int:
        """Bytes of the tensor."""
        return math.prod(self.shape) * self.numpy.itemsize


@dataclass(frozen=True)
class GpuLaunch:
    """How a CUDA kernel's function is launched. tensors: its arguments: ("input", number), ("output", number), ("scratch", 0).
    by_table: the argument is the address of a table of their addresses. cooperative: its blocks wait for each other. arch: such as
    "sm_90"; shared_bytes: of a block."""

    arch: str
    grid: int
    block: int
    shared_bytes: int
    cooperative: bool
    by_table: bool
    tensors: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class CheckReport:
    """The self-check that the kernel passed: the input regimes tried, and the largest error as a multiple of what was allowed.
    `against_reference`: it was compared with the framework too."""

    checked: bool = False
    regimes: tuple[str, ...] = ()
    worst_of_allowed: float = 0.0
    against_reference: bool = False


@dataclass(frozen=True)
class KernelMetadata:
    """What a runtime must know to call a kernel, and what a person wants to know of it. Bytes are per call; `estimated_ns` is the
    planner's estimate of a call, or on a GPU the measured time if there is one."""

    symbol: str
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    scratch_bytes: int
    aliases: tuple[
        tuple[int, int], ...
    ]  # (output, input) pairs that may share memory, any number of disjoint pairs at once
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
    """For a binary for many shapes: the 64-bit words that specialise it to this shape (`codegen.cpu.many_shapes`)."""
    launch: GpuLaunch | None = None
    """For a CUDA kernel, whose binary is a cubin; None for a CPU kernel."""
    abi_version: int = ABI_VERSION

    def to_json(self) -> str:
        """The metadata as JSON text, which `from_json` reads."""
        return json.dumps(asdict(self), indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> KernelMetadata:
        """The metadata in `text`. Raises KernelError if it is not metadata of this version."""
        try:
            return cls.of(json.loads(text))
        except ValueError as error:
            raise KernelError(f"not a kernel's metadata: {error}") from error

    @classmethod
    def of(cls, described: dict[str, Any]) -> KernelMetadata:
        """The metadata from `dataclasses.asdict(metadata)` after a round trip through JSON. Raises KernelError if it does not fit."""
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
