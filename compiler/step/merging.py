"""Whether one kernel for several stitch ops takes less time than one for each. The GPU's cost model decides, and gives the reason.

    remote    two sets that no path connects, side by side: phase by phase, in one launch
    cut       one connected set in two, at a place where its blocks wait for each other: another launch instead of the barrier

Scope identification (scopes.py) merges whatever it may; this module may prevent that. By the model merging nearly always pays, for
these reasons:

- Side by side, one launch is saved, the phases of both wait at the same barriers, and the blocks of one keep memory busy while the
  other has too few. No additional byte is moved.
- One after the other, a barrier (2.7 us and 1 ns per block) replaces a launch (3 us on the device alone; the host's share is not in
  the model). What passes between the two is in memory in either case, and in the L2 cache to the same extent.

What is lost is lost through shared memory: as many blocks of a kernel run at once as its largest tile leaves room for. So a set with
large tiles takes threads away from one that moves many bytes, and with them bytes in flight. It does not pay to merge a few long
rows, kept on the chip, with a large element-wise set on a device with little shared memory: on a T4, not on a V100
(tests/compiler/step/test_merging.py). And sets that each reuse what fits the L2 cache may not fit there together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final

from ..codegen.cuda.kernel_text import CudaError, CudaKernel, plan_for_gpu
from ..ir.graph import Graph
from ..lowering.gpu_cost import KernelCost, PhaseWork, kernel_cost
from ..ops.infer import GraphError
from ..targets.targets import GpuTarget

MERGE_MARGIN: Final = 0.05
"""What separate kernels must save, as a share: the model's barrier and launch are figures of one device each, and each kernel costs
the host too."""


@dataclass(frozen=True)
class OpWork:
    """The work of a stitch op's kernel in each phase, and the shared memory of a block, in bytes."""

    phases: tuple[PhaseWork, ...]
    shared_bytes: int

    @classmethod
    def of(cls, kernel: CudaKernel) -> OpWork:
        """The work of a planned kernel."""
        return cls(kernel.work, kernel.shared_bytes)

    def beside(self, other: OpWork) -> OpWork:
        """Both works in one kernel, as if they shared no reads."""
        nothing = PhaseWork(())
        pairs = zip_longest(self.phases, other.phases, fillvalue=nothing)
        phases = tuple(PhaseWork((*one.nests, *two.nests)) for one, two in pairs)
        return OpWork(phases, max(self.shared_bytes, other.shared_bytes))

    def cost(self, target: GpuTarget) -> KernelCost:
        """The estimated cost of the work as one kernel on the device."""
        # If both phases are the work of one block, that block does them alone and waits for no other.
        pairs = zip(self.phases, self.phases[1:])
        barriers = sum(not (before.blocks == after.blocks == 1) for before, after in pairs)
        return kernel_cost(self.phases, target, target.blocks_at_once(self.shared_bytes), barriers)


@dataclass(frozen=True)
class MergeDecision:
    """together_ns, apart_ns: times of one kernel, and of one kernel for each. pays: whether to merge. why: the reason in words."""

    together_ns: float
    apart_ns: float
    pays: bool
    why: str

    def __str__(self) -> str:
        return f"{self.together_ns / 1e3:.1f} us as one kernel, {self.apart_ns / 1e3:.1f} us apart: {self.why}"


@dataclass
class MergeModel:
    """Decides for one device whether merging stitch ops pays. It caches the plans by the graphs' digests."""

    target: GpuTarget
    _known: dict[str, OpWork | None] = field(default_factory=dict)

    def work_of(self, graph: Graph) -> OpWork | None:
        """The work of a graph's kernel; None if it cannot be a kernel."""
        if graph.digest not in self._known:
            try:
                self._known[graph.digest] = OpWork.of(plan_for_gpu(graph, self.target)[1])
            except (CudaError, GraphError):
                self._known[graph.digest] = None
        return self._known[graph.digest]

    def judge(self, together: OpWork, apart: Sequence[OpWork]) -> MergeDecision:
        """Compares one kernel with the work `together` with a kernel for each of `apart`. Merging pays unless separate kernels save
        more than MERGE_MARGIN of the time."""
        merged = together.cost(self.target)
        each = [work.cost(self.target) for work in apart]
        apart_ns = sum(cost.ns for cost in each)
        return MergeDecision(
            merged.ns, apart_ns, merged.ns * (1 - MERGE_MARGIN) <= apart_ns, self._why(together, merged, each)
        )

    def _why(self, together: OpWork, merged: KernelCost, each: Sequence[KernelCost]) -> str:
        launches = sum(cost.launch_ns for cost in each) - merged.launch_ns
        barriers = merged.barriers_ns - sum(cost.barriers_ns for cost in each)
        phases = sum(phase.ns for phase in merged.phases) - sum(phase.ns for cost in each for phase in cost.phases)
        text = f"{launches / 1e3:.1f} us of launches saved, barriers {barriers / 1e3:+.1f}, phases {phases / 1e3:+.1f}"
        most = max(cost.resident for cost in each)
        if merged.resident < most:
            text += f"; {together.shared_bytes} bytes of shared memory per block leave {merged.resident} of {most} blocks at once"
        return text

    def worth_a_cut(self, work: OpWork) -> bool:
        """Whether two kernels could be faster than one if no tile of one took blocks from the other. This is tested before any cut is
        planned."""
        if len(work.phases) < 2 or not work.shared_bytes:
            return False
        least = OpWork(work.phases, 0).cost(self.target)
        return least.ns < work.cost(self.target).ns * (1 - MERGE_MARGIN)


def beside_all(works: Iterable[OpWork]) -> OpWork:
    """All works in one kernel. Raises ValueError if there are none."""
    found: OpWork | None = None
    for work in works:
        found = work if found is None else found.beside(work)
    if found is None:
        raise ValueError("given no stitch op, expected at least one")
    return found


@dataclass
class StepMerges:
    """What the sets of a step's units would take, together and apart. units: their names; reduces: whether each contains a reduction;
    edges: (producer, consumer); graph_of: the graph of a sorted set of units, None if there is none."""

    model: MergeModel
    units: Sequence[str]
    reduces: Sequence[bool]
    edges: Sequence[tuple[int, int]]
    graph_of: Callable[[Sequence[int]], Graph | None]
    works: dict[frozenset[int], OpWork | None] = field(default_factory=dict)
    verdicts: dict[tuple[frozenset[int], frozenset[int]], MergeDecision] = field(default_factory=dict)
    cuts: list[tuple[frozenset[int], frozenset[int], MergeDecision]] = field(default_factory=list)

    def _work(self, nodes: Iterable[int]) -> OpWork | None:
        key = frozenset(nodes)
        if key not in self.works:
            graph = self.graph_of(sorted(key))
            self.works[key] = None if graph is None else self.model.work_of(graph)
        return self.works[key]

    def pays(self, first: Sequence[int], second: Sequence[int]) -> bool:
        """Whether two sets that no path connects should be merged. If it does not pay side by side, they are also planned as one
        kernel, which reads only once what both read."""
        works = [self._work(first), self._work(second)]
        found = [work for work in works if work is not None]
        if len(found) < 2:
            return True
        key = (frozenset(first), frozenset(second))
        together = beside_all(found)
        verdict = self.model.judge(together, found)
        if not verdict.pays:
            exact = self._work([*first, *second])
            verdict = verdict if exact is None else self.model.judge(exact, found)
        elif key[0] | key[1] not in self.works:
            self.works[key[0] | key[1]] = together
        self.verdicts[key] = verdict
        return verdict.pays

    def cut(self, clusters: Sequence[tuple[int, ...]]) -> list[object]:
        """The part of each unit, for `scopes.identify`: None, except in sets of `clusters` that should be two kernels. There, the
        units before some reduction and those after it are different parts."""
        parts: list[object] = [None] * len(self.units)
        for number, cluster in enumerate(clusters):
            work = self._work(cluster)
            if work is None or not self.model.worth_a_cut(work):
                continue
            depth = self._reductions_before(cluster)
            best: tuple[frozenset[int], frozenset[int], MergeDecision] | None = None
            for bound in sorted(set(depth.values()) - {0}):
                before = frozenset(i for i in cluster if depth[i] < bound)
                after = frozenset(cluster) - before
                halves = [half for half in map(self._work, (before, after)) if half is not None]
                if len(halves) == 2:
                    verdict = self.model.judge(work, halves)
                    if not verdict.pays and (best is None or verdict.apart_ns < best[2].apart_ns):
                        best = before, after, verdict
            if best is not None:
                self.cuts.append(best)
                for i in cluster:
                    parts[i] = (number, i in best[0])
        return parts

    def _reductions_before(self, cluster: Sequence[int]) -> dict[int, int]:
        """For each unit of the set, the largest number of reductions on a path to it. The set is in topological order."""
        inside, depth = set(cluster), dict.fromkeys(cluster, 0)
        producers: dict[int, list[int]] = {}
        for producer, consumer in self.edges:
            if producer in inside and consumer in inside:
                producers.setdefault(consumer, []).append(producer)
        for i in sorted(cluster):
            for producer in producers.get(i, ()):
                depth[i] = max(depth[i], depth[producer] + self.reduces[producer])
        return depth

    def notes(self, clusters: Sequence[tuple[int, ...]]) -> Iterator[str]:
        """The decisions as lines of text, each with the cost model's reason: every cut, every cluster that was merged from sets side
        by side, and every two sets of different clusters that were kept apart."""
        names = [self._name(cluster) for cluster in clusters]
        home = {i: number for number, cluster in enumerate(clusters) for i in cluster}
        for before, after, verdict in self.cuts:
            yield f"cut: {self._name(before)} from {self._name(after)}: {verdict}"
        for number, cluster in enumerate(clusters):
            joined = [v for (one, other), v in self.verdicts.items() if v.pays and (one | other) <= set(cluster)]
            if joined:
                saved = sum(verdict.apart_ns - verdict.together_ns for verdict in joined)
                yield (
                    f"merged: {names[number]}: {len(joined) + 1} sets side by side, {saved / 1e3:.1f} us less than apart by the "
                    f"model; the last: {joined[-1]}"
                )
        for (one, other), verdict in self.verdicts.items():
            if not verdict.pays and home[min(one)] != home[min(other)]:
                yield f"apart: {self._name(one)} and {self._name(other)}: {verdict}"

    def _name(self, nodes: Iterable[int]) -> str:
        some = [self.units[i] for i in sorted(nodes)]
        return some[0] if len(some) == 1 else f"{some[0]} to {some[-1]}"
