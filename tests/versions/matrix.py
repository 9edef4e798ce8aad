"""The environments that the versions' tests run in, and how one is made."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from stitchfleet.plugin.versions.known import MINORS, Minor

from ..kept import session_folder


@dataclass(frozen=True)
class Environment:
    """A TensorFlow under a Python. python: minor version of Python 3. legacy: whether `tf.keras` is Keras 2 (tf_keras) where
    TensorFlow itself has Keras 3."""

    minor: Minor
    python: int
    legacy: bool = False

    def __str__(self) -> str:
        return f"{self.minor.release}-py3.{self.python}" + ("-legacy-keras" if self.legacy else "")

    @property
    def packages(self) -> list[str]:
        """What pip installs."""
        short = self.minor.release.rpartition(".")[0]
        return [f"tensorflow-cpu=={self.minor.release}", *([f"tf_keras~={short}.0"] if self.legacy else [])]


def _environments() -> list[Environment]:
    """Every minor version once, under a Python that changes; the oldest and the newest under the oldest and newest Python that they
    have wheels for (and that stitchfleet supports); Keras 2 under the first and last version that have Keras 3."""
    chosen = {
        "2.12": 9,
        "2.13": 10,
        "2.14": 11,
        "2.15": 9,
        "2.16": 12,
        "2.17": 10,
        "2.18": 11,
        "2.19": 12,
        "2.20": 13,
        "2.21": 13,
    }
    found = [Environment(minor, chosen[minor.release.rpartition(".")[0]]) for minor in MINORS]
    oldest, newest = MINORS[0], MINORS[-1]
    found += [Environment(oldest, oldest.pythons[1]), Environment(newest, newest.pythons[0])]
    first_of_keras_3 = next(minor for minor in MINORS if minor.keras == 3)
    return found + [Environment(minor, minor.pythons[1], legacy=True) for minor in (first_of_keras_3, newest)]


ENVIRONMENTS = _environments()
ROOM = 20 << 30
"""Bytes. With less free than that, an environment (some 2 GB) is removed as soon as its tests are over."""


@cache
def interpreter(minor: int) -> pathlib.Path | None:
    """A Python 3.`minor` of this machine; None if there is none."""
    name = f"python3.{minor}"
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT") or pathlib.Path.home() / ".pyenv")
    candidates = [shutil.which(name), *sorted(map(str, pyenv.glob(f"versions/3.{minor}.*/bin/{name}")), reverse=True)]
    for candidate in filter(None, candidates):
        words = [candidate, "-c", "import sys, venv, ensurepip; print(sys.version_info.minor)"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.stdout.strip() == str(minor):
            return pathlib.Path(candidate)
    return None


def _root() -> pathlib.Path:
    named = os.environ.get("STITCHFLEET_TEST_CACHE")
    return (pathlib.Path(named) if named else session_folder()) / "versions"


def kept_builds() -> pathlib.Path:
    """The cache folder in which native libraries are kept from run to run."""
    folder = _root() / "builds"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


@contextlib.contextmanager
def made(environment: Environment) -> Iterator[pathlib.Path]:
    """The environment's Python, which is made if it is not there. It is removed after the block if the disk is nearly full and no
    other process of the tests uses it. Raises RuntimeError with pip's last line if it cannot be made."""
    base = interpreter(environment.python)
    assert base is not None
    folder = _root() / str(environment)
    folder.mkdir(parents=True, exist_ok=True)
    python = folder / "bin" / "python"
    with open(folder.with_suffix(".lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            print(f"making {environment} (a minute)", file=sys.stderr, flush=True)
            install = ("install", "-q", "--no-compile", "--disable-pip-version-check")
            _run(str(base), "-m", "venv", "--clear", str(folder))
            _run(str(python), "-m", "pip", *install, *environment.packages)
            (folder / "complete").touch()
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield python
        if shutil.disk_usage(folder).free < ROOM:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                (folder / "complete").unlink()
                shutil.rmtree(folder)


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no message"])[-1])
