"""The workloads as they are: they run, they learn, they say what the benchmark reads, and a seed decides all."""

from __future__ import annotations

import math

import pytest

from scripts.benchmark.contestants import WORKLOADS

from .conftest import CASES, SCRIPTS, RunCase

STEPS = 24
QUICK = ("session",)


def test_every_workload_of_the_benchmark_is_under_test() -> None:
    assert {workload.script for workload in WORKLOADS.values()} == {SCRIPTS / case.script for case in CASES.values()}
    assert all(workload.script.is_file() for workload in WORKLOADS.values())


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in CASES]
)
def test_it_runs_and_logs_every_step(name: str, run_case: RunCase) -> None:
    case = CASES[name]
    run = run_case(case, STEPS)
    assert len(run.losses) == len(run.starts) == len(run.seconds) == STEPS
    assert all(math.isfinite(loss) for loss in run.losses)
    assert len(set(run.losses)) > STEPS / 2  # each step has data of its own
    ends = [start + seconds for start, seconds in zip(run.starts, run.seconds)]
    assert all(end <= start + 1e-9 for end, start in zip(ends, run.starts[1:]))  # steps do not overlap
    reported = [int(line.split()[1]) for line in run.out.splitlines() if line.startswith("step ")]
    assert reported == [0, 20, STEPS - 1]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.learns])
def test_it_learns(name: str, run_case: RunCase) -> None:
    losses = run_case(CASES[name], 200).losses
    assert sum(losses[-20:]) / 20 < 0.95 * sum(losses[:20]) / 20


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_seed_decides_all_and_another_is_another(name: str, run_case: RunCase) -> None:
    first, again, other = (run_case(CASES[name], 6, "--seed", seed).losses for seed in ("1", "1", "2"))
    assert again == pytest.approx(first, rel=1e-5)  # threads may add in another order
    assert other != pytest.approx(first, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_xla_computes_the_same(name: str, run_case: RunCase) -> None:
    case = CASES[name]
    # Dropout draws other numbers under XLA.
    drops = name in ("bert", "bert-padded", "causal", "transformer", "lengths") or name.startswith("session")
    more = ("--dropout", "0") if drops else ()
    assert run_case(case, 4, "--xla", *more).losses == pytest.approx(run_case(case, 4, *more).losses, rel=1e-3)
