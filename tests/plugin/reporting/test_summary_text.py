"""The text of a summary."""

from __future__ import annotations

from typing import Any

from stitchfleet.plugin.reporting.summary_text import MOST_LISTED, describe


def program(name: str, total_ms: float) -> dict[str, Any]:
    return {
        "name": name,
        "steps": 4,
        "steps_stitched": 0,
        "phase": "warm-up",
        "reason": "",
        "total_ms": total_ms,
        "phases": {},
        "saving": None,
    }


def test_of_very_many_functions_those_with_the_most_time_are_listed_in_order() -> None:
    programs = [program(f"f_{number}", float(number % 100)) for number in range(400)]
    summary = {
        "run_id": "0" * 32,
        "health": "good",
        "main": "f_99",
        "training_functions": [each["name"] for each in programs],
        "programs": programs,
        "calls": {"stitched": 0, "verify": 0, "fallback": 0},
        "clusters": [],
        "reverts": [],
        "records": {"lost": 0},
    }
    lines = describe(summary)
    listed = [line.split(":")[0].strip() for line in lines if "4 steps" in line]
    assert listed == [
        "f_97",
        "f_98",
        "f_99",
        "f_197",
        "f_198",
        "f_199",
        "f_297",
        "f_298",
        "f_299",
        "f_397",
        "f_398",
        "f_399",
    ]
    assert sum("saving: unmeasured" in line for line in lines) == MOST_LISTED + 1
    assert f"  and {400 - MOST_LISTED} more training functions of less time (in the summary file)" in lines
    assert len(lines) < 40
