"""The whole benchmark without a GPU: kernels are made, and run by the tests' driver, whose times mean nothing."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.gpu.run import finished
from scripts.gpu.table import read_results

from ..compiler.pipeline.test_cuda_runtime import driver as driver

ROOT = Path(__file__).parents[2]
BUILDER = ROOT / "tests/compiler/emulated_driver_builder.py"
CASES = "softmax-32768x1024,column_mean,chains"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared folder with small tensors."""
    folder = tmp_path_factory.mktemp("gpu") / "folder"
    words = [sys.executable, "-m", "scripts.gpu.prepare", str(folder), "--small", "--only", CASES, "--arch", "sm_70"]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    return folder


def run(folder: Path, driver: Path, results: Path, *words: str, **environment: str) -> tuple[str, list[dict[str, Any]]]:
    """The printed tables and the file of results of FOLDER/run."""
    command = [str(folder / "run"), "--results", str(results), "--minutes", "5", "--contestants", "stitchfleet", *words]
    gpu = {
        "PYTHON": sys.executable,
        "LD_LIBRARY_PATH": str(driver),
        "TEST_GPU_BUILDER": shlex.join([sys.executable, str(BUILDER), str(folder / "caches")]),
    }
    done = subprocess.run(
        command, env={**os.environ, **gpu, **environment}, cwd="/", capture_output=True, text=True, check=True
    )
    assert [*left_by(folder)] == []
    return done.stdout, read_results(results)


def left_by(folder: Path) -> Iterator[str]:
    """The processes of a run that are still there."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if str(folder).encode() in (process / "environ").read_bytes():
                yield (process / "cmdline").read_text()


@pytest.mark.slow
def test_each_kernel_is_judged_and_timed_and_a_second_run_goes_on(prepared: Path, driver: Path, tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    text, rows = run(prepared, driver, results, "--only", "softmax,chains")
    wanted = {kernel.stem for kernel in (prepared / "kernels").glob("*.cubin")}
    assert {row["kernel"] for row in rows if row.get("wrong") == ""} == {k for k in wanted if "column" not in k}
    assert [row for row in rows if row.get("wrong")] == []
    assert "0 wrong" in text
    assert "softmax-32768x1024" in text
    assert set(finished(rows)) == {"softmax-32768x1024", "chains-64"}
    before = len(rows)
    text, rows = run(prepared, driver, results, "--resume")
    timed = {row["name"] for row in rows[before:] if row.get("name") and row.get("us")}
    assert timed == {"column_mean-65536x1024"}
    assert all(name in text for name in ("softmax-32768x1024", "column_mean-65536x1024"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("cuModuleLoadData 1 200", "cuModuleLoadData: CUDA_ERROR_INVALID_IMAGE"),
        ("cuLaunchCooperativeKernel 1 720", "cuLaunchCooperativeKernel: CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE"),
        ("cuMemAlloc_v2 1 2", "cannot be allocated: cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY"),
    ],
)
def test_what_fails_on_the_device_is_one_line(
    prepared: Path, driver: Path, tmp_path: Path, fault: str, said: str
) -> None:
    text, rows = run(prepared, driver, tmp_path / "results.jsonl", "--only", "column_mean,chains", TEST_GPU_FAIL=fault)
    lines = [line for line in text.splitlines() if "ERROR" in line]
    assert any(said in line for line in lines), text
    if "Cooperative" in fault:
        assert any(row.get("us") for row in rows if row.get("name") == "chains-64"), "the next case runs"


@pytest.mark.slow
def test_a_wrong_kernel_is_found(prepared: Path, driver: Path, tmp_path: Path) -> None:
    text, rows = run(prepared, driver, tmp_path / "results.jsonl", "--only", "softmax", TEST_GPU_BREAK="wrong")
    assert any(row.get("wrong") for row in rows)
    assert "WRONG softmax-32768x1024" in text


def test_a_folder_that_was_not_prepared_is_one_line(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "scripts.gpu.run", str(tmp_path), "--results", str(tmp_path / "r.jsonl")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "was not prepared" in line
