"""stitchfleet as a pod's payload brings it: an unpacked wheel, last on the PYTHONPATH of a job whose image knows nothing of it."""

from __future__ import annotations

import fcntl
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from scripts.wheel import build_wheel


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The folder of the unpacked wheel, made once for all workers of a test run."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    folder = shared / "stitchfleet-wheel"
    with open(shared / "stitchfleet-wheel.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            making = shared / "wheel-making"
            options = ["-q", "--no-deps", "--no-compile", "--ignore-requires-python", "--disable-pip-version-check"]
            wheel = str(build_wheel(making))
            subprocess.run(
                [sys.executable, "-m", "pip", "install", *options, "--target", str(making / "tree"), wheel], check=True
            )
            (making / "tree").rename(folder)
            shutil.rmtree(making)
    return folder
