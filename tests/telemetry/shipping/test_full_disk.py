"""A disk that is really full, under PostgreSQL and SQLite: see full_disk, whose tests need a small file system of their own.

They run in a mount namespace: what they mount nobody else sees, and it is gone with their process, however that ends.
"""

from __future__ import annotations

import ast
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest

from ...marks import slow

INSIDE = pathlib.Path(__file__).with_name("full_disk.py")
NAMES = [node.name for node in ast.parse(INSIDE.read_text()).body if getattr(node, "name", "").startswith("test_")]
QUICK = ("test_a_tablespace_that_is_full", "test_sqlite_that_a_shipper_writes_to")
NAMESPACE = ("unshare", "--mount", "--propagation", "private")


@pytest.fixture(scope="module")
def small() -> Iterator[pathlib.Path]:
    """An empty folder to mount something on, that PostgreSQL's user can reach."""
    with tempfile.TemporaryDirectory(prefix="small") as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        _try_to_mount(folder)
        yield folder


def _try_to_mount(folder: pathlib.Path) -> None:
    try:
        tried = subprocess.run(
            [*NAMESPACE, "mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)], capture_output=True, text=True
        )
    except FileNotFoundError as error:
        pytest.skip(f"nothing can be mounted here: {error}")
    if tried.returncode != 0:
        pytest.skip(f"nothing can be mounted here: {tried.stderr.strip()}")


@pytest.mark.costly
@pytest.mark.parametrize("name", [name if name in QUICK else slow(name) for name in NAMES])
def test_on_a_small_file_system(name: str, small: pathlib.Path, tmp_path: pathlib.Path) -> None:
    command = [*NAMESPACE, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"{INSIDE}::{name}"]
    done = subprocess.run(
        [*command, f"--basetemp={tmp_path}/inside", f"--small-file-system={small}"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert str(small) not in pathlib.Path("/proc/mounts").read_text()
    assert not list(small.iterdir())
