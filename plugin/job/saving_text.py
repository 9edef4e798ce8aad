"""A measured saving, as facts for a summary and as a line for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stitchfleet.telemetry.statistics.savings import Saving


def saving_facts(saving: Saving | None) -> dict[str, Any] | None:
    """The facts of a saving; None if there is none (unmeasured)."""
    if saving is None:
        return None
    return {
        "pairs": saving.pairs,
        "plain_ms": saving.plain_ns / 1e6,
        "stitched_ms": saving.stitched_ns / 1e6,
        "ratio": saving.plain_ns / saving.stitched_ns,
        "relative": saving.relative,
        "low": saving.low,
        "high": saving.high,
    }


def saving_line(saving: Mapping[str, Any] | None, what: str) -> str:
    """A line: a saving, given by its facts, with its 95% interval; "" if nothing was measured. what: the thing timed, as the
    subject of the sentence."""
    if saving is None:
        return ""
    return (
        f"{what} took {saving['plain_ms']:.2f} ms plain and {saving['stitched_ms']:.2f} ms stitched: "
        f"{saving['ratio']:.3f}x, saving {saving['relative']:+.1%} "
        f"(95% interval {saving['low']:+.1%} to {saving['high']:+.1%}, {saving['pairs']} pairs of blocks)"
    )
