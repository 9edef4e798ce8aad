"""Kernels, run: every graph of the library and random ones agree with the float64 oracle, whatever the target's
sizes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from stitchfleet.compiler.graph import Graph
from stitchfleet.compiler.judge import Regime, judge, random_inputs
from stitchfleet.compiler.targets import CPU, Target

from .library import LIBRARY, adam, gelu, layer_norm_gradient, softmax
from .native import STRESS, Built, build_all, complaint
from .strategies import graphs

TARGETS = {"cpu": CPU, "stress": STRESS}


@pytest.fixture(scope="module", params=sorted(TARGETS))
def library(request: pytest.FixtureRequest) -> dict[str, Built]:
    made = [make() for make in LIBRARY.values()]
    return dict(zip(LIBRARY, build_all(made, TARGETS[request.param]), strict=True))


@pytest.mark.parametrize("regime", [Regime.NORMAL, Regime.SPECIAL, Regime.HUGE])
@pytest.mark.parametrize("name", LIBRARY)
def test_agrees_with_the_oracle(library: dict[str, Built], name: str, regime: Regime) -> None:
    assert complaint(library[name], regime, seed=11) is None


@pytest.mark.parametrize("name", ["adam", "gelu", "bias_residual"])
def test_outputs_may_be_written_over_the_inputs_that_the_metadata_lists(library: dict[str, Built], name: str) -> None:
    built = library[name]
    free_inputs, pairs = {i for _, i in built.metadata.aliases}, []
    for output in sorted({o for o, _ in built.metadata.aliases}):
        source = next((i for o, i in built.metadata.aliases if o == output and i in free_inputs), None)
        if source is not None:
            free_inputs.discard(source)
            pairs.append((output, source))
    assert pairs, "an element-wise kernel must be able to work in place"
    inputs = random_inputs(built.graph, np.random.default_rng(5), Regime.NORMAL)
    results = built.load().run(inputs, in_place=pairs)
    assert judge(built.graph, inputs, results).ok


def test_large_tensors_run_in_parallel_and_agree() -> None:
    made = [softmax(2048, 96), layer_norm_gradient(3000, 64), gelu(512, 1000), adam([(700, 300), (50_000,)])]
    for built in build_all(made):
        inputs = random_inputs(built.graph, np.random.default_rng(3), Regime.NORMAL)
        kernel = built.load()
        results = kernel.run(inputs)
        assert kernel.phases_run_parallel >= 1
        assert judge(built.graph, inputs, results).ok


def collect(count: int, max_ops: int, number: int) -> list[Graph]:
    """`count` random graphs, the same in every run."""
    found: list[Graph] = []

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(graphs(max_ops=max_ops))
    def draw(graph: Graph) -> None:
        found.append(graph)

    draw()
    return found


def _disagreements(made: list[Graph], target: Target) -> list[str]:
    found = []
    for number, built in enumerate(build_all(made, target)):
        for regime in (Regime.NORMAL, Regime.SPECIAL):
            what = complaint(built, regime, seed=number)
            if what is not None:
                found.append(f"graph {number}, {regime.value}: {what}\n{built.graph}")
    return found


@pytest.mark.costly
@pytest.mark.parametrize("target", sorted(TARGETS))
def test_random_graphs_agree_with_the_oracle(target: str) -> None:
    assert _disagreements(collect(60, 40, 1), TARGETS[target]) == []


@pytest.mark.slow
@pytest.mark.parametrize("part", range(5))
def test_a_thousand_random_graphs_agree_with_the_oracle(part: int) -> None:
    assert _disagreements(collect(200, 60, 100 + part), STRESS if part % 2 else CPU) == []
