"""Whether one kernel for several stitch ops takes less than one for each: asked of the GPU's cost model, which says why.

    remote    two sets that no path connects, side by side: phase by phase, in one launch
    cut       one connected set in two, where its blocks wait for each other: another launch instead of the barrier

Scope identification (scopes.py) merges whatever it may; this is what may keep it from that. By the model merging nearly always pays,
and these are the reasons:

- Side by side, a launch is saved, the phases of both wait at the same barriers, and blocks of the one keep memory busy while the
  other has too few. No byte more is moved.
- One after the other, a barrier (2.7 us and 1 ns for each block) stands instead of a launch (3 us for the device alone; the host's
  share is not in the model). What passes between the two is in memory either way, and in the L2 cache as much or as little.

What is lost is lost through shared memory: a kernel has as many blocks at once as its largest tile leaves room for, so a set with
large tiles takes threads from one that moves many bytes, and with them what it has on the way to memory. So it does not pay to merge
a few long rows, kept on the chip, with a large element-wise set on a device with little shared memory: on a T4, not on a V100
(tests/compiler/test_merging.py). And sets that each reuse what fits the L2 cache may not fit there together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final

from .cuda import CudaError, CudaKernel, plan_for_gpu
from .gpu_cost import KernelCost, PhaseWork, kernel_cost
from .graph import Graph
from .ops import GraphError
from .targets import GpuTarget

MARGIN: Final = 0.05
"""What staying apart must save: the model's barrier and launch are figures of one device each, and each kernel costs the host too."""


@dataclass(frozen=True)
class OpWork:
    """What the kernel of a stitch op does in each phase, and the shared memory of a block."""

    phases: tuple[PhaseWork, ...]
    shared_bytes: int

    @classmethod
    def of(cls, kernel: CudaKernel) -> OpWork:
        return cls(kernel.work, kernel.shared_bytes)

    def beside(self, other: OpWork) -> OpWork:
        """Both in one kernel, what they read apart."""
        nothing = PhaseWork(())
        pairs = zip_longest(self.phases, other.phases, fillvalue=nothing)
        phases = tuple(PhaseWork((*one.nests, *two.nests)) for one, two in pairs)
        return OpWork(phases, max(self.shared_bytes, other.shared_bytes))

    def cost(self, target: GpuTarget) -> KernelCost:
        # Where both phases are one block's work, that block alone does them and waits for nobody.
        pairs = zip(self.phases, self.phases[1:])
        barriers = sum(not (before.blocks == after.blocks == 1) for before, after in pairs)
        return kernel_cost(self.phases, target, target.blocks_at_once(self.shared_bytes), barriers)


@dataclass(frozen=True)
class Verdict:
    """together_ns, apart_ns: of one kernel, and of one each. pays: whether they become one. why: in words."""

    together_ns: float
    apart_ns: float
    pays: bool
    why: str

    def __str__(self) -> str:
        return f"{self.together_ns / 1e3:.1f} us as one kernel, {self.apart_ns / 1e3:.1f} us apart: {self.why}"


@dataclass
class MergeModel:
    """Answers for one device; it remembers what it has planned, by the graphs' digests."""

    target: GpuTarget
    _known: dict[str, OpWork | None] = field(default_factory=dict)

    def work_of(self, graph: Graph) -> OpWork | None:
        """None: there is no kernel for it."""
        if graph.digest not in self._known:
            try:
                self._known[graph.digest] = OpWork.of(plan_for_gpu(graph, self.target)[1])
            except (CudaError, GraphError):
                self._known[graph.digest] = None
        return self._known[graph.digest]

    def judge(self, together: OpWork, apart: Sequence[OpWork]) -> Verdict:
        """Whether to merge, or to leave merged."""
        one = together.cost(self.target)
        each = [work.cost(self.target) for work in apart]
        apart_ns = sum(cost.ns for cost in each)
        return Verdict(one.ns, apart_ns, one.ns * (1 - MARGIN) <= apart_ns, self._why(together, one, each))

    def _why(self, together: OpWork, one: KernelCost, each: Sequence[KernelCost]) -> str:
        launches = sum(cost.launch_ns for cost in each) - one.launch_ns
        barriers = one.barriers_ns - sum(cost.barriers_ns for cost in each)
        phases = sum(phase.ns for phase in one.phases) - sum(phase.ns for cost in each for phase in cost.phases)
        text = f"{launches / 1e3:.1f} us of launches saved, barriers {barriers / 1e3:+.1f}, phases {phases / 1e3:+.1f}"
        most = max(cost.resident for cost in each)
        if one.resident < most:
            text += f"; {together.shared_bytes} bytes of shared memory a block leave {one.resident} of {most} blocks at once"
        return text

    def worth_a_cut(self, work: OpWork) -> bool:
        """Whether two kernels could take less than one, if no tile of the one took blocks from the other: what is asked before any
        cut is planned."""
        if len(work.phases) < 2 or not work.shared_bytes:
            return False
        least = OpWork(work.phases, 0).cost(self.target)
        return least.ns < work.cost(self.target).ns * (1 - MARGIN)


def beside_all(works: Iterable[OpWork]) -> OpWork:
    """All in one kernel. Raises ValueError for none."""
    found: OpWork | None = None
    for work in works:
        found = work if found is None else found.beside(work)
    if found is None:
        raise ValueError("given no stitch op, expected at least one")
    return found
