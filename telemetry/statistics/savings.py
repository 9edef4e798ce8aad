"""How much a job's iterations got shorter: paired blocks of plain and stitched steps to an estimate with a 95% interval.

The data: pair k is a block of plain steps and a block of stitched steps, next to each other in time, in an order drawn at random
(a switchback experiment). Drift of the machine falls on both blocks of a pair; what is left of it changes sign with the order, so
pairs may be taken as independent.

The estimate uses untrimmed means, since a total is a mean times a count: with p_k and s_k the mean durations of pair k's blocks and
P, S their means over the pairs, an iteration saves P - S, which is the share 1 - S/P of a plain one.

The interval is Student's t with K - 1 degrees of freedom on the scale L = ln(P/S), whose standard error the delta method gives from
the residuals p_k/P - s_k/S. On that scale one rare long step inflates the residual and the estimate alike, and the interval keeps
its promise for iteration times as skewed as Pareto with exponent 2.5, where a t interval on P - S covers 97.3% and one on (P - S)/P
92.4% (measured; test_savings_coverage.py has the simulation). The absolute saving P - S = 2 M tanh(L/2), with M
the mid level (P + S)/2, adds the level's own standard error: its variance is M^2 var(L) + (P - S)^2 var(ln M).
Sources: Kalibera and Jones, "Rigorous benchmarking in reasonable time" (ISMM 2013), for ratios of means with an interval;
Deng, Knoblich and Lu, "Applying the delta method in metric analytics" (KDD 2018).

Nothing is clipped: a job that got slower saves a negative number.

A job of several training functions (a GAN's critic and generator) has pairs of each. What it saves is the sum over the functions of
iterations times saving an iteration; the functions' pairs are of different steps, so their errors combine in squares, on both scales,
each function's ratio and level weighing as it moves the sum (first-order propagation); degrees of freedom by Welch and Satterthwaite.
A function that ran stitched without two pairs of its own counts as having saved nothing: it is not imputed.
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
"""Below this there is no estimate of the spread, and the job is unmeasured."""
METHOD = "paired-switchback-log-ratio-1"
"""Name and version of the method; stored with every figure made by it."""
METHOD_OF_SUMS = "paired-switchback-log-ratio-sum-1"
"""That of jobs with several training functions."""

DEFINITION = (
    "Saved device-hours = devices allocated x (stitched iterations x mean time saved per iteration - time that stitching itself "
    "cost). The time saved per iteration is measured in each job by pairs of short blocks of plain and stitched steps in random "
    "order; means are untrimmed; negative savings are kept; jobs with fewer than two pairs are listed as unmeasured and count as "
    "no figure at all."
)


@dataclass(frozen=True, slots=True)
class Saving:
    """The estimate of one job. Durations in nanoseconds per iteration; `low` to `high` is the 95% interval of `relative`."""

    pairs: int
    plain_ns: float
    stitched_ns: float
    saved_ns: float
    """Mean saved per iteration: plain_ns - stitched_ns."""
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
    """Degrees of freedom where the estimate is a sum over functions."""

    @property
    def degrees(self) -> float:
        return self.pairs - 1 if self.degrees_of_sum is None else self.degrees_of_sum


def estimate(pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Saving | None:
    """The saving from pairs of (plain durations, stitched durations), nanoseconds per step.

    Pairs with an empty block are passed over. None below MIN_PAIRS pairs.
    Raises ValueError for a negative duration or a block without any time in it.
    """
    return estimate_from_means(block_means(pairs))


def block_means(pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[tuple[float, float]]:
    """(plain, stitched) mean of each pair, without those that have an empty block. Raises ValueError for a negative duration."""
    means = []
    for plain, stitched in pairs:
        if len(plain) == 0 or len(stitched) == 0:
            continue
        if min(plain) < 0 or min(stitched) < 0:
            raise ValueError("a duration is negative")
        means.append((math.fsum(plain) / len(plain), math.fsum(stitched) / len(stitched)))
    return means


def estimate_from_means(means: Sequence[tuple[float, float]]) -> Saving | None:
    """The same from the blocks' means: (plain, stitched) of each pair, nanoseconds. None below MIN_PAIRS.

    Raises ValueError unless every mean is finite and above zero.
    """
    found = _moments(means)
    return None if found is None else _saving(found)


class _Moments(NamedTuple):
    """Of one function's pairs: mean durations, and the variances of the logarithms of their ratio and of their mid level."""

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
    """None below MIN_PAIRS. Raises ValueError unless every mean is finite and above zero."""
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


def _saving(one: _Moments) -> Saving:
    error = math.sqrt(one.saved_variance)
    return _with_intervals(one.pairs, one.plain, one.stitched, one.ratio_variance, error, one.pairs - 1.0)


def _with_intervals(
    pairs: int, plain: float, stitched: float, ratio_variance: float, error: float, degrees: float
) -> Saving:
    """plain, stitched: nanoseconds an iteration. error: standard error of their difference."""
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
        # by another way than the estimate: where blocks do not differ at all, rounding must not part the two
        low=min(relative, _share(log_ratio - half)),
        high=max(relative, _share(log_ratio + half)),
        saved_low_ns=saved - quantile * error,
        saved_high_ns=saved + quantile * error,
        saved_error_ns=error,
    )


@dataclass(frozen=True)
class FunctionData:
    """What is known of one of a job's training functions. means: (plain, stitched) of each of its pairs, nanoseconds a step.

    stitched_count, stitched_ns: of all its stitched iterations, in pairs or not.
    """

    means: Sequence[tuple[float, float]]
    stitched_count: int
    stitched_ns: float


def estimate_job(functions: Sequence[FunctionData]) -> Saving | None:
    """The saving per iteration of a job, over all iterations of its functions; None where none of them has two pairs.

    Times its stitched iterations it is the sum over the functions of theirs times their saving. Of one function it is that function's
    estimate. Raises ValueError as estimate_from_means does.
    """
    known = [(one, _moments(one.means)) for one in functions if one.stitched_count or one.means]
    measured = [(one.stitched_count, moments) for one, moments in known if moments is not None]
    if not measured:
        return None
    count = sum(one.stitched_count for one, _ in known)
    if len(known) == 1 or count == 0:
        return _saving(measured[0][1])
    unmeasured_ns = math.fsum(one.stitched_ns for one, moments in known if moments is None)
    plain = math.fsum([*(weight * one.plain for weight, one in measured), unmeasured_ns]) / count
    stitched = math.fsum([*(weight * one.stitched for weight, one in measured), unmeasured_ns]) / count
    if not stitched > 0.0:
        return _saving(measured[0][1])
    variances = [(weight / count) ** 2 * one.saved_variance for weight, one in measured]
    ratio_variance = 0.0
    for weight, one in measured:
        # how the function's ratio and level move ln(plain / stitched) of the whole
        of_plain, of_stitched = weight * one.plain / (count * plain), weight * one.stitched / (count * stitched)
        ratio_variance += ((of_plain + of_stitched) / 2.0) ** 2 * one.ratio_variance
        ratio_variance += (of_plain - of_stitched) ** 2 * one.level_variance
    variance = math.fsum(variances)
    inverse = math.fsum(
        (part / variance) ** 2 / (one.pairs - 1) for part, (_, one) in zip(variances, measured, strict=True) if variance
    )
    pairs = sum(one.pairs for _, one in measured)
    degrees = round(1.0 / inverse, 3) if inverse else float(pairs - len(measured))
    found = _with_intervals(pairs, plain, stitched, ratio_variance, math.sqrt(variance), degrees)
    return dataclasses.replace(found, method=METHOD_OF_SUMS, degrees_of_sum=degrees)


def faster_share(pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> float:
    """The share of pairs whose stitched block has the smaller mean; of pairs with an empty block none is counted. NaN without pairs.

    One block in which the process was stopped for a while (a debugger, a snapshot of its machine) moves a mean over all pairs, and
    the interval with it, as far as it likes; this it moves by one pair.
    """
    means = block_means(pairs)
    return sum(stitched < plain for plain, stitched in means) / len(means) if means else math.nan


def _share(log_ratio: float) -> float:
    """1 - stitched/plain from ln(plain/stitched); far below, where two wild pairs can put it, minus infinity is minus a lot."""
    return -math.expm1(min(-log_ratio, 700.0))


class Contribution(NamedTuple):
    """One measured job's part of a total: `value` with its standard error, both in the total's unit."""

    template: Hashable
    """Jobs that are submissions of the same thing."""
    value: float
    error: float
    degrees: float


@dataclass(frozen=True)
class Total:
    """A sum over jobs with its 95% interval."""

    value: float
    low: float
    high: float
    jobs: int
    templates: int


def total(contributions: Iterable[Contribution]) -> Total:
    """Adds jobs up. Standard errors add linearly within a template and in squares between templates.

    Submissions of one template share their code, their data and the order of their blocks, so whatever makes one job's estimate
    too high can make the others' too high as well; nothing in the data tells how much of the error is shared. Adding linearly
    covers the worst case, all of it.

    Degrees of freedom: a standard error known with d of them is itself uncertain by the share 1/sqrt(2 d). Within a template these
    uncertainties too are taken as shared, which makes the sum's degrees (sum e)^2 / (sum e / sqrt(d))^2; between templates they
    combine by Welch and Satterthwaite. A job without an error (it ran nothing stitched) moves the total and not its interval.
    """
    values = []
    of_templates: dict[Hashable, list[float]] = {}
    """Of each: the sum of errors, and that of their own uncertainties."""
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
    """The total of so many jobs whose values add up to `value`; of each template the sum of errors, and that of errors divided by the
    root of their degrees."""
    known = [sums for sums in of_templates if sums[0] > 0.0]
    if not known:
        return Total(value, value, value, jobs, len(of_templates))
    # in shares of the largest: squares and fourth powers of small hours would underflow
    unit = max(error for error, _ in known)
    variance = math.fsum((error / unit) ** 2 for error, _ in known)
    inverse = math.fsum(
        ((error / unit) ** 2 / variance) ** 2 * (uncertainty / error) ** 2 for error, uncertainty in known
    )
    half = two_sided_quantile(CONFIDENCE, round(1.0 / inverse, 3)) * math.sqrt(variance) * unit
    return Total(value, value - half, value + half, jobs, len(of_templates))
