"""Writing rows. Every insert is ON CONFLICT DO NOTHING on a key that the sender made: what comes twice changes nothing."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert

from .models import metadata
from .rows import Rows


def insert_rows(connection: sa.Connection, rows: Rows) -> None:
    """Inserts what is not there yet. The transaction is the caller's."""
    for name, entries in rows.tables.items():
        if entries:
            connection.execute(insert(metadata.tables[name]).on_conflict_do_nothing(), entries)
