"""The databases that tests run on: each of SQLite and PostgreSQL in turn."""

from __future__ import annotations

import pathlib
import socket
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from scripts.benchmark import postgres
from scripts.benchmark.postgres import PostgresServer
from stitchfleet.telemetry import database, shipper

from .servers import TOKEN


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with postgres.postgres_server() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    """An empty database on PostgreSQL."""
    return postgres_server.new_database()


@pytest.fixture
def sqlite_url(tmp_path: pathlib.Path) -> str:
    """An empty database on SQLite."""
    return f"sqlite:///{tmp_path}/telemetry.db"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """An empty database: the test runs on both."""
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


@pytest.fixture
def nobody() -> str:
    """A URL where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def shipper_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shipper in the test's own process has the static token, and leaves that process's priority alone."""
    monkeypatch.setattr(shipper, "step_back", lambda nice: None)
    monkeypatch.setenv("STITCHFLEET_INGEST_TOKEN", TOKEN)


def query(url: str, text: str) -> list[tuple[object, ...]]:
    """The rows of a statement in plain SQL."""
    engine = database.open_engine(url)
    try:
        with engine.connect() as connection:
            return [tuple(row) for row in connection.execute(sa.text(text))]
    finally:
        engine.dispose()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--small-file-system", metavar="DIR", help="of full_disk: where to mount one, in a namespace of its own"
    )
