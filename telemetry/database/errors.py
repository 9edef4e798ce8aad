"""What goes wrong with a database so that a person can mend it."""

from __future__ import annotations


class DatabaseError(Exception):
    """Something that the person who runs the command can mend; the text says how, in one line."""


class SchemaError(DatabaseError):
    """The database's tables are not those that this program works with. The text says nothing of where the database is."""
