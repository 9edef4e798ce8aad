"""The judge passes right results and fails wrong ones; inputs make sense; the guard's tolerance follows dtype and
depth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest

from stitchfleet.compiler.check.input_ranges import Interval, input_ranges
from stitchfleet.compiler.check.judge import GUARD_SAFETY, Tolerance, agrees, guard_tolerance, judge
from stitchfleet.compiler.check.oracle import evaluate_with_bounds
from stitchfleet.compiler.check.random_inputs import REGIMES, Regime, random_inputs
from stitchfleet.compiler.ir.graph import DType, GatherDimensions, Graph, GraphBuilder, WindowDimension
from stitchfleet.compiler.ops.errors import UNIT_ROUNDOFF
from stitchfleet.compiler.ops.infer import GraphError
from stitchfleet.compiler.ops.interpreter import evaluate
from stitchfleet.compiler.ops.table import build

from ..library import Maker

Array: TypeAlias = npt.NDArray[Any]


def layer_norm(rows: int, columns: int, dtype: DType = DType.F32) -> Graph:
    """Row mean, centred, variance, scaled: the graph that most tests here need."""
    b = GraphBuilder("layer_norm")
    x = build(b, "parameter", (), number=0, shape=(rows, columns), dtype=dtype)
    count = build(b, "parameter", (), number=1, shape=(rows,), dtype=dtype)

    def mean(value: int) -> int:
        return build(b, "divide", (build(b, "reduce", (value,), kind="sum", dimensions=(1,)), count))

    def spread(value: int) -> int:
        return build(b, "broadcast", (value,), shape=(rows, columns), dimensions=(0,))

    centred = build(b, "subtract", (x, spread(mean(x))))
    variance = mean(build(b, "multiply", (centred, centred)))
    return b.finish((build(b, "multiply", (centred, spread(build(b, "rsqrt", (variance,))))),))


def _inputs(rows: int = 8, columns: int = 64) -> list[Array]:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((rows, columns)).astype(np.float32)
    return [x, np.full(rows, columns, np.float32)]


def test_a_right_result_passes() -> None:
    graph, inputs = layer_norm(8, 64), _inputs()
    verdict = judge(graph, inputs, evaluate(graph, inputs))
    assert verdict.ok
    assert verdict.decided == 1
    assert 0 < verdict.outputs[0].largest_ratio <= 1


@pytest.mark.parametrize("size", [1e-4, 1.0, np.nan, np.inf])
def test_one_wrong_element_fails_and_is_named(size: float) -> None:
    graph, inputs = layer_norm(8, 64), _inputs()
    right: Array = evaluate(graph, inputs)[0]
    wrong = np.array(right)
    wrong[3, 17] += size
    verdict = judge(graph, inputs, [wrong])
    assert not verdict.ok
    worst = verdict.outputs[0].worst
    assert verdict.outputs[0].violations == 1
    assert worst is not None
    assert worst.index == (3, 17)
    assert "output 0 has 1 wrong elements; at [3, 17]" in str(verdict)


def test_a_reference_that_errs_more_gives_slack_but_not_for_nonsense() -> None:
    graph, inputs = layer_norm(8, 64), _inputs()
    right: Array = evaluate(graph, inputs)[0]
    sloppy = (right * np.float32(1 + 1.5e-5)).astype(np.float32)
    assert not judge(graph, inputs, [sloppy]).ok
    assert judge(graph, inputs, [sloppy], reference=[sloppy]).ok
    assert not judge(graph, inputs, [right + np.float32(0.1)], reference=[sloppy]).ok


def test_a_reference_that_is_nonsense_excuses_no_other_element() -> None:
    graph, inputs = layer_norm(8, 64), _inputs()
    right: Array = evaluate(graph, inputs)[0]
    reference, wrong = np.array(right), np.array(right)
    reference[0, 0] += 100
    wrong[5, 5] += 0.01
    assert not judge(graph, inputs, [wrong], reference=[reference]).ok


def test_nan_must_be_nan_and_inf_the_same_inf() -> None:
    b = GraphBuilder("log")
    x = build(b, "parameter", (), number=0, shape=(3,), dtype=DType.F32)
    graph = b.finish((build(b, "log", (x,)),))
    inputs = [np.array([-1, 0, 1], np.float32)]
    assert judge(graph, inputs, [np.array([np.nan, -np.inf, 0], np.float32)]).ok
    for wrong in ([0, -np.inf, 0], [np.nan, np.inf, 0], [np.nan, -3e38, 0], [np.nan, -np.inf, np.nan]):
        assert not judge(graph, inputs, [np.array(wrong, np.float32)]).ok


def test_integers_must_be_equal() -> None:
    b = GraphBuilder("sum")
    x = build(b, "parameter", (), number=0, shape=(3,), dtype=DType.S64)
    graph = b.finish((build(b, "add", (x, x)),))
    values = np.array([2**60, 1, 2], np.int64)
    assert judge(graph, [values], [2 * values]).ok
    assert not judge(graph, [values], [2 * values + np.array([1, 0, 0])]).ok  # one float64 apart from its neighbour


def test_outputs_of_the_wrong_type_are_refused() -> None:
    graph, inputs = layer_norm(8, 64), _inputs()
    with pytest.raises(GraphError, match=r"output 0 given float64\[8, 64\], expected f32\[8,64\]"):
        judge(graph, inputs, [np.zeros((8, 64))])
    with pytest.raises(GraphError, match="given 0 outputs, expected 1"):
        judge(graph, inputs, [])


def test_sums_that_differ_by_order_alone_pass_where_they_may() -> None:
    """Sums of 1e37-sized normals overflow or not by order (traps): finiteness is judged only where it is certain."""
    b = GraphBuilder("sum")
    x = build(b, "parameter", (), number=0, shape=(64, 256), dtype=DType.F32)
    graph = b.finish((build(b, "reduce", (x,), kind="sum", dimensions=(1,)),))
    values = (np.random.default_rng(0).standard_normal((64, 256)) * 1e37).astype(np.float32)
    with np.errstate(all="ignore"):
        forward = np.add.accumulate(values, axis=1, dtype=np.float32)[:, -1]
        backward = np.add.accumulate(values[:, ::-1], axis=1, dtype=np.float32)[:, -1]
    assert judge(graph, [values], [forward]).ok
    assert judge(graph, [values], [backward]).ok


# ---- inputs --------------------------------------------------------------------------------------------------------


def _lookup() -> Graph:
    b = GraphBuilder("lookup")
    table = build(b, "parameter", (), number=0, shape=(30, 4), dtype=DType.F32)
    rows = build(b, "parameter", (), number=1, shape=(6,), dtype=DType.S32)
    labels = build(b, "parameter", (), number=2, shape=(6,), dtype=DType.S64)
    count = build(b, "parameter", (), number=3, shape=(), dtype=DType.S32)
    wide = build(b, "convert", (rows,), dtype=DType.S64)
    found = build(b, "gather", (table, wide), gather=GatherDimensions((1,), (0,), (0,), 1, (1, 4)))
    classes = build(b, "iota", (), shape=(6, 10), dtype=DType.S64, dimension=1)
    spread = build(b, "broadcast", (labels,), shape=(6, 10), dimensions=(0,))
    hot = build(b, "compare", (spread, classes), direction="EQ")
    return b.finish((found, hot, build(b, "add", (count, count))))


def test_indices_and_labels_are_found_by_their_use() -> None:
    assert input_ranges(_lookup()) == {1: Interval(0, 29), 2: Interval(0, 9)}


@pytest.mark.parametrize("regime", REGIMES)
def test_indices_stay_in_range_in_every_regime(regime: Regime) -> None:
    drawn: list[Array] = list(random_inputs(_lookup(), np.random.default_rng(0), regime))
    _, rows, labels, _ = drawn
    assert rows.dtype == np.int32
    assert ((rows >= 0) & (rows < 30)).all()
    assert ((labels >= 0) & (labels < 10)).all()


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16, DType.F32, DType.F64])
def test_regimes_are_what_they_say(dtype: DType) -> None:
    b = GraphBuilder("g")
    x = build(b, "parameter", (), number=0, shape=(4000,), dtype=dtype)
    graph = b.finish((x,))

    def draw(regime: str) -> Array:
        return random_inputs(graph, np.random.default_rng(1), regime)[0].astype(np.float64)

    special = draw("special")
    assert np.isnan(special).any()
    assert np.isposinf(special).any()
    assert np.isneginf(special).any()
    assert (draw("negative") < 0).all()
    assert ((draw("unit") > 0) & (draw("unit") < 1)).all()
    assert 0 < np.abs(draw("tiny")).max() < np.abs(draw("normal")).max() / 50
    assert np.isfinite(draw("huge")).all()
    assert np.abs(draw("huge")).max() > 1e4


# ---- the guard's tolerance -----------------------------------------------------------------------------------------


def _windowed(length: int, kind: str, size: int) -> Graph:
    m = Maker("windowed")
    window = (WindowDimension(size, padding_low=size - 1, padding_high=size - 1),)
    start = m.constant(-np.inf if kind == "max" else 0.0)
    return m.done(m.op("reduce_window", m.parameter(length), start, window=window, kind=kind))


def _whole(length: int, kind: str) -> Graph:
    m = Maker("whole")
    return m.done(m.reduce(m.parameter(length), 0, kind=kind))


def test_the_tolerance_of_windows_follows_from_the_number_of_their_terms() -> None:
    def relative(graph: Graph) -> float:
        return guard_tolerance(graph)[0].relative

    for length, size in ((1000, 1000), (1000, 50), (50, 1000)):
        assert relative(_windowed(length, "sum", size)) == relative(_whole(min(length, size), "sum"))
    exact = GUARD_SAFETY * UNIT_ROUNDOFF[DType.F32]
    assert relative(_whole(1_000_000, "max")) == relative(_windowed(1000, "max", 1000)) == exact


def test_padding_adds_nothing_to_the_bound_of_a_windows_sum() -> None:
    x = np.random.default_rng(1).normal(size=20).astype(np.float32)

    def bound(size: int) -> float:
        """Of the sum of all 20."""
        return float(evaluate_with_bounds(_windowed(20, "sum", size), [x])[0].bound[size - 1])

    assert bound(40) == bound(400) <= bound(20) * 1.001


def test_the_tolerance_grows_with_depth_and_coarser_dtypes() -> None:
    def relative(graph: Graph) -> float:
        return guard_tolerance(graph)[0].relative

    short, long = relative(layer_norm(4, 16)), relative(layer_norm(4, 4096))
    assert 0 < short < long < 1e-3
    assert relative(layer_norm(4, 16, DType.F64)) < short / 1e7
    assert relative(layer_norm(4, 16, DType.BF16)) > short * 100


def test_integers_and_booleans_are_exact() -> None:
    assert guard_tolerance(_lookup())[1:] == (Tolerance(0, 0), Tolerance(0, 0))
    assert not agrees(np.array([1, 2]), np.array([1, 3]), Tolerance(0, 0))
    assert agrees(np.array([True]), np.array([True]), Tolerance(0, 0))


def test_agreement_needs_the_same_nan_and_inf() -> None:
    tolerance = Tolerance(1e-5, 1e-5)
    base = np.array([1.0, np.nan, np.inf, -1e6], np.float32)

    def changed(index: int, value: float) -> Array:
        other = np.array(base)
        other[index] = value
        return other

    assert agrees(base, base, tolerance)
    assert agrees(changed(0, 1.0 + 1e-6), base, tolerance)
    assert agrees(changed(0, 5.0), base, tolerance)  # small beside the largest, 1e6
    cases: Sequence[tuple[int, float]] = ((1, 0.0), (2, -np.inf), (2, 1e38), (3, -1e6 - 100), (0, np.nan))
    for index, value in cases:
        assert not agrees(changed(index, value), base, tolerance)
