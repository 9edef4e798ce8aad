"""What a hostile client sends, and what a victim's job holds."""

from __future__ import annotations

import json
import time
from types import MappingProxyType
from typing import Any

from stitchfleet.telemetry.pod import spool
from stitchfleet.telemetry.pod.recording import PLAIN, STITCHED
from stitchfleet.telemetry.pod.spool import Iterations, Kind, Record

from ..helpers import identity

NOW_NS = time.time_ns()
MS = 1_000_000
Part = tuple[int, bytes]
"""A record without its number: its kind and body."""


def said(**facts: Any) -> bytes:
    return json.dumps(facts).encode()


def identified(
    process: str = "p", started: int = NOW_NS, format: int = 2, pid: Any = 1, host: Any = "h", **job: Any
) -> bytes:
    """The body of an identity record; `job` changes fields of the job, None leaves one out."""
    facts = {name: value for name, value in {**identity().to_json(), **job}.items() if value is not None}
    return said(format=format, process=process, pid=pid, host=host, started_ns=started, job=facts)


def segment(*parts: Part, first: int = 1, about: bytes | None = None, **job: Any) -> bytes:
    """A segment of one process, its records numbered from `first`."""
    numbered = [(Kind.IDENTITY, identified(**job) if about is None else about), *parts]
    return spool.MAGIC + b"".join(
        spool.encode(Record(kind, first - 1 + place, body)) for place, (kind, body) in enumerate(numbered)
    )


def steps(
    count: int = 10, us: float = 1000.0, at: int = NOW_NS, first: int = 0, arm: int = PLAIN, stride: int = 1
) -> Part:
    block = Iterations(first, stride, at - 1, at, [(0, count, arm)])
    block.durations.extend([us] * count)
    return Kind.ITERATIONS, block.encode()


def arm_block(pair: int = 0, arm: int = PLAIN, durations: Any = (MS,), at: Any = NOW_NS, **more: Any) -> Part:
    facts = {"pair": pair, "arm": arm, "first_step": 0, "durations_ns": list(durations), "time_ns": at}
    return Kind.ARM_BLOCK, said(**{**facts, **more})


def pairs(count: int = 4, plain: int = 100 * MS, stitched: int = 80 * MS, at: int = NOW_NS) -> list[Part]:
    return [
        arm_block(pair, arm, [mean + pair * MS] * 5, at)
        for pair in range(count)
        for arm, mean in ((PLAIN, plain), (STITCHED, stitched))
    ]


def event(kind: str = "k", message: Any = "m", facts: Any = MappingProxyType({}), at: Any = NOW_NS) -> Part:
    return Kind.EVENT, said(
        kind=kind, message=message, facts=dict(facts) if isinstance(facts, MappingProxyType) else facts, time_ns=at
    )


def cluster(name: Any = "c", **facts: Any) -> Part:
    return Kind.CLUSTER, said(name=name, facts=facts, time_ns=NOW_NS)


def loss(lost: Any, at: Any = NOW_NS, **more: Any) -> Part:
    return Kind.LOSS, said(lost=lost, reason="full", time_ns=at, **more)


def end(at: Any = NOW_NS, **facts: Any) -> Part:
    return Kind.JOB_END, said(time_ns=at, facts={"overhead_ns": 10**9, "phase": "stitched", **facts})


def whole_job(**job: Any) -> bytes:
    """A job that saved 20%."""
    return segment(steps(50, 1e5), steps(900, 8e4, first=100, arm=STITCHED), *pairs(), event(), end(), **job)
