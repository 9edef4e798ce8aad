"""The estimate of what an idle plugin costs: right on made-up pairs, and wide where they say little."""

from __future__ import annotations

import random

import pytest

from scripts.benchmark.idle import compare


@pytest.mark.parametrize("cost", [0.0, 0.004, 0.05])
def test_the_interval_covers_the_cost_as_often_as_it_says(cost: float) -> None:
    draw = random.Random(7)
    covered = 0
    for _ in range(400):
        plain = [draw.lognormvariate(0, 0.05) for _ in range(120)]
        wrapped = [(1 + cost) * draw.lognormvariate(0, 0.05) for _ in range(120)]
        _, low, high = compare(wrapped, plain)
        covered += low <= cost <= high
    assert 0.92 <= covered / 400 <= 0.98


def test_a_step_that_was_interrupted_does_not_count() -> None:
    plain = [1.0 + 0.001 * (k % 7) for k in range(100)]
    wrapped = [1.01 * value for value in plain]
    wrapped[40], plain[60] = 50.0, 30.0
    cost, low, high = compare(wrapped, plain)
    assert cost == pytest.approx(0.01, abs=1e-3)
    assert low <= cost <= high
