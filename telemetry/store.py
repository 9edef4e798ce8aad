"""Writing rows. Every insert is ON CONFLICT DO NOTHING on a key that the sender made: what comes twice changes nothing."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from . import partitions
from .models import PROCESS_KEY, metadata
from .rows import Rows

TABLES_OF_PROCESSES = tuple(
    table for table in metadata.sorted_tables if all(name in table.primary_key.columns for name in PROCESS_KEY)
)
"""Those whose rows are of a process."""


def insert_rows(connection: sa.Connection, rows: Rows) -> None:
    """Inserts what is not there yet; makes the day partitions that are missing. The transaction is the caller's."""
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    partitions.ensure(connection, {row["day"] for row in rows.tables.get("iteration_blocks", ())})
    for table in TABLES_OF_PROCESSES:
        entries = rows.tables.get(table.name)
        if entries:
            # in the order of the key, so that two writers of the same rows never wait for each other crosswise
            entries = sorted(entries, key=lambda row: tuple(row[column.name] for column in table.primary_key.columns))
            connection.execute(insert(table).on_conflict_do_nothing(), entries)


def delete_namespace(connection: sa.Connection, namespace: str) -> dict[str, int]:
    """Deletes all rows of a namespace's jobs, frozen weeks included; returns how many, by table. The transaction is the caller's."""
    of_namespace = sa.select(*(metadata.tables["jobs"].c[name] for name in PROCESS_KEY)).where(
        metadata.tables["jobs"].c.namespace == namespace
    )
    deleted = {}
    # jobs last: they say whose the others are
    for table in sorted(TABLES_OF_PROCESSES, key=lambda table: table.name == "jobs"):
        key = sa.tuple_(*(table.c[name] for name in PROCESS_KEY))
        deleted[table.name] = connection.execute(sa.delete(table).where(key.in_(of_namespace))).rowcount
    return deleted
