"""The kernels of a whole step: each stitch op of a partition is compiled separately.

Equal stitch ops share a kernel, as the layers of a model do. A stitch op that cannot be compiled does not affect the others: it is
listed with the reason, and the framework keeps its operators.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..codegen.cuda.kernel_text import CudaError, CudaKernel, head, plan_for_gpu
from ..ir.graph import Graph
from ..ops.infer import GraphError
from ..planning.plan import Plan
from ..targets.targets import GpuTarget
from .partition import Partition, StitchOp


@dataclass(frozen=True)
class StepKernel:
    """A stitch op's kernel for a GPU. If there is none, plan and kernel are None, and `failure` says why in one line."""

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
    """One entry per stitch op, in order. progress: gets a line for each before it is planned. make: plans and renders one kernel;
    if it raises CudaError or GraphError, the entry's `failure` says why."""
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
    """The CUDA C text of one compilation of all kernels, each included once."""
    texts = {each.kernel.symbol: each.kernel.text for each in kernels if each.kernel is not None}
    return "\n".join([head(), *texts.values()])
