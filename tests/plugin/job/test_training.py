"""The ways people train, stitched: loops, Keras with changing batch sizes, sessions; what jobs write holds nothing of ours."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest

from stitchfleet.plugin.stitching.stitcher import IN_A_DATASET

from ...marks import slow
from ..conftest import Finished, RunJob, switched_off_while_stitched
from .test_faults import COLD, QUICK, WARM, main_program, relative_difference, states

TEXT_OF_OURS = (b"stitchfleet", b"Stitchfleet")


@pytest.mark.slow
def test_keras_fit_with_a_smaller_last_batch_is_stitched_at_both_sizes(run_job: RunJob, run_plain: RunJob) -> None:
    job = run_job("keras_fit.py", "200", COLD, environment=QUICK)
    assert job.code == 0, job.err
    assert main_program(job)["phase"] == "stitched", job.err
    shapes = {
        entry["inputs"][0][0]
        for cluster in job.summary["clusters"]
        for entry in cluster["executables"]
        if entry["calls"].get("stitched") and entry["inputs"] and entry["inputs"][0]
    }
    assert {32, 700 % 32} <= shapes
    calls = job.summary["calls"]
    assert calls["stitched"] > 10 * calls["fallback"]
    plain = run_plain("keras_fit.py", "200")
    assert relative_difference(job.result, plain.result) < 1e-3


@pytest.mark.parametrize("words", [(), slow("seeded")])
def test_a_loop_over_a_dataset_in_a_function_is_told_how_to_be_stitched(run_job: RunJob, words: Any) -> None:
    job = run_job("dataset_loop.py", "30", *words, environment=QUICK)
    assert job.code == 0, job.err
    assert (main_program(job)["phase"], main_program(job)["reason"]) == ("plain", IN_A_DATASET)


def test_a_loop_over_an_iterator_in_a_function_is_stitched(run_job: RunJob, run_plain: RunJob) -> None:
    environment = {"STITCHFLEET_BLOCK_STEPS": "2", "STITCHFLEET_PAIRS": "50"}
    in_turn = run_job("dataset_loop.py", "40", "iterator", "seeded", mode="fallback", environment=environment)
    assert main_program(in_turn)["steps_stitched"] >= 10, in_turn.err
    assert any(cluster["name"].startswith("optimizer") for cluster in in_turn.summary["clusters"])
    assert in_turn.result == run_plain("dataset_loop.py", "40", "iterator", "seeded").result


@pytest.mark.slow
def test_integers_of_two_inputs_are_checked_on_what_they_may_be_and_a_second_run_has_it_all(
    run_job: RunJob, run_plain: RunJob, no_kernels: pathlib.Path
) -> None:
    """Random ids would be refused by the embedding and the loss; and no kernel is built that is wrong over its own input."""
    jobs = [run_job("two_inputs.py", "60", COLD, environment=QUICK, with_cache=no_kernels) for _ in range(2)]
    plain = run_plain("two_inputs.py", "60")
    for job in jobs:
        assert job.code == 0, job.err
        states = {entry["state"] for cluster in job.summary["clusters"] for entry in cluster["executables"]}
        assert states == {"stitched"}, states
        log = pathlib.Path(job.summary["records"]["folder"], "service.log").read_text()
        assert "written over an input" not in log + job.err
        assert "could not be made" not in log + job.err
        assert relative_difference(job.result, plain.result) < 1e-3
    assert main_program(jobs[1])["stitched_from_step"] < 20


@pytest.mark.slow
def test_programs_with_equal_clusters_share_kernels_and_one_that_never_comes_again_holds_up_none(
    run_job: RunJob, run_plain: RunJob
) -> None:
    job = run_job("two_programs.py", "120", COLD, environment=QUICK)
    assert job.code == 0, job.err
    phases = {program["name"]: program["phase"] for program in job.summary["programs"]}
    assert phases == {"prepare": "trace", "train": "stitched", "train_2": "stitched"}, job.err
    stitched = {program["name"]: program["steps_stitched"] for program in job.summary["programs"]}
    assert min(stitched["train"], stitched["train_2"]) > 20
    assert relative_difference(job.result, run_plain("two_programs.py", "120").result) < 1e-3


@pytest.mark.slow
def test_shapes_that_come_once_do_not_hold_the_job_in_its_verify_phase(run_job: RunJob, run_plain: RunJob) -> None:
    job = run_job("rare_shapes.py", "300", COLD, environment=QUICK)
    assert job.code == 0, job.err
    assert main_program(job)["phase"] == "stitched", job.err
    once = [
        entry
        for cluster in job.summary["clusters"]
        for entry in cluster["executables"]
        if sum(entry["calls"].values()) == 1
    ]
    assert once, "every shape came twice: the test does not test what it says"
    assert relative_difference(job.result, run_plain("rare_shapes.py", "300", "0").result) < 1e-3


@pytest.mark.slow
def test_a_job_whose_batches_change_in_length_settles_on_few_binaries(run_job: RunJob, run_plain: RunJob) -> None:
    job = run_job("lengths.py", "700", "some", COLD, environment=QUICK)
    assert job.code == 0, job.err
    assert main_program(job)["phase"] == "stitched", job.err
    stitched = {
        cluster["name"]: [entry for entry in cluster["executables"] if entry["calls"].get("stitched")]
        for cluster in job.summary["clusters"]
        if len(cluster["executables"]) > 1
    }
    assert stitched
    assert all(len(entries) == 24 for entries in stitched.values())
    for name, entries in stitched.items():
        binaries = {entry["library"] for entry in entries}
        assert len(binaries) < len(entries) / 2, f"{name}: {len(binaries)} binaries"
    calls = job.summary["calls"]
    assert calls["stitched"] > calls["fallback"]
    assert relative_difference(job.result, run_plain("lengths.py", "700", "some", "0").result) < 1e-3


@pytest.mark.slow
def test_a_job_whose_shapes_never_settle_is_left_plain_and_says_so(run_job: RunJob, run_plain: RunJob) -> None:
    job = run_job("lengths.py", "400", "never", COLD, environment=QUICK, quiet=False)
    assert job.code == 0, job.err
    assert main_program(job)["phase"] == "plain", job.err
    assert "never settle" in main_program(job)["reason"]
    assert "never settle" in job.err
    assert job.summary["stayed_out"]["its cluster's shapes never settle"]
    assert relative_difference(job.result, run_plain("lengths.py", "400", "never", "0").result) < 1e-3


@pytest.mark.slow
def test_a_monitored_session_with_its_default_hooks_is_stitched(run_job: RunJob, run_plain: RunJob) -> None:
    job = run_job("monitored.py", "400", "", COLD, environment=QUICK)
    assert job.code == 0, job.err
    assert main_program(job)["kind"] == "session"
    assert main_program(job)["phase"] == "stitched", job.err
    assert "stitched" in states(job)
    assert relative_difference(job.result, run_plain("monitored.py", "400").result) < 1e-3


@pytest.mark.slow
def test_clusters_are_split_around_an_operator_that_cannot_be_lowered(run_job: RunJob, run_plain: RunJob) -> None:
    job = run_job("unsupported.py", "400", COLD, environment=QUICK)
    assert job.code == 0, job.err
    assert main_program(job)["phase"] == "stitched", job.err
    assert job.summary["stayed_out"]["cannot be lowered to a kernel"] == {"Bitcast": 1}
    assert job.summary["calls"]["stitched"] > 100
    assert relative_difference(job.result, run_plain("unsupported.py", "400", "0").result) < 1e-3


@pytest.mark.slow
def test_what_a_job_writes_holds_nothing_of_ours(run_job: RunJob, tmp_path: pathlib.Path) -> None:
    job = run_job("exports.py", str(tmp_path / "out"), COLD, environment=QUICK)
    assert job.code == 0, job.err
    assert any(program["steps_stitched"] > 5 for program in job.summary["programs"])
    written = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert len(written) >= 8
    for path in written:
        data = path.read_bytes()
        assert not any(word in data for word in TEXT_OF_OURS), path


def test_clusters_are_switched_off_by_name_in_the_environment(run_job: RunJob) -> None:
    environment = {**QUICK, "STITCHFLEET_DISABLE_CLUSTERS": "normalization"}
    job = run_job("loop.py", "30", environment=environment)
    assert job.code == 0, job.err
    names = {cluster["name"] for cluster in job.summary["clusters"]}
    assert names
    assert not any(name.startswith("normalization") for name in names)
    assert "Rsqrt" in job.summary["stayed_out"]["its cluster is switched off by name"]


@pytest.mark.slow
def test_the_control_file_switches_a_running_job_off(
    cache: pathlib.Path, tmp_path: pathlib.Path, warmed: None, run_plain: RunJob
) -> None:
    job = switched_off_while_stitched(tmp_path, cache, QUICK, "loop.py", "9000", WARM)
    assert job.code == 0, job.err
    program = job.summary["programs"][0]
    assert program["reason"] == "switched off from outside", job.err
    assert 0 < program["steps_stitched"] < 8900


@pytest.mark.slow
def test_a_report_right_after_the_job_has_all_its_records(run_job: RunJob, tmp_path: pathlib.Path) -> None:
    job = run_job("raises.py", "0")
    assert job.code == 0, job.err
    listed = subprocess.run(
        [
            *(sys.executable, "-m", "stitchfleet.plugin.command", "jobs", "--json"),
            *("--database", f"sqlite:///{tmp_path}/records.db"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert listed.returncode == 0, listed.stderr
    (found,) = json.loads(listed.stdout)
    assert found["iterations"] == 20
    assert re.fullmatch(r"graph:[0-9a-f]{16}", found["model_fingerprint"])


def test_op_determinism_keeps_the_job_plain_and_says_so(run_job: RunJob, run_plain: RunJob) -> None:
    job: Finished = run_job("deterministic.py", environment=QUICK)
    assert job.code == 0, job.err
    assert "determinism" in str(main_program(job)["reason"])
    assert job.result == run_plain("deterministic.py").result
