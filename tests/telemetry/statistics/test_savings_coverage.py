"""Does the 95% interval hold the truth 95 times in 100? By simulation of whole jobs, on the estimator as it is.

Iteration times are lognormal (sigma 0.3) or Pareto with exponent 2.5 (whose third moment is infinite), correlated from one step to
the next like an AR(1) with 0.8 (a Gaussian copula), and drift linearly by 30% over the job. Blocks follow each other in time, the
order within each pair is drawn at random, and the first step of a block is dropped, as the plugin's schedule has it. The truth is
the untrimmed mean. The bounds leave the simulation its own noise beside the 93% to 97% that is promised: two of its standard errors.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from stitchfleet.telemetry.statistics.savings import (
    Contribution,
    FunctionData,
    estimate_from_means,
    estimate_job,
    total,
)

PROMISED = (0.93, 0.97)
CORRELATION = 0.8

Array = NDArray[np.float64]


def survival(z: Array) -> Array:
    """P(N > z) of the normal distribution, exactly, so that the Pareto tail is one."""
    return 0.5 * np.array([math.erfc(value) for value in (z / math.sqrt(2.0)).ravel()]).reshape(z.shape)


def iteration_times(random: np.random.Generator, runs: int, steps: int, kind: str) -> tuple[Array, float]:
    """(runs, steps) stationary iteration times and their true mean."""
    noise = random.standard_normal((runs, steps))
    z = np.empty_like(noise)
    z[:, 0] = noise[:, 0]
    for step in range(1, steps):
        z[:, step] = CORRELATION * z[:, step - 1] + math.sqrt(1 - CORRELATION**2) * noise[:, step]
    if kind == "lognormal":
        return np.exp(0.3 * z), math.exp(0.3**2 / 2)
    return np.asarray(survival(z) ** (-1 / 2.5)), 2.5 / 1.5


def simulate(
    random: np.random.Generator, kind: str, pairs: int, block: int, saving: float, drift: float, runs: int
) -> tuple[Array, float]:
    """(runs, pairs, 2) block means, plain and stitched, and the true mean of a plain iteration."""
    steps = 2 * pairs * (block + 1)
    times, mean = iteration_times(random, runs, steps, kind)
    times = times * (1 + drift * (np.arange(steps) / steps - 0.5))
    blocks = times.reshape(runs, pairs, 2, block + 1)[..., 1:].mean(axis=-1)
    order = random.integers(0, 2, (runs, pairs))[..., None]
    plain = np.take_along_axis(blocks, order, 2)
    stitched = np.take_along_axis(blocks, 1 - order, 2) * (1 - saving)
    return np.concatenate([plain, stitched], axis=2), mean


def coverage(
    seed: int, kind: str, pairs: int, block: int, saving: float, drift: float, runs: int
) -> tuple[float, float]:
    """How often the interval of the relative and of the absolute saving holds the truth."""
    random = np.random.default_rng(seed)
    means, mean = simulate(random, kind, pairs, block, saving, drift, runs)
    relative = absolute = 0
    for job in means:
        found = estimate_from_means([(float(p), float(s)) for p, s in job])
        assert found is not None
        relative += found.low <= saving <= found.high
        absolute += found.saved_low_ns <= saving * mean <= found.saved_high_ns
    return relative / runs, absolute / runs


def check(seed: int, kind: str, pairs: int, block: int, saving: float, drift: float, runs: int) -> None:
    slack = 2 * math.sqrt(0.95 * 0.05 / runs)
    for name, share in zip(
        ("relative", "absolute"), coverage(seed, kind, pairs, block, saving, drift, runs), strict=True
    ):
        assert PROMISED[0] - slack <= share <= PROMISED[1] + slack, f"{name}: {share:.3f}"


@pytest.mark.parametrize("kind", ["lognormal", "pareto"])
@pytest.mark.parametrize("saving", [0.0, 0.25])
def test_the_interval_of_a_short_job_covers(kind: str, saving: float) -> None:
    check(11, kind, 6, 10, saving, 0.3, 500)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lognormal", "pareto"])
@pytest.mark.parametrize(("pairs", "block"), [(4, 10), (6, 10), (12, 10), (20, 20), (60, 10)])
@pytest.mark.parametrize("saving", [-0.2, 0.0, 0.1, 0.4])
@pytest.mark.parametrize("drift", [0.0, 0.3])
def test_the_interval_covers(kind: str, pairs: int, block: int, saving: float, drift: float) -> None:
    check(5, kind, pairs, block, saving, drift, 2000)


@pytest.mark.parametrize("shared", [False, True])
def test_a_fleets_interval_covers_whether_or_not_a_templates_jobs_err_together(shared: bool) -> None:
    """Eight templates of five jobs each. Erring together they get their 95%; apart, the interval is wider than it need be."""
    runs, templates, jobs, truth = 400, 8, 5, 0.1
    random = np.random.default_rng(3)
    covered = 0
    for _ in range(runs):
        means, mean = simulate(random, "lognormal", 8, 10, truth, 0.2, templates if shared else templates * jobs)
        parts = []
        for template in range(templates):
            for job in range(jobs):
                data = means[template if shared else template * jobs + job]
                found = estimate_from_means([(float(p), float(s)) for p, s in data])
                assert found is not None
                parts.append(Contribution(template, found.saved_ns, found.saved_error_ns, found.degrees))
        interval = total(parts)
        covered += interval.low <= truth * mean * templates * jobs <= interval.high
    slack = 2 * math.sqrt(0.95 * 0.05 / runs)
    assert covered / runs >= PROMISED[0] - slack
    if shared:
        assert covered / runs <= PROMISED[1] + slack


@pytest.mark.parametrize("kind", ["lognormal", "pareto"])
@pytest.mark.parametrize("savings", [(0.4, 0.1), (0.3, -0.2)])
def test_the_interval_of_a_job_with_two_training_functions_covers(kind: str, savings: tuple[float, float]) -> None:
    """A step of the second takes nine times as long, the first runs five times as often; pairs are few."""
    runs, pairs, scales, counts = 500, (8, 6), (1.0, 9.0), (5000, 1000)
    random = np.random.default_rng(17)
    simulated = [simulate(random, kind, *args, 0.3, runs) for args in zip(pairs, (10, 10), savings)]
    plain = sum(c * k * mean for c, k, (_, mean) in zip(counts, scales, simulated)) / sum(counts)
    saved = sum(c * k * mean * share for c, k, (_, mean), share in zip(counts, scales, simulated, savings)) / sum(
        counts
    )
    relative = absolute = 0
    for job in range(runs):
        found = estimate_job(
            [
                FunctionData([(float(k * p), float(k * s)) for p, s in means[job]], count, 0.0)
                for k, count, (means, _) in zip(scales, counts, simulated)
            ]
        )
        assert found is not None
        relative += found.low <= saved / plain <= found.high
        absolute += found.saved_low_ns <= saved <= found.saved_high_ns
    slack = 2 * math.sqrt(0.95 * 0.05 / runs)
    for name, share in (("relative", relative / runs), ("absolute", absolute / runs)):
        assert PROMISED[0] - slack <= share <= PROMISED[1] + slack, f"{name}: {share:.3f}"
