"""The workloads under a whole `stitchfleet run`: they reach the stitched phase, and their losses stay what they were."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scripts.benchmark import processes
from scripts.benchmark.contestants import CONTESTANTS, Workload
from scripts.benchmark.figures import largest_difference
from scripts.benchmark.race import Limits, Outcome, Runner

from .conftest import CASES, SCRIPTS, Case, RunCase

pytestmark = pytest.mark.slow
STITCHED_STEPS = 60
"""At least; plain blocks lie between them."""
DRIFT = 1e-3
"""Largest relative difference of a loss: the guard's tolerances, summed up over the steps by training itself."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One kernel cache for all; STITCHFLEET_TEST_CACHE keeps it over sessions."""
    named = os.environ.get("STITCHFLEET_TEST_CACHE")
    return Path(named) if named else tmp_path_factory.mktemp("cache")


@pytest.fixture
def mark() -> Iterator[str]:
    mark = f"test-{os.getpid()}-{time.monotonic_ns()}/"
    yield mark
    processes.kill_all(mark)


StitchCase = Callable[[Case], Outcome]


@pytest.fixture
def stitch_case(cache: Path, mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StitchCase:
    """Runs a case under `stitchfleet run` until the opening pairs of its stitched phase are over, or it is said to stay plain."""
    monkeypatch.setenv("STITCHFLEET_BASELINE_STEPS", "5")
    # More pairs than it will live to see: whether stitching pays at these sizes is not the question here.
    monkeypatch.setenv("STITCHFLEET_PAIRS", "40")

    def run(case: Case) -> Outcome:
        workload = Workload("case", SCRIPTS / case.script, tuple(shlex.split(case.arguments)))
        runner = Runner(CONTESTANTS["stitched"], workload, mark, tmp_path)
        runner.start((), cache)
        runner.warm_up(Limits(1, 1.0, warm_up_s=800.0), print)
        runner.end()
        return runner.outcome

    return run


@pytest.mark.parametrize("name", CASES)
def test_a_stitched_workload_computes_what_the_plain_one_does(
    name: str, stitch_case: StitchCase, run_case: RunCase
) -> None:
    outcome = stitch_case(CASES[name])
    assert outcome.summary is not None
    (main,) = (program for program in outcome.summary["programs"] if program["name"] == outcome.summary["main"])
    assert main["phase"] == "stitched", outcome.note
    assert main["steps_stitched"] >= STITCHED_STEPS
    assert outcome.summary["calls"]["stitched"] > 0
    assert outcome.summary["reverts"] == []
    plain = run_case(CASES[name], len(outcome.losses))
    steps, difference = largest_difference(outcome.losses, plain.losses)
    assert steps == len(outcome.losses)
    assert difference < DRIFT
