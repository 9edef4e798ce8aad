"""The workloads under a whole `stitchfleet run`: they reach the stitched phase, and their losses stay what they were."""

from __future__ import annotations

import os
import shlex
import signal
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
COMPARED_STEPS = 120
"""From the first loss that is not the plain one's bit for bit, that is, from where kernels run. Many more cannot be compared: one
unit in the last place of the learning rate alone changes the session's losses by 1% after 400 steps."""
DRIFT = 1e-3
"""Largest relative difference of a loss: the guard's tolerances, summed up over the steps by training itself."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One kernel cache for all; STITCHFLEET_TEST_CACHE keeps it over sessions."""
    named = os.environ.get("STITCHFLEET_TEST_CACHE")
    return Path(named) / "kernels" if named else tmp_path_factory.mktemp("cache")


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
    # More and longer pairs than it will live to see: whether stitching pays at these sizes is not the question here.
    monkeypatch.setenv("STITCHFLEET_PAIRS", "40")
    monkeypatch.setenv("STITCHFLEET_BLOCK_STEPS", "40")

    def run(case: Case) -> Outcome:
        workload = Workload("case", SCRIPTS / case.script, tuple(shlex.split(case.arguments)))
        runner = Runner(CONTESTANTS["stitched"], workload, mark, tmp_path)
        runner.start((), cache)
        _until(lambda: runner.last_step >= 20, runner)
        deadline = time.monotonic() + 3600.0
        while "stitched from step" not in runner.output:
            assert time.monotonic() < deadline, runner.output[-2000:]
            wait_for_the_compiler(runner, mark)
            last = runner.last_step
            _until(lambda last=last: runner.last_step > last, runner)
        stitched_from = int(runner.output.partition("stitched from step")[2].split()[0])
        _until(lambda: runner.last_step >= stitched_from + 2 * COMPARED_STEPS, runner)
        runner.warm_up(Limits(1, 1.0, warm_up_s=300.0), print)
        runner.thaw()
        runner.end()
        return runner.outcome

    return run


def wait_for_the_compiler(runner: Runner, mark: str) -> None:
    """Stops the training process while its helpers are at work, so that it is stitched after some hundred steps, not thousands."""
    trainer = runner.trainer()
    time.sleep(1.0)
    processes.send(trainer, signal.SIGSTOP)
    quiet, used = 0, -1.0
    deadline = time.monotonic() + 1800.0
    while quiet < 3 and time.monotonic() < deadline:
        time.sleep(1.0)
        now = processes.cpu_seconds(mark)
        quiet = quiet + 1 if now - used < 0.1 else 0
        used = now
    processes.send(trainer, signal.SIGCONT)


def _until(condition: Callable[[], bool], runner: Runner, limit_s: float = 1800.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        runner.check_alive()
        assert time.monotonic() < deadline, runner.output[-2000:]
        time.sleep(0.1)


@pytest.mark.parametrize("name", CASES)
def test_a_stitched_workload_computes_what_the_plain_one_does(
    name: str, stitch_case: StitchCase, run_case: RunCase
) -> None:
    outcome = stitch_case(CASES[name])
    assert outcome.summary is not None
    (main,) = (program for program in outcome.summary["programs"] if program["name"] == outcome.summary["main"])
    assert main["phase"] == "stitched", outcome.note
    assert outcome.summary["calls"]["stitched"] > 0
    assert outcome.summary["reverts"] == []
    plain = run_case(CASES[name], len(outcome.losses)).losses
    first = next((k for k, (ours, theirs) in enumerate(zip(outcome.losses, plain)) if ours != theirs), 0)
    last = min(first + COMPARED_STEPS, len(plain))
    assert main["steps_stitched"] >= COMPARED_STEPS
    steps, difference = largest_difference(outcome.losses[:last], plain[:last])
    assert steps == last
    assert difference < DRIFT, f"kernels run from step {first} on, stitched {main['steps_stitched']}"
