"""From spool records to rows of the database. Pure: the same records always make the same rows, so that sending twice changes
nothing.

Records come from processes that cannot be trusted: `schema` says what a record may hold. A record that is not of its kind's type is
skipped and counted, with the reason; the other records of its segment are used.
"""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ..pod.recording import (
    DAY_NS,
    FORMAT,
    MAX_BLOCK,
    MAX_DURATION_NS,
    PLAIN,
    STITCHED,
    UNCOUNTED,
    JobIdentity,
    bounded_labels,
)
from ..pod.spool import (
    AFTER_DEATH,
    FUNCTION_NUMBER,
    MAX_RECORDS,
    Damage,
    Iterations,
    Kind,
    Record,
    decode,
    little_endian,
)
from . import schema
from .schema import LOSS_EVENT, InvalidRecordError

Row = dict[str, Any]


class FormatError(ValueError):
    """The spool was written in a format that this program does not know; it must be left for a newer program."""


DUPLICATE_SEQUENCE, MISSING_SEQUENCE, CLOCK_BACKWARDS = "duplicate_sequence", "missing_sequence", "clock_backwards"
IRREGULARITIES = (DUPLICATE_SEQUENCE, MISSING_SEQUENCE, CLOCK_BACKWARDS)

CPU = "cpu"
"""The device kind that is not a GPU; senders may write it in any case."""
READABLE_FORMATS = (1, FORMAT)
_MAX_ELAPSED = (1 << 31) - 1
"""Milliseconds; a value beyond it, or below 0, comes from a clock that was set."""


@dataclass
class Rows:
    """Rows by table name, ready to insert in any order. All belong to one process, which is the one row of `jobs`.

    damaged: records that could not be used, each with the reason. irregular: counts of odd but harmless things: DUPLICATE_SEQUENCE
    (the first record counts), MISSING_SEQUENCE (records lost between two others) and CLOCK_BACKWARDS (the wall clock was set back
    between two blocks; durations come from another clock).
    """

    tables: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))
    damaged: list[str] = field(default_factory=list)
    irregular: Counter[str] = field(default_factory=Counter)

    def __len__(self) -> int:
        return sum(map(len, self.tables.values()))


def rows_of_segment(data: bytes, fallback_identity: bytes | None = None) -> tuple[Rows, bytes | None]:
    """Returns the rows of one segment's bytes, and the body of its identity record (None if it has none that can be used).

    fallback_identity: the identity of another segment of the same spool, for a segment whose own (its first record) is damaged.
    Without any identity, all its records count as damaged. Raises FormatError for a format of the future.
    """
    damage = Damage()
    records = list(decode(data, damage))
    found = Rows()
    found.damaged += ["unreadable bytes"] * damage.records
    if not records:
        return found, None
    identity = records[0].body if records[0].kind == Kind.IDENTITY else None
    job: Row | None = None
    try:
        job = _job_row(identity) if identity is not None else None
    except InvalidRecordError as error:
        found.damaged.append(f"identity: {error}")
        identity = None
    if job is None and fallback_identity is not None:
        try:
            job = _job_row(fallback_identity)
        except InvalidRecordError as error:
            found.damaged.append(f"the spool's identity: {error}")
    if job is None:
        found.damaged += ["a record of an unknown job"] * len(records)
        return found, None
    found.tables["jobs"].append(job)
    iterations: dict[int, list[tuple[int, Iterations]]] = defaultdict(list)
    seen: set[int] = set()
    last_sequence, last_ended_ns = records[0].sequence, 0
    for record in records:
        if record.sequence in seen:
            found.irregular[DUPLICATE_SEQUENCE] += 1
            continue
        if record.sequence > schema.MAX_SEQUENCE:
            found.damaged.append(f"a sequence number over {schema.MAX_SEQUENCE}")
            continue
        seen.add(record.sequence)
        # the bytes between two records of one segment cannot have held more
        found.irregular[MISSING_SEQUENCE] += min(max(0, record.sequence - last_sequence - 1), MAX_RECORDS)
        last_sequence = max(last_sequence, record.sequence)
        try:
            if record.kind in (Kind.ITERATIONS, Kind.FUNCTION_ITERATIONS):
                function, block = _iterations(record)
                found.irregular[CLOCK_BACKWARDS] += block.ended_ns < max(block.started_ns, last_ended_ns)
                last_ended_ns = block.ended_ns
                iterations[function].append((record.sequence, block))
            elif record.kind in _MAKERS:
                table, make = _MAKERS[record.kind]
                found.tables[table].append(make(record.sequence, record.body))
            elif record.kind == Kind.MODEL:
                model = schema.decoded(record.body, schema.Model)
                job["model_fingerprint"] = job["model_fingerprint"] or model.fingerprint
            elif record.kind != Kind.IDENTITY:
                found.damaged.append(f"a record of unknown kind {record.kind}")
        except (ValueError, ArithmeticError) as error:
            found.damaged.append(f"{_name(record.kind)}: {error}")
    for function, mine in iterations.items():
        for entry in merged(mine):
            found.tables["iteration_blocks"].append({**_iteration_row(*entry), "function": function})
    return found, identity


def job_of_segment(data: bytes) -> Row | None:
    """The row of `jobs` from a segment's first record, as `rows_of_segment` makes it; None if that record is no valid identity.
    Raises FormatError."""
    first = next(decode(data, Damage()), None)
    try:
        return _job_row(first.body) if first is not None and first.kind == Kind.IDENTITY else None
    except InvalidRecordError:
        return None


def _name(kind: int) -> str:
    return Kind(kind).name.lower().replace("_", " ")


def _iterations(record: Record) -> tuple[int, Iterations]:
    """The number of the training function of a record of iterations, and the iterations. Raises ValueError."""
    body, function = record.body, 0
    if len(body) > schema.MAX_ITERATIONS_BYTES:
        raise ValueError(f"{len(body)} bytes; a record has at most {schema.MAX_ITERATIONS_BYTES}")
    if record.kind == Kind.FUNCTION_ITERATIONS:
        if len(body) < FUNCTION_NUMBER.size:
            raise ValueError("iterations without the number of their function")
        function, body = int(FUNCTION_NUMBER.unpack_from(body)[0]), body[FUNCTION_NUMBER.size :]
    block = Iterations.decode(body)
    count = len(block.durations)
    total = math.fsum(block.durations)
    if not math.isfinite(total):
        raise ValueError("a duration is not a number")
    head = {
        "sequence": record.sequence,
        "function": function,
        "first_step": block.first_step,
        "last_step": block.first_step + (count - 1) * block.stride,
        "stride": block.stride,
        "started_ns": block.started_ns,
        "ended_ns": block.ended_ns,
        "count": count,
        "arms": block.runs,
        "shortest_us": min(block.durations),
        "total_us": total,
    }
    schema.checked(head, schema.Block)
    return function, block


def merged(records: Iterable[tuple[int, Iterations]]) -> list[tuple[int, Iterations]]:
    """Joins consecutive (sequence, iterations) of one segment, up to MAX_BLOCK iterations; the result has the first one's sequence.

    The recorder writes once a second, so that a killed process loses little; the database prefers long arrays.
    """
    found: list[tuple[int, Iterations]] = []
    is_copy, total_us = False, 0.0
    for sequence, block in records:
        last = found[-1][1] if found else None
        mine_us = math.fsum(block.durations)
        if last is None or not _follows(last, block) or total_us + mine_us > MAX_DURATION_NS / 1e3:
            found.append((sequence, block))
            is_copy, total_us = False, mine_us
            continue
        if not is_copy:
            last = dataclasses.replace(last, runs=list(last.runs), durations=last.durations[:])
            found[-1] = (found[-1][0], last)
            is_copy = True
        total_us += mine_us
        offset = len(last.durations)
        if offset == 1:
            last.stride = block.first_step - last.first_step
        last.ended_ns = block.ended_ns
        last.durations.extend(block.durations)
        for first, count, arm in block.runs:
            if last.runs[-1][2] == arm:
                last.runs[-1] = (last.runs[-1][0], last.runs[-1][1] + count, arm)
            else:
                last.runs.append((first + offset, count, arm))
    return found


def _follows(last: Iterations, block: Iterations) -> bool:
    gap = block.first_step - (last.first_step + (len(last.durations) - 1) * last.stride)
    strides = {gap}
    if len(last.durations) > 1:
        strides.add(last.stride)
    if len(block.durations) > 1:
        strides.add(block.stride)
    return (
        0 < gap <= schema.MAX_STRIDE
        and len(strides) == 1
        and len(last.durations) + len(block.durations) <= MAX_BLOCK
        and last.ended_ns // DAY_NS == block.ended_ns // DAY_NS
    )


def _iteration_row(sequence: int, block: Iterations) -> Row:
    counts, sums = [0, 0, 0], [0.0, 0.0, 0.0]
    for first, count, arm in block.runs:
        counts[arm] += count
        sums[arm] += math.fsum(block.durations[first : first + count])
    row: Row = {
        "day": block.ended_ns // DAY_NS,
        "sequence": sequence,
        "elapsed_ms": max(-_MAX_ELAPSED, min((block.ended_ns - block.started_ns) // 10**6, _MAX_ELAPSED)),
        "ended_ns": block.ended_ns,
        "first_step": block.first_step,
        "stride": block.stride,
        "arms": json.dumps(block.runs, separators=(",", ":")),
        "durations": little_endian(block.durations),
    }
    for arm, name in ((PLAIN, "plain"), (STITCHED, "stitched"), (UNCOUNTED, "uncounted")):
        row[f"{name}_count"] = counts[arm]
        row[f"{name}_ns"] = round(sums[arm] * 1e3)
    return row


def _job_row(body: bytes) -> Row:
    written = schema.decoded(body, schema.Format).format
    if written not in READABLE_FORMATS:
        raise FormatError(f"a spool of format {written}; this program reads formats up to {FORMAT}")
    about = schema.decoded(body, schema.Identity)
    job = about.job
    row: Row = {name: getattr(job, name) for name in JobIdentity.__dataclass_fields__}
    row["labels"] = json.dumps(bounded_labels(job.labels or {}), sort_keys=True)
    row["device_kind"] = normal_device_kind(job.device_kind)
    return {
        **row,
        "process": about.process,
        "host": about.host,
        "pid": about.pid,
        "started_ns": about.started_ns,
    }


def normal_device_kind(said: str) -> str:
    """The device kind with "cpu" in lower case, however it was written; other kinds unchanged. It decides whether hours are of
    CPUs or GPUs."""
    return CPU if said.strip().lower() == CPU else said


def unit_of(device_kind: str) -> str:
    """ "CPU" or "GPU": the unit of the hours of a job on this kind of device."""
    return "CPU" if normal_device_kind(device_kind) == CPU else "GPU"


def _arm_block(_sequence: int, body: bytes) -> Row:
    said = schema.decoded(body, schema.ArmBlock)
    durations = said.durations_ns
    mean = math.fsum(durations) / len(durations)
    if not mean > 0:
        raise ValueError("a block without time in it")
    return {
        "function": said.function,
        "pair": said.pair,
        "arm": said.arm,
        "ended_ns": said.time_ns,
        "first_step": said.first_step,
        "count": len(durations),
        "mean_ns": mean,
        "median_ns": float(statistics.median(durations)),
        "variance_ns2": statistics.variance(durations, mean) if len(durations) > 1 else 0.0,
    }


def _cluster(sequence: int, body: bytes) -> Row:
    said = schema.decoded(body, schema.Cluster)
    known = schema.checked(said.facts, schema.ClusterFacts)
    return {
        "name": said.name,
        "sequence": sequence,
        "state": known.state or "",
        "facts": schema.text_of(said.facts),
    }


def _event(sequence: int, body: bytes) -> Row:
    said = schema.decoded(body, schema.Event)
    if said.kind in REVERT_EVENTS:
        schema.checked(said.facts, schema.RevertFacts)
    return _event_row(sequence, said.time_ns, said.kind, said.message, said.facts)


def _event_row(sequence: int, time_ns: int, kind: str, message: str, facts: object) -> Row:
    return {"sequence": sequence, "time_ns": time_ns, "kind": kind, "message": message, "facts": schema.text_of(facts)}


def _loss(sequence: int, body: bytes) -> Row:
    said = schema.decoded(body, schema.Loss)
    when = "after its end" if said.after_death else "so far"
    message = f"{said.lost} records of this process were lost {when}: {said.reason or 'the spool was full'}"
    facts = {"lost": said.lost, AFTER_DEATH: True} if said.after_death else {"lost": said.lost}
    return _event_row(sequence, said.time_ns, LOSS_EVENT, message, facts)


def _job_end(_sequence: int, body: bytes) -> Row:
    said = schema.decoded(body, schema.JobEnd)
    known = schema.checked(said.facts, schema.EndFacts)
    return {
        "ended_ns": said.time_ns,
        "phase": known.phase or "",
        "reason": known.reason or "",
        "overhead_ns": known.overhead_ns,
        "facts": schema.text_of(said.facts),
    }


def _function(_sequence: int, body: bytes) -> Row:
    said = schema.decoded(body, schema.Function)
    return {"function": said.function, "name": said.name}


REVERT_EVENTS = ("reverted", "revert")
"""Kinds of events by which the plugin reports that a cluster went back to TensorFlow's own operators."""
FALLBACK_EVENTS = ("plain", "does-not-pay", "memory", "switched-off")
"""Kinds of events by which it reports that a whole program did."""
COUNTED_EVENTS = (*REVERT_EVENTS, *FALLBACK_EVENTS, LOSS_EVENT)
"""Kinds of events that change a week's figures."""


class LossCount:
    """Number of records that a process lost, from the facts of all its LOSS_EVENTs: the largest count of its own, plus all losses
    after its end."""

    def __init__(self) -> None:
        self._own = self._later = 0
        self.unreadable = 0
        """Number of facts that cannot be read; they are older than the schema."""

    def add(self, facts: str) -> None:
        """Counts one LOSS_EVENT. facts: its facts as JSON text."""
        try:
            said = schema.decoded(facts.encode("utf-8", "replace"), schema.LossFacts)
        except InvalidRecordError:
            self.unreadable += 1
            return
        if said.after_death:
            self._later += said.lost
        else:
            self._own = max(self._own, said.lost)

    @property
    def lost(self) -> int:
        """The number of lost records."""
        return self._own + self._later


_MAKERS: dict[int, tuple[str, Callable[[int, bytes], Row]]] = {
    Kind.ARM_BLOCK: ("arm_blocks", _arm_block),
    Kind.FUNCTION: ("functions", _function),
    Kind.CLUSTER: ("clusters", _cluster),
    Kind.EVENT: ("events", _event),
    Kind.LOSS: ("events", _loss),
    Kind.JOB_END: ("job_ends", _job_end),
}
