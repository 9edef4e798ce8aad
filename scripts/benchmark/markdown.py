"""The results of a race of workloads as a table in Markdown, from a file that `scripts/bench --workloads A,B --json FILE` wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .contestants import WORKLOADS
from .figures import Ratio, geometric_mean

_NAMES = {"plain": "plain", "xla": "XLA", "stitched": "stitched"}


def table(document: Mapping[str, Any]) -> list[str]:
    """The lines of the table of the result file `document`: a row for each workload in the order of `WORKLOADS`, medians of steps
    and their ratios, and the ratios' geometric means. XLA and an earlier checkout have columns if they were in the race."""
    workloads = {
        name: {result["contestant"]: result["figures"] for result in document["workloads"][name]}
        for name in sorted(document["workloads"], key=list(WORKLOADS).index)
    }
    contestants = (
        ["plain", "xla", "stitched"] if any("xla" in each for each in workloads.values()) else ["plain", "stitched"]
    )
    ratios = {
        "plain / stitched (95% interval)": {
            name: (each["stitched"] or {}).get("ratio_of_medians") for name, each in workloads.items()
        }
    }
    beside = (
        {"the better of plain and XLA / stitched": "beside_the_better_of_plain_and_xla"} if "xla" in contestants else {}
    )
    if document["beside_the_earlier_stitchfleet"]:
        beside["earlier / stitched"] = "beside_the_earlier_stitchfleet"
    for title, key in beside.items():
        ratios[title] = {name: found["by_median"] for name, found in document[key].items()}
    titles = [*(f"{_NAMES[contestant]} ms" for contestant in contestants), *ratios]
    lines = [f"| | {' | '.join(titles)} |", f"|---|{'---|' * len(titles)}"]
    for name, figures in workloads.items():
        times = [_milliseconds(figures.get(contestant)) for contestant in contestants]
        found = [_text(_ratio(column.get(name))) for column in ratios.values()]
        lines.append(f"| {' | '.join([WORKLOADS[name].title, *times, *found])} |")
    means = [
        geometric_mean([ratio for each in column.values() if (ratio := _ratio(each))]) for column in ratios.values()
    ]
    lines.append(f"| geometric mean |{' |' * len(contestants)} {' | '.join(f'**{_text(mean)}**' for mean in means)} |")
    return lines


def _ratio(found: Mapping[str, Any] | None) -> Ratio | None:
    return Ratio(**found) if found else None


def _milliseconds(figures: Mapping[str, Any] | None) -> str:
    if not figures:
        return "-"
    median = figures["median_ms"]
    return f"{median:.2f}" if median < 1.0 else f"{median:.1f}"


def _text(ratio: Ratio | None) -> str:
    return f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})" if ratio else "-"
