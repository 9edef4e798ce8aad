"""Spool records to rows of the database. Pure: the same records always make the same rows, so that sending twice changes nothing.

Records come from processes that nobody can vouch for. What no database takes, or what would spoil a figure, is passed over and
counted: durations that are negative or no number, numbers beyond their column's range, steps that overflow. Text that PostgreSQL
refuses (a NUL, half of a surrogate pair) is mended.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from . import models
from .recording import DAY_NS, FORMAT, MAX_BLOCK, MAX_DURATION_NS, PLAIN, STITCHED, UNCOUNTED, JobIdentity
from .spool import AFTER_DEATH, FUNCTION_NUMBER, Damage, Iterations, Kind, decode, little_endian

Row = dict[str, Any]


class FormatError(ValueError):
    """The spool was written in a format that this program does not know; it must be left for one that does."""


DUPLICATE_SEQUENCE, MISSING_SEQUENCE, CLOCK_BACKWARDS = "duplicate_sequence", "missing_sequence", "clock_backwards"
IRREGULARITIES = (DUPLICATE_SEQUENCE, MISSING_SEQUENCE, CLOCK_BACKWARDS)

NONSENSE = (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError)
"""What reading a record raises that does not hold what its kind should."""
READABLE_FORMATS = (1, FORMAT)
_MAX_STEP = 1 << 62
_MAX_ELAPSED = (1 << 31) - 1
"""Milliseconds; more, or less than nothing, is a clock that was set."""


@dataclass
class Rows:
    """Rows by table name, ready to insert in any order. All are of one process, which is the one row of `jobs`.

    damaged: records that could not be used, each with the reason. irregular: how often something was odd and harmless, by
    DUPLICATE_SEQUENCE (the first record counts), MISSING_SEQUENCE (records lost between two others) and CLOCK_BACKWARDS (the wall
    clock was set back between two blocks; durations come from another clock).
    """

    tables: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))
    damaged: list[str] = field(default_factory=list)
    irregular: Counter[str] = field(default_factory=Counter)

    def __len__(self) -> int:
        return sum(map(len, self.tables.values()))


def rows_of_segment(data: bytes, fallback_identity: bytes | None = None) -> tuple[Rows, bytes | None]:
    """The rows of one segment's bytes, and the body of its identity record.

    fallback_identity: that of another segment of the same spool, for one whose own is damaged. Without any, all its records count
    as damaged. Raises FormatError for a format of the future.
    """
    damage = Damage()
    records = list(decode(data, damage))
    found = Rows()
    found.damaged += ["unreadable bytes"] * damage.records
    if not records:
        return found, None
    identity = next((record.body for record in records if record.kind == Kind.IDENTITY), None)
    try:
        job = _job_row(identity) if identity is not None else None
    except FormatError:
        raise
    except NONSENSE as error:
        found.damaged.append(f"identity: {error}")
        job = identity = None
    if job is None and fallback_identity is not None:
        job = _job_row(fallback_identity)
    if job is None:
        found.damaged += ["a record of nobody knows which job"] * len(records)
        return found, None
    found.tables["jobs"].append(job)
    iterations: dict[int, list[tuple[int, Iterations]]] = defaultdict(list)
    seen: set[int] = set()
    last_sequence, last_ended_ns = records[0].sequence, 0
    for record in records:
        if record.sequence in seen:
            found.irregular[DUPLICATE_SEQUENCE] += 1
            continue
        seen.add(record.sequence)
        found.irregular[MISSING_SEQUENCE] += max(0, record.sequence - last_sequence - 1)
        last_sequence = max(last_sequence, record.sequence)
        try:
            if record.kind in (Kind.ITERATIONS, Kind.FUNCTION_ITERATIONS):
                function, body = _function_of(record.kind, record.body)
                block = _checked(Iterations.decode(body))
                found.irregular[CLOCK_BACKWARDS] += block.ended_ns < max(block.started_ns, last_ended_ns)
                last_ended_ns = block.ended_ns
                iterations[function].append((record.sequence, block))
            elif record.kind in _MAKERS:
                table, make = _MAKERS[record.kind]
                found.tables[table].append(_fitting(table, make(record.sequence, _object(record.body))))
            elif record.kind == Kind.MODEL:
                job["model_fingerprint"] = job["model_fingerprint"] or _text(str(_object(record.body)["fingerprint"]))
            elif record.kind != Kind.IDENTITY:
                found.damaged.append(f"a record of unknown kind {record.kind}")
        except NONSENSE as error:
            found.damaged.append(f"{type(error).__name__}: {error}")
    for function, mine in iterations.items():
        for entry in merged(mine):
            try:
                row = _fitting("iteration_blocks", {**_iteration_row(*entry), "function": function})
                found.tables["iteration_blocks"].append(row)
            except ValueError as error:
                found.damaged.append(f"iterations: {error}")
    return found, identity


def _function_of(kind: int, body: bytes) -> tuple[int, bytes]:
    """The training function whose iterations a record holds, and these. Raises ValueError for a record without a number."""
    if kind == Kind.ITERATIONS:
        return 0, body
    if len(body) < FUNCTION_NUMBER.size:
        raise ValueError("iterations without the number of their function")
    return int(FUNCTION_NUMBER.unpack_from(body)[0]), body[FUNCTION_NUMBER.size :]


def merged(records: Iterable[tuple[int, Iterations]]) -> list[tuple[int, Iterations]]:
    """Joins (sequence, iterations) of one segment that follow on each other, up to MAX_BLOCK; the first's sequence is the result's.

    The recorder writes each second, so that little is lost with a killed process; the database wants long arrays.
    """
    found: list[tuple[int, Iterations]] = []
    for sequence, block in records:
        last = found[-1][1] if found else None
        if last is not None and _follows(last, block):
            offset = len(last.durations)
            stride = last.stride if offset > 1 else block.first_step - last.first_step
            joined = Iterations(
                last.first_step, stride, last.started_ns, block.ended_ns, list(last.runs), last.durations[:]
            )
            joined.durations.extend(block.durations)
            for first, count, arm in block.runs:
                if joined.runs[-1][2] == arm:
                    joined.runs[-1] = (joined.runs[-1][0], joined.runs[-1][1] + count, arm)
                else:
                    joined.runs.append((first + offset, count, arm))
            found[-1] = (found[-1][0], joined)
        else:
            found.append((sequence, block))
    return found


def _follows(last: Iterations, block: Iterations) -> bool:
    gap = block.first_step - (last.first_step + (len(last.durations) - 1) * last.stride)
    strides = {gap}
    if len(last.durations) > 1:
        strides.add(last.stride)
    if len(block.durations) > 1:
        strides.add(block.stride)
    return (
        gap > 0
        and len(strides) == 1
        and len(last.durations) + len(block.durations) <= MAX_BLOCK
        and last.ended_ns // DAY_NS == block.ended_ns // DAY_NS
    )


def _checked(block: Iterations) -> Iterations:
    # fsum: not finite where one of them is not, and as fast as a loop in C
    if not math.isfinite(math.fsum(block.durations)) or min(block.durations) < 0:
        raise ValueError("iterations: a duration is negative or no number")
    if max(block.durations) > MAX_DURATION_NS / 1e3:
        raise ValueError("iterations: a duration of more than 115 days")
    if any(arm not in (PLAIN, STITCHED, UNCOUNTED) for _, _, arm in block.runs):
        raise ValueError("iterations: an arm that does not exist")
    count = len(block.durations)
    if count > MAX_BLOCK:
        raise ValueError(f"iterations: {count} of them; a record has at most {MAX_BLOCK}")
    if block.stride < 1 or abs(block.first_step) + count * block.stride > _MAX_STEP:
        raise ValueError(f"iterations: steps from {block.first_step} on, {block.stride} apart")
    return block


def _fitting(table: str, row: Row) -> Row:
    """The row with its text mended. Raises ValueError where a number is not in its column's range."""
    for name, low, high in _RANGES[table]:
        if not low <= row[name] <= high:
            raise ValueError(f"{name} is {row[name]!r}: out of range")
    return {name: _text(value) if isinstance(value, str) else value for name, value in row.items()}


def _text(value: str) -> str:
    if value.isascii() and "\0" not in value:
        return value
    return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def _ranges(table: sa.Table) -> list[tuple[str, float, float]]:
    found: list[tuple[str, float, float]] = []
    for column in table.columns:
        if column.name == "process_id":
            continue  # the database's own
        if isinstance(column.type, sa.Float):
            found.append((column.name, -sys.float_info.max, sys.float_info.max))
        elif isinstance(column.type, sa.Integer):
            bits = (
                63 if isinstance(column.type, sa.BigInteger) else 15 if isinstance(column.type, sa.SmallInteger) else 31
            )
            found.append((column.name, -(1 << bits), (1 << bits) - 1))
    return found


_RANGES = {table.name: _ranges(table) for table in models.metadata.sorted_tables}


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


def _object(body: bytes) -> dict[str, Any]:
    facts = json.loads(body, parse_constant=str)  # NaN and Infinity are no JSON; as text they are no number either
    if not isinstance(facts, dict):
        raise ValueError("not a JSON object")
    return facts


def _job_row(body: bytes) -> Row:
    about = _object(body)
    if about["format"] not in READABLE_FORMATS:
        raise FormatError(f"a spool of format {about['format']!r}; this program reads formats up to {FORMAT}")
    job = JobIdentity.from_json(about["job"])
    row = job.to_json()
    if job.device_count < 1 or job.world_size < 1 or job.rank < 0 or job.attempt < 0:
        raise ValueError(f"{job.device_count} devices, rank {job.rank} of {job.world_size}, attempt {job.attempt}")
    row["labels"] = json.dumps(row["labels"], sort_keys=True)
    row = {
        **row,
        "process": str(about["process"]),
        "host": str(about["host"]),
        "pid": int(about["pid"]),
        "started_ns": int(about["started_ns"]),
    }
    return _fitting("jobs", row)


def _arm_block(_sequence: int, facts: Mapping[str, Any]) -> Row:
    durations = [int(value) for value in facts["durations_ns"]]
    if not durations or min(durations) < 0 or sum(durations) == 0:
        raise ValueError("a block without time in it")
    if facts["arm"] not in (PLAIN, STITCHED):
        raise ValueError(f"a block of arm {facts['arm']!r}")
    mean = math.fsum(durations) / len(durations)
    return {
        "function": int(facts.get("function", 0)),
        "pair": int(facts["pair"]),
        "arm": int(facts["arm"]),
        "ended_ns": int(facts["time_ns"]),
        "first_step": int(facts["first_step"]),
        "count": len(durations),
        "mean_ns": mean,
        "median_ns": float(statistics.median(durations)),
        "variance_ns2": statistics.variance(durations, mean) if len(durations) > 1 else 0.0,
    }


def _cluster(sequence: int, facts: Mapping[str, Any]) -> Row:
    inner = facts["facts"]
    return {
        "name": str(facts["name"]),
        "sequence": sequence,
        "state": str(inner.get("state", "")),
        "facts": json.dumps(inner),
    }


def _event(sequence: int, facts: Mapping[str, Any]) -> Row:
    return {
        "sequence": sequence,
        "time_ns": int(facts["time_ns"]),
        "kind": str(facts["kind"]),
        "message": str(facts["message"]),
        "facts": json.dumps(facts["facts"]),
    }


def _loss(sequence: int, facts: Mapping[str, Any]) -> Row:
    lost = int(facts["lost"])
    after_death = facts.get(AFTER_DEATH) is True
    when = "after its end" if after_death else "so far"
    message = f"{lost} records of this process were lost {when}: {facts['reason'] or 'the spool was full'}"
    said = {"lost": lost, AFTER_DEATH: True} if after_death else {"lost": lost}
    return _event(sequence, {**facts, "kind": LOSS_EVENT, "message": message, "facts": said})


def _job_end(_sequence: int, facts: Mapping[str, Any]) -> Row:
    inner = facts["facts"]
    overhead_ns = int(inner.get("overhead_ns", 0))
    if overhead_ns < 0:
        raise ValueError(f"an overhead of {overhead_ns} ns")
    return {
        "ended_ns": int(facts["time_ns"]),
        "phase": str(inner.get("phase", "")),
        "reason": str(inner.get("reason") or ""),
        "overhead_ns": overhead_ns,
        "facts": json.dumps(inner),
    }


LOSS_EVENT = "records-lost"
"""Kind of the event whose facts say how many records a process had lost up to then, or were dropped from its spool after its end."""


def records_lost(facts: Iterable[str]) -> int:
    """How many records a process lost by the facts of all its LOSS_EVENTs: the last count of its own, and all that came after."""
    own = later = 0
    for said in map(json.loads, facts):
        lost = int(said.get("lost", 0))
        if said.get(AFTER_DEATH):
            later += lost
        else:
            own = max(own, lost)
    return own + later


def _function(_sequence: int, facts: Mapping[str, Any]) -> Row:
    return {"function": int(facts["function"]), "name": str(facts["name"])}


_MAKERS: dict[int, tuple[str, Callable[[int, Mapping[str, Any]], Row]]] = {
    Kind.ARM_BLOCK: ("arm_blocks", _arm_block),
    Kind.FUNCTION: ("functions", _function),
    Kind.CLUSTER: ("clusters", _cluster),
    Kind.EVENT: ("events", _event),
    Kind.LOSS: ("events", _loss),
    Kind.JOB_END: ("job_ends", _job_end),
}
