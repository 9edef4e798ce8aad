"""Jobs under Open MPI's mpirun, which gives its ranks no store: they agree as others do, over one that rank 0 keeps."""

from __future__ import annotations

import pathlib

import pytest

from .conftest import RunRanks
from .test_faults import check_all_plain, check_numbers
from .test_two_ranks import SECONDS, STEPS, check_two_ranks, training

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("script", ["tape", "fit", "monitored"])
@pytest.mark.parametrize("how", ["around", "within"])
def test_each_way_to_train_and_to_start(run_ranks: RunRanks, script: str, how: str) -> None:
    plain = run_ranks(script, STEPS, how="plain", mpi=True)
    done = run_ranks(script, STEPS, SECONDS, how=how, mpi=True)
    check_two_ranks(plain, done)
    assert len({training(summary)["stitched_from_step"] for summary in done.of_ranks}) == 1


def test_a_rank_that_is_not_injected(run_ranks: RunRanks) -> None:
    """The message that rank 1 does not receive holds nobody up, and all ranks are plain."""
    plain = run_ranks("tape", 4 * STEPS, how="plain", mpi=True)
    done = run_ranks("tape", 4 * STEPS, SECONDS, on_rank_1={"STITCHFLEET_ENABLED": "0"}, mpi=True)
    assert done.code == 0, done.err
    assert [result["weights"] for result in done.results] == [result["weights"] for result in plain.results]
    assert done.summary["calls"]["stitched"] == 0
    said = [line for line in done.err.splitlines() if "rank 1 runs without stitchfleet" in line]
    assert len(said) == 1, done.err


def test_a_rank_without_a_compiler(run_ranks: RunRanks, no_kernels: pathlib.Path, tmp_path: pathlib.Path) -> None:
    plain = run_ranks("tape", STEPS, how="plain", mpi=True)
    without = {"PATH": str(tmp_path), "CXX": "", "STITCHFLEET_CACHE": str(no_kernels)}
    done = run_ranks("tape", STEPS, SECONDS, on_rank_1=without, mpi=True)
    check_all_plain(plain, done, "train runs plain on all 2 ranks: rank 1: no kernel could be made")


def test_ranks_whose_mpi_has_one_thread_switch_each_at_a_step_of_its_own(run_ranks: RunRanks) -> None:
    """No function of MPI may be called beside Horovod's thread then."""
    one_thread = {"HOROVOD_MPI_THREADS_DISABLE": "1"}
    plain = run_ranks("tape", STEPS, how="plain", mpi=True, environment=one_thread)
    done = run_ranks("tape", STEPS, SECONDS, mpi=True, environment=one_thread)
    check_numbers(plain, done, same_weights=False)
    assert all(training(summary)["steps_stitched"] > 100 for summary in done.of_ranks)
    said = [line for line in done.err.splitlines() if "MPI is initialized without MPI_THREAD_MULTIPLE" in line]
    assert len(said) == 1, done.err


def test_jobs_that_mpirun_starts_together_without_horovod_are_jobs_of_their_own(run_ranks: RunRanks) -> None:
    plain = run_ranks("alone", STEPS, how="plain", mpi=True)
    done = run_ranks("alone", STEPS, SECONDS, mpi=True)
    check_numbers(plain, done, same_weights=False)
    assert all(training(summary)["steps_stitched"] > 100 for summary in done.of_ranks)


def test_a_job_that_shuts_horovod_down_trains_on(run_ranks: RunRanks) -> None:
    """MPI has ended then: no function of it is called any more."""
    shuts_down = {"SHUTS_DOWN": "1"}
    plain = run_ranks("alone", STEPS, how="plain", mpi=True, environment=shuts_down)
    done = run_ranks("alone", STEPS, SECONDS, mpi=True, environment=shuts_down)
    check_numbers(plain, done, same_weights=False)


def test_four_ranks(run_ranks: RunRanks) -> None:
    plain = run_ranks("tape", STEPS, how="plain", ranks=4, mpi=True)
    done = run_ranks("tape", STEPS, SECONDS, ranks=4, mpi=True)
    assert done.code == 0, done.err
    assert len({result["weights"] for result in plain.results}) == 1
    assert len({result["weights"] for result in done.results}) == 1
    assert len(done.of_ranks) == 4
    assert len({training(summary)["stitched_from_step"] for summary in done.of_ranks} - {None}) == 1
