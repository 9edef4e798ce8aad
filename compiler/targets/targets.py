"""What the planner knows of a device, in one frozen dataclass per kind of device (`CpuTarget`, `GpuTarget`), with units in the names.

The CPU's figures were measured on the machine that builds this project (two cores of an AVX-512 server, TensorFlow 2.15.1); a GPU's
come from its data sheet, or were fitted on an H200 where a comment says so. The figures decide which loops run in parallel, what is
computed twice, and into how many parts and lanes a reduction is split. The parts and lanes set the order of a sum, and so its
rounding; nothing else about a result depends on these figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Target:
    """The figures of a device that planning uses. A device is a `CpuTarget`, whose task is a loop over rows on one thread, or a
    `GpuTarget`, whose task a group of threads shares.

    Nothing here may depend on the number of threads of a job: how a reduction is partitioned, and so its result to the last bit,
    follows from shapes alone.
    """

    name: str
    # A phase with less work than this runs on the caller's thread alone.
    serial_below_ns: int
    # A reduction across rows leaves one partial result per task. More of them cost traffic, fewer cost parallelism.
    partial_tasks: int
    # Streaming bandwidth, read plus write: of one core, or of the whole GPU.
    bytes_per_ns: float
    # Time of one element on data in registers: an arithmetic op, and a function such as exp, tanh or erf. On a CPU vectorised.
    light_ns: float
    expensive_ns: float
    # Starting a row: index arithmetic, loop set-up, collapsing accumulators.
    row_ns: float
    # Most bytes of the tiles that are private to one task.
    tile_bytes: int
    # Lanes of a vector accumulator.
    lanes: int
    # Rows of at most this many elements are unrolled into straight-line code and vectorised across rows instead.
    unroll_row: int
    # Read bandwidth of one group that works on a row, and the cost of one more phase: they decide if a long row is split (never on
    # a CPU).
    block_bytes_per_ns: float
    barrier_ns: float

    @property
    def row_slots(self) -> int:
        """Number of groups that work at once, each on its own row; 0 on a CPU, where rows are not split."""
        return 0


@dataclass(frozen=True)
class CpuTarget(Target):
    """A processor with TensorFlow's thread pool; bandwidth and times are those of one core."""

    name: str = "cpu"
    # Fork and join of TensorFlow's pool over two threads take 20 us on 2.15 and 2 to 10 us on 2.21; two threads save at most half of
    # the work. This is the plan's bound: below it a kernel has no fork. The runtime decides by STITCH_SERIAL_BELOW_NS.
    # It sees only phases that the plan has not made serial, with the cost of a task rounded down to whole nanoseconds; its bound is
    # lower, so it decides only for tasks of a few nanoseconds.
    serial_below_ns: int = 24_000
    partial_tasks: int = 32
    # 10 from memory, 25 from L2; most of a step's tensors are in L3.
    bytes_per_ns: float = 16.0
    # exp 0.22, tanh 0.28, erf 0.46: scripts/bench --functions.
    light_ns: float = 0.03
    expensive_ns: float = 0.3
    row_ns: float = 12.0
    # It must stay in L1 or L2 and fit on a pool thread's stack.
    tile_bytes: int = 64 * 1024
    # 32 floats are four AVX2 registers, which hide the latency of an addition (0.048 ns an element against 0.15 with one register).
    lanes: int = 32
    unroll_row: int = 8
    block_bytes_per_ns: float = 10.0
    barrier_ns: float = 20_000.0
    # Work of one task of a phase: small enough to balance over many threads, large enough against the pool's overhead
    # (under 1 us).
    task_ns: int = 8_000


CPU = CpuTarget()


WARP = 32
"""Threads of a warp, which run in step (CUDA C++ Programming Guide, "SIMT Architecture")."""


@dataclass(frozen=True)
class GpuTarget(Target):
    """A CUDA device. Figures come from its data sheet and from the table of compute capabilities in NVIDIA's CUDA C++ Programming
    Guide.

    On a GPU a group of threads (their number is a power of two) works on a row: part of a warp for short rows, a block for long
    ones. A task is the work of one group; a tile is in shared memory.
    """

    arch: str = "sm_70"
    multiprocessors: int = 80
    threads_per_multiprocessor: int = 2048
    blocks_per_multiprocessor: int = 32
    registers_per_multiprocessor: int = 65536
    shared_bytes_per_multiprocessor: int = 96 * 1024
    shared_bytes_per_block: int = 48 * 1024
    # Whether the blocks of a grid may wait for each other (cooperative launch). False before Pascal and on some virtual GPUs.
    cooperative: bool = True
    # Threads of a block, for all nests of a kernel. Fewer warps make barriers cheaper; 256 threads are still enough for long rows.
    block: int = 256
    # Registers of a thread that the grid is sized for (AStitch section 4.5: assume, relax, apply).
    assumed_registers: int = 64
    # Time that the device needs to start a kernel (gpu_cost's model): about 3 us between two kernels of one stream.
    launch_ns: float = 3_000.0
    # One block's atomic on the grid barrier's semaphore: all blocks use one address. On an H200 a barrier takes 0.6 us and 3.3 ns for
    # each block (scripts/bench-gpu).
    atomic_ns: float = 3.3
    # A work item of a block: what it takes at least; a loop that waits for memory; each further iteration of such a loop; and each
    # warp that takes part in a reduction (fitted on an H200, gpu_cost).
    item_ns: float = 150.0
    round_ns: float = 360.0
    iteration_ns: float = 104.0
    reduce_warp_ns: float = 16.3
    # Threads that keep a multiprocessor's lanes busy if each instruction needs the previous one's result (4 clocks).
    busy_threads: int = 256
    l2_bytes: int = 6 << 20
    l2_bytes_per_ns: float = 2_155.0
    # A row with at most this many elements per thread of a warp is processed by a warp; a longer one gets a whole block.
    row_per_thread: int = 8
    # Elements per thread of a flat loop.
    flat_per_thread: int = 4

    @property
    def row_slots(self) -> int:
        """Number of blocks that run at once; each long row has one block of its own."""
        return self.blocks_at_once(0)

    def most_registers(self, blocks: int) -> int:
        """The most registers per thread that let `blocks` blocks run on one multiprocessor (registers are allocated in units of
        8)."""
        warps = -(-self.block // 32)
        return min(255, self.registers_per_multiprocessor // (blocks * warps * 256) * 8)

    def blocks_at_once(self, shared_bytes: int, registers: int | None = None) -> int:
        """Number of blocks that are co-resident on the device if each uses `shared_bytes` of shared memory and each thread
        `registers` registers (None: `assumed_registers`). As in the CUDA occupancy calculator: registers are allocated per warp in
        units of 256, and the system reserves 1 KiB of shared memory per block."""
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
    """A row of the table of devices. Starting a row of a nest costs nothing on a GPU; tiles are in shared memory. gb_per_second: of
    the memory. shared_kib, threads: per multiprocessor. l2: the L2 cache's size in MiB and bandwidth in GB/s."""
    return GpuTarget(
        name=name,
        arch=arch,
        serial_below_ns=0,
        lanes=32,
        unroll_row=8,
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
        # 64 lanes per multiprocessor at 1.4 GHz; an exp or tanh of the C library's accuracy takes about 20 instructions.
        light_ns=1 / (multiprocessors * 64 * 1.4),
        expensive_ns=20 / (multiprocessors * 64 * 1.4),
        # By Little's law: 256 threads with 16 bytes in flight each, and about 600 ns for a read from memory.
        block_bytes_per_ns=7.0,
        # AStitch, table 6: a grid barrier of 160 blocks takes 2.7 us on a V100; on an H200 scripts/bench-gpu measured 1.1 us.
        barrier_ns=2_700.0 if arch < "sm_90" else 600.0,
    )


# L2 bandwidth: Jia et al., "Dissecting the NVIDIA Volta GPU architecture via microbenchmarking" (2018) and "... Turing T4 ..."
# (2019); the A100's from NVIDIA's whitepaper (2.3 times the V100's); the H200's is the A100's scaled by the clock.
V100 = _gpu("v100", "sm_70", 80, 900, 96, 2048, (6, 2155))
T4 = _gpu("t4", "sm_75", 40, 320, 64, 1024, (4, 1270))
A100 = _gpu("a100", "sm_80", 108, 1555, 164, 2048, (40, 4956))
H200 = _gpu("h200", "sm_90", 132, 4800, 228, 2048, (50, 6000))
GPUS = {target.arch: target for target in (V100, T4, A100, H200)}
"""Devices by the architecture that a kernel is built for."""


def target_of_device(described: Mapping[str, int | str]) -> GpuTarget:
    """The target for a device that has reported its own figures: CUDA's device attributes, keyed by the names of `GpuTarget`'s
    fields, and `name`, `major`, `minor`, `memory_clock_khz`, `memory_bus_bits`.

    Figures that no device reports (times of ops, the L2 cache's bandwidth, ...) are taken from GPUS: from the newest row that is not
    newer than the device. So is the memory's bandwidth if the memory's clock is 0, as newer drivers report it. A slice of a GPU
    (MIG) reports its own figures. Raises ValueError if one of the figures above is missing or the device's compute capability is
    below 7.0."""
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
            bytes_per_ns=gb_per_second or row.bytes_per_ns / share,  # newer drivers no longer report the memory clock
            partial_tasks=2 * figures["multiprocessors"],
            light_ns=row.light_ns * share,
            expensive_ns=row.expensive_ns * share,
        )
    except KeyError as missing:
        raise ValueError(f"the device does not report its {missing}") from missing
