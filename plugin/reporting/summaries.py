"""The files of a run's summaries: each training process writes its own, and the run makes one document of them.

FILE          the process whose training functions took the most time; under "other_processes" the summaries of the others
FILE.PID      while the job runs: that of process PID
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

OTHERS = "other_processes"


def write(path: pathlib.Path, summary: Mapping[str, Any]) -> None:
    """A process's summary, complete or not at all. `path` is that of the run's. Raises OSError."""
    own = path.with_name(f"{path.name}.{os.getpid()}")
    _write_whole(own, summary)
    with contextlib.suppress(FileExistsError):  # a job that nobody runs under `stitchfleet run` has its first process's
        os.link(own, path)


def _of_processes(path: pathlib.Path) -> list[pathlib.Path]:
    return sorted(found for found in path.parent.glob(f"{path.name}.*") if found.suffix[1:].isdigit())


def remove(path: pathlib.Path) -> None:
    """Whatever an earlier run has left."""
    for old in (path, *_of_processes(path)):
        old.unlink(missing_ok=True)


def gather(path: pathlib.Path) -> list[dict[str, Any]]:
    """Makes the one document. Returns the summaries of all processes that trained or, where none did, of the first that there is; the
    one with the most time in training first."""
    found: list[dict[str, Any]] = []
    for file in _of_processes(path):
        try:
            found.append(json.loads(file.read_text()))
        except (OSError, ValueError):
            continue
    found.sort(key=lambda summary: (-_training_ms(summary), summary["started"]))
    found = [summary for summary in found if _training_ms(summary)] or found[:1]
    for summary in found:
        summary["is_one_of_several"] = len(found) > 1
    if found:
        try:
            _write_whole(path, {**found[0], OTHERS: found[1:]})
        except OSError:
            return found
    for file in _of_processes(path):
        file.unlink(missing_ok=True)
    return found


def _write_whole(path: pathlib.Path, document: Mapping[str, Any]) -> None:
    """Raises OSError."""
    fresh = path.with_name(path.name + ".part")
    fresh.write_text(json.dumps(document, indent=2) + "\n")
    fresh.replace(path)


def _training_ms(summary: Mapping[str, Any]) -> float:
    trained = [program for program in summary["programs"] if program["name"] in summary["training_functions"]]
    return float(sum(program["total_ms"] for program in trained))
