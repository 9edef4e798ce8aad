"""The daily partitions of `iteration_blocks` on PostgreSQL: made ahead, made when rows of a late day arrive, dropped by retention.

Other databases have no partitions, and these functions do nothing.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable

import sqlalchemy as sa
from sqlalchemy.schema import CreateColumn

from . import models
from .errors import DatabaseError

_EPOCH = datetime.date(1970, 1, 1)
_NAME = re.compile(r"iteration_blocks_(\d{4})(\d{2})(\d{2})")
_LOCK = 0x5717C4F1
"""Key of pg_advisory_xact_lock: only one transaction makes partitions at a time."""
_ALONE = sa.select(sa.func.pg_advisory_xact_lock(_LOCK))
_HOLD = "LOCK TABLE iteration_blocks IN ROW EXCLUSIVE MODE"
AHEAD_DAYS = 7


def is_partitioned(connection: sa.Connection) -> bool:
    """Whether the database has daily partitions: only PostgreSQL does."""
    return connection.dialect.name == "postgresql"


def name_of(day: int) -> str:
    """The name of a partition, iteration_blocks_YYYYMMDD. day: in days since 1970."""
    return f"iteration_blocks_{_EPOCH + datetime.timedelta(days=day):%Y%m%d}"


def existing(connection: sa.Connection) -> list[int]:
    """The days (since 1970) that have a partition, in ascending order."""
    if not is_partitioned(connection):
        return []
    names = connection.scalars(
        sa.text("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'iteration_blocks'::regclass")
    )
    found = (_NAME.fullmatch(name) for name in names)
    return sorted((datetime.date(*map(int, match.groups())) - _EPOCH).days for match in found if match)


def ensure(connection: sa.Connection, days: Iterable[int]) -> list[int]:
    """Makes the missing partitions of these days, and keeps all of them until the caller's transaction ends. Returns the days
    whose partition was missing.

    Until then, nobody can freeze a week, drop its blocks or delete a namespace: a writer calls this before it registers a
    process.
    """
    wanted = set(days)
    if not is_partitioned(connection):
        return []
    # tested before anything is locked: locks must be taken in the order of hold_writers, or the two could deadlock
    alone = not wanted.issubset(existing(connection))
    if alone:
        connection.execute(_ALONE)
    connection.exec_driver_sql(f"SAVEPOINT before_partitions; {_HOLD}")
    missing = sorted(wanted.difference(existing(connection)))
    if missing and not alone:
        # retention dropped a partition before it was locked. Only the holder of the advisory lock makes any; the table lock is
        # released, so that the two are taken in order
        connection.exec_driver_sql("ROLLBACK TO SAVEPOINT before_partitions")
        connection.execute(_ALONE)
        connection.exec_driver_sql(_HOLD)
        missing = sorted(wanted.difference(existing(connection)))
    for day in missing:
        # made separately and attached: running inserts continue, which CREATE TABLE ... PARTITION OF would not allow
        connection.execute(sa.text(f"CREATE TABLE {name_of(day)} ({_columns(connection)})"))
        connection.execute(sa.text(f"ALTER TABLE {name_of(day)} ALTER COLUMN durations SET STORAGE EXTERNAL"))
        # a key of the whole table would have to contain the day, which is the same throughout a partition
        connection.execute(sa.text(f"CREATE UNIQUE INDEX {name_of(day)}_key ON {name_of(day)} (process_id, sequence)"))
        connection.execute(
            sa.text(
                f"ALTER TABLE iteration_blocks ATTACH PARTITION {name_of(day)} FOR VALUES FROM ({day}) TO ({day + 1})"
            )
        )
    return missing


def _columns(connection: sa.Connection) -> str:
    """The columns of a partition, in the model's order. The parent table, which holds no rows, has them in the order in which
    migrations added them; a partition may have another order, and in that one each row would take 8 bytes more."""
    compiled = (CreateColumn(column).compile(dialect=connection.dialect) for column in models.iteration_blocks.columns)
    return ", ".join(map(str, compiled))


def ensure_ahead(connection: sa.Connection, today: int) -> list[int]:
    """Makes the missing partitions of `today` (in days since 1970) and the next AHEAD_DAYS days. Returns their days."""
    return ensure(connection, range(today, today + AHEAD_DAYS + 1))


def check_rights(connection: sa.Connection) -> None:
    """Raises DatabaseError unless this role may make partitions. Without that right everything works until the prepared days are
    over, and no late day is ever accepted."""
    if not is_partitioned(connection):
        return
    role, may_create, owns = connection.execute(
        sa.text(
            "SELECT current_user, has_schema_privilege(current_schema(), 'CREATE'), pg_has_role(relowner, 'USAGE') "
            "FROM pg_class WHERE oid = 'iteration_blocks'::regclass"
        )
    ).one()
    if not may_create or not owns:
        what = (
            "make tables in its schema"
            if not may_create
            else "attach partitions to iteration_blocks, which it does not own"
        )
        raise DatabaseError(
            f"the role {role} may not {what}; run `stitchfleet db upgrade` as the role that the server uses, or GRANT it the owner's"
        )


def has_rows(connection: sa.Connection, day: int) -> bool:
    """Whether the partition of a day, which must exist, holds a block."""
    return bool(connection.scalar(sa.text(f"SELECT EXISTS (SELECT FROM {name_of(day)})")))


def hold_writers(connection: sa.Connection) -> None:
    """Makes writers of blocks wait until the transaction ends; readers continue. On SQLite a write transaction does that anyway."""
    if is_partitioned(connection):
        connection.execute(_ALONE)
        connection.execute(sa.text("LOCK TABLE iteration_blocks IN SHARE ROW EXCLUSIVE MODE"))


def drop(connection: sa.Connection, days: Iterable[int]) -> list[int]:
    """Drops the partitions of these days with all their rows; returns the days that had one."""
    found = sorted(set(days).intersection(existing(connection)))
    for day in found:
        connection.execute(sa.text(f"DROP TABLE {name_of(day)}"))
    return found
