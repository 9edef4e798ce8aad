"""The webhook's benchmark: what it counts, and when it is content."""

from __future__ import annotations

import json
import pathlib

import pytest

from scripts.benchmark import admissions
from scripts.benchmark.admissions import Figures


def test_every_review_is_answered_and_injected() -> None:
    steady, burst = admissions.measure(50.0, 0.5, 20)
    assert (steady.sent, steady.injected, burst.sent, burst.injected) == (25, 25, 20, 20)
    assert 0 < steady.median_ms <= steady.p99_ms <= steady.most_ms


@pytest.mark.parametrize(("p99", "injected", "code"), [(49.0, 10, 0), (51.0, 10, 1), (1.0, 9, 1)])
def test_it_fails_where_the_bound_is_missed_or_a_pod_is_not_injected(
    p99: float, injected: int, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    figures = Figures("some", 10, injected, 1.0, p99, 60.0, 1.0, 50.0)
    monkeypatch.setattr(admissions, "measure", lambda *_: [figures, figures])
    assert admissions.main(["--json", str(tmp_path / "out.json")]) == code
    assert len(json.loads((tmp_path / "out.json").read_text())) == 2
