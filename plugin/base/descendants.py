"""The processes below one of ours: their processor time, and how to end them. Needs Linux's /proc; standard library only."""

from __future__ import annotations

import os
import pathlib
import signal


def processor_seconds(root: int) -> dict[int, float]:
    """Process id -> processor seconds (user and system), for `root` and all processes below it, from /proc. The seconds of ended
    children that a process has waited for are included. Processes that have ended are left out."""
    parents: dict[int, int] = {}
    seconds: dict[int, float] = {}
    tick = os.sysconf("SC_CLK_TCK")
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        parents[int(entry.name)] = int(fields[1])
        seconds[int(entry.name)] = sum(map(int, fields[11:15])) / tick
    found, newest = {root} & seconds.keys(), {root}
    while newest:
        newest = {child for child, parent in parents.items() if parent in newest} - found
        found |= newest
    return {process: seconds[process] for process in found}


def end(root: int) -> None:
    """Sends SIGKILL to a child of this process and to all processes below it. Processes that have ended are skipped."""
    for process in processor_seconds(root):
        try:
            os.kill(process, signal.SIGKILL)
        except OSError:
            pass  # it has ended by itself
