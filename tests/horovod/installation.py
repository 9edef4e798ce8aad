"""Horovod, built against the TensorFlow that the tests use: once, kept in the tests' cache by all that it is made of.

    python -m tests.horovod.installation     builds it if it is not there and this run's tests need it (scripts/test)

No wheel of Horovod exists: its build asks the installed TensorFlow for its flags, and a wheel of one TensorFlow does not load in
another. pip keeps wheels it has built by Horovod's version alone, so its cache is not used. The folder is put on PYTHONPATH of the
tests' processes; .venv itself knows nothing of it. Two to five minutes on two cores.
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
from collections.abc import Callable
from importlib import metadata

from .. import pace
from ..kept import session_folder
from ..marks import ALL

VERSION = "0.28.1"
"""PyPI's last."""
TOOLS = ("cmake==3.31.*", "setuptools<70", "wheel", "packaging")
"""What builds it: it knows neither CMake 4 nor setuptools 70."""
BROUGHT = ("cloudpickle", "psutil", "pyyaml", "packaging", "cffi")
"""What it imports when it runs."""
FLAGS = {
    "HOROVOD_WITH_TENSORFLOW": "1",
    "HOROVOD_WITHOUT_PYTORCH": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
    "HOROVOD_WITH_GLOO": "1",
    "HOROVOD_WITHOUT_MPI": "1",
}


def _compiler() -> str:
    try:
        return subprocess.run(["g++", "-dumpfullversion"], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def made_of() -> str:
    """All that decides what the build makes, one a line."""
    tensorflow = next(name for name in ("tensorflow-cpu", "tensorflow") if _is_installed(name))
    parts = [f"horovod {VERSION}", f"{tensorflow} {metadata.version(tensorflow)}", f"python {sys.version}"]
    parts += [f"g++ {_compiler()}", *TOOLS, *BROUGHT, *(f"{name}={value}" for name, value in sorted(FLAGS.items()))]
    return "\n".join(parts)


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def folder() -> pathlib.Path:
    """Where it is, or will be: in the tests' cache, else for as long as this process's tests run."""
    root = os.environ.get("STITCHFLEET_TEST_CACHE")
    base = pathlib.Path(root) if root else session_folder()
    return base / "horovod" / hashlib.sha256(made_of().encode()).hexdigest()[:20]


def install(say: Callable[[str], None]) -> pathlib.Path:
    """The folder with Horovod, built now if it is not there. say: gets a line before and after a build. Raises RuntimeError with the
    end of the build's output."""
    target = folder()
    if (target / "complete").exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.with_suffix(".lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (target / "complete").exists():  # another process was faster
            return target
        began = time.monotonic()
        say(f"building Horovod {VERSION} against the tests' TensorFlow: two to five minutes, once")
        with tempfile.TemporaryDirectory(prefix="stitchfleet-horovod-") as scratch:
            fresh = _build(pathlib.Path(scratch))
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(fresh, target)
        (target / "complete").write_text(made_of() + "\n")
        say(f"Horovod is built ({time.monotonic() - began:.0f} s): {target}")
    return target


def _build(scratch: pathlib.Path) -> pathlib.Path:
    """A folder for PYTHONPATH."""
    tools, wheels, found = scratch / "tools", scratch / "wheels", scratch / "installed"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    _run([*pip, "install", "--target", str(tools), *TOOLS, *BROUGHT], dict(os.environ))
    building = dict(os.environ, **FLAGS, MAKEFLAGS=f"-j{os.cpu_count()}", PYTHONPATH=str(tools))
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
        raise RuntimeError(f"Horovod could not be built ({' '.join(command[2:5])} ...):\n{last}")


if __name__ == "__main__" and (ALL or not pace.is_slow()):
    install(lambda line: print(line, file=sys.stderr, flush=True))
