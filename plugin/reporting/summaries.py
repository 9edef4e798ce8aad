"""The files of a run's summaries: each training process writes its own, and the run makes one document of them.

FILE          the process whose training functions took the most time, in a job of several ranks that of rank 0; under
              "other_processes" the summaries of the others
FILE.PID      while the job runs: that of process PID

Ranks that `stitchfleet run` started as one command leave their files beside each other, as far as they are on one host. Ranks that
each have a `stitchfleet run` of their own send theirs to rank 0's over the store (ranks/exchange.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
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
    one with the most time in training first, those of a lower rank before it."""
    found: list[dict[str, Any]] = []
    for file in _of_processes(path):
        try:
            found.append(json.loads(file.read_text()))
        except (OSError, ValueError):
            continue
    found = in_order(found)
    if found and not write_document(path, found):
        return found
    for file in _of_processes(path):
        file.unlink(missing_ok=True)
    return found


def in_order(found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The summaries that tell something, as `gather` returns them."""
    ordered = sorted(found, key=lambda summary: (rank_of(summary), -_training_ms(summary), summary["started"]))
    ordered = [summary for summary in ordered if _training_ms(summary)] or ordered[:1]
    for summary in ordered:
        summary["is_one_of_several"] = len(ordered) > 1
    return ordered


def write_document(path: pathlib.Path, ordered: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the one document of these could be written."""
    try:
        _write_whole(path, {**ordered[0], OTHERS: list(ordered[1:])})
    except OSError:
        return False
    return True


def rank_of(summary: Mapping[str, Any]) -> int:
    return int(summary.get("rank", 0))


def _write_whole(path: pathlib.Path, document: Mapping[str, Any]) -> None:
    """Raises OSError."""
    fresh = path.with_name(path.name + ".part")
    fresh.write_text(json.dumps(document, indent=2) + "\n")
    fresh.replace(path)


def _training_ms(summary: Mapping[str, Any]) -> float:
    trained = [program for program in summary["programs"] if program["name"] in summary["training_functions"]]
    return float(sum(program["total_ms"] for program in trained))
