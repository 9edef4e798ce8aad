"""The oracle: its values, and that its bounds hold for right computations and do not for wrong ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stitchfleet.compiler.check.judge import judge
from stitchfleet.compiler.check.oracle import evaluate_with_bounds
from stitchfleet.compiler.check.random_inputs import REGIMES, Regime, random_inputs
from stitchfleet.compiler.ir.graph import DType, Graph, GraphBuilder
from stitchfleet.compiler.ops.errors import summation_depth
from stitchfleet.compiler.ops.infer import GraphError
from stitchfleet.compiler.ops.interpreter import evaluate
from stitchfleet.compiler.ops.table import build

from ..strategies import argmax_body, graphs

Array: TypeAlias = npt.NDArray[Any]
Grow = Callable[[GraphBuilder, Sequence[int]], int]


def _graph(grow: Grow, *types: tuple[tuple[int, ...], DType]) -> Graph:
    builder = GraphBuilder("g")
    parameters = [
        build(builder, "parameter", (), number=i, shape=shape, dtype=dtype) for i, (shape, dtype) in enumerate(types)
    ]
    return builder.finish((grow(builder, parameters),))


def _bound(grow: Grow, *inputs: Array) -> tuple[Array, Array]:
    graph = _graph(grow, *((x.shape, DType.of(x.dtype)) for x in inputs))
    (result,) = evaluate_with_bounds(graph, inputs)
    return result.value, result.bound


def _f32(*values: float) -> Array:
    return np.array(values, np.float32)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs(max_ops=40), st.sampled_from(REGIMES), st.integers(0, 2**32))
def test_rounding_after_each_op_stays_within_the_bounds(graph: Graph, regime: Regime, seed: int) -> None:
    inputs = random_inputs(graph, np.random.default_rng(seed), regime)
    verdict = judge(graph, inputs, evaluate(graph, inputs))
    assert verdict.ok, f"{regime}: {verdict}\n{graph}"


@pytest.mark.parametrize("op", ["exp", "log", "tanh", "sin"])
def test_a_function_of_a_float32_is_rounded_once(op: str) -> None:
    """numpy's own is not: its exp is up to 2.5 units off."""
    values = np.linspace(-20, 20, 400_001, dtype=np.float32)
    graph = _graph(lambda b, p: build(b, op, p), (values.shape, DType.F32))
    with np.errstate(all="ignore"):
        exact = getattr(np, op)(values.astype(np.float64)).astype(np.float32)
    assert np.array_equal(evaluate(graph, [values])[0], exact, equal_nan=True)


def test_f16_and_bf16_are_rounded_after_each_op() -> None:
    graph = _graph(lambda b, p: build(b, "subtract", (build(b, "add", p), p[0])), *(((1,), DType.BF16),) * 2)
    inputs = [np.array([256.0], DType.BF16.numpy), np.array([0.5], DType.BF16.numpy)]
    assert evaluate(graph, inputs)[0].astype(np.float32).tolist() == [0.0]  # 256.5 is not a bf16
    assert evaluate(graph, inputs, precision="float64")[0].tolist() == [0.5]


def test_a_body_reduces_in_order_and_from_the_initial_value() -> None:
    builder = GraphBuilder("g")
    x = build(builder, "parameter", (), number=0, shape=(2, 7), dtype=DType.F32)
    at = build(builder, "iota", (), shape=(2, 7), dtype=DType.S32, dimension=1)
    first, zero = (
        build(builder, "parameter", (), number=i, shape=(), dtype=d) for i, d in ((1, DType.F32), (2, DType.S32))
    )
    body = argmax_body(DType.F32, DType.S32, largest=True)
    results = [
        build(builder, "reduce_general", (x, at, first, zero), dimensions=(1,), body=body, result=r) for r in (0, 1)
    ]
    graph = builder.finish(results)
    values = np.array([[1, 5, 5, 2, 5, 0, 3], [-1, -7, -2, -1, -3, -9, -8]], np.float32)
    inputs = [values, np.array(-np.inf, np.float32), np.array(0, np.int32)]
    largest, where = evaluate(graph, inputs)
    assert (largest.tolist(), where.tolist()) == ([5, -1], [1, 0])
    assert evaluate(graph, [values, np.array(4.5, np.float32), np.array(99, np.int32)])[1].tolist() == [1, 99]


def test_wrong_inputs_are_refused() -> None:
    graph = _graph(lambda b, p: build(b, "exp", p), ((2,), DType.F32))
    with pytest.raises(GraphError, match="given 0 inputs, expected 1"):
        evaluate(graph, [])
    with pytest.raises(GraphError, match=r"given float64\[2\], expected f32\[2\]"):
        evaluate(graph, [np.zeros(2)])


# ---- what the bounds say -------------------------------------------------------------------------------------------


def test_exact_results_have_a_bound_of_zero() -> None:
    value, bound = _bound(lambda b, p: build(b, "add", (p[0], p[0])), _f32(1.5, 1e8, 0.0))
    assert value.tolist() == [3.0, 2e8, 0.0]
    assert bound.tolist() == [0, 0, 0]


def test_an_inexact_sum_may_err_by_half_a_unit() -> None:
    _, bound = _bound(lambda b, p: build(b, "add", p), _f32(1.0), _f32(2.0**-30))
    assert 2.0**-24 <= bound[0] < 2.0**-23


def test_cancellation_keeps_the_operands_error() -> None:
    """(exp(x) - 1) near 0: the bound is exp's error, far above the result's own unit."""
    value, bound = _bound(
        lambda b, p: build(b, "subtract", (build(b, "exp", (p[0],)), p[1])), _f32(2.0**-18), _f32(1.0)
    )
    assert bound[0] / abs(value[0]) > 0.01


def test_a_comparison_is_ambiguous_only_near_the_tie() -> None:
    def grow(b: GraphBuilder, p: Sequence[int]) -> int:
        return build(b, "compare", (build(b, "exp", (p[0],)), p[1]), direction="GT")

    _, bound = _bound(grow, _f32(1.0, 1.0), np.exp(_f32(1.0, 1.1)))
    assert bound.tolist() == [math.inf, 0]


def test_floor_next_to_an_integer_may_fall_either_way() -> None:
    def grow(b: GraphBuilder, p: Sequence[int]) -> int:
        return build(b, "floor", (build(b, "divide", p),))

    value, bound = _bound(grow, _f32(0.3, 5.0), _f32(0.1, 2.0))
    assert bound[0] == 1 or value[0] in (2, 3)
    assert bound[1] == 0


def test_an_ambiguous_select_of_near_values_stays_defined() -> None:
    """relu at its seam: which side is taken is open, the value is not."""

    def grow(b: GraphBuilder, p: Sequence[int]) -> int:
        x = build(b, "subtract", (build(b, "exp", (p[0],)), p[1]))
        zero = build(b, "subtract", (p[1], p[1]))
        return build(b, "select", (build(b, "compare", (x, zero), direction="GT"), x, zero))

    _, bound = _bound(grow, _f32(0.0), _f32(1.0))
    assert 0 < bound[0] < 1e-5


def test_overflow_is_certain_far_beyond_and_open_at_the_edge() -> None:
    value, bound = _bound(lambda b, p: build(b, "multiply", p), _f32(1e30, 3.4e38, 1e19), _f32(1e30, 1.00005, 1e18))
    assert value[0] == math.inf
    assert bound[0] == 0
    assert bound[1] == math.inf
    assert bound[2] < 1e31


def test_the_sum_of_huge_terms_of_both_signs_is_open() -> None:
    """By order alone it overflows or not."""
    huge = np.where(np.arange(64) % 2, 3e38, -3e38).astype(np.float32)
    _, bound = _bound(lambda b, p: build(b, "reduce", p, kind="sum", dimensions=(0,)), huge)
    assert bound == math.inf
    value, bound = _bound(lambda b, p: build(b, "reduce", p, kind="sum", dimensions=(0,)), np.abs(huge))
    assert value == math.inf
    assert bound == 0


def test_division_by_what_may_be_zero_is_open() -> None:
    def grow(b: GraphBuilder, p: Sequence[int]) -> int:
        return build(b, "divide", (p[1], build(b, "subtract", (build(b, "exp", (p[0],)), p[1]))))

    assert _bound(grow, _f32(0.0), _f32(1.0))[1].tolist() == [math.inf]
    value, bound = _bound(lambda b, p: build(b, "divide", p), _f32(1.0, -1.0), _f32(0.0, 0.0))
    assert value.tolist() == [math.inf, -math.inf]
    assert bound.tolist() == [0, 0]


def test_whole_numbers_add_up_exactly_in_any_order() -> None:
    _, bound = _bound(lambda b, p: build(b, "reduce", p, kind="sum", dimensions=(0,)), np.ones(1000, np.float32))
    assert bound == 0


@pytest.mark.parametrize("count", [2, 16, 100, 4096])
def test_sums_in_every_order_tried_stay_within_the_bound(count: int) -> None:
    rng = np.random.default_rng(count)
    x = (rng.standard_normal(count) * 10.0 ** rng.integers(-3, 4, count)).astype(np.float32)
    value, bound = _bound(lambda b, p: build(b, "reduce", p, kind="sum", dimensions=(0,)), x)
    for _ in range(20):
        total = np.float32(0)
        for term in rng.permutation(x):
            total += term
        assert abs(float(total) - float(value)) <= bound
    assert bound <= summation_depth(count) * 2.0**-23 * np.abs(x).astype(np.float64).sum() + 1e-37


def test_a_term_left_out_of_a_long_sum_exceeds_the_bound() -> None:
    x = np.random.default_rng(0).standard_normal(4096).astype(np.float32)
    value, bound = _bound(lambda b, p: build(b, "reduce", p, kind="sum", dimensions=(0,)), x)
    assert abs(float(x[7])) > bound
    assert value


def test_flushing_of_subnormals_is_allowed() -> None:
    x = _f32(1e-40, 1e-30)
    graph = _graph(lambda b, p: build(b, "multiply", p), *(((2,), DType.F32),) * 2)
    flushed = [np.array([0, 0], np.float32)]
    assert judge(graph, [x, _f32(1.0, 1e-10)], flushed).ok
    assert not judge(graph, [x, _f32(1.0, 1.0)], flushed).ok  # 1e-30 is no subnormal
