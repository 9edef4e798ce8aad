"""What recording costs: quantiles that are calls that happened, and a cost that is found where there is one."""

from __future__ import annotations

import random

import pytest

from scripts.benchmark.recording import Calls, lines, processor_figures, step_figures


def test_quantiles_are_those_of_calls_that_happened() -> None:
    durations = [1_000 * number for number in range(1, 10_001)]
    random.Random(1).shuffle(durations)
    found = Calls.of(durations)
    assert (found.count, found.mean_us, found.median_us) == (10_000, 5000.5, 5000.0)
    assert (found.p99_us, found.p999_us, found.longest_us) == (9900.0, 9990.0, 10_000.0)
    assert Calls.of([3_000]) == Calls(1, 3.0, 3.0, 3.0, 3.0, 3.0)


@pytest.mark.parametrize("cost", [0.0, 0.002, 0.02])
def test_a_cost_of_two_thousandths_is_found_in_ten_thousand_pairs(cost: float) -> None:
    """As noisy as a machine that others use: one step in twenty takes half as long again."""
    draw = random.Random(3)

    def step() -> float:
        return 0.05 * draw.lognormvariate(0.0, 0.02) * (1.5 if draw.random() < 0.05 else 1.0)

    arms = {name: [step() * factor for _ in range(10_000)] for name, factor in (("on", 1 + cost), ("off", 1.0))}
    found = step_figures({name: {"wall_s": times, "processor_s": times} for name, times in arms.items()})
    value, low, high = found["wall"]
    assert low <= cost <= high
    assert high - low < 0.0025
    assert value == pytest.approx(cost, abs=0.0015)
    assert found["step_ms"] == pytest.approx(50.0, rel=0.01)


def test_what_was_seen_is_said_beside_what_it_may_be() -> None:
    calls = {"mean_us": 1.5, "median_us": 1.0, "p99_us": 4.0, "p999_us": 20.0, "longest_us": 99.0, "count": 1000}
    job = {"calls": calls, "steps": 100, "thread_s": 0.001, "shipper_s": 0.002, "shipper_start_s": 0.05}
    took = processor_figures(job, 50.0)
    assert took["share"] == pytest.approx((1.5 + 10 + 20) / 50_000)
    bounds = [0.0005, -0.0001, 0.0011]
    step = {"step_ms": 50.0, "pairs": 9000, "wall": bounds, "wall_untrimmed": bounds, "processor": bounds}
    ends = {"steps": {"recorded": 5, "stored": 5, "lost": 0}}
    said = lines(
        {
            "call": calls,
            "call_in_job": calls,
            "clock_in_job": calls,
            "step": step,
            "processor_time": took,
            "arrived": ends,
        }
    )
    assert "mean 1.50 us (at most 5)" in said[0]
    assert "wall time +0.050% (-0.010% to +0.110%) (at most +0.2%)" in said[3]
    assert said[-1] == "steps: 5 of 5 iterations are in the database, 0 lost"
