"""Random TensorFlow programs (tests/plugin/scripts/random_programs.py) run plain and stitched: the same results, none reverted.

The kernels' own self-check is left out, so that a wrong one shows here: as a mismatch that the guard finds, or as another result.
"""

from __future__ import annotations

import numpy as np
import pytest

from ...broken_kernels import broken_kernels
from ...marks import NIGHTLY
from ..conftest import Finished, RunJob
from ..job.test_faults import COLD

STEPS = "56"
SETTINGS = {
    **broken_kernels.environment(unchecked=True),
    "STITCHFLEET_BASELINE_STEPS": "2",
    "STITCHFLEET_BASELINE_SECONDS": "0",
    "STITCHFLEET_BLOCK_STEPS": "3",
    "STITCHFLEET_SAMPLE_STRIDE": "7",
    "STITCHFLEET_FREE_TRACES": "1000",
}
TOLERANCE = 2e-3
"""Relative to the largest value that a program's result took: 50 steps of training carry rounding along."""


def compare(job: Finished, plain: Finished) -> None:
    assert job.code == 0, job.err
    assert plain.code == 0, plain.err
    assert not job.summary["reverts"], job.summary["reverts"]
    for seed, steps in plain.result.items():
        for part in (slice(0, -1), slice(-1, None)):  # what the steps returned, what the variables held
            expected, actual = np.array(steps[part]), np.array(job.result[seed][part])
            scale = np.abs(expected).max(axis=0) + 1e-3
            off = np.abs(actual - expected) / scale
            assert off.max() < TOLERANCE, (
                f"program {seed}, step {int(off.max(axis=1).argmax())}: off by {off.max():.2g}"
            )


@pytest.mark.costly
def test_a_few_random_programs_give_tensorflows_results(run_job: RunJob, run_plain: RunJob) -> None:
    # Enough steps for the stitched ones to be the most, wherever the rest at step 24 fell among the blocks.
    arguments = ("random_programs.py", "0", "1", "150")
    job = run_job(*arguments, COLD, environment=SETTINGS)
    compare(job, run_plain(*arguments, "0"))
    (program,) = job.summary["programs"]
    # So small a program may be no faster for its kernels; then it goes back after some pairs of blocks.
    assert program["phase"] == "stitched" or "does not pay" in program["reason"], (program["phase"], program["reason"])
    assert job.summary["calls"]["stitched"] > (
        job.summary["calls"]["fallback"] if program["phase"] == "stitched" else 0
    )


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100, 600 if NIGHTLY else 260, 20))
def test_hundreds_of_random_programs_give_tensorflows_results(first: int, run_job: RunJob, run_plain: RunJob) -> None:
    """160 programs; each night (`scripts/test --nightly`) 500. Twenty take 200 to 340 s, most of it the compilers'."""
    arguments = ("random_programs.py", str(first), "20", STEPS)
    job = run_job(*arguments, COLD, environment=SETTINGS, timeout=3600)
    compare(job, run_plain(*arguments, "0", timeout=3600))
    phases = [program["phase"] for program in job.summary["programs"]]
    assert phases.count("stitched") >= 15, phases
