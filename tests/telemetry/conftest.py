"""A PostgreSQL of the tests' own, and the databases that tests run on: each of SQLite and PostgreSQL in turn."""

from __future__ import annotations

import ctypes
import itertools
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import psycopg
import pytest
import sqlalchemy as sa

PR_SET_PDEATHSIG = 1


def server_programs() -> pathlib.Path:
    """The folder with the newest PostgreSQL's initdb and postgres."""
    folders = [path.parent for path in pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    found = max(folders, key=lambda path: float(path.parent.name), default=None)
    on_path = shutil.which("initdb")
    if found is None and on_path is None:
        pytest.fail("PostgreSQL's server is not installed; `scripts/environment` does it (Debian: postgresql)")
    return found or pathlib.Path(str(on_path)).parent


def user() -> str | None:
    """Who runs the server: initdb refuses root."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise AssertionError("no user but root")


def _end_with_parent() -> None:
    # a killed test runner leaves no server: SIGQUIT is PostgreSQL's immediate shutdown
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGQUIT)


@dataclass
class PostgresServer:
    """A server on a unix socket in a temporary folder; the tests may stop and start it."""

    folder: pathlib.Path
    process: subprocess.Popen[bytes] | None = None
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def start(self) -> None:
        command = [
            *(str(server_programs() / "postgres"), "-D", str(self.folder / "data"), "-k", str(self.folder)),
            *("-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=40"),
        ]
        with open(self.folder / "server.log", "ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, user=user(), preexec_fn=_end_with_parent, cwd=self.folder
            )
        for _ in range(600):
            try:
                psycopg.connect(host=str(self.folder), user="postgres", dbname="postgres").close()
                return
            except psycopg.OperationalError:
                assert self.process.poll() is None, (self.folder / "server.log").read_text()
                time.sleep(0.1)
        raise AssertionError("PostgreSQL did not start within a minute")

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait()
            self.process = None

    def url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self.folder}"

    def new_database(self) -> str:
        """The URL of an empty database."""
        name = f"test_{next(self.numbers)}"
        with psycopg.connect(host=str(self.folder), user="postgres", dbname="postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.url(name)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    # a short path: a unix socket's has at most 107 bytes; in memory where there is room: each database is some 300 files
    memory = pathlib.Path("/dev/shm")
    in_memory = memory.is_dir() and shutil.disk_usage(memory).free > 2 << 30
    folder = pathlib.Path(tempfile.mkdtemp(prefix="pg", dir=memory if in_memory else None))
    if user() is not None:
        shutil.chown(folder, user())
    command = [
        *(str(server_programs() / "initdb"), "-D", str(folder / "data"), "-U", "postgres", "-A", "trust"),
        *("--no-sync", "-E", "UTF8", "--locale=C.UTF-8"),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, user=user(), cwd=folder)
    server = PostgresServer(folder)
    server.start()
    yield server
    server.stop()
    shutil.rmtree(folder)


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
    from stitchfleet.telemetry import database

    engine = database.open_engine(url)
    try:
        with engine.connect() as connection:
            return [tuple(row) for row in connection.execute(sa.text(text))]
    finally:
        engine.dispose()
