"""Moves what a training process recorded from its spool into the database. A process of its own, at the lowest priority.

    python -m stitchfleet.telemetry.shipper FOLDER --database URL [--follow PID]

FOLDER is a spool, or a folder of spools. Without --follow it ships what is complete and ends. With --follow it goes on until
process PID has ended and its spool is drained. A segment is deleted only after its rows are committed; a shipper that dies in
between leaves it to the next, whose inserts change nothing where the rows are there already. An open segment is taken once its
writer is dead (the kernel has released its lock).

Exit status: 0 all shipped; 1 something had to stay in the spool (the database cannot be written to, a format of the future);
2 a wrong argument.

SQLAlchemy is imported when the first segment is complete and not before: until then the process costs the job nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .background import step_back
from .spool import OPEN, SEALED, SHIPPING, Lock, segments

if TYPE_CHECKING:
    import sqlalchemy as sa

LOOK_SECONDS = 2.0
LAST_TRIES_SECONDS = 20.0
"""How long a database that refuses is asked again after the job has ended."""
MAX_WAIT_SECONDS = 60.0
DAMAGED = ".damaged"
"""Suffix of a segment that gave no row at all; kept for a person to look at, never read again."""


@dataclass
class Shipped:
    """What a pass over a spool did."""

    segments: int = 0
    rows: int = 0
    damaged: list[str] = field(default_factory=list)
    """Records that could not be used, each with the reason."""
    kept: list[str] = field(default_factory=list)
    """Why something stays in the spool."""
    busy: int = 0
    """Spools that another shipper is at work on."""


def spools_in(folder: pathlib.Path) -> list[pathlib.Path]:
    """The folder itself where it is a spool, and the spools right below it."""
    try:
        below = sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
    except OSError:
        below = []
    return [path for path in (folder, *below) if segments(path, OPEN, SEALED, SHIPPING)]


def ship_all(folder: pathlib.Path, engine: sa.Engine, done: Shipped | None = None) -> Shipped:
    """Ships all complete segments of the spools in a folder. A database that fails is an entry of `kept`, not an exception."""
    done = Shipped() if done is None else done
    for spool in spools_in(folder):
        ship_spool(spool, engine, done)
    return done


def ship_spool(folder: pathlib.Path, engine: sa.Engine, done: Shipped) -> None:
    """Ships one spool's complete segments, oldest first."""
    try:
        with _alone(folder) as alone:
            if not alone:
                done.busy += 1
                return
            _claim(folder)
            _ship_claimed(folder, engine, done)
    except OSError as error:
        done.kept.append(f"{folder.name}: {error}")


@contextlib.contextmanager
def _alone(folder: pathlib.Path) -> Iterator[bool]:
    lock = Lock(folder / "shipper.lock")
    got = lock.acquire()
    try:
        yield got
    finally:
        lock.release()


def _claim(folder: pathlib.Path) -> None:
    suffixes = (SEALED, OPEN) if _writer_is_dead(folder) else (SEALED,)
    for path in segments(folder, *suffixes):
        with contextlib.suppress(FileNotFoundError):  # dropped by its writer, to stay within bounds
            path.rename(path.with_suffix(SHIPPING))


def _writer_is_dead(folder: pathlib.Path) -> bool:
    if not segments(folder, OPEN) or not (folder / "owner.lock").exists():
        return False
    lock = Lock(folder / "owner.lock")
    dead = lock.acquire()
    lock.release()
    return dead


def _ship_claimed(folder: pathlib.Path, engine: sa.Engine, done: Shipped) -> None:
    import sqlalchemy.exc

    from .database import reason, writing
    from .rows import FormatError, rows_of_segment
    from .store import insert_rows

    identity: bytes | None = None
    for path in segments(folder, SHIPPING):
        try:
            rows, found = rows_of_segment(path.read_bytes(), identity)
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
                insert_rows(connection, rows)
        except (
            OverflowError,
            sqlalchemy.exc.DataError,
            sqlalchemy.exc.IntegrityError,
            sqlalchemy.exc.InterfaceError,
        ) as error:
            # a value that no database takes: it must not hold up what comes after it
            done.damaged.append(f"{folder.name}/{path.name}: {reason(error)}")
            path.rename(path.with_suffix(DAMAGED))
            continue
        except sqlalchemy.exc.SQLAlchemyError as error:
            done.kept.append(f"the database cannot be written to: {reason(error)}")
            return
        path.unlink()
        done.segments += 1
        done.rows += len(rows)


# ---- the process ------------------------------------------------------------------------------------------------------------


def main(words: list[str] | None = None) -> int:
    """The command. See the module's first lines."""
    parser = argparse.ArgumentParser(
        prog="python -m stitchfleet.telemetry.shipper",
        description="Moves recorded measurements from a spool into the database.",
    )
    parser.add_argument("folder", type=pathlib.Path, help="a spool, or a folder of spools")
    parser.add_argument("--database", required=True, metavar="URL", help="SQLAlchemy URL, or an SQLite file")
    parser.add_argument("--follow", type=int, metavar="PID", help="go on until this process has ended")
    arguments = parser.parse_args(words)
    step_back(19)
    if not arguments.folder.is_dir():
        print(f"shipper: {arguments.folder} is no folder", file=sys.stderr)
        return 2
    if arguments.follow is None:
        return _report(_pass(arguments.folder, arguments.database))
    return _follow(arguments.folder, arguments.database, arguments.follow)


def _pass(folder: pathlib.Path, url: str) -> Shipped:
    done = Shipped()
    if not spools_in(folder):
        return done
    import sqlalchemy.exc

    from .database import DatabaseError, open_engine, reason, upgrade
    from .places import database_url

    try:
        engine = open_engine(database_url(url))
        try:
            upgrade(engine)
            ship_all(folder, engine, done)
        finally:
            engine.dispose()
    except DatabaseError as error:
        done.kept.append(str(error))
    except sqlalchemy.exc.SQLAlchemyError as error:
        done.kept.append(f"the database cannot be written to: {reason(error)}")
    return done


def _report(done: Shipped) -> int:
    for why in done.damaged:
        print(f"shipper: passed over: {why}", file=sys.stderr)
    for why in sorted(set(done.kept)):
        print(f"shipper: stays in the spool: {why}", file=sys.stderr)
    return 1 if done.kept else 0


def _follow(folder: pathlib.Path, url: str, pid: int) -> int:
    born = _birth(pid)
    wait, failing_since = LOOK_SECONDS, time.monotonic()
    while True:
        # asked first: whatever the process wrote before it ended is there when the pass begins
        ended = _birth(pid) != born or born is None
        ready = any(segments(spool, SEALED, SHIPPING) for spool in spools_in(folder))
        done = _pass(folder, url) if ready or ended else Shipped()
        if not done.kept:
            failing_since = time.monotonic()
        if done.damaged and not ended:
            _report(Shipped(damaged=done.damaged))
        if ended:
            drained = not done.kept and not done.busy and not _left(folder)
            if drained or time.monotonic() - failing_since > LAST_TRIES_SECONDS:
                return _report(done)
        # an ended process' spool is waited for a little, a database that refuses longer each time
        wait = min(2 * wait, MAX_WAIT_SECONDS) if done.kept and not ended else LOOK_SECONDS
        time.sleep(min(wait, 0.5) if ended else wait)


def _left(folder: pathlib.Path) -> bool:
    """Whether a segment waits whose writer is not alive: a child of the job may live on, and ships when it ends."""
    return any(
        segments(spool, SEALED, SHIPPING) or (segments(spool, OPEN) and _writer_is_dead(spool))
        for spool in spools_in(folder)
    )


def _birth(pid: int) -> str | None:
    """When the process began (a pid may be used again); None where there is none, or a dead one that nobody waited for."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


if __name__ == "__main__":
    sys.exit(main())
