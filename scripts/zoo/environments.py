"""The environments that the zoo's models run in: a TensorFlow, and the packages of many authors beside it.

Packages are installed without their dependencies, since what some ask for excludes what others need. What the models import at run
time is listed instead. An environment is made once and kept below the project's `.cache`.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from ..wheel import ROOT, WheelError, digest_of, sources, unpack

Say = Callable[[str], None]
KEPT_SECONDS = 24 * 3600.0
"""How long an environment of other packages, or a stitchfleet of other sources, is kept after its last use: another benchmark may run
on it."""


class ZooError(Exception):
    """An environment cannot be made. The message is one line."""


@dataclass(frozen=True)
class Environment:
    """A Python with packages. name: that of its folder. requires: packages that are installed with all that they depend on.
    packages: those that are installed alone."""

    name: str
    requires: tuple[str, ...]
    packages: tuple[str, ...]

    @property
    def tensorflow(self) -> str:
        """The version of TensorFlow in it."""
        (version,) = [package.partition("==")[2] for package in self.requires if package.startswith("tensorflow-cpu==")]
        return version

    @property
    def digest(self) -> str:
        """A digest of all that is installed."""
        return hashlib.sha256("\n".join((*self.requires, "", *self.packages)).encode()).hexdigest()[:16]


def kept_in() -> pathlib.Path:
    """The folder that holds the environments."""
    return ROOT / ".cache" / "zoo"


def python_of(environment: Environment, say: Say) -> pathlib.Path:
    """The environment's interpreter. It is made if it is not there, which takes some minutes. An environment whose packages have
    changed is another one: a benchmark that runs keeps its own. Raises ZooError."""
    folder = kept_in() / f"{environment.name}-{environment.digest}"
    kept_in().mkdir(parents=True, exist_ok=True)
    complete = folder / "complete"
    with open(kept_in() / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists():
            _forget_older(f"{environment.name}-*")
            count = len(environment.requires + environment.packages)
            say(f"making the environment {environment.name}: {count} packages, some minutes, once")
            _run(sys.executable, "-m", "venv", "--clear", str(folder))
            install = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
            _run(*install, *environment.requires)
            if environment.packages:
                _run(*install, "--no-deps", *environment.packages)
        complete.touch()
    return folder / "bin" / "python"


def _forget_older(pattern: str) -> None:
    for older in kept_in().glob(pattern):
        complete = older / "complete"
        if (complete if complete.exists() else older).stat().st_mtime < time.time() - KEPT_SECONDS:
            shutil.rmtree(older, ignore_errors=True)


@functools.cache
def unpacked() -> pathlib.Path:
    """A folder that holds this checkout's stitchfleet as a wheel installs it, to be put on a PYTHONPATH. One for the whole of a
    benchmark, whatever is edited meanwhile. Raises ZooError."""
    folder = kept_in() / f"stitchfleet-{digest_of(sources())}"
    if folder.exists():
        os.utime(folder)
        return folder
    _forget_older("stitchfleet-*")
    try:
        unpack(folder)
    except WheelError as error:
        raise ZooError(str(error)) from None
    return folder


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ZooError((done.stderr.strip().splitlines() or [f"{words[0]} failed without a message"])[-1])
