"""What becomes of telemetry where the disk is full; test_full_disk runs these in a mount namespace of their own.

Nothing that was acknowledged is lost, what is refused stays with its sender and is counted, and when there is room all goes on.
"""

from __future__ import annotations

import os
import pathlib
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable

import psycopg
import pytest

from scripts.benchmark import postgres
from stitchfleet.telemetry.pod import spool
from stitchfleet.telemetry.pod.spool import OPEN, SEALED, SHIPPING
from stitchfleet.telemetry.shipping import shipper

from ..conftest import query
from ..ingest.test_ingest import event, segment
from ..servers import Served, ingest_server, post, request
from .test_shipper import WHOLE, counts, record_job

pytestmark = pytest.mark.usefixtures("shipper_here")

MIB = 1 << 20


class Disk:
    """A file system in memory that can be filled, and given room again."""

    def __init__(self, folder: pathlib.Path, size_mib: int) -> None:
        self.folder, self.size_mib = folder, size_mib
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_mib}m,mode=0777", "none", folder], check=True)

    def fill(self, leave_bytes: int) -> None:
        state = os.statvfs(self.folder)
        (self.folder / "ballast").write_bytes(bytes(max(0, state.f_bavail * state.f_frsize - leave_bytes)))

    def grow(self) -> None:
        """As an administrator would: the data stays where it is, and there is more room."""
        subprocess.run(["mount", "-o", f"remount,size={4 * self.size_mib}m", self.folder], check=True)


@pytest.fixture
def folder(request: pytest.FixtureRequest) -> pathlib.Path:
    return pathlib.Path(str(request.config.getoption("small_file_system")))


def large(number: int) -> bytes:
    """A segment of 200 kB that does not compress."""
    noise = random.Random(number).randbytes(100_000).hex()
    parts = {f"part {first}": noise[first : first + 8000] for first in range(0, len(noise), 8000)}
    return segment(event(kind=str(number), **parts), first=10 * number)


def post_until_refused(served: Served) -> tuple[set[int], str]:
    """The numbers of the batches that were acknowledged, and why the next one was not."""
    acknowledged: set[int] = set()
    for number in range(1, 500):
        status, answer = post(served.url, large(number))
        if status != 200:
            assert (status, answer["retry_after"]) == (503, "5"), answer
            return acknowledged, answer["error"]
        acknowledged.add(number)
    raise AssertionError("the disk is never full")


def stored(url: str) -> set[int]:
    """The numbers of the batches in the database."""
    return {int(kind) for (kind,) in query(url, "SELECT kind FROM events") if isinstance(kind, str) and kind.isdigit()}


def ready(served: Served) -> bool:
    return request(served.url, "GET", "/readyz")[0] == 200


# ---- PostgreSQL --------------------------------------------------------------------------------------------------------------


def test_a_tablespace_that_is_full(
    tmp_path: pathlib.Path, folder: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = Disk(folder, 48)
    record_job(tmp_path / "spool")
    with postgres.postgres_server() as server:
        subprocess.run(["chown", str(postgres.user() or "root"), folder], check=True)
        with psycopg.connect(host=str(server.folder), user="postgres", dbname="postgres", autocommit=True) as admin:
            admin.execute(f"CREATE TABLESPACE small LOCATION '{folder}'".encode())
            admin.execute(b"CREATE DATABASE fleet TABLESPACE small")
        url = server.url("fleet")
        with ingest_server(url) as served:
            disk.fill(leave_bytes=2 * MIB)
            acknowledged, why = post_until_refused(served)
            assert why == "the database cannot be written to"
            assert "No space left on device" in capsys.readouterr().err
            assert acknowledged
            # a sender keeps what was refused
            big = tmp_path / "spool" / f"{9:010d}{SEALED}"
            big.write_bytes(large(900))
            assert shipper.main([str(tmp_path / "spool"), "--ingest", served.url]) == 1
            assert big in spool.segments(tmp_path / "spool", OPEN, SEALED, SHIPPING)
            assert stored(url) == acknowledged
            assert served.metrics()["stitchfleet_ingest_rejections_total.database"] == 2
            assert request(served.url, "GET", "/healthz")[0] == 200
            disk.grow()
            assert shipper.main([str(tmp_path / "spool"), "--ingest", served.url]) == 0
            status, _ = post(served.url, large(901))
            assert status == 200
            assert ready(served)
            found = served.metrics()
            assert found["stitchfleet_ingest_database_up"] == 1
            assert found["stitchfleet_ingest_rejections_total.database"] == 2
            assert found["stitchfleet_ingest_iterations_total"] == 100
            assert stored(url) == acknowledged | {900, 901}


def test_a_full_disk_under_the_log_which_ends_the_server(folder: pathlib.Path) -> None:
    """PostgreSQL that cannot write its write-ahead log panics, and cannot come back before there is room."""
    disk = Disk(folder, 40)
    with postgres.postgres_server() as server:
        server.stop(signal.SIGTERM)
        log = server.folder / "data" / "pg_wal"
        shutil.copytree(log, folder / "pg_wal")
        subprocess.run(["chown", "-R", str(postgres.user() or "root"), folder], check=True)
        shutil.rmtree(log)
        log.symlink_to(folder / "pg_wal")
        server.start()
        url = server.new_database()
        with ingest_server(url) as served:
            disk.fill(leave_bytes=4 * MIB)
            acknowledged, _ = post_until_refused(served)
            assert acknowledged
            assert "PANIC" in (server.folder / "server.log").read_text()
            assert post(served.url, large(900))[0] == 503
            assert not ready(served)
            assert request(served.url, "GET", "/healthz")[0] == 200
            found = served.metrics()
            assert found["stitchfleet_ingest_rejections_total.database"] == 2
            assert found["stitchfleet_ingest_database_up"] == 0
            disk.grow()
            server.stop()
            server.start()
            wait_until(lambda: post(served.url, large(901))[0] == 200)
            assert acknowledged | {901} <= stored(url) <= acknowledged | {max(acknowledged) + 1, 900, 901}
            wait_until(lambda: ready(served))
            assert served.metrics()["stitchfleet_ingest_database_up"] == 1


def wait_until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.2)


# ---- SQLite ------------------------------------------------------------------------------------------------------------------


def test_sqlite_behind_ingest(folder: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    disk = Disk(folder, 16)
    url = f"sqlite:///{folder}/telemetry.db"
    with ingest_server(url) as served:
        disk.fill(leave_bytes=2 * MIB)
        acknowledged, why = post_until_refused(served)
        assert why == "the database cannot be written to"
        assert "full" in capsys.readouterr().err
        assert acknowledged
        assert stored(url) == acknowledged
        assert served.metrics()["stitchfleet_ingest_rejections_total.database"] == 1
        disk.grow()
        assert post(served.url, large(901))[0] == 200
        assert ready(served)
        assert stored(url) == acknowledged | {901}


def test_sqlite_that_a_shipper_writes_to(
    tmp_path: pathlib.Path, folder: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = Disk(folder, 16)
    url = f"sqlite:///{folder}/telemetry.db"
    words = [str(tmp_path / "spool"), "--database", url]
    record_job(tmp_path / "spool")
    assert shipper.main(words) == 0
    for number in range(20):
        (tmp_path / "spool" / f"{100 + number:010d}{SEALED}").write_bytes(large(100 + number))
    disk.fill(leave_bytes=MIB)
    assert shipper.main(words) == 1
    assert "full" in capsys.readouterr().err
    left = spool.segments(tmp_path / "spool", OPEN, SEALED, SHIPPING)
    assert 0 < len(left) < 20, "what was committed is gone from the spool, the rest waits"
    assert {path.suffix for path in left} == {SEALED}, "and its writer may drop the oldest of it"
    disk.grow()
    assert shipper.main(words) == 0
    assert counts(url) == {**WHOLE, "jobs": 2, "events": 21}
    assert not spool.segments(tmp_path / "spool", OPEN, SEALED, SHIPPING)


def test_a_shippers_database_cannot_even_be_made(tmp_path: pathlib.Path, folder: pathlib.Path) -> None:
    disk = Disk(folder, 4)
    disk.fill(leave_bytes=8192)
    words = [str(tmp_path / "spool"), "--database", f"sqlite:///{folder}/telemetry.db"]
    record_job(tmp_path / "spool")
    assert shipper.main(words) == 1
    assert len(spool.segments(tmp_path / "spool", SEALED)) == 1
    disk.grow()
    assert shipper.main(words) == 0
    assert counts(f"sqlite:///{folder}/telemetry.db") == WHOLE
