"""The results of a race of workloads as a table in Markdown, from a file that `scripts/bench --workloads A,B --json FILE` wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .contestants import WORKLOADS
from .figures import Ratio, geometric_mean

_TITLES = (
    "plain ms",
    "XLA ms",
    "stitched ms",
    "plain / stitched (95% interval)",
    "the better of plain and XLA / stitched",
)
_EARLIER = "earlier / stitched"


def table(document: Mapping[str, Any]) -> list[str]:
    """The lines of the table of the result file `document`: a row for each workload in the order of `WORKLOADS`, medians of steps
    and their ratios, and the ratios' geometric means. A file of a race with --earlier gets a column for it."""
    earlier = document["beside_the_earlier_stitchfleet"]
    titles = (*_TITLES, _EARLIER) if earlier else _TITLES
    lines = [f"| | {' | '.join(titles)} |", f"|---|{'---|' * len(titles)}"]
    columns: list[list[Ratio]] = [[] for _ in titles[3:]]
    for name in sorted(document["workloads"], key=list(WORKLOADS).index):
        figures = {result["contestant"]: result["figures"] for result in document["workloads"][name]}
        stitched = figures["stitched"]
        ratios = [
            stitched and stitched["ratio_of_medians"],
            document["beside_the_better_of_plain_and_xla"].get(name, {}).get("by_median"),
            *([earlier.get(name, {}).get("by_median")] if earlier else []),
        ]
        found = [ratio and Ratio(**ratio) for ratio in ratios]
        for column, ratio in zip(columns, found, strict=True):
            column += [ratio] if ratio else []
        times = [_milliseconds(figures.get(contestant)) for contestant in ("plain", "xla", "stitched")]
        lines.append(f"| {' | '.join([WORKLOADS[name].title, *times, *map(_text, found)])} |")
    lines.append(
        f"| geometric mean | | | | {' | '.join(f'**{_text(geometric_mean(column))}**' for column in columns)} |"
    )
    return lines


def _milliseconds(figures: Mapping[str, Any] | None) -> str:
    if not figures:
        return "-"
    median = figures["median_ms"]
    return f"{median:.2f}" if median < 1.0 else f"{median:.1f}"


def _text(ratio: Ratio | None) -> str:
    return f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})" if ratio else "-"
