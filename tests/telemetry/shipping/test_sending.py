"""From a spool to the ingest server: a server that is slow, dead or full costs the job nothing, and nothing is lost unsaid."""

from __future__ import annotations

import http.server
import json
import pathlib
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from scripts.benchmark.postgres import PostgresServer
from stitchfleet.telemetry.pod import spool, wire
from stitchfleet.telemetry.pod.recording import PLAIN, Recorder
from stitchfleet.telemetry.pod.spool import OPEN, SEALED, SHIPPING
from stitchfleet.telemetry.shipping import sender, shipper
from stitchfleet.telemetry.shipping.sender import Sender, SendError

from ...marks import slow
from ..conftest import query
from ..helpers import identity
from ..ingest.test_ingest import event, segment, start, upgraded
from ..servers import ingest_server
from .test_shipper import JOB, WHOLE, counts, record_job

pytestmark = pytest.mark.usefixtures("shipper_here")


@pytest.fixture
def silent() -> Iterator[str]:
    """A URL where a connection is taken and nothing is ever said."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


class Moody:
    """An HTTP server whose next answers a test chooses; when they are used up it takes everything."""

    def __init__(self) -> None:
        moody = self
        self.answers: list[tuple[int, dict[str, str]]] = []
        self.asked: list[tuple[float, str, int]] = []
        """When, with which Authorization, for how many segments."""

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    import gzip

                    body = gzip.decompress(body)
                count = len(wire.decode(body))
                moody.asked.append((time.monotonic(), self.headers["Authorization"], count))
                status, headers = moody.answers.pop(0) if moody.answers else (200, {})
                taken = {"outcome": "stored", "rows": 1, "damaged_records": 0, "damaged": [], "reason": ""}
                answer = {"segments": [taken] * count} if status == 200 else {"error": "not now"}
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode())

            def log_message(self, *words: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def moody() -> Iterator[Moody]:
    found = Moody()
    thread = threading.Thread(target=found.server.serve_forever, args=(0.02,))
    thread.start()
    yield found
    found.server.shutdown()
    thread.join()
    found.server.server_close()


def test_a_dead_server_costs_the_oldest_records_and_says_how_many(
    tmp_path: pathlib.Path, sqlite_url: str, nobody: str
) -> None:
    recorder = Recorder(tmp_path / "spool", identity(), max_bytes=1 << 16, seal_seconds=0.0)
    steps = 30_000
    for step in range(steps):
        recorder.iteration(step, PLAIN, 1_000_000)
        if step % 1000 == 999:
            assert recorder.flush(120)
            assert shipper.main([str(tmp_path / "spool"), "--ingest", nobody]) == 1
    recorder.event("last", "word")
    assert recorder.flush(120)
    lost = recorder.lost
    recorder.close(120)
    assert lost > 0
    with ingest_server(sqlite_url) as served:
        assert shipper.main([str(tmp_path / "spool"), "--ingest", served.url]) == 0
        said = served.metrics()["stitchfleet_lost_records_total"]
    there = [step for (step,) in query(sqlite_url, "SELECT step FROM iterations ORDER BY step")]
    assert there == list(range(steps - len(there), steps)), "the oldest went"
    assert said == lost == steps - len(there), "and are counted"
    assert query(sqlite_url, "SELECT count(*) FROM events WHERE kind = 'last'") == [(1,)]


@pytest.mark.parametrize("where", ["nobody", "silent"])
def test_what_could_not_be_sent_when_the_job_ended_is_counted_and_stays(
    tmp_path: pathlib.Path,
    where: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(shipper, "LAST_TRIES_SECONDS", 1.0)
    monkeypatch.setattr(sender, "POST_SECONDS", 0.4)
    record_job(tmp_path / "spool")
    ended = subprocess.Popen(["true"])
    ended.wait()
    url = request.getfixturevalue(where)
    began = time.monotonic()
    assert shipper.main([str(tmp_path / "spool"), "--ingest", url, "--follow", str(ended.pid)]) == 1
    assert time.monotonic() - began < 30
    err = capsys.readouterr().err
    assert ("cannot be reached" in err, "(100 iterations, 10 other records)" in err, err.count("\n")) == (True, True, 1)
    assert len(spool.segments(tmp_path / "spool", SEALED)) == 1


@pytest.mark.parametrize("way", ["ingest", "database"])
def test_a_damaged_identity_is_known_when_the_segments_before_are_long_gone(
    tmp_path: pathlib.Path, url: str, way: str
) -> None:
    folder = tmp_path / "spool"
    recorder = Recorder(folder, identity())
    with ingest_server(url) as served:
        words = [str(folder), f"--{way}", served.url if way == "ingest" else url]
        for number in range(3):
            recorder.event("k", str(number))
            recorder.iteration(number, PLAIN, 1_000_000)
            assert recorder.flush(120)
            recorder._spool.seal()
            (path,) = spool.segments(folder, SEALED)
            data = bytearray(path.read_bytes())
            if number:
                data[data.find(b'"run_id"') + 3] ^= 1
            if number == 2:  # as if the disk had cut off its beginning
                del data[:40]
            path.write_bytes(data)
            assert shipper.main(words) == 0
    recorder.close(120)
    assert [path.name for path in folder.glob("*.damaged")] == []
    assert query(url, "SELECT message FROM events ORDER BY 1") == [("0",), ("1",), ("2",)]
    assert query(url, "SELECT step FROM iterations ORDER BY 1") == [(0,), (1,), (2,)]
    assert query(url, "SELECT count(*) FROM jobs") == [(1,)]


def test_the_server_says_when_it_wants_to_be_asked_again(
    tmp_path: pathlib.Path, moody: Moody, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipper, "LOOK_SECONDS", 0.2)  # of itself it would ask again within 0.3 s
    record_job(tmp_path / "spool")
    moody.answers += [(429, {"Retry-After": "1"}), (503, {"Retry-After": "1"})]
    job = subprocess.Popen(["sleep", "600"])
    follower = threading.Thread(
        target=shipper.main, args=([str(tmp_path / "spool"), "--ingest", moody.url, "--follow", str(job.pid)],)
    )
    follower.start()
    while len(moody.asked) < 2:
        time.sleep(0.05)
    job.kill()
    job.wait()
    follower.join(60)
    first, second, *rest = (at for at, _, _ in moody.asked)
    assert second - first >= 1.0
    assert rest
    assert not spool.segments(tmp_path / "spool", OPEN, SEALED, SHIPPING)


def test_tries_that_failed_are_scattered_and_never_earlier_than_the_server_wants() -> None:
    def pauses(failures: int, retry_after_s: float, ended: bool) -> tuple[float, float]:
        found = [shipper._pause(failures, retry_after_s, ended) for _ in range(200)]
        return min(found), max(found)

    low, high = pauses(1, 30.0, ended=False)
    assert low >= 30.0
    assert high - low > 5.0
    low, high = pauses(50, 0.0, ended=False)
    assert (low >= 30.0, high <= 60.0, high - low > 5.0) == (True, True, True)
    assert pauses(0, 0.0, ended=False) == (2.0, 2.0)
    low, high = pauses(50, 30.0, ended=True)
    assert (high <= shipper.LAST_TRIES_SECONDS / 2, high - low > 1.0) == (True, True), "a job's end is not waited with"
    last_tries = [shipper._pause(failures, 0.0, ended=True) for failures in range(1, 9)]
    assert sum(last_tries) > shipper.LAST_TRIES_SECONDS, "a server that refuses is not asked forty times"


def test_the_token_is_read_anew_for_each_post(tmp_path: pathlib.Path, moody: Moody) -> None:
    path = tmp_path / "token"
    path.write_text("first\n")
    post = Sender(moody.url, {"STITCHFLEET_INGEST_TOKEN_FILE": str(path), "STITCHFLEET_INGEST_TOKEN": "static"})
    for text in ("first", "second"):
        path.write_text(text)
        post.post([segment(event())])
    path.unlink()
    post.post([segment(event())])
    post.close()
    assert [authorization for _, authorization, _ in moody.asked] == ["Bearer first", "Bearer second", "Bearer static"]


def test_a_batch_that_is_too_large_is_sent_in_parts(tmp_path: pathlib.Path, moody: Moody) -> None:
    folder = tmp_path / "spool"
    folder.mkdir()
    for number in range(8):
        (folder / f"{number:010d}{SEALED}").write_bytes(segment(event("x" * 1000), first=5 * number + 1))
    moody.answers += [(413, {})] * 2
    assert shipper.main([str(folder), "--ingest", moody.url]) == 0
    assert [count for _, _, count in moody.asked] == [8, 4, 2, 2, 2, 2]
    moody.answers += [(413, {})]
    (folder / f"{9:010d}{SEALED}").write_bytes(segment(event()))
    assert shipper.main([str(folder), "--ingest", moody.url]) == 0
    assert len(list(folder.glob("*.damaged"))) == 1, "one that alone is too large holds up nobody"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "unexpectedly|closed|Remote|BadStatusLine"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n", "answered 302"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "cannot be read"),
        (b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"segments": []}', "cannot be read|answered for 0 segments"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", "cannot be read"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "BadStatusLine"),
    ],
)
def test_an_answer_that_is_none_acknowledges_nothing(answer: bytes, said: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def once() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 20)
                connection.sendall(answer)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 20):
                    pass  # closed with something unread it would be reset

        thread = threading.Thread(target=once)
        thread.start()
        with pytest.raises(SendError, match=said):
            Sender(f"http://127.0.0.1:{listener.getsockname()[1]}").post([segment(event())])
        thread.join()


def test_a_url_that_is_none_is_a_mistake(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    for bad in ("ingest:8475", "ftp://x", "http://", ""):
        assert shipper.main([str(tmp_path), "--ingest", bad]) == 2
        assert "is no URL of an ingest server" in capsys.readouterr().err


def test_sending_loads_nothing_but_the_standard_library(tmp_path: pathlib.Path, moody: Moody) -> None:
    record_job(tmp_path / "spool")
    code = (
        "import sys; from stitchfleet.telemetry.shipping import shipper; code = shipper.main(sys.argv[1:]); "
        "print(code, sorted({name.split('.')[0] for name in sys.modules} - sys.stdlib_module_names))"
    )
    words = [sys.executable, "-I", "-c", code, str(tmp_path / "spool"), "--ingest", moody.url]
    out = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert out.startswith("0 ")
    assert [name for name in eval(out[2:]) if not name.startswith(("__editable", "__main", "_"))] == ["stitchfleet"]


def job_and_follower(folder: pathlib.Path, ingest: str) -> tuple[subprocess.Popen[str], subprocess.Popen[bytes]]:
    """A job that has recorded some iterations, and its shipper."""
    root = pathlib.Path(__file__).parents[3]
    words = [sys.executable, "-c", JOB, str(folder), str(root)]
    job = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=root)
    assert job.stdout is not None
    assert job.stdout.readline() == "there\n"
    module = [sys.executable, "-m", "stitchfleet.telemetry.shipping.shipper", str(folder), "--ingest", ingest]
    return job, subprocess.Popen([*module, "--follow", str(job.pid)], stderr=subprocess.PIPE)


@pytest.mark.parametrize("url", ["postgres", slow("sqlite")], indirect=True)
def test_a_job_that_is_killed_is_followed_to_the_server(tmp_path: pathlib.Path, url: str) -> None:
    with ingest_server(url) as served:
        job, follower = job_and_follower(tmp_path / "spool", served.url)
        time.sleep(0.2)
        job.kill()
        job.communicate()
        assert follower.communicate(timeout=120)[1] == b""
        assert follower.returncode == 0
    steps = [step for (step,) in query(url, "SELECT step FROM iterations ORDER BY step")]
    assert steps == list(range(len(steps)))
    assert len(steps) > 500


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl program")
def test_a_server_with_a_certificate_is_trusted_by_the_file_that_names_its_authority(
    tmp_path: pathlib.Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=ingest"
    files = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "certificate.pem"]
    subprocess.run([*make.split(), *files], check=True, cwd=tmp_path, capture_output=True)
    tls = ("--tls-certificate", str(tmp_path / "certificate.pem"), "--tls-key", str(tmp_path / "key.pem"))
    process, at = start(upgraded(sqlite_url), tmp_path, *tls)
    record_job(tmp_path / "spool")
    assert at.startswith("https://")
    assert shipper.main([str(tmp_path / "spool"), "--ingest", at]) == 1, "nobody vouches for it"
    monkeypatch.setenv("STITCHFLEET_INGEST_CA_FILE", str(tmp_path / "certificate.pem"))
    assert shipper.main([str(tmp_path / "spool"), "--ingest", at]) == 0
    process.terminate()
    process.communicate()
    assert counts(sqlite_url) == WHOLE


@pytest.mark.slow
def test_a_database_that_is_away_for_a_minute_loses_nothing(
    tmp_path: pathlib.Path, postgres_server: PostgresServer
) -> None:
    url = postgres_server.new_database()
    with ingest_server(url) as served:
        job, follower = job_and_follower(tmp_path / "spool", served.url)
        while counts(url)["iteration_blocks"] == 0:
            time.sleep(0.2)
        postgres_server.stop()
        time.sleep(60)
        postgres_server.start()
        before = counts(url)["iteration_blocks"]
        deadline = time.monotonic() + 120
        while counts(url)["iteration_blocks"] == before and time.monotonic() < deadline:
            time.sleep(0.2)
        job.kill()
        job.communicate()
        assert follower.communicate(timeout=120)[1] == b""
        assert served.metrics()["stitchfleet_ingest_rejections_total.database"] > 0
    steps = [step for (step,) in query(url, "SELECT step FROM iterations ORDER BY step")]
    assert steps == list(range(len(steps)))
    assert len(steps) > 60_000
