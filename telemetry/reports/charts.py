"""The page's charts, drawn by matplotlib and written as inline SVG: savings, the trend, coverage, iterations.

Text stays text, in whatever font the reader's browser has; nothing is loaded from elsewhere. Names that users chose are drawn
literally, never as mathematical markup.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ..pod.recording import PLAIN, STITCHED, UNCOUNTED
from .thinning import Curve, edge

WIDTH = 5.4
"""Width in inches of 72 SVG points: small enough that the text is readable on a phone that shows the chart as wide as its screen."""
PLAIN_COLOUR, STITCHED_COLOUR, UNCOUNTED_COLOUR, LOSS_COLOUR = "#4a6fa5", "#1a936f", "#b8bec7", "#c1443c"
ARM_COLOURS = {PLAIN: PLAIN_COLOUR, STITCHED: STITCHED_COLOUR, UNCOUNTED: UNCOUNTED_COLOUR}
INK, QUIET, GRID = "#1d2530", "#5a6675", "#e6e9ee"
MAX_LABEL = 28

_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "DejaVu Sans",  # matplotlib includes it, so that widths are known; the page shows its own font
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": QUIET,
    "axes.edgecolor": "#8a94a3",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "grid.color": GRID,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "legend.frameon": False,
}
_GROUP_ID = re.compile(r'<g id="[^"]*"')


def _svg(figure: Figure, title: str, salt: str) -> str:
    """The figure as an <svg> element. `salt` makes the ids of its clip paths unique on a page of several charts."""
    out = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": salt}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # the browser has its own fonts
        # not savefig, which draws everything twice
        canvas: Any = FigureCanvasSVG(figure)
        canvas.print_svg(out, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    text = out.getvalue()
    text = _GROUP_ID.sub("<g", text[text.index("<svg") :])
    return text.replace("<svg", f'<svg role="img" aria-label="{escape(title)}"', 1)


def _figure(height: float, layout: str = "tight") -> tuple[Figure, Axes]:
    """A figure of `height` inches with its axes. layout: "constrained" if it has a legend beside its axes, which takes twice as
    long."""
    figure = Figure(figsize=(WIDTH, height), layout=layout)  # type: ignore[arg-type]
    figure.patch.set_visible(False)
    axes = figure.add_subplot()
    axes.patch.set_visible(False)
    return figure, axes


def label(text: str) -> str:
    """A name that users chose, on one line and at most MAX_LABEL characters long."""
    shown = "".join(sign if sign.isprintable() else "�" for sign in text)
    return shown if len(shown) <= MAX_LABEL else shown[: MAX_LABEL - 1] + "…"


def _number(value: float, _position: object = None) -> str:
    return f"{value:,.4g}".replace("-", "−")


@dataclass(frozen=True)
class Bar:
    """An estimate with its 95% interval. All bars of a chart have the same unit."""

    label: str
    value: float
    low: float
    high: float


def savings_chart(bars: Sequence[Bar], unit: str, salt: str) -> str:
    """A forest plot, as SVG: a dot for each estimate, a line for its 95% interval, zero marked. Right of zero is time saved.
    unit: name of the values' unit. salt: differs between the charts of a page."""
    with mpl.rc_context(_SETTINGS):
        figure, axes = _figure(0.65 + 0.23 * len(bars))
        colours = [LOSS_COLOUR if b.high < 0 else STITCHED_COLOUR if b.low > 0 else PLAIN_COLOUR for b in bars]
        places = range(len(bars))
        axes.hlines(places, [bar.low for bar in bars], [bar.high for bar in bars], colors=colours, linewidth=2)
        axes.scatter([bar.value for bar in bars], places, s=40, c=colours, zorder=2)
        axes.axvline(0.0, color=QUIET, linewidth=0.9, zorder=1)
        axes.set_yticks(places, [label(bar.label) for bar in bars])
        axes.set_ylim(len(bars) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.spines["left"].set_visible(False)
        _count_axis(axes, "x")
        axes.set_xlabel(f"{unit} saved, with 95% interval")
        return _svg(figure, f"{unit} saved, with 95% intervals", salt)


def _count_axis(axes: Axes, which: str) -> None:
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(FuncFormatter(_number))
    axes.grid(axis="x" if which == "x" else "y")


@dataclass(frozen=True)
class TrendPoint:
    """A week's total with its 95% interval. value: None if nothing was measured in the week."""

    label: str
    value: float | None
    low: float
    high: float
    is_open: bool
    """Whether its figures can still change: the week is not over, or not frozen."""


def trend_chart(points: Sequence[TrendPoint], unit: str, salt: str) -> str:
    """The saving of each week with its interval, as SVG; hollow dots are weeks whose figures can still change. unit, salt: as in
    `savings_chart`."""
    with mpl.rc_context(_SETTINGS):
        figure, axes = _figure(2.1)
        shown = [(place, point) for place, point in enumerate(points) if point.value is not None]
        dots = ([place for place, _ in shown], [p.value or 0.0 for _, p in shown])
        axes.plot(*dots, color=STITCHED_COLOUR, linewidth=1)
        edges = ([p.low for _, p in shown], [p.high for _, p in shown])
        axes.vlines(dots[0], *edges, colors=STITCHED_COLOUR, linewidth=2)
        faces = ["white" if point.is_open else STITCHED_COLOUR for _, point in shown]
        axes.scatter(*dots, s=36, c=faces, edgecolors=STITCHED_COLOUR, zorder=2)
        axes.axhline(0.0, color=QUIET, linewidth=0.9, zorder=1)
        every = -(-len(points) // 6)
        places = range((len(points) - 1) % every, len(points), every)  # the last week always has a label
        axes.set_xticks(places, [points[place].label for place in places])
        axes.set_xlim(-0.6, len(points) - 0.4)
        _count_axis(axes, "y")
        axes.set_ylabel(f"{unit} saved")
        return _svg(figure, f"{unit} saved in each week, with 95% intervals", salt)


def coverage_chart(lines: Sequence[tuple[str, int, int, int]], salt: str) -> str:
    """Numbers of jobs as bars of shares, as SVG. lines: (unit, measured, unmeasured, not stitched). salt: as in `savings_chart`."""
    parts = (("measured", STITCHED_COLOUR), ("unmeasured", "#e0b050"), ("not stitched", UNCOUNTED_COLOUR))
    with mpl.rc_context(_SETTINGS):
        figure, axes = _figure(0.75 + 0.28 * len(lines), "constrained")
        for place, (_, *counts) in enumerate(lines):
            left, whole = 0.0, max(1, sum(counts))
            for count, (name, colour) in zip(counts, parts, strict=True):
                share = count / whole
                axes.barh(place, share, left=left, height=0.62, color=colour, label=name if place == 0 else None)
                if share > 0.06:
                    ink = "white" if name == "measured" else INK
                    axes.text(left + share / 2, place, f"{count:,}", ha="center", va="center", color=ink)
                left += share
        axes.set_yticks(range(len(lines)), [name for name, *_ in lines])
        axes.invert_yaxis()
        axes.set_xlim(0, 1)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}"))
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        for side in ("left", "bottom"):
            axes.spines[side].set_visible(False)
        figure.legend(loc="outside upper left", ncols=len(parts))
        return _svg(figure, "Jobs that were measured, unmeasured and not stitched", salt)


def iterations_chart(curve: Curve, salt: str) -> str:
    """Milliseconds of each iteration over the steps, coloured by arm, as SVG. Iterations above the scale are marked at its top.
    salt: as in `savings_chart`."""
    points = curve.points
    counted = sorted(point.duration for point in points if point.arm != UNCOUNTED) or sorted(p.duration for p in points)
    # the first step of a job can be a thousand times as long as the others
    high = 1.25 * counted[min(len(counted) - 1, int(0.985 * len(counted)))] if counted else 1.0
    high = edge(high) if high > 0 else 1.0
    with mpl.rc_context(_SETTINGS):
        figure, axes = _figure(2.2)
        for arm in (UNCOUNTED, PLAIN, STITCHED):
            inside = [point for point in points if point.arm == arm and point.duration <= high]
            outside = [point for point in points if point.arm == arm and point.duration > high]
            drawn: dict[str, Any] = {"linestyle": "none", "color": ARM_COLOURS[arm], "clip_on": False}
            axes.plot([p.position for p in inside], [p.duration for p in inside], marker=".", markersize=3.5, **drawn)
            axes.plot([p.position for p in outside], [high] * len(outside), marker="^", markersize=5, **drawn)
        above = curve.above(high)
        if above:
            said = f"{above:,} iteration{'s' if above > 1 else ''} above the scale (longest {curve.longest_ms:,.0f} ms)"
            axes.set_title(said, loc="right", fontsize=8, color=QUIET)
        axes.set_xlim(-0.5, max(1, curve.count) - 0.5)
        axes.set_ylim(0.0, high)
        _count_axis(axes, "y")
        axes.set_xticks([position for position, _ in curve.places], [f"{step:,}" for _, step in curve.places])
        axes.set_xlabel("step")
        axes.set_ylabel("ms per iteration")
        return _svg(figure, "Time of each iteration, by arm", salt)


def round_steps(first: int, last: int) -> list[int]:
    """Some round numbers from `first` to `last`, ascending, for the labels of an axis."""
    return [int(tick) for tick in MaxNLocator(6, integer=True).tick_values(first, last) if first <= tick <= last]
