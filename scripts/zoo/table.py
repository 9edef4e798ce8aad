"""The zoo's results as lines of Markdown, from the file that `scripts/bench --zoo --json FILE` writes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from .catalog import MODELS

HEADER = (
    "| job | step, plain | over plain | over the better of plain and XLA | memory-intensive time in stitch ops | kernels | "
    "largest error of a kernel | reverted | stitched after | memory beside plain |",
    "|---|---|---|---|---|---|---|---|---|---|",
)


def rows(document: Mapping[str, Any]) -> Iterator[str]:
    """A row for each job of the result file `document`."""
    for name, results in document["workloads"].items():
        found = {result["contestant"]: result for result in results}
        plain, stitched = found["plain"], found.get("stitched")
        model = MODELS.get(name)
        title = f"{name} ({model.package}, {model.author})" if model else name
        if plain["failure"] or stitched is None or stitched["failure"]:
            reason = plain["failure"] or (stitched or {}).get("failure") or "not run"
            yield f"| {title} | did not run: {reason} |" + " |" * 8
            continue
        best = document["beside_the_better_of_plain_and_xla"].get(name)
        coverage = document["coverage"].get(name)
        over = stitched["figures"]["ratio_of_wall"] if stitched["figures"] else None
        summary = stitched["summary"]
        kernels = [each for cluster in summary["clusters"] for each in cluster["executables"]] if summary else []
        used = [each for each in kernels if each["calls"]["stitched"]]
        error = max((each["error_over_tolerance"] for each in used), default=math.nan)
        after = [p["stitched_after_seconds"] for p in summary["programs"] if p["name"] == summary["main"]]
        yield " | ".join(
            [
                f"| {title}",
                f"{plain['figures']['wall_ms']:.4g} ms" if plain["figures"] else "-",
                _ratio(over),
                f"{_ratio(best['by_wall'])}, {best['name']}" if best else "-",
                f"{coverage['share']:.0%}" if coverage else "-",
                f"{len(used)}",
                f"{error:.2f} of its bound" if used else "-",
                f"{len(summary['reverts'])}" if summary else "-",
                f"{after[0]:.0f} s" if after and after[0] else stitched["note"] or "-",
                f"{(stitched['peak_bytes'] - plain['peak_bytes']) / 2**20:+.0f} MiB |",
            ]
        )


def table(document: Mapping[str, Any]) -> list[str]:
    """The lines of the table."""
    return [*HEADER, *rows(document)]


def _ratio(ratio: Mapping[str, float] | None) -> str:
    return f"{ratio['value']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})" if ratio else "-"
