"""What the plugin's own thread does beside a job."""

from __future__ import annotations

import time
import types
from typing import Any

import pytest

from stitchfleet.plugin import job as module
from stitchfleet.plugin.job import Job


def test_requests_without_end_do_not_hold_up_the_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job whose shapes change asks for kernels all the time: comparisons that failed are looked at all the same."""
    monkeypatch.setattr(module, "TICK_MS", 20)
    done: list[str] = []
    job: Any = object.__new__(Job)
    job._ticked, job.programs, job.settings = 0.0, [], types.SimpleNamespace(mode="auto")
    job.kernels = types.SimpleNamespace(
        forward=lambda request: done.append("request"), look_at_mismatches=lambda: done.append("guard")
    )
    for name in ("_move_kernels", "_watch_shapes", "_read_control_file", "_watch_memory"):
        setattr(job, name, lambda: None)
    end = time.monotonic() + 0.2
    while time.monotonic() < end:
        job._tick({"signature": 1})
    assert done.count("guard") >= 2
    assert done.count("request") > done.count("guard")
