"""What the planner knows of a device: one row of numbers per device, measured, with units in the names.

The CPU is a row like any other. Its figures were measured on the machine that builds this project (two cores of an
AVX-512 server, TensorFlow 2.15.1): they steer which loops run in parallel and what is computed twice, never what is
computed.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CpuTarget:
    """A CPU and the thread pool that its kernels run on.

    Nothing here may depend on how many threads a job has: the partition of a reduction, and with it the result to the
    last bit, follows from shapes alone.
    """

    name: str = "cpu"
    # What a fork and a join of TensorFlow's pool costs over two threads: 20 us on 2.15, 2 to 10 us on 2.21. A phase
    # below this much # work runs on the caller's thread; two threads save at most half of it.
    serial_below_ns: int = 24_000
    # One task of a phase: small enough for balance over many threads, large enough for the pool's bookkeeping (under 1
    # us).
    task_ns: int = 8_000
    # A reduction across rows leaves one partial result per task. More of them cost traffic, fewer cost parallelism.
    partial_tasks: int = 32
    # Streaming bandwidth of one core, read plus write: 10 from memory, 25 from L2; most of a step's tensors are in L3.
    bytes_per_ns: float = 16.0
    # One element, vectorised: an arithmetic op on data in registers, and a library call (libmvec's expf and tanhf).
    light_ns: float = 0.03
    expensive_ns: float = 0.6
    # Starting a row: index arithmetic, loop set-up, collapsing accumulators.
    row_ns: float = 12.0
    # A tile that one task keeps to itself must stay in L1 or L2 and fit on a pool thread's stack.
    tile_bytes: int = 64 * 1024
    # Lanes of a vector accumulator: 32 floats are four AVX2 registers, which hide the latency of an addition (0.048 ns
    # an element # against 0.15 with one register).
    lanes: int = 32
    # Rows shorter than this are unrolled into straight-line code and vectorised across rows instead.
    unroll_row: int = 8


CPU = CpuTarget()
