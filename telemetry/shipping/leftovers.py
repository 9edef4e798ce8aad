"""The spool's age limit if its writer is dead: a living writer enforces it itself; a dead one's segments wait for a shipper.

A segment that is too old, and that the shipper has just failed to send, is replaced by one that holds its identity and a LOSS
record. That is one rename, so a shipper that dies in between counts nothing twice. The LOSS record takes the sequence number of a
record that is gone, so that no other row ever has it. Standard library only.
"""

from __future__ import annotations

import itertools
import json
import pathlib
import time

from ..pod.spool import (
    AFTER_DEATH,
    FUNCTION_NUMBER,
    MAGIC,
    OPEN,
    SEALED,
    SHIPPING,
    Damage,
    Iterations,
    Kind,
    Lock,
    Record,
    decode,
    encode,
    identity_of,
    old_segments,
    read_file,
    too_old,
    write_file,
)


def drop_old(folder: pathlib.Path, days: float) -> int:
    """Drops the segments that were not written to for `days` days; returns how many records they held, each iteration counted as
    one.

    Nothing is dropped while the spool's writer lives. The caller must hold the shipper's lock. Raises OSError.
    """
    old = old_segments(folder, days, OPEN, SEALED, SHIPPING)
    if not old:
        return 0
    owner = Lock(folder / "owner.lock")
    if not owner.acquire():
        return 0
    try:
        return sum(_drop(path, days) for path in old)
    finally:
        owner.release()


def weight(records: list[Record]) -> int:
    """Number of measurements in these records: each iteration is one, and so is each other record but identities and LOSS
    records."""
    found = 0
    for record in records:
        if record.kind in (Kind.ITERATIONS, Kind.FUNCTION_ITERATIONS):
            found += iterations_in(record)
        else:
            found += record.kind not in (Kind.IDENTITY, Kind.LOSS)
    return found


def iterations_in(record: Record) -> int:
    """How many iterations a record of iterations holds; a record that cannot be read counts as one."""
    body = record.body[FUNCTION_NUMBER.size :] if record.kind == Kind.FUNCTION_ITERATIONS else record.body
    try:
        return len(Iterations.decode(body).durations)
    except ValueError:
        return 1


def _drop(path: pathlib.Path, days: float) -> int:
    damage = Damage()
    records = list(decode(read_file(path), damage))
    lost = weight(records) + damage.records
    identity = next((record for record in records if record.kind == Kind.IDENTITY), None)
    if identity is None and records and (known := identity_of(path.parent)) is not None:
        identity = Record(Kind.IDENTITY, max(0, records[0].sequence - 1), known)
    if lost == 0 and records:
        return 0  # it only reports losses
    if identity is None:
        path.unlink()  # it is not known whose it was
        return lost
    kept = [record for record in records if record.kind == Kind.LOSS]
    taken = {record.sequence for record in kept}
    sequence = next(number for number in itertools.count(identity.sequence + 1) if number not in taken)
    said = {"time_ns": time.time_ns(), "lost": lost, "reason": too_old(days), AFTER_DEATH: True}
    loss = Record(Kind.LOSS, sequence, json.dumps(said).encode())
    new = path.with_suffix(".dropping")
    write_file(new, MAGIC + b"".join(map(encode, (identity, *kept, loss))))
    new.replace(path.rename(path.with_suffix(SEALED)))
    return lost
