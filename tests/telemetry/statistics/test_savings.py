"""The estimate of a job's saving and of a fleet's total, by its properties."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from stitchfleet.telemetry.statistics import savings, student
from stitchfleet.telemetry.statistics.savings import (
    Contribution,
    FunctionData,
    estimate,
    estimate_from_means,
    estimate_job,
    total,
)

durations = st.lists(st.integers(1_000, 10**9), min_size=1, max_size=8)
pairs = st.lists(st.tuples(durations, durations), min_size=2, max_size=12)


@pytest.mark.parametrize(
    ("degrees", "expected"),
    # tables of Student's t, two-sided 95%
    [(1, 12.7062047364), (2, 4.3026527297), (5, 2.5705818366), (10, 2.2281388520), (30, 2.0422724563), (1e7, 1.959964)],
)
def test_quantiles_are_those_of_the_tables(degrees: float, expected: float) -> None:
    assert student.two_sided_quantile(0.95, degrees) == pytest.approx(expected, rel=2e-7)


@given(st.floats(0.01, 0.999), st.floats(0.5, 1e5))
def test_a_quantile_has_its_tail(confidence: float, degrees: float) -> None:
    quantile = student.two_sided_quantile(confidence, degrees)
    assert student.two_sided_tail(quantile, degrees) == pytest.approx(1 - confidence, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(("confidence", "degrees"), [(0.0, 3), (1.0, 3), (0.95, 0), (0.95, -1)])
def test_there_is_no_quantile_of_nonsense(confidence: float, degrees: float) -> None:
    with pytest.raises(ValueError, match="no t quantile"):
        student.two_sided_quantile(confidence, degrees)


def test_below_two_pairs_there_is_no_estimate() -> None:
    assert estimate([]) is None
    assert estimate([([5], [4])]) is None
    assert estimate([([5], [4]), ([], [4]), ([5], [])]) is None


@given(pairs)
def test_the_point_is_the_difference_of_untrimmed_means(data: list[tuple[list[int], list[int]]]) -> None:
    found = estimate(data)
    assert found is not None
    plain = statistics.fmean(statistics.fmean(p) for p, _ in data)
    stitched = statistics.fmean(statistics.fmean(s) for _, s in data)
    assert found.saved_ns == pytest.approx(plain - stitched, rel=1e-9, abs=1e-6)
    assert found.relative == pytest.approx(1 - stitched / plain, rel=1e-9, abs=1e-12)
    rounding = 1e-12 * max(1.0, abs(found.relative))
    assert found.low <= found.relative + rounding
    assert found.relative <= found.high + rounding
    assert found.high < 1
    assert found.saved_low_ns <= found.saved_ns <= found.saved_high_ns
    assert found.pairs == len(data)


@given(pairs, st.integers(2, 1000))
def test_the_unit_of_time_does_not_matter(data: list[tuple[list[int], list[int]]], factor: int) -> None:
    one = estimate(data)
    other = estimate([([factor * x for x in p], [factor * x for x in s]) for p, s in data])
    assert one is not None
    assert other is not None
    assert (other.low, other.high) == pytest.approx((one.low, one.high), rel=1e-6, abs=1e-9)
    assert other.saved_error_ns == pytest.approx(factor * one.saved_error_ns, rel=1e-6, abs=1e-3)


@given(pairs)
def test_swapping_the_arms_turns_the_saving_round(data: list[tuple[list[int], list[int]]]) -> None:
    one, other = estimate(data), estimate([(s, p) for p, s in data])
    assert one is not None
    assert other is not None
    assert other.saved_ns == pytest.approx(-one.saved_ns, rel=1e-9, abs=1e-6)
    assert other.saved_error_ns == pytest.approx(one.saved_error_ns, rel=1e-9, abs=1e-6)
    # ln(P/S) changes sign, and its interval with it. A saving within a millionth of 100% keeps too few digits of its
    # distance from 1 to be compared on that scale.
    assume(one.high < 1 - 1e-6)
    assert math.log1p(-other.low) == pytest.approx(-math.log1p(-one.high), rel=1e-6, abs=1e-9)


@given(pairs, st.randoms())
def test_the_order_of_pairs_does_not_matter(data: list[tuple[list[int], list[int]]], shuffler: random.Random) -> None:
    mixed = list(data)
    shuffler.shuffle(mixed)
    one, other = estimate(data), estimate(mixed)
    assert one is not None
    assert other is not None
    assert (one.saved_ns, one.low) == pytest.approx((other.saved_ns, other.low), rel=1e-9, abs=1e-6)


def test_drift_that_falls_on_both_blocks_of_a_pair_costs_nothing() -> None:
    found = estimate_from_means([(100.0 * level, 80.0 * level) for level in (1, 2, 5, 1.5)])
    assert found is not None
    assert found.relative == pytest.approx(0.2)
    assert found.high - found.low < 1e-9


def test_a_job_that_got_slower_saves_a_negative_number() -> None:
    found = estimate([([100, 101], [130, 131]), ([99, 100], [128, 131]), ([101, 100], [129, 133])])
    assert found is not None
    assert found.saved_ns < 0
    assert found.saved_high_ns < 0
    assert found.high < 0


@pytest.mark.parametrize(
    "bad", [[(1.0, 1.0), (0.0, 1.0)], [(1.0, math.nan), (1.0, 1.0)], [(math.inf, 1.0), (1.0, 1.0)]]
)
def test_means_that_are_none_are_refused(bad: list[tuple[float, float]]) -> None:
    with pytest.raises(ValueError, match="above zero"):
        estimate_from_means(bad)


def test_a_negative_duration_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        estimate([([1, -1], [1]), ([1], [1])])


parts = st.lists(
    st.builds(
        Contribution, st.integers(0, 3), st.floats(-1e3, 1e3), st.floats(1e-6, 1e2), st.integers(1, 40).map(float)
    ),
    min_size=1,
    max_size=20,
)


@given(parts)
def test_a_total_is_the_sum_and_lies_in_its_interval(contributions: list[Contribution]) -> None:
    found = total(contributions)
    assert found.value == pytest.approx(math.fsum(part.value for part in contributions), abs=1e-9)
    assert found.low < found.value < found.high
    assert found.jobs == len(contributions)
    assert found.templates == len({part.template for part in contributions})


@given(parts)
def test_jobs_of_one_template_never_make_the_interval_narrower_than_strangers_do(
    contributions: list[Contribution],
) -> None:
    """With the same degrees of freedom: those of a template's smallest job would blur the comparison."""
    same = [Contribution("t", part.value, part.error, 10.0) for part in contributions]
    apart = [Contribution(number, part.value, part.error, 1e9) for number, part in enumerate(contributions)]
    assert total(same).high - total(same).low >= (total(apart).high - total(apart).low) * (1 - 1e-9)


def test_errors_add_in_squares_between_templates() -> None:
    found = total([Contribution("a", 1.0, 3.0, 1e9), Contribution("b", 1.0, 4.0, 1e9)])
    assert found.high - 2.0 == pytest.approx(1.959964 * 5.0, rel=1e-4)


def test_a_job_without_an_error_moves_the_total_and_not_its_interval() -> None:
    measured = Contribution("t", 1.0, 0.2, 11.0)
    alone, beside = total([measured]), total([measured, Contribution("t", -0.5, 0.0, 1.0)])
    assert beside.value == pytest.approx(alone.value - 0.5)
    assert beside.high - beside.low == pytest.approx(alone.high - alone.low)


def test_a_small_job_with_two_pairs_does_not_take_the_degrees_of_a_large_one() -> None:
    large, small = Contribution("t", 100.0, 1.0, 30.0), Contribution("t", 0.1, 0.001, 1.0)
    assert total([large, small]).high - total([large]).high == pytest.approx(0.1, abs=0.02)


def test_nothing_measured_totals_nothing() -> None:
    assert total([]) == savings.Total(0.0, 0.0, 0.0, 0, 0)


def test_one_job_has_the_interval_of_its_own() -> None:
    found = estimate_from_means([(100.0, 90.0), (110.0, 97.0), (95.0, 88.0), (105.0, 99.0)])
    assert found is not None
    summed = total([Contribution("a", found.saved_ns, found.saved_error_ns, found.degrees)])
    assert (summed.low, summed.high) == pytest.approx((found.saved_low_ns, found.saved_high_ns))


means = st.lists(st.tuples(st.floats(1.0, 1e9), st.floats(1.0, 1e9)), min_size=2, max_size=9)
functions = st.builds(FunctionData, means=means, stitched_count=st.integers(1, 10**6), stitched_ns=st.floats(0.0, 1e15))


@given(functions)
def test_a_job_of_one_function_has_that_functions_estimate(one: FunctionData) -> None:
    assert estimate_job([one]) == estimate_from_means(one.means)


@given(st.lists(functions, min_size=2, max_size=5))
@example([FunctionData([(1.0, 1.0)] * 2, 1, 0.0), FunctionData([(1.0, 13.0)] * 2, 1, 0.0)])
def test_a_job_saves_the_sum_of_what_its_functions_save(several: list[FunctionData]) -> None:
    found, parts = estimate_job(several), [estimate_from_means(one.means) for one in several]
    assert found is not None
    counts = [one.stitched_count for one in several]
    saved = math.fsum(count * part.saved_ns for count, part in zip(counts, parts) if part)
    scale = math.fsum(count * (part.plain_ns + part.stitched_ns) for count, part in zip(counts, parts) if part)
    assert sum(counts) * found.saved_ns == pytest.approx(saved, abs=1e-9 * scale)
    assert found.low <= found.relative <= found.high
    assert found.saved_low_ns <= found.saved_ns <= found.saved_high_ns
    degrees = [part.degrees for part in parts if part]
    assert min(degrees) * 0.999 <= found.degrees <= sum(degrees) * 1.001
    assert estimate_job(several[::-1]) is not None


def test_two_functions_that_are_the_same_are_one_with_errors_in_squares() -> None:
    one = FunctionData([(10.0, 8.0), (12.0, 9.0), (11.0, 8.5)], 100, 850.0)
    single, both = estimate_job([one]), estimate_job([one, one])
    assert single is not None
    assert both is not None
    assert both.saved_ns == pytest.approx(single.saved_ns)
    assert both.saved_error_ns == pytest.approx(single.saved_error_ns / math.sqrt(2))
    assert (both.pairs, both.degrees) == (6, pytest.approx(4.0))


def test_a_function_without_two_pairs_is_not_imputed() -> None:
    one = FunctionData([(10.0, 8.0), (12.0, 9.0)], 100, 850.0)
    found = estimate_job([one, FunctionData([(50.0, 1.0)], 300, 3000.0)])
    assert found is not None
    alone = estimate_from_means(one.means)
    assert alone is not None
    assert found.saved_ns == pytest.approx(alone.saved_ns / 4)
    assert estimate_job([FunctionData([], 300, 3000.0)]) is None
