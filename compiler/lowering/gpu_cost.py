"""Estimates the time of a CUDA kernel by a model of bytes, work items and arithmetic. It decides how a kernel is launched, never what
it computes, and gives the reasons in words.

    a phase   needs time for three things that overlap in part (OVERLAP):
              - memory       its bytes at the device's bandwidth, or at the share of it that the multiprocessors at work can use
              - latency      its work items, one after the other in as many places as blocks run at once; an item takes the time of
                             its longest chain of dependent steps (`Chain`): what it waits for, whatever the number of bytes
              - arithmetic   by the lanes that are at work
              and never less than one work item of any of its nests takes on one multiprocessor
    a kernel  takes a launch, its phases, a grid barrier between two phases, and the spilled registers, written and read once per wave

Bytes that an earlier phase of the same kernel has touched, or an earlier loop of the same nest, come from a cache. If the kernel
touches more than fits into the L2 cache, the share that comes from there is the share that would fit.

The figures are the device's (targets.py). The times of a chain's steps, OVERLAP and ARITHMETIC were fitted to 231 kernels on an H200
(docs/gpu.md): the model's error is a factor of 1.45 (root mean square of the logarithm).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final

from ..loops.loops import Buffer, Loops, NestCode
from ..planning.execution import Mode
from ..planning.plan import Plan
from ..planning.scatters import scatter_work, searches
from ..support.sequences import zip_strict
from ..targets.targets import GpuTarget

TEST_OPS: Final = 6
"""Instructions of a comparison of an index with a place: load, compare, vote, and the loop around them."""
OVERLAP: Final = 1.5
"""Memory, latency and arithmetic overlap in part: their sum with this exponent (1: none does, infinite: all do)."""
STREAMED: Final = 0.87
"""The share of the data sheet's bandwidth that a copy reaches: 4.15 of 4.8 TB/s."""
ARITHMETIC: Final = 0.33
"""Measured time of arithmetic as a share of what the table of ops says."""


@dataclass(frozen=True)
class Chain:
    """The longest chain of dependent steps of one work item. rounds: loops that wait for memory; iterations: further iterations of
    such loops, whose reads overlap; warps: over all reductions of a group, the warps that take part (one for a part of a warp)."""

    rounds: float = 0.0
    iterations: float = 0.0
    warps: float = 0.0

    def ns(self, target: GpuTarget) -> float:
        """The time of the work item in ns."""
        steps = (
            self.rounds * target.round_ns + self.iterations * target.iteration_ns + self.warps * target.reduce_warp_ns
        )
        return target.item_ns + steps


@dataclass(frozen=True)
class NestWork:
    """What a nest has to do. Only `blocks`, the work items of its blocks, and `chain` depend on the launch.

    bytes_moved: read and written by all loops. bytes_again: the part of bytes_moved that an earlier phase or loop has touched.
    compute_ns: time of the arithmetic with all of the device's lanes busy. chain: of one work item.
    """

    bytes_moved: int
    bytes_again: int
    compute_ns: float
    blocks: int
    chain: Chain = Chain()


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
        """The part of `bytes_moved` that an earlier phase or loop has touched."""
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
    latency_ns: float
    compute_ns: float
    alone_ns: float

    @property
    def ns(self) -> float:
        """The time of the phase in ns."""
        parts = (self.memory_ns, self.latency_ns, self.compute_ns)
        together: float = sum(part**OVERLAP for part in parts) ** (1 / OVERLAP)
        return max(self.alone_ns, together)

    @property
    def bound(self) -> str:
        """What takes most of the phase's time, in words: "memory", "latency", "arithmetic" or "one block"."""
        if self.alone_ns == self.ns:
            return "one block"
        parts = {"memory": self.memory_ns, "latency": self.latency_ns, "arithmetic": self.compute_ns}
        return max(parts, key=lambda part: parts[part])


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
        """The time of a call in ns: launch, barriers, spilled registers and all phases."""
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
                f"latency {phase.latency_ns / 1e3:.1f}, arithmetic {phase.compute_ns / 1e3:.1f}, a block alone "
                f"{phase.alone_ns / 1e3:.1f} us; bound by {phase.bound}"
            )


def _size(count: int) -> str:
    return f"{count / 2**20:.2f} MiB" if count >= 1 << 20 else f"{count / 2**10:.1f} KiB"


def phase_works(
    plan: Plan, kernel: Loops, blocks: Sequence[Sequence[int]], chains: Sequence[Sequence[Chain]]
) -> tuple[PhaseWork, ...]:
    """The work of each phase of `kernel`, which was lowered from `plan`. blocks: number of work items of each phase's nests; chains:
    their chains."""
    touched: set[Buffer] = set()
    found = []
    for phase, counts, steps in zip_strict(kernel.phases, blocks, chains):
        nests = zip_strict(phase.nests, counts, steps)
        works = tuple(_nest_work(plan, nest, count, chain, touched) for nest, count, chain in nests)
        found.append(PhaseWork(works))
        touched.update(buffer for nest in phase.nests for buffer in nest.all_buffers)
    return tuple(found)


def _nest_work(plan: Plan, nest: NestCode, blocks: int, chain: Chain, touched: Set[Buffer]) -> NestWork:
    known = sum(buffer.size_bytes for buffer in nest.all_buffers if buffer in touched)
    if nest.number < 0:  # it combines partial results, or is a step for a scatter's table
        moved = sum(buffer.size_bytes for buffer in nest.buffers)
        return NestWork(moved, min(moved, known), 0.0, blocks, chain)
    cost = plan.costs[nest.number]
    # the ratio of all components of a family to its first component
    share = nest.rows / max(1, plan.nests[nest.number].rows) if nest.instances else 1.0
    one = cost.bytes_read + cost.bytes_written
    compute = max(0.0, cost.one_core_ns - one / plan.target.bytes_per_ns) * share
    moved = round(one * share)
    repeated = max(0, moved - sum(buffer.size_bytes for buffer in nest.all_buffers))
    if plan.executions[nest.number].mode in (Mode.OWNERS, Mode.SCATTER):
        tests_ns, chain = _searched(plan, nest.number, chain)
        compute += tests_ns
    return NestWork(moved, min(moved, known + repeated), compute, blocks, chain)


def _searched(plan: Plan, number: int, chain: Chain) -> tuple[float, Chain]:
    """The time of a scatter's comparisons of indices with all lanes busy, and a task's chain with its longest search and the updates
    that it applies one after the other."""
    node = plan.graph.nodes[plan.nests[number].placed[0][0].node]
    if plan.executions[number].mode is Mode.SCATTER:
        return 0.0, replace(chain, rounds=chain.rounds + scatter_work(plan.graph, node).count)
    search = searches(plan.graph, node)
    longest = replace(chain, rounds=chain.rounds + search.updates, iterations=chain.iterations + search.rounds)
    return search.tests * TEST_OPS * plan.target.light_ns, longest


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
    busy = max(1, min(resident, work.blocks))
    share = min(1.0, busy / target.multiprocessors)
    again = round(work.bytes_again * cached)
    memory = _memory_ns(work.bytes_moved - again, again, share, target)
    lanes = min(share, busy * target.block / (target.multiprocessors * target.busy_threads))
    compute = ARITHMETIC * sum(nest.compute_ns for nest in work.nests) / lanes
    latency = alone = 0.0
    one = 1 / target.multiprocessors
    for nest in work.nests:
        item = nest.chain.ns(target)
        latency += nest.blocks * item
        items = max(1, nest.blocks)
        again = round(nest.bytes_again * cached)
        nest_memory = _memory_ns(nest.bytes_moved - again, again, one, target) / items
        nest_compute = ARITHMETIC * nest.compute_ns / (one * min(1.0, target.block / target.busy_threads)) / items
        alone = max(alone, item, nest_memory, nest_compute)
    return PhaseCost(work, waves, busy * target.block, memory, latency / resident, compute, alone)


def _memory_ns(from_memory: int, from_cache: int, share: float, target: GpuTarget) -> float:
    """share: of the device's multiprocessors at work."""
    return (from_memory / (STREAMED * target.bytes_per_ns) + from_cache / target.l2_bytes_per_ns) / share
