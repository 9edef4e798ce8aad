"""How much shorter a job's iterations became: from paired blocks of plain and stitched steps to an estimate with a 95% interval.

The data: pair k is a block of plain steps and a block of stitched steps, adjacent in time, in random order (a switchback experiment).
Drift of the machine affects both blocks of a pair; what remains of it changes sign with the order, so pairs may be treated as
independent.

The estimate uses untrimmed means, since a total is a mean times a count: with p_k and s_k the mean durations of pair k's blocks and
P, S their means over the pairs, an iteration saves P - S, which is the share 1 - S/P of a plain iteration.

The interval is Student's t with K - 1 degrees of freedom on the scale L = ln(P/S); the delta method gives its standard error from the
residuals p_k/P - s_k/S. On that scale a single long step inflates the residual and the estimate alike, and the interval keeps its
coverage for iteration times as skewed as Pareto with exponent 2.5, where a t interval on P - S covers 97.3% and one on (P - S)/P
92.4% (measured; test_savings_coverage.py has the simulation). The absolute saving P - S = 2 M tanh(L/2), with M the mid level
(P + S)/2, adds the level's own standard error: its variance is M^2 var(L) + (P - S)^2 var(ln M).
Sources: Kalibera and Jones, "Rigorous benchmarking in reasonable time" (ISMM 2013), for ratios of means with an interval;
Deng, Knoblich and Lu, "Applying the delta method in metric analytics" (KDD 2018).

Nothing is clipped: a job that got slower saves a negative number. What no interval covers is one step that takes a thousand times as
long as the others, because the process was stopped: the plugin measures such a pair again (plugin/job/program.py).

A job with several training functions (a GAN's critic and generator) has pairs of each. It saves the sum over the functions of their
iterations times their saving per iteration. The functions' pairs are of different steps, so their errors add in squares, on both
scales, each function's ratio and level weighted by how it moves the sum (first-order propagation); the degrees of freedom follow
Welch and Satterthwaite. A function that ran stitched but has fewer than two pairs of its own counts as having saved nothing: nothing
is imputed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .student import two_sided_quantile

CONFIDENCE = 0.95
MIN_PAIRS = 2
"""With fewer pairs the spread cannot be estimated, and the job is unmeasured."""
METHOD = "paired-switchback-log-ratio-1"
"""Name and version of the method; it is stored with every figure made by it."""
METHOD_OF_SUMS = "paired-switchback-log-ratio-sum-1"
"""The method for jobs with several training functions."""

DEFINITION = (
    "Saved device-hours = devices allocated x (stitched iterations x mean time saved per iteration - time that stitching itself "
    "cost). The time saved per iteration is measured in each job by pairs of short blocks of plain and stitched steps in random "
    "order; means are untrimmed; negative savings are kept; jobs with fewer than two pairs are listed as unmeasured and count as "
    "no figure at all."
)


@dataclass(frozen=True)
class Saving:
    """The estimate for one job. Durations are nanoseconds per iteration; [`low`, `high`] is the 95% interval of `relative`."""

    pairs: int
    plain_ns: float
    stitched_ns: float
    saved_ns: float
    """Mean saving per iteration: plain_ns - stitched_ns."""
    relative: float
    """saved_ns / plain_ns."""
    low: float
    high: float
    saved_low_ns: float
    saved_high_ns: float
    """The 95% interval of saved_ns."""
    saved_error_ns: float
    """The standard error of saved_ns."""
    method: str = METHOD
    degrees_of_sum: float | None = None
    """Degrees of freedom if the estimate is a sum over functions; else None."""

    @property
    def degrees(self) -> float:
        """Degrees of freedom of the interval."""
        return self.pairs - 1 if self.degrees_of_sum is None else self.degrees_of_sum


def estimate(pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Saving | None:
    """The saving from pairs of (plain durations, stitched durations), in nanoseconds per step.

    Pairs with an empty block are ignored. None if fewer than MIN_PAIRS remain.
    Raises ValueError for a negative duration, or for a block whose durations are all zero.
    """
    return estimate_from_means(block_means(pairs))


def block_means(pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[tuple[float, float]]:
    """(plain, stitched) mean duration of each pair, in nanoseconds, without pairs that have an empty block. Raises ValueError for
    a negative duration."""
    means = []
    for plain, stitched in pairs:
        if len(plain) == 0 or len(stitched) == 0:
            continue
        if min(plain) < 0 or min(stitched) < 0:
            raise ValueError("a duration is negative")
        means.append((math.fsum(plain) / len(plain), math.fsum(stitched) / len(stitched)))
    return means


def estimate_from_means(means: Sequence[tuple[float, float]]) -> Saving | None:
    """As `estimate`, from the blocks' means: (plain, stitched) of each pair, in nanoseconds. None for fewer than MIN_PAIRS pairs.

    Raises ValueError unless every mean is finite and above zero.
    """
    found = _moments(means)
    return None if found is None else _saving(found)


class _Moments(NamedTuple):
    """For one function's pairs: mean durations, and the variances of the logarithms of their ratio and of their mid level."""

    pairs: int
    plain: float
    stitched: float
    ratio_variance: float
    level_variance: float

    @property
    def level(self) -> float:
        return (self.plain + self.stitched) / 2.0

    @property
    def saved(self) -> float:
        return self.plain - self.stitched

    @property
    def saved_variance(self) -> float:
        return self.level**2 * self.ratio_variance + self.saved**2 * self.level_variance


def _moments(means: Sequence[tuple[float, float]]) -> _Moments | None:
    """The moments of pairs of means; None for fewer than MIN_PAIRS. Raises ValueError unless every mean is finite and above zero."""
    count = len(means)
    if count < MIN_PAIRS:
        return None
    if not all(math.isfinite(value) and value > 0.0 for pair in means for value in pair):
        raise ValueError("a block's mean duration must be above zero and finite")
    plain = math.fsum(p for p, _ in means) / count
    stitched = math.fsum(s for _, s in means) / count
    level = (plain + stitched) / 2.0
    scale = count * (count - 1)
    ratio_variance = math.fsum((p / plain - s / stitched) ** 2 for p, s in means) / scale
    level_variance = math.fsum(((p + s) / 2.0 / level - 1.0) ** 2 for p, s in means) / scale
    return _Moments(count, plain, stitched, ratio_variance, level_variance)


def _saving(moments: _Moments) -> Saving:
    error = math.sqrt(moments.saved_variance)
    return _with_intervals(
        moments.pairs, moments.plain, moments.stitched, moments.ratio_variance, error, moments.pairs - 1.0
    )


def _with_intervals(
    pairs: int, plain: float, stitched: float, ratio_variance: float, error: float, degrees: float
) -> Saving:
    """A Saving with its intervals. plain, stitched: nanoseconds per iteration. error: standard error of their difference."""
    saved = plain - stitched
    relative = saved / plain
    quantile = two_sided_quantile(CONFIDENCE, degrees)
    log_ratio = math.log(plain / stitched)
    half = quantile * math.sqrt(ratio_variance)
    return Saving(
        pairs=pairs,
        plain_ns=plain,
        stitched_ns=stitched,
        saved_ns=saved,
        relative=relative,
        # the interval is computed differently from the estimate: if blocks do not differ at all, rounding must not separate the two
        low=min(relative, _share(log_ratio - half)),
        high=max(relative, _share(log_ratio + half)),
        saved_low_ns=saved - quantile * error,
        saved_high_ns=saved + quantile * error,
        saved_error_ns=error,
    )


@dataclass(frozen=True)
class FunctionData:
    """The data of one of a job's training functions. means: (plain, stitched) of each of its pairs, in nanoseconds per step.

    stitched_count, stitched_ns: of all its stitched iterations, in pairs or not.
    """

    means: Sequence[tuple[float, float]]
    stitched_count: int
    stitched_ns: float


def estimate_job(functions: Sequence[FunctionData]) -> Saving | None:
    """The saving per iteration of a job, over all iterations of its functions; None if no function has MIN_PAIRS pairs.

    Multiplied by the job's stitched iterations, it is the sum over the functions of their stitched iterations times their saving. For
    one function it is that function's estimate. Raises ValueError as estimate_from_means does.
    """
    known = [(data, _moments(data.means)) for data in functions if data.stitched_count or data.means]
    measured = [(data.stitched_count, moments) for data, moments in known if moments is not None]
    if not measured:
        return None
    count = sum(data.stitched_count for data, _ in known)
    if len(known) == 1 or count == 0:
        return _saving(measured[0][1])
    unmeasured_ns = math.fsum(data.stitched_ns for data, moments in known if moments is None)
    plain = math.fsum([*(weight * moments.plain for weight, moments in measured), unmeasured_ns]) / count
    stitched = math.fsum([*(weight * moments.stitched for weight, moments in measured), unmeasured_ns]) / count
    if not stitched > 0.0:
        return _saving(measured[0][1])
    variances = [(weight / count) ** 2 * moments.saved_variance for weight, moments in measured]
    ratio_variance = 0.0
    for weight, moments in measured:
        # how the function's ratio and level move ln(plain / stitched) of the job
        of_plain, of_stitched = weight * moments.plain / (count * plain), weight * moments.stitched / (count * stitched)
        ratio_variance += ((of_plain + of_stitched) / 2.0) ** 2 * moments.ratio_variance
        ratio_variance += (of_plain - of_stitched) ** 2 * moments.level_variance
    variance = math.fsum(variances)
    inverse = math.fsum(
        (part / variance) ** 2 / (moments.pairs - 1) for part, (_, moments) in zip(variances, measured) if variance
    )
    pairs = sum(moments.pairs for _, moments in measured)
    degrees = round(1.0 / inverse, 3) if inverse else float(pairs - len(measured))
    found = _with_intervals(pairs, plain, stitched, ratio_variance, math.sqrt(variance), degrees)
    return dataclasses.replace(found, method=METHOD_OF_SUMS, degrees_of_sum=degrees)


def faster_share(pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> float:
    """The share (0 to 1) of the pairs whose stitched block has the smaller mean. Pairs with an empty block are not counted. NaN
    without pairs. Raises ValueError for a negative duration.

    A block in which the process was stopped for a while (a debugger, a snapshot of its machine) can move a mean over all pairs,
    and its interval, by any amount; it moves this share by one pair.
    """
    means = block_means(pairs)
    return sum(stitched < plain for plain, stitched in means) / len(means) if means else math.nan


def _share(log_ratio: float) -> float:
    """1 - stitched/plain from ln(plain/stitched). Clipped far below zero, where two wild pairs can put it, so that it stays
    finite."""
    return -math.expm1(min(-log_ratio, 700.0))


class Contribution(NamedTuple):
    """One job's part of a total: `value` with its standard error, both in the total's unit, and the error's degrees of freedom.
    The error is 0 for a job that ran nothing stitched."""

    template: Hashable
    """Jobs with equal templates are submissions of the same job."""
    value: float
    error: float
    degrees: float


@dataclass(frozen=True)
class Total:
    """A sum over `jobs` jobs with its 95% interval [`low`, `high`], in the unit of the contributions. templates: number of their
    different templates."""

    value: float
    low: float
    high: float
    jobs: int
    templates: int


def total(contributions: Iterable[Contribution]) -> Total:
    """Adds up jobs. Standard errors add linearly within a template, and in squares between templates.

    Submissions of one template share their code, their data and the order of their blocks, so whatever makes one job's estimate too
    high can make the others' too high as well. Nothing in the data shows how much of the error is shared. Adding linearly covers
    the worst case, in which all of it is.

    Degrees of freedom: a standard error with d of them is itself uncertain by the share 1/sqrt(2 d). Within a template these
    uncertainties are also treated as shared, which makes the sum's degrees (sum e)^2 / (sum e / sqrt(d))^2; between templates they
    combine by Welch and Satterthwaite. A job without an error (it ran nothing stitched) moves the total but not its interval.
    """
    values = []
    of_templates: dict[Hashable, list[float]] = {}
    """For each template: the sum of errors, and the sum of their own uncertainties."""
    for template, value, error, degrees in contributions:
        values.append(value)
        uncertainty = error / math.sqrt(degrees)
        sums = of_templates.get(template)
        if sums is None:
            of_templates[template] = [error, uncertainty]
        else:
            sums[0] += error
            sums[1] += uncertainty
    return combined(math.fsum(values), len(values), list(of_templates.values()))


def combined(value: float, jobs: int, of_templates: Sequence[Sequence[float]]) -> Total:
    """The total of `jobs` jobs whose values add up to `value`. of_templates: for each template, the sum of errors, and the sum of
    errors divided by the square root of their degrees of freedom."""
    known = [sums for sums in of_templates if sums[0] > 0.0]
    if not known:
        return Total(value, value, value, jobs, len(of_templates))
    # as shares of the largest: squares and fourth powers of small hours would underflow
    unit = max(error for error, _ in known)
    variance = math.fsum((error / unit) ** 2 for error, _ in known)
    inverse = math.fsum(
        ((error / unit) ** 2 / variance) ** 2 * (uncertainty / error) ** 2 for error, uncertainty in known
    )
    half = two_sided_quantile(CONFIDENCE, round(1.0 / inverse, 3)) * math.sqrt(variance) * unit
    return Total(value, value - half, value + half, jobs, len(of_templates))
