"""Jobs on a GPU: the Stitch op's host code against a driver that runs each launch in the emulator (test_gpu.cc)."""

from __future__ import annotations

import collections
import pathlib
from typing import Any

import numpy as np
import pytest

from ...marks import slow
from ..conftest import Finished, RunJob

pytestmark = pytest.mark.costly  # each runs its kernels in the emulator

STEPS, PAUSE = "60", "120"
SHORT = {"STITCHFLEET_PAIRS": "2", "STITCHFLEET_BLOCK_STEPS": "4", "STITCHFLEET_BASELINE_STEPS": "4"}
"""The phases in as few steps as an emulated launch wants."""


def calls_of_driver(folder: pathlib.Path) -> collections.Counter[str]:
    log = folder / "driver.log"
    return collections.Counter(log.read_text().split() if log.exists() else ())


def same(job: Finished, plain: Finished) -> None:
    assert job.code == 0, job.err
    np.testing.assert_allclose(job.result["losses"], plain.result["losses"], rtol=1e-4)
    np.testing.assert_allclose(job.result["checksum"], plain.result["checksum"], rtol=1e-3, atol=1e-3)


def executables(job: Finished) -> list[dict[str, Any]]:
    return [one for cluster in job.summary["clusters"] for one in cluster["executables"]]


# "sgd" has the kernels of the tests of faults: those of "adam" take the emulator's compiler three minutes where none are kept.
@pytest.mark.parametrize("optimizer", [slow("sgd"), slow("shaped"), slow("adam"), slow("many"), slow("language")])
def test_a_job_on_a_gpu_is_stitched(
    run_job: RunJob, run_plain: RunJob, gpu: dict[str, str], tmp_path: pathlib.Path, optimizer: str
) -> None:
    plain = run_plain("gpu_train.py", STEPS, "0", optimizer, environment=gpu)
    assert plain.code == 0, plain.err
    assert "GPU" in plain.result["device"]
    job = run_job("gpu_train.py", STEPS, PAUSE, optimizer, environment={**gpu, **SHORT}, quiet=False)
    same(job, plain)
    assert "stitched from step" in job.err  # and later back to plain, if the emulator proves slow enough
    calls, counted = calls_of_driver(tmp_path), job.summary["calls"]
    launches = sum(count for call, count in calls.items() if call.startswith("launch:stitch_"))
    comparisons = calls["launch:stitch_largest"] + calls["launch:stitch_compare"]
    assert counted["stitched"] > 20
    assert launches - comparisons == counted["stitched"] + counted["verify"]
    # A stitched call neither waits for the device nor copies; a verifying one waits before, between and after both ways, and for the
    # borders of the kernel's outputs. What is read beyond these and the comparisons' results are some numbers of each argument, when
    # its kernel is asked for (the compile service checks it on them where drawn ones are refused), and tensors of a comparison that
    # failed by rounding alone, for the oracle. A hundred variables more are two hundred arguments more, theirs and their gradients'.
    borders = 2 * calls["rubbish"]
    others = calls["cuMemcpyDtoHAsync_v2"] - comparisons - borders
    assert 0 <= others < 40 + (200 if optimizer == "many" else 0)
    assert calls["cuStreamSynchronize"] == 4 * counted["verify"] + comparisons + others
    # But for the table of addresses, which a kernel of 400 tensors and more takes, where they are others than at the last call. What
    # the processor has of a cluster's arguments goes to the device for TensorFlow's operators alone.
    to_device = calls["cuMemcpyHtoDAsync_v2"]
    if optimizer == "language":
        ops = {op for cluster in job.summary["clusters"] if cluster["state"] == "stitched" for op in cluster["ops"]}
        assert {"GatherV2", "ResourceGather"} & ops
        assert {"SparseSoftmaxCrossEntropyWithLogits", "UnsortedSegmentSum"} <= ops
    if optimizer == "shaped":
        assert 0 < to_device <= counted["fallback"] + counted["verify"]
    else:
        assert to_device <= (launches if optimizer == "many" else 0)


@pytest.mark.slow
def test_two_gpus_have_kernels_of_their_own(run_job: RunJob, run_plain: RunJob, gpu: dict[str, str]) -> None:
    two = {**gpu, "TEST_GPU_COUNT": "2"}
    plain = run_plain("gpu_two.py", STEPS, "0", environment=two)
    job = run_job("gpu_two.py", STEPS, PAUSE, environment={**two, **SHORT}, quiet=False)
    same(job, plain)
    assert job.err.count("stitched from step") == 2, job.err
    architectures = {one["architecture"] for one in executables(job) if one["calls"]["stitched"]}
    assert architectures == {"sm_70", "sm_80"}


@pytest.mark.parametrize(
    "fault",
    [
        slow("cuModuleLoadData 1 200"),
        "cuLaunchKernel 60 719",
        slow("cuLaunchKernel 1 701"),
        slow("cuLaunchCooperativeKernel 1 720"),
        slow("cuMemcpyDtoHAsync_v2 1 1"),
        slow("cuStreamSynchronize 5 719"),
    ],
)
def test_a_driver_that_refuses_costs_the_stitching_alone(
    run_job: RunJob, run_plain: RunJob, gpu: dict[str, str], fault: str
) -> None:
    plain = run_plain("gpu_train.py", STEPS, "0", "sgd", environment=gpu)
    job = run_job("gpu_train.py", STEPS, PAUSE, "sgd", environment={**gpu, **SHORT, "TEST_GPU_FAIL": fault})
    same(job, plain)
    assert "CUDA_ERROR" in job.err


@pytest.mark.parametrize(
    ("broken", "word"),
    [
        slow("wrong", "reverted"),  # each compiles its wrong kernels anew: 10 s of a processor
        slow("unwritten", "reverted"),
        slow("beside", "the kernel writes beside its outputs"),
    ],
)
def test_a_kernel_that_goes_wrong_is_found_on_the_device(
    run_job: RunJob,
    run_plain: RunJob,
    gpu: dict[str, str],
    cache: pathlib.Path,
    tmp_path: pathlib.Path,
    broken: str,
    word: str,
) -> None:
    own = tmp_path / "c"
    own.mkdir()
    (own / "native").symlink_to(cache / "native")
    plain = run_plain("gpu_train.py", STEPS, "0", "sgd", environment=gpu)
    builder = gpu["TEST_GPU_BUILDER"].replace(str(cache), str(own))  # the driver finds its kernels there
    settings = {**gpu, **SHORT, "TEST_GPU_BREAK": broken, "TEST_GPU_BUILDER": builder}
    job = run_job("gpu_train.py", STEPS, PAUSE, "sgd", environment=settings, with_cache=own)
    same(job, plain)
    assert word in job.err
    assert job.summary["calls"]["stitched"] == 0


@pytest.mark.slow
def test_without_a_driver_a_job_runs_plain(run_job: RunJob, run_plain: RunJob, gpu: dict[str, str]) -> None:
    plain = run_plain("gpu_train.py", STEPS, "0", "sgd", environment=gpu)
    job = run_job("gpu_train.py", STEPS, PAUSE, "sgd", environment={**gpu, "STITCHFLEET_CUDA_DRIVER": "/nowhere.so"})
    same(job, plain)
    assert job.summary["programs"][0]["phase"] == "plain"
