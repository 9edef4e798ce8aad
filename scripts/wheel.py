"""The project's wheel, built from a copy of its sources: a build leaves files behind, and they must not lie in the checkout."""

from __future__ import annotations

import hashlib
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGES = ("compiler", "plugin", "telemetry", "operator")
FILES = ("setup.cfg", "pyproject.toml", "README.md")


class WheelError(Exception):
    """The wheel cannot be built. The message is one line."""


def sources() -> dict[str, bytes]:
    """Path in the project -> content, of all files that the wheel is built from."""
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file()]
    paths = [path for path in paths if "__pycache__" not in path.parts] + [ROOT / file for file in FILES]
    return {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in paths}


def digest_of(files: Mapping[str, bytes], about: str = "") -> str:
    """A digest (16 hex digits) of files, path -> content, and of a text `about` them."""
    found = hashlib.sha256(about.encode())
    for path, content in sorted(files.items()):
        found.update(f"{path}\0{len(content)}\0".encode() + content)
    return found.hexdigest()[:16]


def build_wheel(folder: pathlib.Path) -> pathlib.Path:
    """Builds the wheel into `folder` and returns its path. Raises WheelError."""
    with tempfile.TemporaryDirectory(prefix="stitchfleet-wheel-") as copy:
        for name, content in sources().items():
            path = pathlib.Path(copy, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        options = ["-q", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "-w", str(folder)]
        done = subprocess.run(
            [sys.executable, "-m", "pip", "wheel", *options, copy], capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise WheelError(f"the wheel cannot be built: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    (path,) = folder.glob("stitchfleet-*.whl")
    return path


def unpack(folder: pathlib.Path) -> None:
    """Makes `folder`, which must not exist yet, with this checkout's stitchfleet as its wheel installs it, for the PYTHONPATH of any
    Python. Raises WheelError."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="making-", dir=folder.parent) as making:
        wheel, tree = build_wheel(pathlib.Path(making)), pathlib.Path(making, "tree")
        options = ["-q", "--no-deps", "--no-compile", "--ignore-requires-python", "--disable-pip-version-check"]
        command = [sys.executable, "-m", "pip", "install", *options, "--target", str(tree), str(wheel)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise WheelError(
                f"the wheel cannot be unpacked: {(done.stderr.strip().splitlines() or ['no message'])[-1]}"
            )
        tree.rename(folder)
