"""Of the tests that run on both databases, the quick suite runs one half on SQLite and the other half on PostgreSQL."""

from __future__ import annotations

import pathlib
import zlib

import pytest

DATABASES = ("sqlite", "postgres")
HERE = pathlib.Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before `-m "not slow"` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE not in item.path.parents or not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
            continue
        of = next((value for value in item.callspec.params.values() if value in DATABASES), None)
        if of is not None and DATABASES[zlib.crc32(item.nodeid.replace(of, "").encode()) % 2] != of:
            item.add_marker(pytest.mark.slow)
