"""stitchfleet as a pod's payload brings it: an unpacked wheel, last on the PYTHONPATH of a job whose image knows nothing of it."""

from __future__ import annotations

import fcntl
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = ("compiler", "plugin", "telemetry", "operator")
FILES = ("setup.cfg", "pyproject.toml", "README.md")


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The folder of the unpacked wheel, made once for all workers of a test run."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    folder = shared / "stitchfleet-wheel"
    with open(shared / "stitchfleet-wheel.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            source, making = shared / "wheel-source", shared / "wheel-making"
            for package in PACKAGES:
                shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
            for file in FILES:
                shutil.copyfile(ROOT / file, source / file)
            options = ["-q", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--no-compile"]
            subprocess.run(
                [sys.executable, "-m", "pip", "wheel", *options[:-1], "-w", str(making), str(source)], check=True
            )
            wheels = [str(path) for path in making.glob("*.whl")]
            subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "pip",
                    "install",
                    *options,
                    "--ignore-requires-python",
                    "--target",
                    str(making / "tree"),
                    *wheels,
                ],
                check=True,
            )
            (making / "tree").rename(folder)
            shutil.rmtree(making)
            shutil.rmtree(source)
    return folder
