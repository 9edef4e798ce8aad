"""Builds Horovod against the installed TensorFlow, once, and keeps it in a folder that goes on PYTHONPATH of jobs of several ranks.

There is no wheel of Horovod: its build asks the installed TensorFlow for its flags, and a build for one version of TensorFlow does
not load in another. pip keeps what it has built by Horovod's version alone, so its cache is not used. A build takes two to five
minutes on two cores. The tests and the benchmark use it; .venv does not contain it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from importlib import metadata

VERSION = "0.28.1"
"""Horovod's last release."""
TOOLS = ("cmake==3.31.*", "setuptools<70", "wheel", "packaging")
"""Packages that Horovod's build needs. It works neither with CMake 4 nor with setuptools 70."""
BROUGHT = ("cloudpickle", "psutil", "pyyaml", "packaging", "cffi")
"""Packages that Horovod imports when it runs."""
FLAGS = {
    "HOROVOD_WITH_TENSORFLOW": "1",
    "HOROVOD_WITHOUT_PYTORCH": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
    "HOROVOD_WITH_GLOO": "1",
}


class BuildError(RuntimeError):
    """Horovod could not be built; the text holds the end of the build's output."""


def _first_line(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.partition("\n")[0]
    except (OSError, subprocess.CalledProcessError):
        return ""


def _flags(with_mpi: bool) -> dict[str, str]:
    return {**FLAGS, "HOROVOD_WITH_MPI" if with_mpi else "HOROVOD_WITHOUT_MPI": "1"}


def made_of(with_mpi: bool = False) -> str:
    """Returns a text with everything that determines the result of a build (versions, tools, flags), one item per line."""
    tensorflow = next(name for name in ("tensorflow-cpu", "tensorflow") if _is_installed(name))
    parts = [f"horovod {VERSION}", f"{tensorflow} {metadata.version(tensorflow)}", f"python {sys.version}"]
    parts += [f"g++ {_first_line('g++', '-dumpfullversion')}", *TOOLS, *BROUGHT]
    parts += [f"{name}={value}" for name, value in sorted(_flags(with_mpi).items())]
    if with_mpi:
        parts.append(_first_line("mpirun", "--version"))
    return "\n".join(parts)


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def kept_in() -> pathlib.Path:
    """Returns the folder in which the tests and the benchmark keep what they build."""
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return (
        pathlib.Path(os.environ.get("STITCHFLEET_TEST_CACHE") or pathlib.Path(cache) / "stitchfleet-tests") / "horovod"
    )


def install(base: pathlib.Path, say: Callable[[str], None], with_mpi: bool = False) -> pathlib.Path:
    """Returns the folder with Horovod, a subfolder of `base` named by a hash of `made_of`. Builds it if it is not there.

    say: called with a line before and after a build. with_mpi: for jobs under mpirun too; needs the files for building with MPI.
    Raises BuildError with the end of the build's output.
    """
    target = base / hashlib.sha256(made_of(with_mpi).encode()).hexdigest()[:20]
    if (target / "complete").exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.with_suffix(".lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (target / "complete").exists():  # another process was faster
            return target
        began = time.monotonic()
        kind = " with Open MPI" if with_mpi else ""
        say(f"building Horovod {VERSION}{kind} against the installed TensorFlow: two to five minutes, once")
        with tempfile.TemporaryDirectory(prefix="stitchfleet-horovod-") as scratch:
            fresh = _build(pathlib.Path(scratch), _flags(with_mpi))
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(fresh, target)
        (target / "complete").write_text(made_of(with_mpi) + "\n")
        say(f"Horovod is built ({time.monotonic() - began:.0f} s): {target}")
    return target


def _build(scratch: pathlib.Path, flags: Mapping[str, str]) -> pathlib.Path:
    """Builds in `scratch` and returns a folder for PYTHONPATH."""
    tools, wheels, found = scratch / "tools", scratch / "wheels", scratch / "installed"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    _run([*pip, "install", "--target", str(tools), *TOOLS, *BROUGHT], dict(os.environ))
    building = dict(os.environ, **flags, MAKEFLAGS=f"-j{os.cpu_count()}", PYTHONPATH=str(tools))
    building["PATH"] = os.pathsep.join([str(tools / "bin"), os.path.dirname(sys.executable), os.environ["PATH"]])
    words = ["--no-build-isolation", "--no-deps", "--no-cache-dir", "--no-binary", "horovod"]
    _run([*pip, "wheel", *words, "-w", str(wheels), f"horovod=={VERSION}"], building)
    built = [str(path) for path in wheels.glob("horovod-*.whl")]
    _run([*pip, "install", "--target", str(found), "--no-deps", *built], dict(os.environ))
    _run([*pip, "install", "--target", str(found), *BROUGHT], dict(os.environ))
    return found


def _run(command: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-40:])
        raise BuildError(f"Horovod could not be built ({' '.join(command[2:5])} ...):\n{last}")
