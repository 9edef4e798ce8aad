"""The databases that tests run on: each of SQLite and PostgreSQL in turn."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from scripts.benchmark import postgres
from scripts.benchmark.postgres import PostgresServer
from stitchfleet.telemetry import database


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with postgres.postgres_server() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    """An empty database on PostgreSQL."""
    return postgres_server.new_database()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> str:
    """An empty database: the test runs on both."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/telemetry.db"
    found: str = request.getfixturevalue("postgres_url")
    return found


def query(url: str, text: str) -> list[tuple[object, ...]]:
    """The rows of a statement in plain SQL."""
    engine = database.open_engine(url)
    try:
        with engine.connect() as connection:
            return [tuple(row) for row in connection.execute(sa.text(text))]
    finally:
        engine.dispose()
