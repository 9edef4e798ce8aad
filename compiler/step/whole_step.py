"""The kernels of a whole step: what `partition` made of a module, each stitch op compiled for itself.

Equal stitch ops share a kernel, as the layers of a model do. One that cannot be compiled costs the others nothing: it is listed with
its reason, and its operators stay the framework's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..codegen.cuda.kernel_text import CudaError, CudaKernel, head, plan_for_gpu
from ..ir.graph import Graph
from ..ops.table import GraphError
from ..planning.plan import Plan
from ..targets.targets import GpuTarget
from .partition import Partition, StitchOp


@dataclass(frozen=True)
class StepKernel:
    """A stitch op's kernel for a GPU, or (plan and kernel None) one line that says why there is none."""

    op: StitchOp
    plan: Plan | None = None
    kernel: CudaKernel | None = None
    failure: str = ""


Make = Callable[[Graph, GpuTarget], tuple[Plan, CudaKernel]]


def compile_for_gpu(
    step: Partition,
    target: GpuTarget,
    progress: Callable[[str], None] = lambda line: None,
    make: Make = plan_for_gpu,
) -> list[StepKernel]:
    """One entry for each stitch op, in order. progress: is told a line for each before it is planned. make: plans and renders one;
    it may raise CudaError."""
    found: list[StepKernel] = []
    known: dict[str, StepKernel] = {}
    for number, op in enumerate(step.stitch_ops, 1):
        before = known.get(op.graph.digest)
        if before is None:
            progress(f"{number} of {len(step.stitch_ops)}: {op.name}, {len(op.instructions)} ops")
            try:
                plan, kernel = make(op.graph, target)
                before = StepKernel(op, plan, kernel)
            except (CudaError, GraphError) as error:
                before = StepKernel(op, failure=" ".join(str(error).split()))
            known[op.graph.digest] = before
        found.append(StepKernel(op, before.plan, before.kernel, before.failure))
    return found


def translation_unit(kernels: list[StepKernel]) -> str:
    """The text of a compilation of all kernels, each once."""
    texts = {each.kernel.symbol: each.kernel.text for each in kernels if each.kernel is not None}
    return "\n".join([head(), *texts.values()])
