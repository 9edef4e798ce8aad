"""`scripts/cluster up` and `down`, as a person types them. First of this folder's tests by its name: the others share one node."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from . import machine
from .node import STATE
from .page_commands import A_LAPTOP
from .requirements import what_is_missing

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


def test_a_cluster_is_started_used_and_stopped() -> None:
    if missing := what_is_missing():
        pytest.skip(missing)
    if STATE.exists():
        pytest.skip("a cluster is up already")
    up, down = A_LAPTOP
    try:
        found = subprocess.run(
            ["bash", "-c", f'eval "$({up})" && kubectl get nodes && helm list'],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        assert found.returncode == 0, found.stderr
        assert "Ready" in found.stdout
    finally:
        done = subprocess.run(["bash", "-c", down], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, os.path.exists(STATE), machine.leftovers(STATE)) == (0, False, []), done.stderr
