"""Opening the database: its engine, the version of its schema, and bringing it up to date.

SQLite in WAL mode: readers never wait for the one writer, and a writer waits BUSY_SECONDS for another. PostgreSQL is the fleet's
database by design; this version's migrations are written and tested for SQLite and refuse others.
"""

from __future__ import annotations

import contextlib
import pathlib
import sqlite3
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import command as alembic_command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from . import models

SCHEMA = 1
"""The version of the schema that this program is written for."""
BUSY_SECONDS = 30
MIN_SQLITE = (3, 31, 0)
"""What Python 3.10's oldest supported systems bring; WITHOUT ROWID, upserts and json_each are all older."""


class DatabaseError(Exception):
    """Something that the person who runs the command can mend; the text says how, in one line."""


def open_engine(url: str) -> sa.Engine:
    """The engine for a URL. Makes the folder of an SQLite file. Raises DatabaseError for a URL that cannot be used."""
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError:
        raise DatabaseError(f"{url!r} is no database URL; one looks like sqlite:////path/to/stitchfleet.db") from None
    if parsed.get_backend_name() != "sqlite":
        raise DatabaseError(f"{parsed.get_backend_name()} is not served by this version; use a sqlite:/// URL")
    if sqlite3.sqlite_version_info < MIN_SQLITE:
        raise DatabaseError(f"SQLite {sqlite3.sqlite_version} is too old; {'.'.join(map(str, MIN_SQLITE))} is needed")
    if parsed.database and parsed.database != ":memory:":
        try:
            pathlib.Path(parsed.database).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise DatabaseError(f"the database's folder cannot be made: {error}") from None
    engine = sa.create_engine(parsed, connect_args={"timeout": BUSY_SECONDS})
    sa.event.listen(engine, "connect", _on_connect)
    sa.event.listen(engine, "begin", _on_begin)
    return engine


def _on_connect(connection: Any, _record: object) -> None:
    # transactions begin where _on_begin says, not where Python's sqlite3 guesses (it would leave DDL outside)
    connection.isolation_level = None
    cursor = connection.cursor()
    # a database that may only be read keeps the mode it has
    with contextlib.suppress(sqlite3.OperationalError):
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.close()


def _on_begin(connection: sa.Connection) -> None:
    # IMMEDIATE: two writers that begin as readers would deadlock, and the time-out does not resolve that
    write = connection.get_execution_options().get("stitchfleet_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


@contextlib.contextmanager
def writing(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A connection in a transaction that may write; committed at the end, rolled back by an exception."""
    with engine.connect().execution_options(stitchfleet_write=True) as connection, connection.begin():
        yield connection


def file_of(url: str) -> pathlib.Path | None:
    """The SQLite file a URL names; None where there is none."""
    with contextlib.suppress(sa.exc.ArgumentError):
        parsed = sa.make_url(url)
        if parsed.get_backend_name() == "sqlite" and parsed.database and parsed.database != ":memory:":
            return pathlib.Path(parsed.database)
    return None


def _config(connection: sa.Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(pathlib.Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def version(connection: sa.Connection) -> int | None:
    """The schema's version; None for a database without one."""
    found = MigrationContext.configure(connection).get_current_revision()
    return None if found is None else int(found)


def upgrade(engine: sa.Engine) -> tuple[int | None, int]:
    """Brings the schema to this program's version, in one transaction. Returns the versions before and after.

    Raises DatabaseError for a newer database, and sqlalchemy's errors where it cannot be written to.
    """
    with writing(engine) as connection:
        before = version(connection)
        if before is None or before < SCHEMA:
            if before is None and sa.inspect(connection).get_table_names():
                raise DatabaseError("the database has tables, and they are not stitchfleet's; name another one")
            alembic_command.upgrade(_config(connection), "head")
        elif before > SCHEMA:
            _check_served(connection, before)
        after = version(connection)
    assert after is not None
    return before, after


def check(connection: sa.Connection) -> int:
    """The version of the schema, where this program may work with it. Raises DatabaseError saying what to do otherwise."""
    found = version(connection)
    if found is None:
        raise DatabaseError("the database is empty; `stitchfleet db upgrade` makes its tables")
    if found < SCHEMA:
        raise DatabaseError(
            f"the database has schema {found}, this program needs {SCHEMA}; run `stitchfleet db upgrade`"
        )
    if found > SCHEMA:
        _check_served(connection, found)
    return found


def _check_served(connection: sa.Connection, found: int) -> None:
    oldest = connection.scalar(
        sa.select(models.schema_facts.c.value).where(models.schema_facts.c.name == "oldest_reader")
    )
    if oldest is None or oldest > SCHEMA:
        raise DatabaseError(
            f"the database has schema {found} and serves programs from schema {oldest} on; this one is of {SCHEMA}: update it"
        )


def newest_migration() -> int:
    """The version of the newest migration in this program; a test holds it equal to SCHEMA."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    assert head is not None
    return int(head)
