"""Stores a batch of segments in the database: whose it is, which rows are new, and which device-seconds it adds to the metrics.

One transaction takes as much of a batch as GROUP_BYTES and GROUP_ROWS allow, which is all that our own sender posts at once. If the
database accepts some of its rows and refuses others, there is one transaction per segment. Nothing here knows HTTP."""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa

from ..database import schema
from ..database.access import refuses_rows, writing
from ..database.models import arm_blocks, events
from ..database.rows import (
    FormatError,
    LossCount,
    Row,
    Rows,
    job_of_segment,
    rows_of_segment,
    unit_of,
)
from ..database.schema import LOSS_EVENT
from ..database.store import KEEP_DAYS, Key, Registered, hold, insert_rows, key_of, register
from ..pod import wire
from ..pod.recording import DAY_NS, MAX_DURATION_NS, PLAIN
from ..pod.wire import Outcome
from .authentication import Caller
from .metrics import TOO_NEW, TOO_OLD, Written

AHEAD_DAYS = 1
SAID_REASONS = 5
"""Most reasons in the answer about one segment's damaged records."""
MAX_REASON = 200
"""Most characters of one such reason."""
MAX_SAID = 4096
"""Most such reasons in the answer to one batch, so that the answer stays shorter than a sender reads."""
IDENTITY_BYTES = schema.MAX_RECORD_BYTES + 64
"""A segment's identity record ends within this many bytes from its beginning."""
GROUP_BYTES = 9 << 20
GROUP_ROWS = 8192
"""A transaction is closed as soon as its segments have more than GROUP_BYTES bytes or GROUP_ROWS rows: the rows made of a batch
take several times its memory."""


class ForbiddenError(Exception):
    """The caller may not write these rows."""


@dataclass
class Receipt:
    """The outcome of one segment. rows: number of its rows, new or not. damaged_records: records that could not be used. dropped:
    blocks dated too far from today. reason: why nothing of it was used, or ""."""

    outcome: Outcome
    rows: int = 0
    damaged_records: int = 0
    damaged: list[str] = field(default_factory=list)
    """The reasons why the first SAID_REASONS of the damaged records could not be used."""
    dropped: int = 0
    reason: str = ""

    def to_json(self) -> dict[str, object]:
        """The receipt as an object of the JSON answer."""
        return {
            "outcome": self.outcome.value,
            "rows": self.rows,
            "damaged_records": self.damaged_records,
            "damaged": self.damaged,
            "dropped_blocks": self.dropped,
            "reason": self.reason,
        }


Book = Callable[[Written], None]
"""Called with what was committed, on the thread that committed it."""


def receive_body(
    engine: sa.Engine, body: bytes | bytearray, caller: Caller, book: Book, now_ns: Callable[[], int] = time.time_ns
) -> bytes:
    """Stores a decompressed body and returns the answer as JSON text. Blocks. Raises wire.WireError if the body is not valid, and
    what `receive` raises."""
    receipts = receive(engine, wire.decode(body), caller, book, now_ns)
    said = 0
    for receipt in receipts:
        said += len(receipt.damaged)
        if said > MAX_SAID:
            receipt.damaged = []
    return json.dumps({"segments": [receipt.to_json() for receipt in receipts]}, separators=(",", ":")).encode()


def receive(
    engine: sa.Engine,
    segments: Sequence[bytes | memoryview],
    caller: Caller,
    book: Book,
    now_ns: Callable[[], int] = time.time_ns,
) -> list[Receipt]:
    """Commits what is new in the segments of one spool, and returns their receipts in order.

    Raises ForbiddenError if rows belong to another namespace or pod than the caller's; none of these is written. Raises SQLAlchemy's
    errors: the batch may then be sent again; what was committed of it before is booked, because it will not be new again.
    """
    for segment in segments:
        try:
            job = job_of_segment(bytes(segment[:IDENTITY_BYTES]))
        except FormatError:
            continue  # nothing of this segment is written
        if job is not None:
            _authorise(caller, job)
    beside = Written()
    receipts: list[Receipt] = []
    taken: list[tuple[Receipt, Rows]] = []
    taken_bytes = taken_rows = 0
    identity: bytes | None = None
    today = now_ns() // DAY_NS
    try:
        for segment in segments:
            receipt, rows, identity = _read(segment, identity, beside)
            receipts.append(receipt)
            if rows is None:
                continue
            for job in rows.tables["jobs"]:
                _authorise(caller, job)
            receipt.dropped = _drop_far_days(rows, today, beside)
            if not len(rows):
                continue
            receipt.rows = len(rows)
            taken.append((receipt, rows))
            taken_bytes, taken_rows = taken_bytes + len(segment), taken_rows + len(rows)
            if taken_bytes > GROUP_BYTES or taken_rows > GROUP_ROWS:
                beside.damaged += _write(engine, taken, today, book)
                taken, taken_bytes, taken_rows = [], 0, 0
        if taken:
            beside.damaged += _write(engine, taken, today, book)
    finally:
        book(beside)
    return receipts


def _read(
    segment: bytes | memoryview, identity: bytes | None, beside: Written
) -> tuple[Receipt, Rows | None, bytes | None]:
    """A segment's receipt, its rows, and the identity for a following segment whose own is damaged."""
    if len(segment) > wire.MAX_SEGMENT_BYTES:
        beside.damaged += 1
        why = f"a segment of {len(segment)} bytes; at most {wire.MAX_SEGMENT_BYTES} are taken"
        return Receipt(Outcome.DAMAGED, damaged_records=1, reason=why), None, identity
    try:
        rows, found = rows_of_segment(bytes(segment), identity)
    except FormatError as error:
        beside.future_segments += 1
        return Receipt(Outcome.FUTURE, reason=str(error)), None, identity
    except MemoryError:
        raise
    except Exception:
        # reading depends on the bytes alone: what fails once fails each time, and must not be sent again and again
        print(f"stitchfleet ingest: a segment cannot be read: {traceback.format_exc()}", file=sys.stderr)
        beside.damaged += 1
        return Receipt(Outcome.DAMAGED, damaged_records=1, reason="the segment cannot be read"), None, identity
    beside.damaged += len(rows.damaged)
    beside.irregular += +rows.irregular
    receipt = Receipt(Outcome.STORED, damaged_records=len(rows.damaged))
    receipt.damaged = [why[:MAX_REASON] for why in rows.damaged[:SAID_REASONS]]
    if not len(rows) and rows.damaged:
        receipt.outcome = Outcome.DAMAGED
    rows.damaged.clear()
    return receipt, rows, found or identity


def _authorise(caller: Caller, job: Row) -> None:
    if caller.namespace is not None and job["namespace"] != caller.namespace:
        raise ForbiddenError(
            f"rows of namespace {job['namespace']!r}; {caller.name} may write those of {caller.namespace!r}"
        )
    if caller.pod_uid is not None and job["uid"] != caller.pod_uid:
        raise ForbiddenError(f"rows of pod {job['uid']!r}; {caller.name} may write those of {caller.pod_uid!r}")


def _drop_far_days(rows: Rows, today: int, written: Written) -> int:
    kept = []
    for row in rows.tables.get("iteration_blocks", ()):
        if row["day"] < today - KEEP_DAYS:
            written.dropped[TOO_OLD] += 1
        elif row["day"] > today + AHEAD_DAYS:
            written.dropped[TOO_NEW] += 1
        else:
            kept.append(row)
    dropped = len(rows.tables.get("iteration_blocks", ())) - len(kept)
    if dropped:
        rows.tables["iteration_blocks"] = kept
    return dropped


def _write(engine: sa.Engine, taken: list[tuple[Receipt, Rows]], today: int, book: Book) -> int:
    """Writes the rows in one transaction. Returns how many rows the database refuses."""
    written = Written()
    try:
        with writing(engine) as connection:
            _write_rows(connection, [rows for _, rows in taken], today, written)
    except sa.exc.SQLAlchemyError as error:
        if not refuses_rows(error):
            raise
        receipt, rows = taken[0]
        if len(taken) > 1:
            return sum([_write(engine, [entry], today, book) for entry in taken])
        receipt.outcome, receipt.rows, receipt.reason = Outcome.DAMAGED, 0, "the database refuses a value"
        return len(rows)
    book(written)
    return 0


def _write_rows(connection: sa.Connection, batches: Sequence[Rows], today: int, written: Written) -> None:
    processes: dict[Key, Row] = {}
    for job in (job for rows in batches for job in rows.tables["jobs"]):
        if (
            job["model_fingerprint"] or key_of(job) not in processes
        ):  # only the segment in which the model was found has it
            processes[key_of(job)] = job
    hold(connection, batches)
    if connection.dialect.name == "postgresql":
        # one writer per process at a time: what is new is queried before it is inserted
        for key in sorted(processes):
            name = "/".join(map(str, key))
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtextextended(name, 0))))
    closed_before = today - KEEP_DAYS
    known = {key: _registered(connection, job, closed_before) for key, job in processes.items()}
    of_losses = {
        known[key_of(rows.tables["jobs"][0])].process_id
        for rows in batches
        if any(row["kind"] == LOSS_EVENT for row in rows.tables.get("events", ()))
    }
    lost_before = sum(_lost(connection, each) for each in of_losses)
    inserted = insert_rows(connection, *batches, known=known, closed_before=closed_before)
    lost = sum(_lost(connection, each) for each in of_losses) - lost_before
    functions = {(row["process_id"], row["function"]) for _, row in inserted.blocks}
    plain_means = {of_function: _plain_mean(connection, *of_function) for of_function in functions}
    # from here on only the commit can fail, and then `written` is discarded
    written.rows += sum(map(len, batches))
    written.lost += lost
    written.registered += sum(process.is_new for process in known.values())
    written.blocks += len(inserted.blocks)
    given = sum(len(rows.tables.get("iteration_blocks", ())) for rows in batches)
    written.duplicate_blocks += given - len(inserted.blocks)
    for job, row in inserted.blocks:
        written.iterations += row["plain_count"] + row["stitched_count"] + row["uncounted_count"]
        _book_seconds(written, job, row, plain_means[row["process_id"], row["function"]])
    for job, row in inserted.ends:
        if job["rank"] == 0:
            written.device_seconds[_unit(job)].overhead += job["device_count"] * row["overhead_ns"] / 1e9


def _registered(connection: sa.Connection, job: Row, closed_before: int) -> Registered:
    """Registers the process of a job's row. A run belongs to a namespace, for which the caller may write; a process of the run
    belongs to one pod. Raises ForbiddenError if the pod differs."""
    found = register(connection, job, closed_before)
    if found.uid != job["uid"]:
        raise ForbiddenError(
            f"process {job['process']!r} of run {job['run_id']!r} belongs to another pod than {job['uid']!r}"
        )
    return found


def _lost(connection: sa.Connection, owner: int) -> int:
    of_losses = (events.c.process_id == owner, events.c.kind == LOSS_EVENT)
    found = LossCount()
    for facts in connection.scalars(sa.select(events.c.facts).where(*of_losses).execution_options(yield_per=1000)):
        found.add(facts)
    return found.lost


def _plain_mean(connection: sa.Connection, owner: int, function: int) -> float | None:
    """The mean of the plain blocks in ns; None while fewer than two are known."""
    count, mean = connection.execute(
        sa.select(sa.func.count(), sa.func.avg(arm_blocks.c.mean_ns)).where(
            arm_blocks.c.process_id == owner,
            arm_blocks.c.function == function,
            arm_blocks.c.arm == PLAIN,
            arm_blocks.c.mean_ns.between(0.0, MAX_DURATION_NS),
        )
    ).one()
    return float(mean) if count >= 2 else None


def _unit(job: Row) -> str:
    return unit_of(job["device_kind"]).lower()


def _book_seconds(written: Written, job: Row, block: Row, plain_mean: float | None) -> None:
    if job["rank"] != 0:
        return
    devices, seconds = job["device_count"], written.device_seconds[_unit(job)]
    stitched_ns = block["stitched_ns"] if plain_mean is None else block["stitched_count"] * plain_mean
    rest_ns = block["plain_ns"] + block["uncounted_ns"]
    seconds.actual += devices * (rest_ns + block["stitched_ns"]) / 1e9
    seconds.baseline_equivalent += devices * (rest_ns + stitched_ns) / 1e9
