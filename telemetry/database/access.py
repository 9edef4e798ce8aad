"""Opens the database: its engine, the version of its schema, and the upgrade to the current version.

SQLite runs in WAL mode: readers never wait for the one writer, and a writer waits BUSY_SECONDS for another. PostgreSQL is the fleet's
database: many writers, and iterations in one partition per day.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import sqlite3
import time
import urllib.parse
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import command as alembic_command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext

from ..pod.recording import DAY_NS
from . import models, partitions
from .errors import DatabaseError, SchemaError

SCHEMA = 5
"""The version of the schema for which this program is written."""
BUSY_SECONDS = 30
MIN_SQLITE = (3, 31, 0)
"""The SQLite of the oldest systems supported with Python 3.10; WITHOUT ROWID, upserts and json_each are all older."""
MIN_POSTGRESQL = 15
CONNECT_SECONDS = 10
_UPGRADE_LOCK = 0x5717C4F0
"""Key of pg_advisory_xact_lock: two programs must not upgrade one database at once."""


def open_engine(url: str) -> sa.Engine:
    """The engine for a URL. Creates the folder of an SQLite file if it is missing; connects to nothing. Raises DatabaseError if
    the URL cannot be used."""
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        # the message leaves out what was given: it may hold a password
        raise DatabaseError(
            "that is not a database URL; one looks like sqlite:////path/to/stitchfleet.db or postgresql://user@host:5432/name"
        ) from None
    if parsed.get_backend_name() in ("postgresql", "postgres"):
        return _postgresql_engine(parsed)
    if parsed.get_backend_name() != "sqlite":
        raise DatabaseError(
            f"{parsed.get_backend_name()} is not supported; use a sqlite:/// or a postgresql:// URL (PostgreSQL {MIN_POSTGRESQL} on)"
        )
    if sqlite3.sqlite_version_info < MIN_SQLITE:
        raise DatabaseError(f"SQLite {sqlite3.sqlite_version} is too old; {'.'.join(map(str, MIN_SQLITE))} is needed")
    if parsed.database and parsed.database != ":memory:" and not parsed.database.startswith("file:"):
        try:
            pathlib.Path(parsed.database).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise DatabaseError(f"the database's folder cannot be created: {error}") from None
    engine = sa.create_engine(parsed, connect_args={"timeout": BUSY_SECONDS})
    sa.event.listen(engine, "connect", _on_connect)
    sa.event.listen(engine, "begin", _on_begin)
    return engine


def open_to_read(url: str) -> sa.Engine:
    """An engine for reading only. It also opens an SQLite file on a disk that cannot be written. Raises DatabaseError."""
    file = file_of(url)
    if file is None or not is_on_read_only_disk(file):
        return open_engine(url)
    log = file.with_name(f"{file.name}-wal")
    if log.exists() and log.stat().st_size:
        raise DatabaseError(
            f"{file} is on a disk that cannot be written to, and part of it is in its -wal file, which SQLite cannot read "
            "there; copy both elsewhere"
        )
    # nobody writes there, so SQLite needs neither locks nor files of its own
    name = urllib.parse.quote(str(file.absolute()))
    return open_engine(f"sqlite:///file:{name}?mode=ro&immutable=1&uri=true")


def is_on_read_only_disk(file: pathlib.Path) -> bool:
    """Whether an existing file is on a read-only file system, or in a folder that this process may not write to. False if that
    cannot be found out."""
    try:
        return bool(os.statvfs(file).f_flag & os.ST_RDONLY) or not os.access(file.parent, os.W_OK)
    except OSError:
        return False


_SHOWN_OPTIONS = {"host", "port", "dbname", "user", "sslmode", "application_name", "target_session_attrs"}


def shown(url: str | sa.URL) -> str:
    """A URL for people: without the password, and with the values of options that may hold one masked. Raises what sa.make_url
    raises."""
    parsed = sa.make_url(url)
    query = {name: value if name.lower() in _SHOWN_OPTIONS else "***" for name, value in parsed.query.items()}
    return parsed.set(query=query).render_as_string(hide_password=True)


def _postgresql_engine(url: sa.URL) -> sa.Engine:
    try:
        from psycopg.adapt import Buffer, Dumper
        from psycopg.pq import Format
    except ImportError:
        raise DatabaseError("PostgreSQL needs psycopg; `pip install stitchfleet[postgres]` brings it") from None

    class RealsDumper(Dumper):
        """Sends models.PackedReals unchanged."""

        format = Format.BINARY
        oid = models.REAL_ARRAY_OID

        def dump(self, obj: bytes) -> Buffer:
            return bytes(obj)

    def on_connect(connection: Any, _record: object) -> None:
        connection.adapters.register_dumper(models.PackedReals, RealsDumper)

    arguments = {
        "connect_timeout": CONNECT_SECONDS,
        "application_name": "stitchfleet",
        "client_encoding": "utf8",  # otherwise psycopg returns bytes for a database without an encoding
        "tcp_user_timeout": 1000 * BUSY_SECONDS,  # so that a server that vanished is noticed
    }
    # a connection that the server closed while it was idle in the pool is noticed and replaced
    engine = sa.create_engine(
        url.set(drivername="postgresql+psycopg"),
        connect_args={key: value for key, value in arguments.items() if key not in url.query},
        pool_pre_ping=True,
    )
    sa.event.listen(engine, "connect", on_connect)
    return engine


def _on_connect(connection: Any, _record: object) -> None:
    # transactions begin where _on_begin says, not where Python's sqlite3 decides (it would leave DDL outside)
    connection.isolation_level = None
    cursor = connection.cursor()
    # a database that may only be read keeps its mode
    with contextlib.suppress(sqlite3.OperationalError):
        # for a new file: two blocks of a few thousand iterations share a page of this size, but not one of the usual 4096
        cursor.execute("PRAGMA page_size=8192")
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.close()


def _on_begin(connection: sa.Connection) -> None:
    # IMMEDIATE: two writers that begin as readers would deadlock, and the timeout does not resolve that
    write = connection.get_execution_options().get("stitchfleet_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


@contextlib.contextmanager
def writing(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A context manager: a connection in a transaction that may write, committed at the end, or rolled back by an exception.
    Raises SQLAlchemy's errors."""
    with engine.connect().execution_options(stitchfleet_write=True) as connection, connection.begin():
        yield connection


_ABOUT_ROWS = ("54000", "23502", "23514")
"""SQLSTATEs besides class 22 (data exception): index entry too long, null, check."""
_ABOUT_ROWS_ON_SQLITE = (18, 20, 275, 1299, 1811)
"""SQLITE_TOOBIG, MISMATCH, CONSTRAINT_CHECK, CONSTRAINT_NOTNULL, CONSTRAINT_TRIGGER."""


def refuses_rows(error: sa.exc.SQLAlchemyError) -> bool:
    """Whether the database refused inserted rows because of their content, so that it would refuse them again.

    Any other error (a lock, a race for the name of a table or a key, rights, the disk, the connection) says nothing about the rows.
    """
    if not isinstance(error, sa.exc.DBAPIError) or not (error.statement or "").startswith("INSERT"):
        return False
    state = getattr(error.orig, "sqlstate", None)
    if state is not None:
        return state.startswith("22") or state in _ABOUT_ROWS
    code = getattr(error.orig, "sqlite_errorcode", None)
    if code is not None:
        return code in _ABOUT_ROWS_ON_SQLITE
    # Python 3.10's sqlite3 has no error codes
    said = str(error.orig)
    return isinstance(error, sa.exc.DataError) or (isinstance(error, sa.exc.IntegrityError) and "UNIQUE" not in said)


def reason(error: Exception) -> str:
    """The database's message, in one line."""
    return str(getattr(error, "orig", None) or error).splitlines()[0]


def file_of(url: str) -> pathlib.Path | None:
    """The SQLite file that a URL names; None if it names none."""
    with contextlib.suppress(sa.exc.ArgumentError, ValueError):
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
    """The schema's version; None for a database without stitchfleet's tables. Raises SchemaError if the version is not one of
    stitchfleet's."""
    found = MigrationContext.configure(connection).get_current_revision()
    if found is not None and not (found.isascii() and found.isdigit()):
        raise SchemaError("the table alembic_version holds a version that is not stitchfleet's; use another database")
    return None if found is None else int(found)


def upgrade(engine: sa.Engine) -> tuple[int | None, int]:
    """Brings the schema to this program's version, in one transaction, and makes the next days' partitions. Returns the versions
    before (None: no tables) and after.

    Raises DatabaseError if the database is too new for this program, holds other tables, or is on an unsupported server; and
    SQLAlchemy's errors if it cannot be written.
    """
    with writing(engine) as connection:
        _check_server(connection)
        if connection.dialect.name == "postgresql":
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_UPGRADE_LOCK)))
        before = version(connection)
        if before is None or before < SCHEMA:
            if before is None and sa.inspect(connection).get_table_names():
                raise SchemaError("the database has tables that are not stitchfleet's; use another database")
            alembic_command.upgrade(_config(connection), "head")
        elif before > SCHEMA:
            _check_served(connection, before)
        partitions.ensure_ahead(connection, time.time_ns() // DAY_NS)
        after = version(connection)
    assert after is not None
    return before, after


def prepare(engine: sa.Engine) -> None:
    """Prepares the database for use. An SQLite file belongs to its user and is made or upgraded; a fleet's database is only checked.

    Raises DatabaseError and SQLAlchemy's errors.
    """
    if engine.dialect.name == "sqlite":
        upgrade(engine)
        return
    with engine.connect() as connection:
        check(connection)


def check(connection: sa.Connection) -> int:
    """The version of the schema, if this program can work with it. Raises DatabaseError, which says what to do, if not; and
    SQLAlchemy's errors if the database cannot be read."""
    _check_server(connection)
    found = version(connection)
    if found is None:
        raise SchemaError("the database is empty; `stitchfleet db upgrade` makes its tables")
    if found < SCHEMA:
        raise SchemaError(f"the database has schema {found}, this program needs {SCHEMA}; run `stitchfleet db upgrade`")
    if found > SCHEMA:
        _check_served(connection, found)
    return found


def check_whole(connection: sa.Connection) -> int:
    """As `check`; also checks that each table, column and view exists. Raises DatabaseError."""
    found = check(connection)
    inspector, dialect = sa.inspect(connection), connection.dialect.name
    missing = []
    tables = set(inspector.get_table_names())
    for table in models.metadata.sorted_tables:
        if table.info.get("dialect", dialect) != dialect:
            continue
        if table.name not in tables:
            missing.append(f"the table {table.name}")
            continue
        columns = {column["name"] for column in inspector.get_columns(table.name)}
        missing += [f"the column {table.name}.{column.name}" for column in table.columns if column.name not in columns]
    missing += [f"the view {name}" for name in models.VIEWS if name not in set(inspector.get_view_names())]
    if missing:
        raise SchemaError(
            f"the database says that it has schema {found}, and lacks {', '.join(missing)}; restore it from a backup"
        )
    return found


def _check_server(connection: sa.Connection) -> None:
    if connection.dialect.name == "postgresql":
        major = int((connection.dialect.server_version_info or (0,))[0])
        if major < MIN_POSTGRESQL:
            raise SchemaError(f"the server is PostgreSQL {major}; {MIN_POSTGRESQL} or later is needed")
        encoding = connection.scalar(sa.text("SHOW server_encoding"))
        if encoding != "UTF8":
            raise SchemaError(
                f"the database's encoding is {encoding}, in which some names cannot be written; it has to be UTF8: "
                "CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0"
            )


def _check_served(connection: sa.Connection, found: int) -> None:
    oldest = connection.scalar(
        sa.select(models.schema_facts.c.value).where(models.schema_facts.c.name == "oldest_reader")
    )
    if oldest is None or oldest > SCHEMA:
        raise SchemaError(
            f"the database has schema {found} and serves programs from schema {oldest} on; this one is of {SCHEMA}: update it"
        )
