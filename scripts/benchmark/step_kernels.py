"""How many kernels the memory-intensive work of a step needs: by our plan, and by XLA for the same module.

    scripts/bench --kernels [--arch sm_70] [--ablation] [--json FILE]

The modules are the workloads' steps, exported from TensorFlow (`export_hlo`), in tests/fixtures/hlo. This command splits each, and
plans and generates every stitch op as one CUDA kernel. XLA's numbers are from its optimized HLO of the same modules (`xla_kernels`,
`xla_gpu_hlo`; no GPU needed), stored in results/xla_kernels.json.

Both are static counts: the body of a loop counts once. Matrix products and convolutions do not count for either. XLA's fusions that
compute a product of a matrix and a vector as a multiplication and a sum do not count for XLA, since we leave these products to the
library.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from stitchfleet.compiler.codegen.cuda.kernel_text import CudaError, CudaKernel, plan_for_gpu
from stitchfleet.compiler.hlo.importer import read_hlo_file
from stitchfleet.compiler.ops.infer import GraphError
from stitchfleet.compiler.planning.plan import plan_graph
from stitchfleet.compiler.planning.rules import BY_NAME
from stitchfleet.compiler.step.partition import Partition, partition
from stitchfleet.compiler.targets.targets import GPUS, GpuTarget

from .xla_kernels import FIXTURES, RESULTS

PAPER_FEWER = 0.657
"""Share of XLA's kernels that AStitch saves, on average over its five workloads (section 6.2 of the paper)."""


@dataclass(frozen=True)
class StepKernels:
    """The numbers of one step.

    ops: memory-intensive ops in stitch ops. kernels: kernels of our plan. least: the least number of kernels possible if the
    same ops stay outside of them (`SplitComputation.fewest`). alone: kernels without remote stitching. distinct: different
    kernels. cooperative: kernels with a grid barrier. failures: stitch ops without a kernel. xla_gpu, xla_gpu_a100, xla_cpu:
    number of XLA's kernels, or None. seconds: time of our compilation.
    """

    workload: str
    ops: int
    kernels: int
    least: int
    alone: int
    distinct: int
    cooperative: int
    failures: tuple[str, ...]
    xla_gpu: int | None
    xla_gpu_a100: int | None
    xla_cpu: int | None
    seconds: float

    @property
    def fewer(self) -> float | None:
        """The share of XLA's kernels (GPU, V100) that our plan saves; None if XLA's number is not known."""
        return None if not self.xla_gpu else 1 - self.kernels / self.xla_gpu


def memory_kernels(known: dict[str, Any] | None) -> int | None:
    """The number of XLA's kernels for memory-intensive work. known: one backend's entry in results/xla_kernels.json, or None."""
    if known is None:
        return None
    return int(known["fusions"]) + int(known["others"]) - int(known["written_out_products"])


def generate(step: Partition, target: GpuTarget) -> dict[str, CudaKernel | str]:
    """The CUDA kernel of each different stitch op of a step, by its graph's digest, or a line that says why there is none."""
    found: dict[str, CudaKernel | str] = {}
    for _, graph in step.distinct():
        try:
            found[graph.digest] = plan_for_gpu(graph, target)[1]
        except (CudaError, GraphError) as error:
            found[graph.digest] = " ".join(str(error).split())
    return found


def count(path: pathlib.Path, known: dict[str, Any], target: GpuTarget) -> StepKernels:
    """Splits one module, and plans and generates its kernels. known: its entry in results/xla_kernels.json."""
    started = time.monotonic()
    module = read_hlo_file(path)
    step = partition(module, target=target)
    kernels = generate(step, target)
    each = [(op.name, kernels[op.graph.digest]) for op in step.stitch_ops]
    seconds = time.monotonic() - started
    return StepKernels(
        path.stem,
        sum(len(op.instructions) for op in step.stitch_ops),
        len(step.stitch_ops),
        sum(split.fewest for split in step.splits),
        len(partition(module, remote=False, target=target).stitch_ops),
        len(kernels),
        sum(isinstance(kernel, CudaKernel) and kernel.cooperative for _, kernel in each),
        tuple(f"{name}: {kernel}" for name, kernel in each if isinstance(kernel, str)),
        memory_kernels(known.get("gpu")),
        memory_kernels(known.get("gpu_a100")),
        memory_kernels(known.get("cpu")),
        seconds,
    )


@dataclass(frozen=True)
class Ablated:
    """One step planned with fewer rules.

    kernels: launches; without hierarchical data management each loop nest is one. moved: bytes that these read and write, each tensor
    once per loop nest. intermediate: bytes of tensors that are passed between nests.
    """

    workload: str
    rules: str
    kernels: int
    moved: int
    intermediate: int


def ablate(path: pathlib.Path, target: GpuTarget) -> list[Ablated]:
    """The step planned with each set of rules, in the order of AStitch's table 4."""
    step = partition(read_hlo_file(path), target=target)
    graphs = {op.graph.digest: op.graph for op in step.stitch_ops}
    times = Counter(op.graph.digest for op in step.stitch_ops)
    found = []
    for name, rules in BY_NAME.items():
        kernels = moved = between = 0
        for digest, graph in graphs.items():
            plan = plan_graph(graph, target, rules)
            many = times[digest]
            kernels += many * (1 if rules.hierarchy else max(1, len(plan.nests)))
            moved += many * sum(cost.bytes_read + cost.bytes_written for cost in plan.costs)
            between += many * sum(buffer.size_bytes for buffer in plan.intermediates)
        found.append(Ablated(path.stem, name, kernels, moved, between))
    return found


def ablation_table(found: Sequence[Ablated], target: GpuTarget) -> list[str]:
    """The ablation as lines of text: the rows of each step, compared with the one with all rules."""
    full = {row.workload: row for row in found if row.rules == "all"}
    lines = [
        f"what each rule is good for, planned for {target.name}: adaptive mapping alone, with hierarchical data management, and with",
        "dominant merging (all). moved: MiB that loops read and write, each tensor once in each loop nest",
        f"{'':<20}{'rules':<12}{'kernels':>8}{'moved':>10}{'beside all':>12}{'intermediates':>15}",
    ]
    for row in found:
        beside = row.moved / full[row.workload].moved
        lines.append(
            f"{row.workload:<20}{row.rules:<12}{row.kernels:>8}{row.moved / 2**20:>10.1f}{beside:>12.2f}"
            f"{row.intermediate / 2**20:>15.1f}"
        )
    return lines


def table(found: Sequence[StepKernels], target: GpuTarget) -> list[str]:
    """The numbers of all steps as lines of text."""

    def number(value: int | None) -> str:
        return "-" if value is None else str(value)

    lines = [
        f"kernels for a step's memory-intensive work; ours for {target.name} ({target.arch}), XLA's from its optimized HLO",
        f"{'':<20}{'ops':>6}{'ours':>6}{'least':>7}{'not remote':>12}{'XLA V100':>10}{'fewer':>8}{'XLA A100':>10}{'XLA CPU':>9}"
        f"{'distinct':>10}{'barriers':>10}",
    ]
    for row in found:
        fewer = "-" if row.fewer is None else f"{row.fewer:.1%}"
        lines.append(
            f"{row.workload:<20}{row.ops:>6}{row.kernels:>6}{row.least:>7}{row.alone:>12}{number(row.xla_gpu):>10}{fewer:>8}"
            f"{number(row.xla_gpu_a100):>10}{number(row.xla_cpu):>9}{row.distinct:>10}{row.cooperative:>10}"
        )
        lines += [f"  no kernel for {failure}" for failure in row.failures]
    shares = [row.fewer for row in found if row.fewer is not None]
    if shares:
        left = math.exp(sum(math.log(1 - share) for share in shares) / len(shares))
        lines.append(
            f"fewer than XLA on a V100: {sum(shares) / len(shares):.1%} on average, {1 - left:.1%} by geometric mean "
            f"(the AStitch paper's average: {PAPER_FEWER:.1%})"
        )
    lines.append(
        "least: what stays outside (matrix products, convolutions, loops, random numbers) cuts the rest into no fewer parts"
    )
    lines.append(
        "distinct: texts among them, equal layers share one; barriers: kernels of several phases, launched cooperatively"
    )
    return lines


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/bench --kernels",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=__doc__,
    )
    parser.add_argument("--workloads", default="", metavar="A,B", help="workloads (default: all exported ones)")
    parser.add_argument(
        "--arch", choices=sorted(GPUS), default="sm_70", help="GPU that our kernels are for (default sm_70)"
    )
    parser.add_argument(
        "--ablation", action="store_true", help="plan the same steps with fewer of the planner's rules instead"
    )
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all results to FILE")
    return parser


def main(words: Sequence[str]) -> int:
    """The command. Returns exit code 0; 1 if a stitch op has no kernel; 2 for a mistake on the command line."""
    parser = build_parser()
    arguments = parser.parse_args(list(words))
    paths = sorted(FIXTURES.glob("*.hlo"))
    wanted = [name.strip() for name in arguments.workloads.split(",") if name.strip()]
    unknown = sorted(set(wanted) - {path.stem for path in paths})
    if unknown:
        parser.error(f"--workloads: {', '.join(unknown)}: expected some of {', '.join(path.stem for path in paths)}")
    known: dict[str, Any] = json.loads(RESULTS.read_text())
    target = GPUS[arguments.arch]
    found: list[StepKernels] = []
    ablated: list[Ablated] = []
    for path in paths:
        if not wanted or path.stem in wanted:
            print(f"{path.stem} ...", file=sys.stderr, flush=True)
            if arguments.ablation:
                ablated += ablate(path, target)
            else:
                found.append(count(path, known.get(path.stem, {}), target))
    print("\n".join(ablation_table(ablated, target) if arguments.ablation else table(found, target)))
    if arguments.json is not None:
        rows = [{**asdict(row), "fewer": row.fewer} for row in found] + [asdict(row) for row in ablated]
        arguments.json.write_text(json.dumps({"target": target.name, "steps": rows}, indent=1) + "\n")
    return int(any(row.failures for row in found))
