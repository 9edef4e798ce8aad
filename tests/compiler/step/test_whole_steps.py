"""The stitch ops of the workloads' real steps, as TensorFlow lowers them: the kernels compute what the oracle does."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pytest

from stitchfleet.compiler.check.random_inputs import Regime
from stitchfleet.compiler.hlo.importer import read_hlo_file
from stitchfleet.compiler.ir.graph import Graph
from stitchfleet.compiler.kernel.cache import KernelCache
from stitchfleet.compiler.lowering.kernel_loops import lower
from stitchfleet.compiler.pipeline.backend import KernelRequest
from stitchfleet.compiler.pipeline.cpu import compile_graphs
from stitchfleet.compiler.planning.plan import plan_graph
from stitchfleet.compiler.step.partition import partition
from stitchfleet.compiler.targets.targets import CPU, V100, Target

from ..emulated import build_all
from ..planning.test_plan import check_phases

pytestmark = pytest.mark.usefixtures("kept_kernels")

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "hlo"
QUICK = ("crnn", "dien-infer")
NAMES = sorted(path.stem for path in FIXTURES.glob("*.hlo"))
STEPS = {name: pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in NAMES}
EMULATED_ELEMENTS = 1 << 18
"""Of a graph's tensors together: the emulator's threads are fibres."""


@lru_cache(maxsize=1)
def stitch_ops(name: str) -> tuple[Graph, ...]:
    """The distinct ones of a step."""
    step = partition(read_hlo_file(FIXTURES / f"{name}.hlo"))
    return tuple({op.graph.digest: op.graph for op in step.stitch_ops}.values())


@pytest.mark.parametrize("name", STEPS.values())
def test_every_stitch_op_becomes_a_kernel_for_the_cpu_that_passes_its_check(name: str, tmp_path: Path) -> None:
    requests = [KernelRequest(graph.name, graph) for graph in stitch_ops(name)]
    outcomes = compile_graphs(requests, KernelCache(tmp_path / "cache"))
    assert [outcome.failure for outcome in outcomes if outcome.entry is None] == []
    assert all(outcome.entry is not None and outcome.entry.metadata.check.checked for outcome in outcomes)


@pytest.mark.parametrize("target", [CPU, V100], ids=lambda target: target.name)
@pytest.mark.parametrize("name", STEPS.values())
def test_the_phases_of_the_plan_of_every_stitch_op_are_those_of_its_loops(name: str, target: Target) -> None:
    for graph in stitch_ops(name):
        plan = plan_graph(graph, target)
        check_phases(plan, lower(plan))


@pytest.mark.parametrize(
    "name", [step for name, step in STEPS.items() if not name.startswith("bert")]
)  # all are larger
def test_the_cuda_kernels_of_the_smaller_stitch_ops_agree_with_the_oracle(name: str) -> None:
    small = [g for g in stitch_ops(name) if sum(node.element_count for node in g.nodes) <= EMULATED_ELEMENTS]
    assert small
    complaints = [one.complaint(Regime.NORMAL, seed=number) for number, one in enumerate(build_all(small, V100))]
    assert [complaint for complaint in complaints if complaint is not None] == []
