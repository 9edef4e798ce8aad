"""What people do around a training step: each job is stitched, and its losses are those of the plain one."""

from __future__ import annotations

import pathlib

import pytest

from ..conftest import RunJob
from ..job.test_faults import QUICK, main_program, relative_difference

EXACT, HALF = 1e-5, 5e-3
WAYS = {
    # way -> by what the losses of 120 steps may differ from the plain job's: sums are taken in another order
    **dict.fromkeys(("mixed_float16", "mixed_bfloat16", "graph_rewrite"), HALF),
    **dict.fromkeys(("check_numerics", "callbacks", "checkpoints", "profiler", "optimizers"), EXACT),
    **dict.fromkeys(("tables", "ragged", "sparse", "custom_op"), EXACT),
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_job_is_stitched_whatever_is_around_its_step(
    run_job: RunJob, run_plain: RunJob, tmp_path: pathlib.Path, way: str
) -> None:
    folders = [tmp_path / "stitched", tmp_path / "plain"]
    for folder in folders:
        folder.mkdir()
    job = run_job("training_ways.py", way, str(folders[0]), environment=QUICK)
    assert job.code == 0, job.err
    program = main_program(job)
    assert program["phase"] == "stitched", job.err
    assert program["steps_stitched"] > 20
    # What a branch has not run yet is not verified: an update that the loss scale skips.
    states = {cluster["state"] for cluster in job.summary["clusters"]}
    assert "stitched" in states
    assert states <= {"stitched", "never ran", "verify"}, job.err
    plain = run_plain("training_ways.py", way, str(folders[1]))
    assert len(job.result) == len(plain.result) >= 120
    assert relative_difference(job.result, plain.result) < WAYS[way]
