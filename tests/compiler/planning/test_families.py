"""Many tensors in one kernel: components that do the same are planned once, run as one loop, and stay right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stitchfleet.compiler.check.judge import judge
from stitchfleet.compiler.check.random_inputs import Regime, random_inputs
from stitchfleet.compiler.check.selfcheck import run_all_ways, same_bits
from stitchfleet.compiler.codegen.cpu.kernel_text import render
from stitchfleet.compiler.explaining.words import explain
from stitchfleet.compiler.ir.graph import Graph, Shape
from stitchfleet.compiler.lowering.kernel_loops import lower
from stitchfleet.compiler.planning.families import reduce_families
from stitchfleet.compiler.planning.normal import normalise
from stitchfleet.compiler.planning.plan import plan_graph
from stitchfleet.compiler.targets.targets import CPU

from ...marks import examples
from ..library import Maker, adam
from ..native import STRESS, build_all


@dataclass(frozen=True)
class Kind:
    """A component's shape, what it computes, and whether its factor is its own."""

    shape: Shape
    what: str
    own_factor: bool


def momentum(m: Maker, rate: int, kind: Kind) -> list[int]:
    weight, slot, gradient = (m.parameter(*kind.shape) for _ in range(3))
    fresh = m.op("add", m.scaled(slot, 0.9), gradient)
    return [fresh, m.op("subtract", weight, m.op("multiply", fresh, m.spread(rate, kind.shape)))]


def flattened(m: Maker, rate: int, kind: Kind) -> list[int]:
    """Reshapes on the way, as gradients have them."""
    weight, gradient = m.parameter(*kind.shape), m.parameter(int(np.prod(kind.shape)))
    step = m.op("multiply", m.reshape(gradient, *kind.shape), m.spread(rate, kind.shape))
    return [m.op("subtract", weight, m.op("tanh", step))]


def row_sums(m: Maker, rate: int, kind: Kind) -> list[int]:
    """Not element-wise: it stays a nest of its own."""
    x = m.parameter(*kind.shape)
    scaled = m.op("multiply", x, m.spread(rate, kind.shape))
    return [m.reduce(scaled, len(kind.shape) - 1)]


WHAT: dict[str, Callable[[Maker, int, Kind], list[int]]] = {
    "momentum": momentum,
    "flattened": flattened,
    "row_sums": row_sums,
}

kinds = st.builds(
    Kind,
    st.sampled_from([(0,), (1,), (2,), (7,), (63,), (64,), (65,), (5, 13), (31, 33), (1, 3, 40), (0, 4), (700,)]),
    st.sampled_from(sorted(WHAT)),
    st.booleans(),
)


def step_of(components: Sequence[Kind]) -> Graph:
    m = Maker("step")
    shared = m.parameter()
    outputs: list[int] = []
    for kind in components:
        rate = m.parameter() if kind.own_factor else shared
        outputs += WHAT[kind.what](m, m.op("sqrt", m.op("abs", rate)), kind)
    return m.done(*outputs)


def complaints(graphs: Sequence[Graph], stress: bool) -> list[str]:
    found = []
    for built in build_all(graphs, STRESS) if stress else build_all(graphs):
        for regime in (Regime.NORMAL, Regime.SPECIAL):
            inputs = random_inputs(built.graph, np.random.default_rng(3), regime)
            (runs,) = run_all_ways(built.library, built.metadata, [inputs], 2, 60.0)
            verdict = judge(built.graph, inputs, runs.outputs)
            if not verdict.ok:
                found.append(str(verdict))
            for one, other, placed in zip(*runs, strict=True):
                if not same_bits(one, other) or not same_bits(one, placed):
                    found.append("it depends on the order of tasks, or on where outputs lie")
    return found


@pytest.mark.costly
@settings(max_examples=examples(3, 8), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.lists(kinds, min_size=1, max_size=14), min_size=4, max_size=4), st.booleans())
def test_steps_over_any_number_of_tensors_are_right(steps: list[list[Kind]], stress: bool) -> None:
    assert complaints([step_of(components) for components in steps], stress) == []


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(kinds, min_size=1, max_size=20))
def test_every_output_is_computed_once(components: list[Kind]) -> None:
    graph = step_of(components)
    kernel = lower(plan_graph(graph))
    written = [buffer for phase in kernel.phases for nest in phase.nests for buffer in nest.all_buffers]
    numbers = sorted(buffer.number for buffer in written if buffer.kind.value == "output")
    wanted = [number for number, node in enumerate(graph.outputs) if graph.nodes[node].element_count]
    assert numbers == wanted


def families_of(graph: Graph) -> list[list[int]]:
    found = reduce_families(normalise(graph)).families
    return sorted(sorted(instance.size for instance in family.instances) for family in found)


def test_components_are_alike_whatever_their_shapes() -> None:
    rate = [Kind((8, 9), "momentum", False), Kind((72,), "momentum", False), Kind((2, 3), "momentum", False)]
    assert families_of(step_of(rate)) == [[6, 72, 72]]
    mixed = [*rate, Kind((5,), "flattened", True), Kind((6,), "flattened", False), Kind((4, 4), "row_sums", False)]
    assert families_of(step_of(mixed)) == [[5, 6], [6, 72, 72]]


def test_other_constants_make_another_family() -> None:
    m = Maker("decay")
    outputs = [m.scaled(m.parameter(size), factor) for size, factor in [(8, 0.5), (9, 0.5), (10, 0.25), (11, 0.25)]]
    assert families_of(m.done(*outputs)) == [[8, 9], [10, 11]]


def test_the_order_in_which_outputs_are_listed_does_not_matter() -> None:
    m = Maker("order")

    def pair(size: int) -> tuple[int, int]:
        x = m.parameter(size)
        return m.op("exp", x), m.op("negate", x)

    (a, b), (c, d) = pair(20), pair(30)
    assert families_of(m.done(a, b, d, c)) == [[20, 30]]


def clipped_step(shapes: Sequence[Shape]) -> Graph:
    """Gradients scaled by the norm of all of them: read twice, in two phases."""
    m = Maker("clipped_step")
    pairs = [(m.parameter(*shape), m.parameter(*shape)) for shape in shapes]
    total = m.constant(0.0)
    for _, gradient in pairs:
        square = m.op("multiply", gradient, gradient)
        total = m.op("add", total, m.reduce(square, *range(len(m.shape(square)))))
    factor = m.op("rsqrt", m.op("add", total, m.constant(1.0)))
    return m.done(*(m.op("subtract", w, m.op("multiply", g, m.spread(factor, m.shape(g)))) for w, g in pairs))


def test_a_gradient_that_its_norm_reads_too_is_not_overwritten_before() -> None:
    graph = clipped_step([(40, 30), (300,), (7,), (1000,)])
    assert families_of(graph) == [[7, 300, 1000, 1200]]
    assert complaints([graph], False) == []
    (built,) = build_all([graph])
    assert set(built.metadata.aliases) == {(number, 2 * number) for number in range(4)}


def test_a_scalar_that_other_components_read_is_not_overwritten() -> None:
    """The rate is as large as the first output, whose component is the only one in the plan that reads it."""
    steps = [Kind((1,), "flattened", False), Kind((2,), "momentum", False), Kind((31, 33), "momentum", True)]
    graph = step_of(steps)
    assert complaints([graph], False) == []
    (built,) = build_all([graph])
    assert 0 not in {source for _, source in built.metadata.aliases}


@pytest.mark.costly
def test_hundreds_of_tensors_are_one_loop_and_one_function() -> None:
    shapes: list[Shape] = [(3 + i % 50, 5 + i % 7) for i in range(300)]
    graph = adam(shapes)
    plan = plan_graph(graph)
    kernel = lower(plan)
    assert len(kernel.phases) == 1
    (nest,) = kernel.phases[0].nests
    assert len(nest.instances) == 300
    source = render(kernel, "stitch")
    assert source.count("#pragma omp simd") == 1
    assert "300 components alike, of 15 to" in explain(plan)
    assert complaints([graph], False) == []


def test_tasks_are_equal_shares_of_all_elements() -> None:
    plan = plan_graph(adam([(1 << 20,), *((300,) for _ in range(200)), (1 << 18,)]))
    (nest,) = lower(plan).phases[0].nests
    padded = sum(-(-instance.rows // 64) * 64 for instance in nest.instances)
    assert nest.rows == padded
    assert nest.tasks == -(-padded // nest.rows_per_task)
    assert nest.tasks * CPU.task_ns * 0.5 < nest.cost_ns < nest.tasks * CPU.task_ns * 2
