"""A temporary PostgreSQL server for a test or a benchmark: on a Unix socket, in a temporary folder, run by a user other than root."""

from __future__ import annotations

import contextlib
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

PR_SET_PDEATHSIG = 1


def server_programs() -> pathlib.Path:
    """The folder with initdb and postgres of the newest PostgreSQL. Raises FileNotFoundError if it is not installed."""
    folders = [path.parent for path in pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    found = max(folders, key=lambda path: float(path.parent.name), default=None)
    on_path = shutil.which("initdb")
    if found is None and on_path is None:
        raise FileNotFoundError(
            "PostgreSQL's server is not installed; `scripts/environment` does it (Debian: postgresql)"
        )
    return found or pathlib.Path(str(on_path)).parent


def user() -> str | None:
    """The user that runs the server, since initdb refuses root; None: this process's."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise AssertionError("no user but root")


def _end_with_parent() -> None:
    # the server ends if the test runner is killed: SIGQUIT is PostgreSQL's immediate shutdown
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGQUIT)


@dataclass
class PostgresServer:
    """A server on a Unix socket in a temporary folder. Tests may stop and start it."""

    folder: pathlib.Path
    settings: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def start(self) -> None:
        """Starts the server and waits until it accepts connections. Raises AssertionError if it ends or needs over a minute."""
        command = [
            *(str(server_programs() / "postgres"), "-D", str(self.folder / "data"), "-k", str(self.folder)),
            *("-c", "listen_addresses=", "-c", "max_connections=40"),
            *(word for setting in self.settings for word in ("-c", setting)),
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
        """Sends the server a signal and waits until it has ended. Does nothing if it does not run."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait()
            self.process = None

    def url(self, database: str) -> str:
        """The URL of a database of the server, which need not exist."""
        return f"postgresql://postgres@/{database}?host={self.folder}"

    def new_database(self, template: str = "template1") -> str:
        """Creates a copy of the database `template`, to which there must be no connections; by default an empty database. Returns its
        URL."""
        name = f"test_{next(self.numbers)}"
        with psycopg.connect(host=str(self.folder), user="postgres", dbname="postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}".encode())
        return self.url(name)


@contextlib.contextmanager
def postgres_server(durable: bool = False) -> Iterator[PostgresServer]:
    """A context with a new server, which is deleted at its end. durable: on the disk, with flushes, as in production."""
    # a short path, since a Unix socket's has at most 107 bytes; in memory if there is space: each database is some 300 files
    memory = pathlib.Path("/dev/shm")
    in_memory = not durable and memory.is_dir() and shutil.disk_usage(memory).free > 2 << 30
    folder = pathlib.Path(tempfile.mkdtemp(prefix="pg", dir=memory if in_memory else None))
    owner = user()
    if owner is not None:
        shutil.chown(folder, owner)
    command = [
        *(str(server_programs() / "initdb"), "-D", str(folder / "data"), "-U", "postgres", "-A", "trust"),
        *("--no-sync", "-E", "UTF8", "--locale=C.UTF-8"),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, user=owner, cwd=folder)
    server = PostgresServer(folder, () if durable else ("fsync=off",))
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)
