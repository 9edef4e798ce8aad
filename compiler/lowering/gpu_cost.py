"""Estimates the time of a CUDA kernel by a model of bytes, blocks and threads. It decides how a kernel is launched, never what it
computes, and gives the reasons in words.

    a phase   takes the longer of moving its bytes and of computing. Each is
              - slower if too few threads are at work to keep memory or the lanes busy (Little's law)
              - slower in the last wave of blocks too, if that wave is not full
              and never shorter than one work item of any of its nests by one block alone, or than a scatter's longest search
    a kernel  takes a launch, its phases, a grid barrier between two phases, and the spilled registers, written and read once per wave

Bytes that an earlier phase of the same kernel has touched come from the L2 cache. If the kernel touches more than fits there, the
share that comes from L2 is the share that would fit. The figures are the device's (targets.py); none was fitted to a measurement of
these kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace

from ..loops.loops import Buffer, Loops, NestCode
from ..planning.execution import Mode
from ..planning.plan import Plan
from ..planning.scatters import scatter_work, searches
from ..support.sequences import zip_strict
from ..targets.targets import GpuTarget

TEST_OPS = 6
"""Instructions of a comparison of an index with a place: load, compare, vote, and the loop around them."""


@dataclass(frozen=True)
class NestWork:
    """What a nest has to do. Only `blocks`, the work items of its blocks, and `threads` depend on the launch.

    bytes_moved: read and written, each tensor once. bytes_again: those of them that an earlier phase has touched. compute_ns: time
    of the arithmetic with all of the device's lanes busy. chain_ns: time of what a task must do one after the other, whatever else
    runs. threads: of a block that have a part in the nest; 0: all.
    """

    bytes_moved: int
    bytes_again: int
    compute_ns: float
    blocks: int
    chain_ns: float = 0.0
    threads: int = 0


@dataclass(frozen=True)
class PhaseWork:
    """The work of the nests of a phase, which run side by side."""

    nests: tuple[NestWork, ...]

    @property
    def bytes_moved(self) -> int:
        """Bytes that the phase's nests read and write."""
        return sum(nest.bytes_moved for nest in self.nests)

    @property
    def bytes_again(self) -> int:
        """The part of them that an earlier phase has touched."""
        return sum(nest.bytes_again for nest in self.nests)

    @property
    def blocks(self) -> int:
        """Number of work items of the phase's blocks."""
        return sum(nest.blocks for nest in self.nests)


@dataclass(frozen=True)
class PhaseCost:
    """The time of a phase in ns, and what it follows from. waves: number of waves of blocks; threads: at work in the fullest wave;
    alone_ns: time of the longest work item by one block."""

    work: PhaseWork
    waves: int
    threads: int
    memory_ns: float
    compute_ns: float
    alone_ns: float

    @property
    def ns(self) -> float:
        """The time of the phase: the longest of memory, arithmetic and one block alone."""
        return max(self.memory_ns, self.compute_ns, self.alone_ns)

    @property
    def bound(self) -> str:
        """What takes that time, in words: "memory", "arithmetic" or "one block"."""
        if self.alone_ns == self.ns:
            return "one block"
        return "memory" if self.memory_ns == self.ns else "arithmetic"


@dataclass(frozen=True)
class KernelCost:
    """The time of one call in ns. resident: blocks that run at once on the device; block: threads per block."""

    phases: tuple[PhaseCost, ...]
    resident: int
    block: int
    launch_ns: float
    barriers_ns: float
    spill_ns: float

    @property
    def ns(self) -> float:
        """The time of a call: launch, barriers, spilled registers and all phases."""
        return self.launch_ns + self.barriers_ns + self.spill_ns + sum(phase.ns for phase in self.phases)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield (
            f"about {self.ns / 1e3:.1f} us by the model: launch {self.launch_ns / 1e3:.1f}, barriers {self.barriers_ns / 1e3:.1f}"
            + (f", spilled registers {self.spill_ns / 1e3:.1f}" if self.spill_ns else "")
            + f"; {self.resident} blocks of {self.block} threads at once"
        )
        for number, phase in enumerate(self.phases):
            work = phase.work
            again = f" ({_size(work.bytes_again)} again)" if work.bytes_again else ""
            yield (
                f"  phase {number}: {_size(work.bytes_moved)}{again}, {work.blocks} work items in "
                f"{phase.waves} wave{'s' if phase.waves > 1 else ''}, {phase.threads} threads: memory {phase.memory_ns / 1e3:.1f}, "
                f"arithmetic {phase.compute_ns / 1e3:.1f}, a block alone {phase.alone_ns / 1e3:.1f} us; bound by {phase.bound}"
            )


def _size(count: int) -> str:
    return f"{count / 2**20:.2f} MiB" if count >= 1 << 20 else f"{count / 2**10:.1f} KiB"


def phase_works(plan: Plan, kernel: Loops, blocks: Sequence[Sequence[tuple[int, int]]]) -> tuple[PhaseWork, ...]:
    """The work of each phase of `kernel`, which was lowered from `plan`. blocks: for each phase's nests, the number of work items and
    the threads of a block that work on one."""
    touched: set[Buffer] = set()
    found = []
    for phase, counts in zip_strict(kernel.phases, blocks):
        works = tuple(
            replace(_nest_work(plan, nest, count, touched), threads=threads)
            for nest, (count, threads) in zip_strict(phase.nests, counts)
        )
        found.append(PhaseWork(works))
        touched.update(buffer for nest in phase.nests for buffer in nest.all_buffers)
    return tuple(found)


def _nest_work(plan: Plan, nest: NestCode, blocks: int, touched: Set[Buffer]) -> NestWork:
    known = sum(buffer.size_bytes for buffer in nest.all_buffers if buffer in touched)
    if nest.number < 0:  # it combines partial results, or is a step for a scatter's table
        moved = sum(buffer.size_bytes for buffer in nest.buffers)
        return NestWork(moved, min(moved, known), 0.0, blocks)
    cost = plan.costs[nest.number]
    # the ratio of all components of a family to its first component
    share = nest.rows / max(1, plan.nests[nest.number].rows) if nest.instances else 1.0
    one = cost.bytes_read + cost.bytes_written
    compute = max(0.0, cost.one_core_ns - one / plan.target.bytes_per_ns) * share
    moved = round(one * share)
    compute += _searches_ns(plan, nest.number)
    return NestWork(moved, min(moved, known), compute, blocks, _chain_ns(plan, nest.number))


def _searches_ns(plan: Plan, number: int) -> float:
    """The time of a scatter's comparisons of indices, with all lanes busy."""
    if plan.executions[number].mode is not Mode.OWNERS:
        return 0.0
    node = plan.graph.nodes[plan.nests[number].placed[0][0].node]
    return searches(plan.graph, node).tests * TEST_OPS * plan.target.light_ns


def _chain_ns(plan: Plan, number: int) -> float:
    """The time of the longest search of a scatter's task, and of the updates that it applies in order. Indices come from a cache,
    several reads at once; half of memory's latency is that of the L2 cache."""
    target, mode = plan.target, plan.executions[number].mode
    if not isinstance(target, GpuTarget) or mode not in (Mode.OWNERS, Mode.SCATTER):
        return 0.0
    node = plan.graph.nodes[plan.nests[number].placed[0][0].node]
    if mode is Mode.SCATTER:
        return scatter_work(plan.graph, node).count * target.memory_latency_ns / 2
    search = searches(plan.graph, node)
    return (search.rounds / 2 + search.updates) * target.memory_latency_ns / 2


def kernel_cost(
    works: Sequence[PhaseWork], target: GpuTarget, resident: int, barriers: int, spill_bytes: int = 0
) -> KernelCost:
    """The cost of a kernel with `resident` blocks of `target.block` threads at once. works: by phase. barriers: number of grid
    barriers. spill_bytes: per thread, over the whole kernel."""
    cached = min(1.0, target.l2_bytes / max(1, sum(work.bytes_moved - work.bytes_again for work in works)))
    phases = tuple(_phase_cost(work, target, resident, cached) for work in works)
    grid = min(resident, max((work.blocks for work in works), default=1))
    spilled = 2 * spill_bytes * target.block * sum(min(resident, phase.work.blocks) * phase.waves for phase in phases)
    return KernelCost(
        phases,
        resident,
        target.block,
        target.launch_ns,
        barriers * (target.barrier_ns + grid * target.atomic_ns),
        spilled / target.l2_bytes_per_ns / max(1, len(phases)),
    )


def _phase_cost(work: PhaseWork, target: GpuTarget, resident: int, cached: float) -> PhaseCost:
    waves = max(1, -(-work.blocks // resident))
    memory = compute = alone = 0.0
    for share, blocks in _waves(work, resident):
        threads = _threads(work, share, blocks, target)
        again = sum(round(nest.bytes_again * cached * part) for nest, part in zip_strict(work.nests, share))
        moved = sum(round(nest.bytes_moved * part) for nest, part in zip_strict(work.nests, share))
        memory += _memory_ns(moved - again, again, threads, target)
        lanes = _lanes(threads, target)
        compute += sum(nest.compute_ns * part for nest, part in zip_strict(work.nests, share)) / lanes
    for nest in work.nests:
        again = round(nest.bytes_again * cached)
        threads = nest.threads or target.block
        nest_memory = _memory_ns(nest.bytes_moved - again, again, threads, target)
        nest_compute = nest.compute_ns / _lanes(threads, target)
        alone = max(alone, max(nest_memory, nest_compute) / max(1, nest.blocks), nest.chain_ns)
    busy = max(1, min(resident, work.blocks))
    return PhaseCost(work, waves, busy * target.block, memory, compute, alone)


def _waves(work: PhaseWork, resident: int) -> Iterator[tuple[list[float], int]]:
    """All full waves of blocks as one entry, then the last wave: the share of each nest that the entry does, and the number of
    blocks at work. The nests' work items lie end to end, so the last wave does those of the last nests."""
    last = (work.blocks - 1) // resident * resident if work.blocks else 0
    start, full, rest = 0, [], []
    for nest in work.nests:
        early = min(max(last - start, 0), nest.blocks) / max(1, nest.blocks)
        full.append(early)
        rest.append(1 - early)
        start += nest.blocks
    if last:
        yield full, resident
    yield rest, max(1, work.blocks - last)


def _threads(work: PhaseWork, share: Sequence[float], blocks: int, target: GpuTarget) -> int:
    """The threads at work in `blocks` blocks, of which each nest has its share of the work items."""
    items = [nest.blocks * part for nest, part in zip_strict(work.nests, share)]
    active = sum(count * (nest.threads or target.block) for nest, count in zip_strict(work.nests, items))
    return max(1, round(blocks * active / sum(items))) if any(items) else blocks * target.block


def _memory_ns(from_memory: int, from_cache: int, threads: int, target: GpuTarget) -> float:
    in_flight = threads * target.thread_bytes_in_flight / target.memory_latency_ns
    # the latency of the cache is about half of memory's
    return from_memory / min(target.bytes_per_ns, in_flight) + from_cache / min(target.l2_bytes_per_ns, 2 * in_flight)


def _lanes(threads: int, target: GpuTarget) -> float:
    """The share of the device's lanes that `threads` threads keep busy."""
    return min(1.0, threads / (target.multiprocessors * target.busy_threads))
