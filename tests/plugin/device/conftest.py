"""The tests' GPU, built once: a TensorFlow device and a driver whose launches the emulator runs (test_gpu.cc)."""

from __future__ import annotations

import fcntl
import hashlib
import pathlib
import shlex
import subprocess
import sys

import pytest

from stitchfleet.plugin.native.library import compiler_command, find_tensorflow

from ..conftest import RunJob

SOURCE = pathlib.Path(__file__).with_name("test_gpu.cc")
DRIVER = pathlib.Path(__file__).parents[2] / "compiler" / "emulated_driver.h"


@pytest.fixture(scope="session")
def gpu_library(cache: pathlib.Path) -> pathlib.Path:
    tensorflow = find_tensorflow()
    digest = hashlib.sha256(SOURCE.read_bytes() + DRIVER.read_bytes() + tensorflow.version.encode()).hexdigest()[:16]
    library = cache / f"test-gpu-{digest}.so"
    compiler = compiler_command()
    assert compiler
    with open(cache / "test-gpu.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            fresh = library.with_suffix(".new")
            options = ["-shared", "-fPIC", "-w", "-O1", *tensorflow.compile_flags]
            subprocess.run(
                [*compiler, *options, str(SOURCE), "-o", str(fresh), *tensorflow.link_flags, "-ldl"], check=True
            )
            fresh.rename(library)
    return library


@pytest.fixture
def gpu(cache: pathlib.Path, gpu_library: pathlib.Path, tmp_path: pathlib.Path) -> dict[str, str]:
    """The environment of a job that has it. Its calls of the driver are in tmp_path/driver.log."""
    builder = [sys.executable, str(DRIVER.with_name("emulated_driver_builder.py")), str(cache)]
    return {
        "TEST_GPU": str(gpu_library),
        "TEST_GPU_BUILDER": shlex.join(builder),
        "TEST_GPU_LOG": str(tmp_path / "driver.log"),
        "STITCHFLEET_CUDA_DRIVER": str(gpu_library),
    }


__all__ = ["RunJob", "gpu", "gpu_library"]
