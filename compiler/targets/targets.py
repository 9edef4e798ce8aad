"""What the planner knows of a device: one row of numbers per device, measured, with units in the names.

The CPU is a row like any other. Its figures were measured on the machine that builds this project (two cores of an
AVX-512 server, TensorFlow 2.15.1): they steer which loops run in parallel and what is computed twice, never what is
computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Target:
    """What every planner decision asks of a device; the defaults are the CPU's and its thread pool's.

    Nothing here may depend on how many threads a job has: the partition of a reduction, and with it the result to the
    last bit, follows from shapes alone.
    """

    name: str = "cpu"
    # What a fork and a join of TensorFlow's pool costs over two threads: 20 us on 2.15, 2 to 10 us on 2.21. A phase
    # below this much work runs on the caller's thread; two threads save at most half of it.
    serial_below_ns: int = 24_000
    # One task of a phase: small enough for balance over many threads, large enough for the pool's bookkeeping (under 1
    # us).
    task_ns: int = 8_000
    # A reduction across rows leaves one partial result per task. More of them cost traffic, fewer cost parallelism.
    partial_tasks: int = 32
    # Streaming bandwidth of one core, read plus write: 10 from memory, 25 from L2; most of a step's tensors are in L3.
    bytes_per_ns: float = 16.0
    # One element, vectorised: an arithmetic op on data in registers, and a function of kernel_math.h (exp 0.22, tanh 0.28, erf
    # 0.46: scripts/bench --functions).
    light_ns: float = 0.03
    expensive_ns: float = 0.3
    # Starting a row: index arithmetic, loop set-up, collapsing accumulators.
    row_ns: float = 12.0
    # A tile that one task keeps to itself must stay in L1 or L2 and fit on a pool thread's stack.
    tile_bytes: int = 64 * 1024
    # Lanes of a vector accumulator: 32 floats are four AVX2 registers, which hide the latency of an addition (0.048 ns
    # an element against 0.15 with one register).
    lanes: int = 32
    # Rows shorter than this are unrolled into straight-line code and vectorised across rows instead.
    unroll_row: int = 8
    # What one group at work on a row reads, and what a further phase costs: by these a long row is split. On a CPU none is.
    block_bytes_per_ns: float = 10.0
    barrier_ns: float = 20_000.0

    @property
    def row_slots(self) -> int:
        """Groups that are at work at once, each on a row."""
        return 0


CPU = Target()


@dataclass(frozen=True)
class GpuTarget(Target):
    """A CUDA device, after its data sheet and the CUDA C programming guide's table of compute capabilities.

    Here a row belongs to a group of threads, a power of two of them: part of a warp for short rows, a block for long ones; a task
    is what one group does; a tile lies in shared memory.
    """

    arch: str = "sm_70"
    multiprocessors: int = 80
    threads_per_multiprocessor: int = 2048
    blocks_per_multiprocessor: int = 32
    registers_per_multiprocessor: int = 65536
    shared_bytes_per_multiprocessor: int = 96 * 1024
    shared_bytes_per_block: int = 48 * 1024
    # Whether blocks of a grid may wait for each other (cooperative launch): not before Pascal, nor under some virtual GPUs.
    cooperative: bool = True
    # Threads of a block, for all nests of a kernel: its barriers are the cheaper the fewer warps wait, and long rows still fill it.
    block: int = 256
    # Registers of a thread that the grid is sized for (AStitch section 4.5: assume, relax, apply).
    assumed_registers: int = 64
    # Starting a kernel, for the device (gpu_cost's model): some 3 us between two in a stream.
    launch_ns: float = 3_000.0
    # One block's atomic at the grid barrier's semaphore: all go to one address, about one each clock of the L2 cache.
    atomic_ns: float = 1.0
    # A read from memory, from its start to its end, and what a thread has on the way meanwhile: four floats.
    memory_latency_ns: float = 600.0
    thread_bytes_in_flight: float = 16.0
    # Threads of a multiprocessor that keep its lanes busy: four clocks for an instruction whose result the next one wants.
    busy_threads: int = 256
    l2_bytes: int = 6 << 20
    l2_bytes_per_ns: float = 2_155.0
    # Elements of a row that a thread of a warp takes before the row gets a whole block.
    row_per_thread: int = 8
    # Elements that a thread of a flat loop takes.
    flat_per_thread: int = 4

    @property
    def row_slots(self) -> int:
        """Blocks that are at work at once: a long row has one for itself."""
        return self.blocks_at_once(0)

    def most_registers(self, blocks: int) -> int:
        """Registers that each thread may have where `blocks` blocks are to be on one multiprocessor (given in units of 8)."""
        warps = -(-self.block // 32)
        return min(255, self.registers_per_multiprocessor // (blocks * warps * 256) * 8)

    def blocks_at_once(self, shared_bytes: int, registers: int | None = None) -> int:
        """Blocks that are co-resident on the device with `shared_bytes` of shared memory each and `registers` of each thread (CUDA
        occupancy calculator: registers are given to warps in units of 256, and 1 KiB of shared memory to the system)."""
        warps = -(-self.block // 32)
        by_registers = self.registers_per_multiprocessor // (
            -(-(registers or self.assumed_registers) * 32 // 256) * 256 * warps
        )
        by_shared = self.shared_bytes_per_multiprocessor // (shared_bytes + 1024)
        by_threads = self.threads_per_multiprocessor // self.block
        return self.multiprocessors * min(by_threads, by_registers, by_shared, self.blocks_per_multiprocessor)


def _gpu(
    name: str, arch: str, multiprocessors: int, gb_per_second: int, shared_kib: int, threads: int, l2: tuple[int, int]
) -> GpuTarget:
    """A row of the table of devices. A row of a nest costs nothing to start there; a tile is in shared memory. l2: its MiB and
    GB/s."""
    return GpuTarget(
        name=name,
        arch=arch,
        multiprocessors=multiprocessors,
        bytes_per_ns=gb_per_second,
        threads_per_multiprocessor=threads,
        blocks_per_multiprocessor=16 if threads == 1024 else 32,
        shared_bytes_per_multiprocessor=shared_kib * 1024,
        l2_bytes=l2[0] << 20,
        l2_bytes_per_ns=l2[1],
        partial_tasks=2 * multiprocessors,
        tile_bytes=32 * 1024,
        row_ns=0.0,
        # 64 lanes of a multiprocessor at 1.4 GHz; an exp or tanh of the C library's accuracy takes some 20 instructions.
        light_ns=1 / (multiprocessors * 64 * 1.4),
        expensive_ns=20 / (multiprocessors * 64 * 1.4),
        # By Little's law: 256 threads with 16 bytes on the way each, and some 600 ns for a read from memory.
        block_bytes_per_ns=7.0,
        barrier_ns=2_700.0,  # AStitch, table 6: a grid barrier of 160 blocks on a V100
    )


# L2 bandwidth: Jia et al., "Dissecting the NVIDIA Volta GPU architecture via microbenchmarking" (2018) and "... Turing T4 ..."
# (2019); NVIDIA's whitepaper of the A100 (2.3 times the V100's); the H200's from its clock, as the A100's.
V100 = _gpu("v100", "sm_70", 80, 900, 96, 2048, (6, 2155))
T4 = _gpu("t4", "sm_75", 40, 320, 64, 1024, (4, 1270))
A100 = _gpu("a100", "sm_80", 108, 1555, 164, 2048, (40, 4956))
H200 = _gpu("h200", "sm_90", 132, 4800, 228, 2048, (50, 6000))
GPUS = {target.arch: target for target in (V100, T4, A100, H200)}
"""By the architecture that a kernel is built for."""


def target_of_device(described: Mapping[str, int | str]) -> GpuTarget:
    """The row of a device that has been asked for its own figures: CUDA's device attributes by the names of `GpuTarget`'s fields, and
    `name`, `major`, `minor`, `memory_clock_khz`, `memory_bus_bits`.

    What it does not tell is as in the table's nearest row before it. A slice of a GPU (MIG) tells its own. Raises ValueError where a
    figure is missing, or the device is older than any in the table."""
    try:
        figures = {key: int(value) for key, value in described.items() if key != "name"}
        number = figures["major"] * 10 + figures["minor"]
        gb_per_second = 2 * figures["memory_clock_khz"] * figures["memory_bus_bits"] / 8 / 1e6
        known = {int(arch.removeprefix("sm_")): row for arch, row in GPUS.items()}
        older = [each for each in known if each <= number]
        if not older:
            raise ValueError(f"{described.get('name', 'the device')} has compute capability {number / 10}, below 7.0")
        row = known[max(older)]
        share = row.multiprocessors / figures["multiprocessors"]
        return replace(
            row,
            name=str(described.get("name", row.name)),
            arch=f"sm_{number}",
            multiprocessors=figures["multiprocessors"],
            threads_per_multiprocessor=figures["threads_per_multiprocessor"],
            blocks_per_multiprocessor=figures["blocks_per_multiprocessor"],
            registers_per_multiprocessor=figures["registers_per_multiprocessor"],
            shared_bytes_per_multiprocessor=figures["shared_bytes_per_multiprocessor"],
            shared_bytes_per_block=figures["shared_bytes_per_block"],
            cooperative=bool(figures["cooperative"]),
            l2_bytes=figures["l2_bytes"],
            bytes_per_ns=gb_per_second or row.bytes_per_ns / share,  # newer drivers no longer tell the memory's clock
            partial_tasks=2 * figures["multiprocessors"],
            light_ns=row.light_ns * share,
            expensive_ns=row.expensive_ns * share,
        )
    except KeyError as missing:
        raise ValueError(f"the device does not tell its {missing}") from missing
