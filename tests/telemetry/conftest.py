"""The databases that tests run on: each of SQLite and PostgreSQL in turn."""

from __future__ import annotations

import pathlib
import shutil
import socket
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from scripts.benchmark import postgres
from scripts.benchmark.postgres import PostgresServer
from stitchfleet.telemetry.database import access
from stitchfleet.telemetry.shipping import shipper

from .servers import TOKEN


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with postgres.postgres_server() as server:
        yield server


def _upgraded(url: str) -> str:
    engine = access.open_engine(url)
    access.upgrade(engine)
    engine.dispose()
    return url


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> str:
    """The name of a database with this program's tables and no rows."""
    return str(sa.make_url(_upgraded(postgres_server.new_database())).database)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The file of one."""
    file = tmp_path_factory.mktemp("template") / "telemetry.db"
    _upgraded(f"sqlite:///{file}")
    return file


@pytest.fixture
def postgres_url(postgres_server: PostgresServer, postgres_template: str) -> str:
    """A database of PostgreSQL with tables and no rows."""
    return postgres_server.new_database(postgres_template)


@pytest.fixture
def sqlite_url(tmp_path: pathlib.Path, sqlite_template: pathlib.Path) -> str:
    """A database of SQLite with tables and no rows."""
    shutil.copyfile(sqlite_template, tmp_path / "telemetry.db")
    return f"sqlite:///{tmp_path}/telemetry.db"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """A database with tables and no rows: the test runs on both kinds."""
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


@pytest.fixture
def empty_postgres_url(postgres_server: PostgresServer) -> str:
    """A database of PostgreSQL without tables."""
    return postgres_server.new_database()


@pytest.fixture
def empty_sqlite_url(tmp_path: pathlib.Path) -> str:
    """Where an SQLite database could be made."""
    return f"sqlite:///{tmp_path}/telemetry.db"


@pytest.fixture(params=["sqlite", "postgres"])
def empty_url(request: pytest.FixtureRequest) -> str:
    """A database without tables: the test runs on both kinds."""
    found: str = request.getfixturevalue(f"empty_{request.param}_url")
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
    engine = access.open_engine(url)
    try:
        with engine.connect() as connection:
            return [tuple(row) for row in connection.execute(sa.text(text))]
    finally:
        engine.dispose()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--small-file-system", metavar="DIR", help="of full_disk: where to mount one, in a namespace of its own"
    )
