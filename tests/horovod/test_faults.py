"""Faults of one rank: no hang, the same weights on all ranks, losses as in the plain job, and one line that says what happened."""

from __future__ import annotations

import pathlib
import subprocess
import time
from typing import Any

import numpy as np
import pytest

from ..broken_kernels import broken_kernels
from .conftest import Ranks, RunRanks
from .test_two_ranks import SECONDS, STEPS, training

pytestmark = pytest.mark.slow


def check_numbers(plain: Ranks, done: Ranks, same_weights: bool = True) -> None:
    assert done.code == 0, done.err
    if same_weights:
        assert done.results[0]["weights"] == done.results[1]["weights"]
    assert len(done.results) == len(plain.results) == 2
    for result, beside in zip(done.results, plain.results):
        np.testing.assert_allclose(result["losses"], beside["losses"], rtol=1e-3, atol=1e-6)


def check_all_plain(plain: Ranks, done: Ranks, words: str) -> None:
    """Nothing ran stitched: the very bits of the plain job."""
    check_numbers(plain, done)
    assert [result["weights"] for result in done.results] == [result["weights"] for result in plain.results]
    assert all(summary["calls"]["stitched"] == 0 for summary in done.of_ranks)
    said = [line for line in done.err.splitlines() if words in line]
    assert len(said) == 1, done.err


def reason(summary: dict[str, Any]) -> str:
    return str(training(summary)["reason"])


_plain: list[Ranks] = []


@pytest.fixture
def plain(run_ranks: RunRanks) -> Ranks:
    """Of all tests of the module: it runs once in each of the test runner's processes."""
    if not _plain:
        _plain.append(run_ranks("tape", STEPS, how="plain"))
    return _plain[0]


def test_a_rank_without_a_compiler(
    run_ranks: RunRanks, plain: Ranks, no_kernels: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    without = {"PATH": str(tmp_path), "CXX": "", "STITCHFLEET_CACHE": str(no_kernels)}
    done = run_ranks("tape", STEPS, SECONDS, on_rank_1=without)
    check_all_plain(plain, done, "train runs plain on all 2 ranks: rank 1: no kernel could be made")


def test_a_rank_whose_kernels_are_wrong(run_ranks: RunRanks, plain: Ranks, no_kernels: pathlib.Path) -> None:
    wrong = {"STITCHFLEET_CACHE": str(no_kernels)}
    wrong |= {"STITCHFLEET_TEST_BREAK": "add_one_output", "STITCHFLEET_TEST_SKIP_CHECK": "1"}
    done = run_ranks("tape", STEPS, SECONDS, on_rank_1=wrong)
    check_all_plain(plain, done, "train runs plain on all 2 ranks: rank 1: no kernel passed verification")
    assert done.of_ranks[1]["reverts"]
    assert not done.of_ranks[0]["reverts"]


def test_a_kernel_that_turns_out_wrong_on_one_rank(run_ranks: RunRanks) -> None:
    """In the stitched phase, by a number that rank 1 alone has. Each step is compared, so that no wrong value is ever used."""
    steps, rare = 4 * STEPS, {"RARE": "600"}
    plain = run_ranks("tape", steps, how="plain", environment=rare)
    broken = {broken_kernels.BREAK: "rare", broken_kernels.UNCHECKED: "1"}
    done = run_ranks("tape", steps, SECONDS, environment={**rare, **broken, "STITCHFLEET_SAMPLE_STRIDE": "1"})
    # Between its finding and the agreed step rank 1 has TensorFlow's operators where rank 0 has kernels.
    check_numbers(plain, done, same_weights=False)
    assert [bool(summary["reverts"]) for summary in done.of_ranks] == [False, True]
    for summary in done.of_ranks:
        found = training(summary)
        assert found["phase"] == "plain", done.err
        assert found["stitched_from_step"] < 600
        assert found["steps_stitched"] > 100
    assert len({training(summary)["stitched_from_step"] for summary in done.of_ranks}) == 1
    said = [line for line in done.err.splitlines() if "rank 1" in line and "plain" in line]
    assert len(said) == 1, done.err


def test_a_rank_that_is_slow_to_compile_is_waited_for(
    run_ranks: RunRanks, plain: Ranks, no_kernels: pathlib.Path
) -> None:
    done = run_ranks("tape", STEPS, SECONDS, on_rank_1={"STITCHFLEET_CACHE": str(no_kernels)})
    check_numbers(plain, done)
    first = {training(summary)["stitched_from_step"] for summary in done.of_ranks}
    assert len(first) == 1
    assert first != {None}


@pytest.mark.parametrize("step", [3, 13, 30, 200, STEPS - 100])
def test_a_rank_that_is_killed_ends_the_job(run_ranks: RunRanks, step: int) -> None:
    """In the compile phase, after it, before the agreement, about it, and stitched."""
    began = time.monotonic()
    done = run_ranks("tape", STEPS, 10.0, environment={"FAULT": f"kill {step}"}, timeout=120)
    assert done.code != 0
    assert time.monotonic() - began < 100


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("step", [13, 100, STEPS - 100])
def test_a_rank_that_is_stopped_for_a_while(run_ranks: RunRanks, plain: Ranks, rank: int, step: int) -> None:
    """For longer than a step may wait for the store."""
    done = run_ranks("tape", STEPS, SECONDS, environment={"FAULT": f"stop {step}", "FAULT_RANK": str(rank)})
    check_numbers(plain, done)
    assert len({training(summary)["stitched_from_step"] for summary in done.of_ranks}) == 1


def test_a_store_that_refuses(run_ranks: RunRanks, plain: Ranks) -> None:
    done = run_ranks("tape", 4 * STEPS, SECONDS, on_rank_1={"STORE": "refuses"})
    assert done.results[0]["weights"] == done.results[1]["weights"]
    assert done.code == 0
    assert all(summary["calls"]["stitched"] == 0 for summary in done.of_ranks)
    said = [line for line in done.err.splitlines() if "rank 1 runs without stitchfleet, or cannot reach" in line]
    assert len(said) == 1, done.err


def test_a_store_that_is_late(run_ranks: RunRanks, plain: Ranks) -> None:
    done = run_ranks("tape", STEPS, SECONDS, on_rank_1={"STORE": "late"})
    check_numbers(plain, done)
    assert len({training(summary)["stitched_from_step"] for summary in done.of_ranks}) == 1


def test_a_store_that_falls_silent_at_the_worst_moment(run_ranks: RunRanks, plain: Ranks) -> None:
    """Rank 1 has promised to wait for rank 0's word and never reads it: the arms differ from the agreed step on, and the numbers
    are right all the same, since both arms run the same collectives."""
    done = run_ranks("tape", STEPS, SECONDS, on_rank_1={"STORE": "silent"})
    check_numbers(plain, done, same_weights=False)
    stitched = [training(summary)["steps_stitched"] for summary in done.of_ranks]
    assert stitched[0] > 100
    assert stitched[1] < 100
    said = [line for line in done.err.splitlines() if "rank 1: the rendezvous store has not answered" in line]
    assert len(said) == 1, done.err


def test_a_rank_that_is_not_injected(run_ranks: RunRanks, plain: Ranks) -> None:
    done = run_ranks("tape", 4 * STEPS, SECONDS, on_rank_1={"STITCHFLEET_ENABLED": "0"})
    assert done.code == 0
    assert done.results[0]["weights"] == done.results[1]["weights"]
    assert done.summary["calls"]["stitched"] == 0
    said = [line for line in done.err.splitlines() if "rank 1 runs without stitchfleet" in line]
    assert len(said) == 1, done.err


def test_a_rank_of_another_version(run_ranks: RunRanks, plain: Ranks, tmp_path: pathlib.Path) -> None:
    other = tmp_path / "other" / "stitchfleet-9.9.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: stitchfleet\nVersion: 9.9\n")
    done = run_ranks("tape", STEPS, SECONDS, on_rank_1={"PYTHONPATH+": str(other.parent)})
    check_all_plain(plain, done, "train runs plain on all 2 ranks: rank 1 differs from rank 0 in stitchfleet")


def test_ranks_on_processors_that_differ(run_ranks: RunRanks, plain: Ranks, no_kernels: pathlib.Path) -> None:
    """The kernels' keys differ, as they do if one host's processor has other instructions: each rank's kernels are right."""
    done = run_ranks(
        "tape",
        STEPS,
        SECONDS,
        on_rank_1={"STITCHFLEET_TEST_SKIP_CHECK": "1"},
        with_cache=no_kernels,
    )
    check_all_plain(plain, done, "train runs plain on all 2 ranks: no kernel is the same on all ranks")


def test_a_rank_whose_cache_is_on_a_full_disk(run_ranks: RunRanks, plain: Ranks, no_kernels: pathlib.Path) -> None:
    tried = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", str(no_kernels)]
    if subprocess.run(tried, capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    full = {"STITCHFLEET_CACHE": str(no_kernels), "DISK": f"{no_kernels}:2"}
    done = run_ranks("tape", STEPS, SECONDS, on_rank_1=full)
    check_all_plain(plain, done, "train runs plain on all 2 ranks: rank 1: no kernel could be made")


@pytest.mark.parametrize("script", ["tape", "fit", "monitored"])
def test_four_ranks(run_ranks: RunRanks, script: str) -> None:
    beside = run_ranks(script, STEPS, how="plain", ranks=4)
    done = run_ranks(script, STEPS, SECONDS, ranks=4)
    assert done.code == 0, done.err
    assert len({result["weights"] for result in done.results}) == 1
    for result, other in zip(done.results, beside.results):
        np.testing.assert_allclose(result["losses"], other["losses"], rtol=1e-3, atol=1e-6)
    stitched = {training(summary)["steps_stitched"] for summary in done.of_ranks}
    assert len(done.of_ranks) == 4
    assert min(stitched) > 0


def test_bert_on_four_ranks(run_ranks: RunRanks) -> None:
    """The benchmark's BERT, 200 steps of it with kernels that are there when it starts."""
    beside = run_ranks("bert", 200, how="plain", ranks=4, timeout=3000)
    done = run_ranks("bert", 200, 600.0, ranks=4, timeout=3000, environment={"STITCHFLEET_TEST_RANKS_TIME": "1"})
    assert done.code == 0, done.err
    assert [result["rank"] for result in done.results] == [0, 1, 2, 3]
    assert len({result["weights"] for result in beside.results}) == 1
    assert len({result["weights"] for result in done.results}) == 1
    for result, other in zip(done.results, beside.results):
        assert len(result["losses"]) == 200
        np.testing.assert_allclose(result["losses"], other["losses"], rtol=1e-3)
    assert len({training(summary)["stitched_from_step"] for summary in done.of_ranks}) == 1
    for summary in done.of_ranks:
        _check_that_all_is_stitched_from_the_agreed_step_on(summary)


def _check_that_all_is_stitched_from_the_agreed_step_on(summary: dict[str, Any]) -> None:
    """One op that still ran TensorFlow's operators in the hundred stitched steps would exceed the calls of the steps before them."""
    found, calls = training(summary), summary["calls"]
    assert found["stitched_from_step"] < 40
    assert found["steps_stitched"] > 100
    before = calls["fallback"] + calls["verify"]
    assert before <= (found["stitched_from_step"] + 2) * calls["stitched"] / found["steps_stitched"], (found, calls)


def test_ranks_that_join_are_plain_from_there_on(run_ranks: RunRanks) -> None:
    """hvd.join with uneven data: no number of a step is common to them any more."""
    beside = run_ranks("uneven", STEPS, how="plain")
    done = run_ranks("uneven", STEPS, SECONDS)
    check_numbers(beside, done)
    for summary in done.of_ranks:
        assert training(summary)["steps_stitched"] > 100
        assert training(summary)["phase"] == "plain"
        assert "hvd.join" in reason(summary)
