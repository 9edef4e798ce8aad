"""Two pictures as SVG, made by hand so that a page needs nothing else: savings with intervals, and a job's iterations."""

from __future__ import annotations

import bisect
import itertools
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from .details import Detail
from .recording import PLAIN, STITCHED, UNCOUNTED

WIDTH = 920
PLAIN_COLOUR, STITCHED_COLOUR, UNCOUNTED_COLOUR, LOSS_COLOUR = "#4a6fa5", "#1a936f", "#b8bec7", "#c1443c"
ARM_COLOURS = {PLAIN: PLAIN_COLOUR, STITCHED: STITCHED_COLOUR, UNCOUNTED: UNCOUNTED_COLOUR}
MAX_BUCKETS = 700
"""More iterations than a few times this many are drawn as each stretch's smallest, middle and largest, by arm."""


def ticks(low: float, high: float, about: int = 6) -> list[float]:
    """Round numbers from low to high, about so many (1, 2 or 5 times a power of ten apart)."""
    span = high - low
    raw = span / about
    if not sys.float_info.min <= raw < math.inf:  # below it, numbers are too few to be round
        return [low]
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def _number(value: float) -> str:
    return f"{value:.4g}"


@dataclass(frozen=True)
class Bar:
    """One line of the picture of savings; all in the same unit."""

    label: str
    value: float
    low: float
    high: float
    is_total: bool = False


def savings_picture(bars: Sequence[Bar], unit: str) -> str:
    """A forest plot: a dot for each estimate, a line for its 95% interval, zero marked. Right of zero is time saved."""
    line, left, right, top = 26, 250, 30, 10
    height = top + line * len(bars) + 44
    low = min(0.0, *(bar.low for bar in bars))
    high = max(0.0, *(bar.high for bar in bars))
    if low == high:
        high = 1.0
    pad = 0.04 * (high - low)
    low, high = low - pad, high + pad

    def x(value: float) -> float:
        return left + (value - low) / (high - low) * (WIDTH - left - right)

    parts = []
    bottom = top + line * len(bars)
    for tick in ticks(low, high):
        strong = abs(tick) < 1e-12 * (high - low) or tick == 0
        parts.append(
            f'<line x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{top}" y2="{bottom}" class="{"zero" if strong else "grid"}"/>'
            f'<text x="{x(tick):.1f}" y="{bottom + 16}" class="tick" text-anchor="middle">{_number(tick)}</text>'
        )
    parts.append(
        f'<text x="{(left + WIDTH - right) / 2}" y="{bottom + 36}" class="axis" text-anchor="middle">'
        f"{escape(unit)} saved, with 95% interval</text>"
    )
    for k, bar in enumerate(bars):
        y = top + line * k + line / 2
        colour = LOSS_COLOUR if bar.high < 0 else STITCHED_COLOUR if bar.low > 0 else PLAIN_COLOUR
        size = 7 if bar.is_total else 5
        weight = ' font-weight="600"' if bar.is_total else ""
        said = f"{bar.label}: {_number(bar.value)} ({_number(bar.low)} to {_number(bar.high)}) {unit}"
        shape = (
            f'<path d="M{x(bar.value) - size:.1f} {y}l{size} {-size}l{size} {size}l{-size} {size}z" fill="{colour}"/>'
            if bar.is_total
            else f'<circle cx="{x(bar.value):.1f}" cy="{y}" r="{size}" fill="{colour}"/>'
        )
        parts.append(
            f"<g><title>{escape(said)}</title>"
            f'<text x="{left - 12}" y="{y + 4}" class="label" text-anchor="end"{weight}>{escape(_short(bar.label, 36))}</text>'
            f'<line x1="{x(bar.low):.1f}" x2="{x(bar.high):.1f}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="2.5"/>'
            f"{shape}</g>"
        )
    return _svg(height, "Time saved by each job, with 95% intervals", parts)


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


@dataclass(frozen=True)
class Point:
    """One dot of the picture of iterations."""

    position: int
    """Index of the iteration, in order of time."""
    arm: int
    duration: float


def thinned(detail: Detail) -> list[Point]:
    """The iterations to draw: all, or where there are many, of each stretch and arm the smallest, middle and largest.

    So no rare long iteration is hidden, as it would be by drawing every n-th.
    """
    count = len(detail.steps)
    if count <= 3 * MAX_BUCKETS:
        return [Point(k, detail.arms[k], detail.durations_ms[k]) for k in range(count)]
    found = []
    for bucket in range(MAX_BUCKETS):
        first, end = bucket * count // MAX_BUCKETS, (bucket + 1) * count // MAX_BUCKETS
        for arm in (UNCOUNTED, PLAIN, STITCHED):
            members = sorted(
                (k for k in range(first, end) if detail.arms[k] == arm), key=detail.durations_ms.__getitem__
            )
            if members:
                chosen = dict.fromkeys((members[0], members[len(members) // 2], members[-1]))
                found += [Point(k, arm, detail.durations_ms[k]) for k in chosen]
    return found


def iterations_picture(detail: Detail) -> str:
    """Milliseconds of each iteration over the steps, coloured by arm. Iterations above the scale are marked at its top."""
    points = thinned(detail)
    counted = sorted(point.duration for point in points if point.arm != UNCOUNTED) or sorted(p.duration for p in points)
    # the first step of a job can be a thousand times as long as the others
    high = 1.25 * counted[min(len(counted) - 1, int(0.985 * len(counted)))] if counted else 1.0
    high = high if high > 0 else 1.0
    left, right, top, plot, count = 64, 20, 14, 230, max(1, len(detail.steps) - 1)
    height = top + plot + 44

    def x(position: float) -> float:
        return left + position / count * (WIDTH - left - right)

    def y(duration: float) -> float:
        return top + plot * (1 - min(duration, high) / high)

    parts = _frame(detail, x, y, high, left, top + plot)
    above = sum(duration > high for duration in detail.durations_ms)
    for arm in (UNCOUNTED, PLAIN, STITCHED):
        dots = [point for point in points if point.arm == arm]
        inside = "".join(f"M{x(p.position):.1f} {y(p.duration):.1f}h0" for p in dots if p.duration <= high)
        outside = "".join(f"M{x(p.position) - 3:.1f} {top + 5}l3 -5l3 5z" for p in dots if p.duration > high)
        if inside:
            parts.append(
                f'<path d="{inside}" stroke="{ARM_COLOURS[arm]}" stroke-width="3" stroke-linecap="round" fill="none"/>'
            )
        if outside:
            parts.append(f'<path d="{outside}" fill="{ARM_COLOURS[arm]}"/>')
    if above:
        parts.append(
            f'<text x="{WIDTH - right}" y="{top + 18}" class="tick" text-anchor="end">'
            f"{above} iteration{'s' if above > 1 else ''} above the scale (longest {max(detail.durations_ms):,.0f} ms)</text>"
        )
    return _svg(height, "Time of each iteration, by arm", parts)


def _frame(
    detail: Detail, x: Callable[[float], float], y: Callable[[float], float], high: float, left: int, bottom: int
) -> list[str]:
    parts = [
        f'<line x1="{left}" x2="{WIDTH - 20}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" class="{"zero" if tick == 0 else "grid"}"/>'
        f'<text x="{left - 8}" y="{y(tick) + 4:.1f}" class="tick" text-anchor="end">{_number(tick)}</text>'
        for tick in ticks(0.0, high, 5)
    ]
    parts += [
        f'<text x="{x(position):.1f}" y="{bottom + 17}" class="tick" text-anchor="middle">{detail.steps[position]}</text>'
        for position in _step_ticks(detail.steps)
    ]
    parts.append(f'<text x="{(left + WIDTH - 20) / 2}" y="{bottom + 36}" class="axis" text-anchor="middle">step</text>')
    middle = (y(0) + y(high)) / 2
    parts.append(
        f'<text x="14" y="{middle}" class="axis" text-anchor="middle" transform="rotate(-90 14 {middle})">ms an iteration</text>'
    )
    return parts


def _step_ticks(steps: Sequence[int]) -> list[int]:
    """Indexes of the iterations whose steps are written below: at round numbers, where steps count up."""
    if not steps:
        return []
    if any(after <= before for before, after in itertools.pairwise(steps)):
        return sorted({round(share * (len(steps) - 1) / 6) for share in range(7)})
    found = {bisect.bisect_left(steps, tick) for tick in ticks(float(steps[0]), float(steps[-1]))}
    return sorted(position for position in found if position < len(steps))


def _svg(height: float, title: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}" '
        f'xmlns="http://www.w3.org/2000/svg"><title>{escape(title)}</title>' + "".join(parts) + "</svg>"
    )
