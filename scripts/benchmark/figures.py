"""From slices and step logs to figures: medians, ratios with intervals, how busy the cores were. Pure functions.

A step counts in a slice if it is completely inside, except the first such step, which finds the caches and queues as other
contestants have left them. Two times are given for a step, both from the step log: the median duration of a step, and the wall time
per step (from the first step's start to the last one's end, divided by their number), which includes everything that the job does
between its steps.

Ratios are paired: slice k of plain with slice k of the other. The mean of their logarithms has Student's t interval with one degree
of freedom less than pairs (the method of Kalibera and Jones, "Rigorous benchmarking in reasonable time", ISMM 2013, with a slice as
the unit).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stitchfleet.telemetry.statistics.student import two_sided_quantile

from .race import Outcome, Slice

CONFIDENCE = 0.95
MIN_STEPS = 3
"""A slice with fewer complete steps is ignored."""
_SETTLING_STEPS = 1


@dataclass(frozen=True)
class SliceFigures:
    """The figures of one slice. steps: their number. Times in seconds. cores: processor seconds used per second of wall time."""

    steps: int
    median_s: float
    wall_s: float
    cores: float


@dataclass(frozen=True)
class Ratio:
    """The reference's time divided by the contestant's (above 1: the contestant is faster), with its 95% interval."""

    value: float
    low: float
    high: float
    pairs: int


@dataclass(frozen=True)
class Figures:
    """The figures of a contestant's race.

    median_ms, wall_ms: medians over the slices. cores: the mean over the slices. ratio_of_medians, ratio_of_wall: None for the
    reference, or with fewer than two common rounds. start_up_s: `start_up_seconds`.
    """

    slices: int
    steps: int
    median_ms: float
    wall_ms: float
    cores: float
    ratio_of_medians: Ratio | None
    ratio_of_wall: Ratio | None
    start_up_s: float


def slice_figures(window: Slice, starts: Sequence[float], seconds: Sequence[float]) -> SliceFigures | None:
    """The figures of one slice; None if it has fewer than MIN_STEPS complete steps after the first one.

    starts: time.monotonic() at each step's start. seconds: each step's duration.
    """
    inside = [
        (start, duration)
        for start, duration in zip(starts, seconds)
        if start >= window.begin and start + duration <= window.end
    ][_SETTLING_STEPS:]
    if len(inside) < MIN_STEPS:
        return None
    span = inside[-1][0] + inside[-1][1] - inside[0][0]
    return SliceFigures(
        steps=len(inside),
        median_s=statistics.median(duration for _, duration in inside),
        wall_s=span / len(inside),
        cores=window.cpu_s / (window.end - window.begin),
    )


def paired_ratio(reference: Mapping[int, float], other: Mapping[int, float]) -> Ratio | None:
    """reference / other, from the rounds that both have; None if there are fewer than two. Round -> time, above zero."""
    logs = [math.log(reference[number] / other[number]) for number in sorted(reference.keys() & other.keys())]
    if len(logs) < 2:
        return None
    mean = statistics.fmean(logs)
    half = two_sided_quantile(CONFIDENCE, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half), len(logs))


def geometric_mean(ratios: Sequence[Ratio]) -> Ratio | None:
    """The geometric mean of independent ratios with equal weights, and its 95% interval (degrees of freedom by Welch and
    Satterthwaite, from each ratio's own interval). None for no ratios."""
    if not ratios:
        return None
    mean = statistics.fmean(math.log(ratio.value) for ratio in ratios)
    variances = [
        (math.log(ratio.high / ratio.value) / two_sided_quantile(CONFIDENCE, ratio.pairs - 1)) ** 2 for ratio in ratios
    ]
    total = sum(variances)
    if total == 0.0:
        return Ratio(math.exp(mean), math.exp(mean), math.exp(mean), sum(ratio.pairs for ratio in ratios))
    degrees = total**2 / sum(variance**2 / (ratio.pairs - 1) for variance, ratio in zip(variances, ratios))
    half = two_sided_quantile(CONFIDENCE, degrees) * math.sqrt(total) / len(ratios)
    pairs = sum(ratio.pairs for ratio in ratios)
    return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half), pairs)


def better_of(outcomes: Sequence[Outcome]) -> Outcome | None:
    """The outcome with the least wall time per step, by the median over its slices; None if no outcome has figures."""
    walls = [(statistics.median(f.wall_s for f in found.values()), o) for o in outcomes if (found := by_round(o))]
    return min(walls, key=lambda wall: wall[0])[1] if walls else None


def beside(outcome: Outcome, reference: Outcome) -> tuple[Ratio | None, Ratio | None]:
    """(reference / outcome by the median of steps, the same by wall time per step), paired by rounds."""
    own, other = by_round(outcome), by_round(reference)
    by_median = paired_ratio(_column(other, "median_s"), _column(own, "median_s"))
    return by_median, paired_ratio(_column(other, "wall_s"), _column(own, "wall_s"))


def by_round(outcome: Outcome) -> dict[int, SliceFigures]:
    """Round -> the figures of its slice, without slices that have too few steps."""
    found = {window.round: slice_figures(window, outcome.starts, outcome.seconds) for window in outcome.slices}
    return {number: figures for number, figures in found.items() if figures is not None}


def figures_of(outcome: Outcome, reference: Outcome) -> Figures | None:
    """A contestant's figures, compared with the reference's (plain); None if no slice has enough steps."""
    own = by_round(outcome)
    if not own:
        return None
    medians, walls = (None, None) if outcome is reference else beside(outcome, reference)
    return Figures(
        slices=len(own),
        steps=sum(figures.steps for figures in own.values()),
        median_ms=statistics.median(figures.median_s for figures in own.values()) * 1e3,
        wall_ms=statistics.median(figures.wall_s for figures in own.values()) * 1e3,
        cores=statistics.fmean(figures.cores for figures in own.values()),
        ratio_of_medians=medians,
        ratio_of_wall=walls,
        start_up_s=start_up_seconds(outcome.seconds),
    )


def _column(table: Mapping[int, SliceFigures], name: str) -> dict[int, float]:
    return {number: float(getattr(figures, name)) for number, figures in table.items()}


def start_up_seconds(seconds: Sequence[float], first: int = 3) -> float:
    """Seconds by which the first steps took longer than as many typical ones: tracing, graph optimization, XLA's compilation.

    Three steps, since a function that creates variables is traced twice, and an executor is built in its first run.
    """
    if len(seconds) <= first:
        return 0.0
    return max(0.0, sum(seconds[:first]) - first * statistics.median(seconds[first:]))


def largest_difference(losses: Sequence[float], reference: Sequence[float]) -> tuple[int, float]:
    """(number of steps that both have, the largest relative difference of their losses, NaN if either contains NaN)."""
    differences = [abs(ours - theirs) / max(abs(theirs), 1e-12) for ours, theirs in zip(losses, reference)]
    if any(math.isnan(difference) for difference in differences):
        return len(differences), math.nan
    return len(differences), max(differences, default=0.0)
