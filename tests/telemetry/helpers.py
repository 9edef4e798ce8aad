"""Spools made and read for tests."""

from __future__ import annotations

import json
import pathlib
from typing import Any

from stitchfleet.telemetry.pod import spool
from stitchfleet.telemetry.pod.recording import JobIdentity
from stitchfleet.telemetry.pod.spool import OPEN, SEALED, SHIPPING, Damage, Iterations, Kind, Record


def identity(run_id: str = "run-1", **changes: object) -> JobIdentity:
    """A job of one CPU device."""
    facts: dict[str, object] = {
        "cluster": "lab",
        "run_id": run_id,
        "uid": "u-1",
        "attempt": 0,
        "namespace": "team",
        "name": "bert-1",
        "user": "ada",
        "image": "registry/bert:1",
        "framework": "tensorflow",
        "framework_version": "2.15.1",
        "plugin_version": "0.1.0",
        "model_fingerprint": "f00d",
        "device_kind": "cpu",
        "device_count": 1,
        "rank": 0,
        "world_size": 1,
        "labels": {"team": "nlp"},
    }
    return JobIdentity(**{**facts, **changes})  # type: ignore[arg-type]


def records(folder: pathlib.Path) -> list[Record]:
    """All records of a spool; damage fails the test, a torn end does not."""
    found: list[Record] = []
    for path in spool.segments(folder, OPEN, SEALED, SHIPPING):
        damage = Damage()
        found += spool.decode(path.read_bytes(), damage)
        assert damage.records == 0, path
    return found


def iterations(folder: pathlib.Path) -> list[tuple[int, int, float]]:
    """(step, arm, microseconds) of all iterations in a spool, in the order of the records."""
    found = []
    for record in records(folder):
        if record.kind == Kind.ITERATIONS:
            block = Iterations.decode(record.body)
            found += [
                (block.first_step + index * block.stride, arm, block.durations[index])
                for first, count, arm in block.runs
                for index in range(first, first + count)
            ]
    return found


def bodies(folder: pathlib.Path, kind: Kind) -> list[dict[str, Any]]:
    """The JSON bodies of one kind."""
    return [json.loads(record.body) for record in records(folder) if record.kind == kind]
