"""The oracle computed in slices says what it says computed at once, whatever the graph and the size of the slices."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stitchfleet.compiler.check.judge import judge_by
from stitchfleet.compiler.check.oracle import Bounded, evaluate_sample, evaluate_with_bounds
from stitchfleet.compiler.check.random_inputs import REGIMES, Regime, random_inputs
from stitchfleet.compiler.check.slices import Cut, cut_of, plan_slices, rows_of
from stitchfleet.compiler.ir.graph import Array, Graph
from stitchfleet.compiler.ops.table import OPS

from ...marks import examples
from ..library import Maker, cross_entropy, layer_norm_gradient, softmax
from ..strategies import graphs

AT_ONCE = 1 << 40


def alike(one: Bounded, other: Bounded) -> bool:
    """Equal but for the order in which numpy adds up a row."""
    if one.value.dtype.kind != "f":
        same = np.array_equal(one.value, other.value)
    else:
        scale = np.maximum(one.bound, 1e-12 * np.abs(one.value))
        off = np.abs(one.value - other.value) > 0.01 * scale
        certain = np.isfinite(one.bound) & np.isfinite(one.value)
        unlike = (np.isfinite(one.value) != np.isfinite(other.value)) & np.isfinite(one.bound)
        same = not (off & certain).any() and not unlike.any()
    return bool(same) and np.allclose(one.bound, other.bound, rtol=1e-6, atol=0)


@settings(max_examples=examples(20, 40), deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs(max_ops=40), st.sampled_from(REGIMES), st.sampled_from([1, 7, 64, 1000]), st.integers(0, 2**32))
def test_slices_change_nothing(graph: Graph, regime: Regime, slice_elements: int, seed: int) -> None:
    inputs = random_inputs(graph, np.random.default_rng(seed), regime)
    whole = evaluate_with_bounds(graph, inputs, AT_ONCE)
    sliced = evaluate_with_bounds(graph, inputs, slice_elements)
    for one, other in zip(whole, sliced, strict=True):
        assert alike(one, other)


@settings(max_examples=examples(20, 40), deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs(max_ops=40), st.sampled_from([1, 7, 64]), st.integers(0, 2**32))
def test_a_sample_is_a_part_of_the_whole(graph: Graph, slice_elements: int, seed: int) -> None:
    inputs = random_inputs(graph, np.random.default_rng(seed), Regime.NORMAL)
    whole = evaluate_with_bounds(graph, inputs, slice_elements)
    sample, ranges = evaluate_sample(graph, inputs, np.random.default_rng(seed), slice_elements)
    for one, other, parts in zip(whole, sample, ranges, strict=True):
        for part in parts or [slice(None)]:
            a, b = (Bounded(x.value.reshape(-1)[part], x.bound.reshape(-1)[part]) for x in (one, other))
            assert alike(a, b)


def test_of_a_large_output_a_sample_is_computed_and_judged() -> None:
    """Its first and its last rows are in it; what a reduction over all of it needs is computed whole."""
    m = Maker("sampled")
    x = m.parameter(400, 64)
    y = m.op("exp", x)
    graph = m.done(m.op("negate", y), m.reduce(y, 0))
    inputs = random_inputs(graph, np.random.default_rng(0), Regime.NORMAL)
    sample, (ranges, all_of_it) = evaluate_sample(graph, inputs, np.random.default_rng(0), 256)
    assert all_of_it is None
    assert ranges is not None
    assert ranges[0].start == 0
    assert ranges[-1].stop == 400 * 64
    assert 8 * 256 <= sum(part.stop - part.start for part in ranges) <= 400 * 64 / 5
    right = [-np.exp(inputs[0]), np.exp(inputs[0]).sum(0)]
    verdict = judge_by(graph, sample, right, None, [ranges, None])
    assert verdict.ok
    assert verdict.decided == 1.0
    right[0][399, 3] *= 1.01
    worst = judge_by(graph, sample, right, None, [ranges, None]).outputs[0].worst
    assert worst is not None
    assert worst.index == (399, 3)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs(max_ops=60), st.sampled_from([1, 50, AT_ONCE]))
def test_every_node_is_computed_once_and_after_what_it_reads(graph: Graph, slice_elements: int) -> None:
    plan = plan_slices(graph, slice_elements)
    done: set[int] = {i for i, node in enumerate(graph.nodes) if OPS[node.op].is_leaf}
    for wave in plan.waves:
        for region in wave.regions:
            for i in region.nodes:
                assert i not in done
                for operand, sliced in zip(graph.nodes[i].operands, plan.needs[i], strict=True):
                    inside = sliced and operand in region.nodes and operand < i
                    assert inside or operand in done
        done |= {i for region in wave.regions for i in region.nodes}
        for i in wave.whole:
            assert i not in done
            assert set(graph.nodes[i].operands) <= done
            done.add(i)
    assert done == set(range(len(graph.nodes)))


@pytest.mark.parametrize(
    ("shape", "units", "expected"),
    [
        ((1024, 256), 1024, Cut(0, 1, 1024)),
        ((8, 128, 256), 1024, Cut(1, 1, 128)),
        ((8, 128, 256), 8, Cut(0, 1, 8)),
        ((1, 128, 256), 64, Cut(1, 2, 64)),
        ((8,), 1024, Cut(1, 0, 128)),
        ((6, 4), 9, None),
    ],
)
def test_cuts(shape: tuple[int, ...], units: int, expected: Cut | None) -> None:
    assert cut_of(shape, units, len(shape)) == expected


@pytest.mark.parametrize("shape", [(12, 5), (3, 4, 5), (1, 6, 2, 5), (2, 6, 5)])
def test_the_slices_of_a_shape_cover_it_in_order(shape: tuple[int, ...]) -> None:
    values = np.arange(math.prod(shape)).reshape(shape)
    below = cut_of(shape, 12, len(shape))
    assert below is not None
    for step in (1, below.below):
        parts = [values[rows_of(shape, 12, first, first + step)].ravel() for first in range(0, 12, step)]
        assert np.array_equal(np.concatenate(parts), values.ravel())


def regions(graph: Graph) -> list[int]:
    return [len(region.slices()) for wave in plan_slices(graph).waves for region in wave.regions]


def test_what_is_large_is_cut_small() -> None:
    """Rows of softmax, both reductions of a LayerNorm's gradient, and a reshape between two ranks share one loop."""
    assert regions(softmax(4096, 256)) == [64]
    assert max(regions(layer_norm_gradient(4096, 256))) == 64
    assert max(regions(cross_entropy(512, 8000))) >= 250
    m = Maker("reshaped")
    x, bias = m.parameter(8, 128, 2000), m.parameter(8)
    wide = m.op("add", x, m.spread(bias, (8, 128, 2000), 0))
    flat = m.op("exp", m.reshape(wide, 1024, 2000))
    assert regions(m.done(flat, m.reduce(flat, 1))) == [128]


def test_inputs_that_nobody_reads_and_forwarded_ones() -> None:
    m = Maker("forwarded")
    x = m.parameter(3, 4)
    m.parameter(2)
    graph = m.done(x, x, m.constant(7.0, (2, 2)))
    values: list[Array] = [np.ones((3, 4), np.float32), np.ones(2, np.float32)]
    first, second, third = evaluate_with_bounds(graph, values)
    assert (first.value == 1).all()
    assert (second.value == 1).all()
    assert (third.value == 7).all()
