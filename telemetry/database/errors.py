"""Errors of the database that a person can correct."""

from __future__ import annotations


class DatabaseError(Exception):
    """An error that the person who runs the command can correct; the text says how, in one line."""


class SchemaError(DatabaseError):
    """The database's tables are not those that this program works with. The text does not say where the database is."""
