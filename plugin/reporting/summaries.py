"""The files of a run's summaries: each training process writes its own, and `stitchfleet run` merges them into one document.

FILE          the summary of the process whose training functions took the most time (of rank 0 in a job of several ranks), with
              the summaries of the other processes under "other_processes"
FILE.PID      while the job runs: the summary of process PID

If one `stitchfleet run` has started all ranks of a host, their files are in one folder. Ranks with a `stitchfleet run` each send
their summaries to rank 0 over the store (ranks/exchange.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stitchfleet.compiler.support.whole_files import write_whole

OTHERS = "other_processes"


def write(path: pathlib.Path, summary: Mapping[str, Any]) -> None:
    """Writes this process's summary, atomically. path: FILE, the run's document. Raises OSError."""
    own = path.with_name(f"{path.name}.{os.getpid()}")
    _write(own, summary)
    with contextlib.suppress(FileExistsError):  # without `stitchfleet run` FILE is the first process's
        os.link(own, path)


def _of_processes(path: pathlib.Path) -> list[pathlib.Path]:
    return sorted(found for found in path.parent.glob(f"{path.name}.*") if found.suffix[1:].isdigit())


def remove(path: pathlib.Path) -> None:
    """Deletes the files that an earlier run has left. path: FILE. Raises OSError."""
    for old in (path, *_of_processes(path)):
        old.unlink(missing_ok=True)


def gather(path: pathlib.Path) -> list[dict[str, Any]]:
    """Merges the summaries of all processes into FILE, and deletes their files. path: FILE. Returns the summaries, as `in_order`
    does. If FILE cannot be written, the processes' files stay."""
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
    """The summaries of the processes that trained, or the first one if none did: by rank, then most training time first. Sets
    "is_one_of_several" in each."""
    ordered = sorted(found, key=lambda summary: (rank_of(summary), -_training_ms(summary), summary["started"]))
    ordered = [summary for summary in ordered if _training_ms(summary)] or ordered[:1]
    for summary in ordered:
        summary["is_one_of_several"] = len(ordered) > 1
    return ordered


def write_document(path: pathlib.Path, ordered: Sequence[Mapping[str, Any]]) -> bool:
    """Writes the document of one or more summaries; the first is the main one. Returns False if the file cannot be written."""
    try:
        _write(path, {**ordered[0], OTHERS: list(ordered[1:])})
    except OSError:
        return False
    return True


def rank_of(summary: Mapping[str, Any]) -> int:
    """The rank of the process; 0 in a job of one process."""
    return int(summary.get("rank", 0))


def _write(path: pathlib.Path, document: Mapping[str, Any]) -> None:
    write_whole(path, json.dumps(document, indent=2) + "\n")


def _training_ms(summary: Mapping[str, Any]) -> float:
    trained = [program for program in summary["programs"] if program["name"] in summary["training_functions"]]
    return float(sum(program["total_ms"] for program in trained))
