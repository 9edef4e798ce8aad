"""Moves what a training process recorded from its spool into the database, or to the ingest server, which stores it.

    python -m stitchfleet.telemetry.shipping.shipper FOLDER (--database URL | --ingest URL) [--follow PID]

It is a process of its own, at the lowest priority. FOLDER is a spool, or a folder of spools. Without --follow it ships what is
complete and ends. With --follow it continues until process PID has ended and its spool is drained, or LAST_TRIES_SECONDS after
that. A segment is deleted only after its rows are committed; if a shipper dies in between, the next one sends the segment again,
and its inserts change nothing for rows that exist already. An open segment is taken if its writer is dead (the kernel has released
its lock). If the server or database does not answer, the segments go back to the writer, which drops the oldest when the spool is
full or they are too old, and counts them; if the writer is dead, this process drops and counts what is too old, after a last
attempt to send it.

Exit status: 0 everything was shipped; 1 something had to stay in the spool (the database cannot be written, a format of the future);
2 a wrong argument.

SQLAlchemy is imported only when the first segment is complete: until then the process costs the job nothing. To send to an ingest
server it imports only the standard library.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import pathlib
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..pod.background import step_back
from ..pod.spool import (
    KEEP_DAYS,
    OPEN,
    SEALED,
    SHIPPING,
    Damage,
    Kind,
    Lock,
    decode,
    identity_of,
    read_file,
    segments,
    with_identity,
)
from ..pod.wire import Outcome
from .leftovers import drop_old, iterations_in

if TYPE_CHECKING:
    import sqlalchemy as sa

    from .sender import Sender

LOOK_SECONDS = 2.0
LAST_LOOK_SECONDS = 0.5
"""Seconds between passes: while the job runs, and afterwards."""
LAST_TRIES_SECONDS = 20.0
"""How long, after the job has ended, a database that fails is tried again."""
MAX_WAIT_SECONDS = 60.0
BATCH_BYTES = 8 << 20
"""Bytes of the segments of one post; a single segment may be longer."""
BATCH_SEGMENTS = 1024
DAMAGED = ".damaged"
"""Suffix of a segment that gave no row at all; it is kept for a person to examine, and never read again."""


@dataclass
class Shipped:
    """The result of a pass over a spool."""

    segments: int = 0
    rows: int = 0
    damaged: list[str] = field(default_factory=list)
    """Records that could not be used, each with the reason."""
    kept: list[str] = field(default_factory=list)
    """Reasons why something stays in the spool."""
    busy: int = 0
    """Number of spools on which another shipper is working."""
    too_old: int = 0
    """Number of records that were dropped because they could not be sent for too long."""
    retry_after_s: float = 0.0
    """Seconds from now after which an ingest server that refused wants to be asked again; 0 if none did."""


Deliver = Callable[[pathlib.Path, Shipped], None]
"""Ships the complete segments of a spool whose shipper's lock this process holds."""


def spools_in(folder: pathlib.Path) -> list[pathlib.Path]:
    """The folder itself if it is a spool, and the spools directly below it."""
    try:
        below = sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
    except OSError:
        below = []
    return [path for path in (folder, *below) if segments(path, OPEN, SEALED, SHIPPING)]


def ship_all(
    folder: pathlib.Path, engine: sa.Engine, done: Shipped | None = None, keep_days: float = KEEP_DAYS
) -> Shipped:
    """Ships all complete segments of the spools in a folder to a database. done: the result to add to. keep_days: days after
    which segments that could not be sent are dropped. A database that fails adds an entry to `kept`; nothing is raised."""
    return _deliver_all(folder, functools.partial(_ship_to_database, engine), done or Shipped(), keep_days)


def _deliver_all(folder: pathlib.Path, deliver: Deliver, done: Shipped, keep_days: float) -> Shipped:
    for spool in spools_in(folder):
        try:
            with _alone(spool) as alone:
                if alone:
                    deliver(spool, done)
                    done.too_old += drop_old(spool, keep_days)
                else:
                    done.busy += 1
        except Exception as error:  # whatever is wrong with one spool, the others must be shipped
            done.kept.append(f"{spool.name}: {type(error).__name__}: {error}")
    return done


@contextlib.contextmanager
def _alone(folder: pathlib.Path) -> Iterator[bool]:
    lock = Lock(folder / "shipper.lock")
    got = lock.acquire()
    try:
        yield got
    finally:
        lock.release()


def _complete(folder: pathlib.Path) -> list[pathlib.Path]:
    """The segments that may be shipped, oldest first."""
    return segments(folder, *((SEALED, OPEN) if _writer_is_dead(folder) else (SEALED,)), SHIPPING)


def _claim(path: pathlib.Path) -> pathlib.Path | None:
    """Takes a segment from its writer; None if the writer has dropped it meanwhile to stay within its bounds."""
    claimed = path.with_suffix(SHIPPING)
    try:
        path.rename(claimed)
    except FileNotFoundError:
        return None
    return claimed


def _writer_is_dead(folder: pathlib.Path) -> bool:
    if not segments(folder, OPEN) or not (folder / "owner.lock").exists():
        return False
    lock = Lock(folder / "owner.lock")
    dead = lock.acquire()
    lock.release()
    return dead


def _ship_to_database(engine: sa.Engine, folder: pathlib.Path, done: Shipped) -> None:
    import sqlalchemy.exc

    from ..database.access import reason, refuses_rows, writing
    from ..database.rows import FormatError, rows_of_segment
    from ..database.store import KEEP_DAYS as WEEKS_STAY_OPEN_DAYS
    from ..database.store import insert_rows
    from ..pod.recording import DAY_NS

    for path in _complete(folder):
        _claim(path)
    identity = identity_of(folder)
    for path in segments(folder, SHIPPING):
        try:
            rows, found = rows_of_segment(read_file(path), identity)
        except FormatError as error:
            done.kept.append(f"{path.name}: {error}")
            continue
        identity = found or identity
        done.damaged += [f"{folder.name}/{path.name}: {why}" for why in rows.damaged]
        if len(rows) == 0:
            if rows.damaged:
                path.rename(path.with_suffix(DAMAGED))
            else:
                path.unlink()
            continue
        try:
            with writing(engine) as connection:
                insert_rows(connection, rows, closed_before=time.time_ns() // DAY_NS - WEEKS_STAY_OPEN_DAYS)
        except sqlalchemy.exc.SQLAlchemyError as error:
            if refuses_rows(error):
                # it must not hold up the segments after it
                _set_aside(path, reason(error), done)
                continue
            done.kept.append(f"the database cannot be written to: {reason(error)}")
            _release(segments(folder, SHIPPING))
            return
        path.unlink()
        done.segments += 1
        done.rows += len(rows)


def _send(sender: Sender, folder: pathlib.Path, done: Shipped) -> None:
    """Posts the complete segments in batches; those that were not accepted go back to the spool."""
    from .sender import SendError

    limit, passed_over = BATCH_BYTES, set[pathlib.Path]()
    identity = identity_of(folder)
    while batch := _claim_batch(folder, limit, passed_over):
        try:
            answers = sender.post([with_identity(read_file(path), identity) for path in batch])
        except SendError as error:
            if error.too_large and len(batch) > 1:
                limit = sum(path.stat().st_size for path in batch) // 2
                _release(batch)
                continue
            if error.too_large:
                _set_aside(batch[0], str(error), done)
                continue
            _release(batch)
            done.kept.append(str(error))
            done.retry_after_s = error.retry_after_s or 0.0
            return
        for path, answer in zip(batch, answers):
            if answer.outcome is Outcome.DAMAGED:
                _set_aside(path, "; ".join(answer.reasons), done)
                continue
            if answer.outcome is Outcome.FUTURE:
                done.kept.append(f"{path.name}: {'; '.join(answer.reasons)}")
                passed_over.add(path.with_suffix(SEALED))
                _release([path])
                continue
            path.unlink()
            done.damaged += [f"{folder.name}/{path.name}: {why}" for why in answer.reasons]
            done.segments += 1
            done.rows += answer.rows


def _claim_batch(folder: pathlib.Path, limit: int, passed_over: set[pathlib.Path]) -> list[pathlib.Path]:
    """Takes the oldest segments, up to `limit` bytes in all, but at least one if there is any."""
    batch: list[pathlib.Path] = []
    size = 0
    for path in _complete(folder):
        if path.with_suffix(SEALED) in passed_over:
            continue
        try:
            size += path.stat().st_size
        except FileNotFoundError:
            continue
        if batch and (size > limit or len(batch) == BATCH_SEGMENTS):
            break
        claimed = _claim(path)
        if claimed is not None:
            batch.append(claimed)
    return batch


def _release(batch: list[pathlib.Path]) -> None:
    """Gives segments back: as long as they are claimed, their writer cannot drop them in favour of newer ones."""
    for path in batch:
        path.rename(path.with_suffix(SEALED))


def _set_aside(path: pathlib.Path, reason: str, done: Shipped) -> None:
    done.damaged.append(f"{path.parent.name}/{path.name}: {reason}")
    path.rename(path.with_suffix(DAMAGED))


# ---- the process ------------------------------------------------------------------------------------------------------------


def main(words: list[str] | None = None) -> int:
    """The command; see the module's docstring. words: its arguments; None: those of this process. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m stitchfleet.telemetry.shipping.shipper",
        description="Moves recorded measurements from a spool into the database.",
    )
    parser.add_argument("folder", type=pathlib.Path, help="a spool, or a folder of spools")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--database", metavar="URL", help="SQLAlchemy URL, or an SQLite file")
    where.add_argument("--ingest", metavar="URL", help="URL of the ingest server")
    parser.add_argument("--follow", type=int, metavar="PID", help="continue until this process has ended")
    parser.add_argument(
        "--keep-days",
        type=float,
        default=KEEP_DAYS,
        metavar="N",
        help=f"drop records of a dead process that could not be sent for so long; default {KEEP_DAYS:g}",
    )
    arguments = parser.parse_args(words)
    step_back(19)
    if not arguments.folder.is_dir():
        print(f"shipper: {arguments.folder} is not a folder", file=sys.stderr)
        return 2
    if arguments.ingest is None:
        ship_once: Pass = functools.partial(_pass_to_database, arguments.database, arguments.keep_days)
    else:
        from .sender import Sender

        try:
            ship_once = functools.partial(_pass_to_ingest, Sender(arguments.ingest), arguments.keep_days)
        except ValueError as error:
            print(f"shipper: {error}", file=sys.stderr)
            return 2
    if arguments.follow is None:
        return _report(arguments.folder, ship_once(arguments.folder))
    return _follow(arguments.folder, ship_once, arguments.follow)


Pass = Callable[[pathlib.Path], Shipped]
"""Ships what is complete in a folder."""


def _pass_to_ingest(sender: Sender, keep_days: float, folder: pathlib.Path) -> Shipped:
    try:
        return _deliver_all(folder, functools.partial(_send, sender), Shipped(), keep_days)
    finally:
        sender.close()


def _pass_to_database(url: str, keep_days: float, folder: pathlib.Path) -> Shipped:
    done = Shipped()
    if not spools_in(folder):
        return done
    import sqlalchemy.exc

    from ..database.access import open_engine, prepare, reason
    from ..database.errors import DatabaseError
    from ..database.places import database_url

    try:
        engine = open_engine(database_url(url))
        try:
            prepare(engine)
            ship_all(folder, engine, done, keep_days)
        finally:
            engine.dispose()
    except DatabaseError as error:
        done.kept.append(str(error))
        _deliver_all(folder, _keep, done, keep_days)
    except sqlalchemy.exc.SQLAlchemyError as error:
        done.kept.append(f"the database cannot be written to: {reason(error)}")
        _deliver_all(folder, _keep, done, keep_days)
    return done


def _keep(_spool: pathlib.Path, _done: Shipped) -> None:
    """Delivers nothing: there is no database to deliver to."""


def _report(folder: pathlib.Path, done: Shipped) -> int:
    for why in done.damaged:
        print(f"shipper: skipped: {why}", file=sys.stderr)
    if done.too_old:
        print(f"shipper: {done.too_old} records were dropped as too old to wait any longer", file=sys.stderr)
    for why in sorted(set(done.kept)):
        print(f"shipper: stays in the spool: {why}{_unsent(folder)}", file=sys.stderr)
    return 1 if done.kept else 0


def _unsent(folder: pathlib.Path) -> str:
    """How much stays unsent, as text."""
    iterations = others = 0
    for path in (path for spool in spools_in(folder) for path in segments(spool, OPEN, SEALED, SHIPPING)):
        with contextlib.suppress(OSError):
            for record in decode(read_file(path), Damage()):
                if record.kind in (Kind.ITERATIONS, Kind.FUNCTION_ITERATIONS):
                    iterations += iterations_in(record)
                else:
                    others += record.kind != Kind.IDENTITY
    return f" ({iterations} iterations, {others} other records)"


def _follow(folder: pathlib.Path, ship_once: Pass, pid: int) -> int:
    born = _birth(pid)
    failures, failing_since = 0, time.monotonic()
    while True:
        # tested first: then everything that the process wrote before it ended is there when the pass begins
        ended = _birth(pid) != born or born is None
        ready = any(segments(spool, SEALED, SHIPPING) for spool in spools_in(folder))
        done = ship_once(folder) if ready or ended else Shipped()
        failures += 1
        if not done.kept:
            failures, failing_since = 0, time.monotonic()
        if (done.damaged or done.too_old) and not ended:
            _report(folder, Shipped(damaged=done.damaged, too_old=done.too_old))
        if ended:
            drained = not done.kept and not done.busy and not _left(folder)
            if drained or time.monotonic() - failing_since > LAST_TRIES_SECONDS:
                return _report(folder, done)
        time.sleep(_pause(failures, done.retry_after_s, ended))


def _pause(failures: int, retry_after_s: float, ended: bool) -> float:
    """Seconds until the next pass, after `failures` failed passes in a row: longer each time, not before the server wants, and
    randomised, so that a fleet's shippers do not all return at once. If the process has ended there is little time left, so the
    wait is short."""
    look, most = (LAST_LOOK_SECONDS, LAST_TRIES_SECONDS / 4) if ended else (LOOK_SECONDS, MAX_WAIT_SECONDS)
    if not failures:
        return look
    wait = min(look * 2.0 ** min(failures - 1, 10), most / 1.5)
    return max(wait, min(retry_after_s, most) if ended else retry_after_s) * random.uniform(1.0, 1.5)


def _left(folder: pathlib.Path) -> bool:
    """Whether a segment waits whose writer is dead. A child of the job may live on; it ships when it ends."""
    return any(
        segments(spool, SEALED, SHIPPING) or (segments(spool, OPEN) and _writer_is_dead(spool))
        for spool in spools_in(folder)
    )


def _birth(pid: int) -> str | None:
    """The start time of the process (a pid may be reused), from /proc; None if there is none, or if it is a zombie."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


if __name__ == "__main__":
    sys.exit(main())
