"""stitchfleet as a pod's payload brings it: an unpacked wheel, last on the PYTHONPATH of a job whose image knows nothing of it."""

from __future__ import annotations

import fcntl
import os
import pathlib

import pytest

from scripts.wheel import unpack


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The folder of the unpacked wheel, made once for all workers of a test run."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    folder = shared / "stitchfleet-wheel"
    with open(shared / "stitchfleet-wheel.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            unpack(folder)
    return folder
