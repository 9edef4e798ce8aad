"""Describes the machine and the versions that a benchmark ran on."""

from __future__ import annotations

import os
import pathlib
import platform
import subprocess
import threading
import time
from importlib import metadata

import numpy as np

from .contestants import ROOT


def cpu_name() -> str:
    """The processor's name, from /proc/cpuinfo."""
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.lower().startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def memory_bytes() -> int:
    """The machine's physical memory in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def facts() -> dict[str, str | int]:
    """The machine as every file of results has it: its processor's name, its cores and its memory in bytes."""
    return {"cpu": cpu_name(), "cores": cores(), "memory_bytes": memory_bytes()}


_COPY_BYTES = 64 << 20
"""Bytes that each core copies: larger than any cache, and copied quickly."""


def copy_bandwidth(repeats: int = 3) -> float:
    """Bytes per second, read plus written, if all cores copy at once: the best of `repeats`. It bounds a kernel on large tensors.

    Takes some tenths of a second. numpy's copy is the C library's memcpy, without the GIL.
    """
    arrays = [(np.ones(_COPY_BYTES, np.uint8), np.ones(_COPY_BYTES, np.uint8)) for _ in range(cores())]
    best = float("inf")
    for _ in range(repeats):
        threads = [threading.Thread(target=np.copyto, args=pair) for pair in arrays]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        best = min(best, time.perf_counter() - start)
    return 2 * _COPY_BYTES * len(arrays) / best


def versions() -> dict[str, str]:
    """Package -> version, and this project's commit if it is a checkout (with "+" if files have changed since)."""
    found = {"python": platform.python_version()}
    for name in ("tensorflow-cpu", "tensorflow", "stitchfleet"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    commit = _git("rev-parse", "--short=12", "HEAD")
    if commit:
        found["commit"] = commit + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")
    return found


def _git(*arguments: str) -> str:
    try:
        return subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=10, check=True
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
