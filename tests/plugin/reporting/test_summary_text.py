"""The text of a summary."""

from __future__ import annotations

from typing import Any

import pytest

from stitchfleet.plugin.reporting.summary_text import MOST_LISTED, describe, unmeasured_line


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


@pytest.mark.parametrize(
    ("phase", "reason", "words"),
    [
        ("warm-up", "", "the job ended in its first steps"),
        ("warm-up", "not tried yet: it is one of many", "not tried yet: it is one of many"),
        ("plain", "no operators to stitch in its graph", "no operators to stitch in its graph"),
        ("stitched", "", "too few pairs of plain and stitched blocks"),
    ],
)
def test_a_saving_that_was_not_measured_has_the_functions_own_reason(phase: str, reason: str, words: str) -> None:
    assert unmeasured_line({**program("train", 1.0), "phase": phase, "reason": reason}) == f"unmeasured ({words})"


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
