"""Bytes and connections: half heads, idle bodies, bombs, false records; and the server's memory at the worst of all at once."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import gzip
import importlib
import pathlib
import random
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
import urllib.parse
import zlib
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stitchfleet.telemetry.database import access
from stitchfleet.telemetry.ingest import connections
from stitchfleet.telemetry.ingest.authentication import MAX_REVIEWS, TokenReviewer
from stitchfleet.telemetry.ingest.serving import Limits
from stitchfleet.telemetry.ingest.shares import Shares, Turns
from stitchfleet.telemetry.pod import spool, wire
from stitchfleet.telemetry.pod.spool import MAGIC, MARK, Damage, Kind, Record, decode, encode

from ...marks import slow
from ..servers import Served, ingest_server, post, request
from .client import NOW_NS, event, segment, steps, whole_job

TOKENS = "victim victim\nmallory mallory\n"
PATIENCE_S = 20
"""Longer than anything here takes, and less than a sender waits."""


@pytest.fixture
def served(sqlite_url: str) -> Iterator[Served]:
    with ingest_server(sqlite_url, tokens=TOKENS) as found:
        yield found


def address(served: Served) -> tuple[str, int]:
    parts = urllib.parse.urlsplit(served.url)
    return str(parts.hostname), int(parts.port or 0)


def head(length: str, token: str = "mallory") -> bytes:
    return f"POST {wire.PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n{length}\r\n\r\n".encode()


CHUNKED = "Transfer-Encoding: chunked"


def victim_is_served(served: Served, number: int = 1) -> None:
    began = time.monotonic()
    assert request(served.url, "GET", "/healthz")[0] == 200
    sent = whole_job(run_id=f"v{number}", namespace="victim")
    assert post(served.url, sent, token="victim")[0] == 200
    assert time.monotonic() - began < PATIENCE_S


# ---- number 12: reading takes time in proportion to the bytes ----------------------------------------------------------------


def false_heads(size: int) -> bytes:
    """Bytes that look as if a record began every 12 bytes, each of which would reach to the end."""
    count = size // 12
    return MAGIC + b"".join(MARK + struct.pack("<II", min(1 << 20, 12 * (count - k) - 21), k) for k in range(count - 2))


def test_reading_takes_work_in_proportion_to_the_bytes() -> None:
    for size in (1 << 17, 1 << 19, 1 << 21):
        done = 0

        def counting(body: bytes, start: int = 0) -> int:
            nonlocal done
            done += len(body)
            return zlib.crc32(body, start)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("stitchfleet.telemetry.pod.spool.zlib", _Zlib(counting))
            assert list(decode(false_heads(size), Damage())) == []
        assert done <= 10 * size + (17 << 20)


class _Zlib:
    def __init__(self, crc32: object) -> None:
        self.crc32 = crc32


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 400), min_size=1, max_size=60), st.data())
def test_sound_records_after_some_damage_are_still_found(sizes: list[int], data: st.DataObject) -> None:
    """The bounds are far beyond what damage does: a flipped bit in each of many records costs that record."""
    records = [encode(Record(Kind.EVENT, n, bytes(size))) for n, size in enumerate(sizes)]
    bad = data.draw(st.sets(st.integers(0, len(records) - 1), max_size=20))
    damaged = []
    for n, record in enumerate(records):
        changed = bytearray(record)
        if n in bad:
            changed[data.draw(st.integers(0, len(record) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        damaged.append(bytes(changed))
    found = {record.sequence for record in decode(MAGIC + b"".join(damaged), Damage())}
    assert found >= set(range(len(records))) - bad


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        pytest.param([false_heads(1 << 20)] * 16, id="false heads", marks=pytest.mark.slow),
        pytest.param([MAGIC + encode(Record(Kind.EVENT, 0, b"")) * 40_000] * 20, id="the shortest records"),
        pytest.param(
            [segment(*(event("k", "m") for _ in range(9000)), namespace="mallory")] * 6,
            id="many events",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            [segment(*(steps(1) for _ in range(9000)), namespace="mallory")] * 6,
            id="many iterations",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_body_that_is_slow_to_read_holds_up_nobody(served: Served, body: list[bytes]) -> None:
    packed = gzip.compress(wire.encode(body), 6)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        slow_ones = [
            pool.submit(post, served.url, body=packed, token="mallory", Content_Encoding="gzip") for _ in range(2)
        ]
        while not all(one.done() for one in slow_ones):
            victim_is_served(served)
        assert all(one.result()[0] == 200 for one in slow_ones)


# ---- number 13 ---------------------------------------------------------------------------------------------------------------


def test_millions_of_empty_segments_are_refused(served: Served) -> None:
    packed = gzip.compress(wire.MAGIC + bytes(4 * 4_000_000))
    status, answer = post(served.url, body=packed, token="mallory", Content_Encoding="gzip")
    assert (status, "segments" in answer["error"]) == (400, True)
    victim_is_served(served)


@pytest.mark.slow
def test_the_longest_answer_can_be_read_by_its_sender(served: Served) -> None:
    bad = segment(*(event(kind="") for _ in range(9)), namespace="mallory", run_id="m")
    body = wire.encode([bad] * 12_000)
    assert len(body) < wire.MAX_BODY_BYTES
    _, _, text = request(served.url, "POST", wire.PATH, body, {"Authorization": "Bearer mallory"})
    assert text.count(b'"outcome"') == 12_000
    assert len(text) < wire.MAX_ANSWER_BYTES


def test_a_segment_that_is_too_long_costs_itself_only(served: Served) -> None:
    long = segment(event(), namespace="mallory", run_id="long") + bytes(5 << 20)
    status, answer = post(served.url, segment(event(), namespace="mallory"), long, token="mallory")
    assert (status, [one["outcome"] for one in answer["segments"]]) == (200, ["stored", "damaged"])


@pytest.mark.parametrize("level", [1, 9])
def test_a_bomb_is_refused_before_it_takes_memory(served: Served, level: int) -> None:
    bomb = gzip.compress(wire.MAGIC + bytes(200 << 20), level)
    status, answer = post(served.url, body=bomb, token="mallory", Content_Encoding="gzip")
    assert (status, "too large" in answer["error"]) == (413, True)


@given(st.binary(max_size=300), st.booleans())
@settings(max_examples=50)
def test_what_is_decompressed_is_what_was_compressed_or_refused(body: bytes, spoil: bool) -> None:
    packed = gzip.compress(body)
    assert wire.decompressed(packed, len(body) + 1) == body
    if len(body) > 1:
        with pytest.raises(wire.TooLargeError):
            wire.decompressed(packed, len(body) - 1)
    for bad in (packed[:-1], packed + b"x", body):
        with contextlib.suppress(wire.WireError):
            assert wire.decompressed(bad, 1000) == gzip.decompress(bad)


# ---- number 14: shares -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "length"),
    [(40, CHUNKED), (300, "Content-Length: 100"), (40, f"Content-Length: {32 << 20}")],
    ids=["chunked", "many short", "long"],
)
def test_idle_bodies_of_one_tenant_leave_room_for_others(served: Served, count: int, length: str) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            idle = stack.enter_context(socket.create_connection(address(served), timeout=60))
            idle.sendall(head(length))
        deadline = time.monotonic() + 60
        while served.metrics()["stitchfleet_ingest_pending_requests"] < 1 and time.monotonic() < deadline:
            time.sleep(0.01)
        for number in range(3):
            victim_is_served(served, number)
        found = served.metrics()
        assert found["stitchfleet_ingest_pending_requests"] <= Limits.pending_requests / 2
        assert found["stitchfleet_ingest_pending_bytes"] <= Limits.pending_bytes / 2
    deadline = time.monotonic() + 60
    while served.metrics()["stitchfleet_ingest_pending_requests"] and time.monotonic() < deadline:
        time.sleep(0.01)
    found = served.metrics()
    assert (found["stitchfleet_ingest_pending_requests"], found["stitchfleet_ingest_pending_bytes"]) == (0, 0)


callers = st.sampled_from("abcd")


@given(st.lists(st.tuples(callers, st.integers(0, 60), st.booleans()), max_size=60))
def test_shares_are_never_over_their_bounds_and_a_newcomer_has_room(steps: list[tuple[str, int, bool]]) -> None:
    shares, held = Shares(20, 100), list[tuple[str, int]]()
    for caller, size, gives_back in steps:
        if gives_back and held:
            whose, whole = held.pop(0)
            shares.hold(whose, -1, -whole)
        elif shares.admits(caller, 1, size):
            shares.hold(caller, 1, size)
            held.append((caller, size))
        assert shares.used == [len(held), sum(size for _, size in held)]
        assert shares.used[0] <= 20
        assert shares.used[1] <= 100
        of_callers = {each: sum(size for whose, size in held if whose == each) for each in "abcd"}
        many = {each for each in "abcd" if sum(whose == each for whose, _ in held) > 1}
        assert all(of_callers[each] <= 100 // 2 + 60 for each in many)
    assert shares.admits("newcomer", 1, 100 - shares.used[1]) or shares.used[0] == 20


def test_turns_go_round_and_nobody_has_all_threads() -> None:
    async def play() -> list[str]:
        turns, order = Turns(100, 3, 5.0), list[str]()

        async def one(caller: str, size: int) -> None:
            async with turns.turn(caller, size) as turn:
                turn.shrink(size // 2)
                order.append(caller)
                for _ in range(3):
                    await asyncio.sleep(0)
                assert sum(turns._active.values()) <= 3
                assert all(count <= 2 for count in turns._active.values())
                assert turns._used <= 100

        greedy = [one("greedy", 60) for _ in range(20)]
        await asyncio.gather(*greedy, one("late", 60), one("small", 1))
        assert (turns._used, sum(turns._active.values()), turns._waiting) == (0, 0, {})
        return order

    order = asyncio.run(play())
    assert len(order) == 22
    assert order.index("late") < 5
    assert order.index("small") < 5


def test_a_turn_that_does_not_come_is_given_up() -> None:
    async def play() -> None:
        turns = Turns(10, 1, 0.05)
        async with turns.turn("a", 10):
            with pytest.raises(asyncio.TimeoutError):
                async with turns.turn("b", 10):
                    raise AssertionError
        async with turns.turn("b", 10):
            pass

    asyncio.run(play())


# ---- number 15: connections --------------------------------------------------------------------------------------------------


def is_closed(connection: socket.socket) -> bool:
    connection.settimeout(PATIENCE_S)
    try:
        return connection.recv(1000) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("sent", [b"", b"POST /v1/segments HT", b"GET /healthz HTTP/1.1\r\nHost: x\r\nA: "])
def test_a_head_that_never_ends_is_not_waited_for(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(connections, "IDLE_SECONDS", 0.3)
    monkeypatch.setattr(connections, "LOOK_SECONDS", 0.05)
    with ingest_server(sqlite_url, tokens=TOKENS) as served:
        with socket.create_connection(address(served), timeout=60) as half:
            half.sendall(sent)
            assert is_closed(half)
        with socket.create_connection(address(served), timeout=60) as kept:
            kept.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert kept.recv(1000).startswith(b"HTTP/1.1 200")
            kept.sendall(sent)
            assert is_closed(kept), "nor is a second one"
        victim_is_served(served)
        deadline = time.monotonic() + 60
        while len(served.ingest.connections) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(served.ingest.connections) == 0


def test_too_many_connections_make_room_for_who_has_a_request(
    sqlite_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        ingest_server(sqlite_url, tokens=TOKENS, limits=Limits(connections=12)) as served,
        contextlib.ExitStack() as stack,
    ):
        for number in range(60):
            stack.enter_context(socket.create_connection(address(served), timeout=60)).sendall(b"GET /he")
            if number % 20 == 19:
                victim_is_served(served, number)
        assert len(served.ingest.connections) <= 13, "one more than the bound, the last of a burst"
        found = served.metrics()
        assert found["stitchfleet_ingest_closed_connections_total.full"] >= 30
    assert len(capsys.readouterr().err) < 1000


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from stitchfleet.plugin.command import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_at_the_limit_of_open_files_it_serves_and_the_log_stays_short(tmp_path: pathlib.Path, sqlite_url: str) -> None:
    access.upgrade(access.open_engine(sqlite_url))
    (tmp_path / "tokens").write_text(TOKENS)
    words = ["ingest", "--port", "0", "--database", sqlite_url, "--tokens", str(tmp_path / "tokens")]
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen([sys.executable, "-c", LIMITED, *words], stderr=log)
    try:
        deadline = time.monotonic() + 60
        while "://" not in (text := (tmp_path / "log").read_text()) and time.monotonic() < deadline:
            time.sleep(0.05)
        url = text.split()[-1]
        parts = urllib.parse.urlsplit(url)
        with contextlib.ExitStack() as stack:
            for _ in range(400):
                stack.enter_context(socket.create_connection((str(parts.hostname), parts.port or 0), timeout=60))
            for number in range(5):
                sent = whole_job(run_id=f"v{number}", namespace="victim")
                assert post(url, sent, token="victim")[0] == 200
        assert (tmp_path / "log").stat().st_size < 4096
    finally:
        process.terminate()
        process.wait()


def test_a_handshake_that_never_ends_is_not_waited_for(
    sqlite_url: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(connections, "HANDSHAKE_SECONDS", 0.3)
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    words = [
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        str(key),
        "-out",
        str(certificate),
        "-days",
        "1",
        "-subj",
        "/CN=x",
    ]
    subprocess.run(["openssl", "req", "-x509", *words], check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    with ingest_server(sqlite_url, tokens=TOKENS, tls=context) as served:
        for sent in (b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n"):
            with socket.create_connection(address(served), timeout=60) as half:
                half.sendall(sent)
                assert is_closed(half)
        trusting = ssl.create_default_context(cafile=str(certificate))
        trusting.check_hostname = False
        with trusting.wrap_socket(socket.create_connection(address(served), timeout=60)) as whole:
            whole.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert whole.recv(100).startswith(b"HTTP/1.1 200")
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "lines",
    [
        "Content-Length: -1",
        "Content-Length: 5\r\nContent-Length: 6",
        "A\0B: x",
        "Authorization: Bearer hunter2\x01",
        "{'x' * 9000}: y",
    ],
)
def test_a_request_that_is_none_is_answered_and_writes_no_log(
    served: Served, capsys: pytest.CaptureFixture[str], lines: str
) -> None:
    """Found by the second attack: a traceback each, with the request's bytes in it, for anybody without a token."""
    for _ in range(20):
        with socket.create_connection(address(served), timeout=60) as connection:
            connection.sendall(f"POST {wire.PATH} HTTP/1.1\r\nHost: x\r\n{lines}\r\n\r\n".encode())
            assert b" 400 " in connection.recv(1000).split(b"\r\n")[0]
    victim_is_served(served)
    err = capsys.readouterr().err
    assert (len(err.splitlines()) <= 1, "hunter2" in err, "Traceback" in err) == (True, False, False), err


def test_chunks_of_one_byte_hold_up_nobody(served: Served) -> None:
    with socket.create_connection(address(served), timeout=60) as connection, contextlib.ExitStack() as stack:
        connection.sendall(head(CHUNKED))
        ended = threading.Event()

        def send() -> None:
            with contextlib.suppress(OSError):
                while not ended.is_set():
                    connection.sendall(b"1\r\nx\r\n" * 1000)

        sending = threading.Thread(target=send)
        sending.start()
        stack.callback(sending.join)
        stack.callback(connection.shutdown, socket.SHUT_RDWR)
        stack.callback(ended.set)
        for number in range(5):
            victim_is_served(served, number)


def test_a_tenant_registers_so_many_processes_a_day(sqlite_url: str) -> None:
    """Found by the second attack: each process is a line that every report of the fleet reads."""
    day = [NOW_NS]
    limits = Limits(processes_a_day=10)
    with ingest_server(sqlite_url, tokens=TOKENS, limits=limits, now_ns=lambda: day[0]) as served:
        flood = [segment(event(), namespace="mallory", run_id=f"r{n}") for n in range(10)]
        assert post(served.url, *flood, token="mallory")[0] == 200
        assert post(served.url, *flood, token="mallory")[0] == 429
        victim_is_served(served)
        day[0] += 86_400 * 10**9
        assert post(served.url, *flood, token="mallory")[0] == 200, "the same ones are none"
        assert post(served.url, segment(event(), namespace="mallory", run_id="new"), token="mallory")[0] == 200


# ---- who is asked about tokens -----------------------------------------------------------------------------------------------


def test_a_flood_of_unknown_tokens_is_refused_without_asking(sqlite_url: str, tmp_path: pathlib.Path) -> None:
    """The API server is asked so many questions at once and no more, and a good token stays known."""
    (tmp_path / "own").write_text("own")
    asked, release, most = list[str](), threading.Event(), list[int]()

    class Slow(TokenReviewer):
        async def _review(self, token: str) -> object:
            asked.append(token)
            most.append(len(self._asking))
            while token != "good" and not release.is_set():
                await asyncio.sleep(0.01)
            user = {
                "username": "system:serviceaccount:victim:d",
                "extra": {"authentication.kubernetes.io/pod-uid": ["u-1"]},
            }
            return {"authenticated": token == "good", "audiences": ["stitchfleet-ingest"], "user": user}

    reviewer = Slow("http://nowhere.invalid", own_token=tmp_path / "own", authority=None)
    with (
        ingest_server(sqlite_url, reviewer=reviewer, tokens="") as served,
        concurrent.futures.ThreadPoolExecutor(100) as pool,
    ):
        sent = segment(event(), namespace="victim")
        assert post(served.url, sent, token="good")[0] == 200
        flood = [pool.submit(post, served.url, sent, token=f"bad-{n % 90}") for n in range(100)]
        deadline = time.monotonic() + 60
        while sum(one.done() for one in flood) < 26 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert post(served.url, sent, token="good")[0] == 200, "who is known is not asked about"
        release.set()
        statuses = [one.result()[0] for one in flood]
    assert set(statuses) == {401, 503}
    assert max(most) <= MAX_REVIEWS
    assert asked.count("good") == 1
    assert len(asked) == len(set(asked)), "many requests of one token ask once"


# ---- all at once -------------------------------------------------------------------------------------------------------------

TENANTS = 6


def worst_bodies() -> list[bytes]:
    """Compressed batches that are large, or many, once they are read."""
    source = random.Random(1)
    blocks = [(kind, body) for kind, body in (steps(4096, 1e3, first=5000 * n) for n in range(80))]
    alternating = spool.Iterations(0, 1, 0, 1, [(k, 1, k % 2) for k in range(4096)])
    alternating.durations.extend([source.random() for _ in range(4096)])
    bodies = {
        "blocks": [segment(*blocks, namespace="N", run_id=f"r{n}") for n in range(22)],
        "runs of one": [
            segment(*[(Kind.ITERATIONS, alternating.encode())] * 80, namespace="N", run_id=f"r{n}") for n in range(10)
        ],
        "events": [segment(*(event("k", "m") for _ in range(9000)), namespace="N", run_id=f"e{n}") for n in range(26)],
        "nested": [
            segment(*(event(facts={"a": [{}] * 4000, "b": [[]] * 4000}) for _ in range(90)), namespace="N", run_id=f"n{n}")
            for n in range(12)
        ],
        "mended": [
            segment(*(event(message="\ud800" * 40_000) for _ in range(15)), namespace="N", run_id=f"m{n}") for n in range(8)
        ],
        "damaged": [MAGIC + encode(Record(Kind.EVENT, 0, b"")) * 16_000] * 90,
        "heads": [false_heads(4 << 20)] * 7,
    }  # fmt: skip
    return [gzip.compress(wire.encode(segments), 1) for segments in bodies.values()]


def attack(url: str, tenant: int, bodies: list[bytes], until: float, answers: list[int]) -> None:
    """One of a tenant's connections: the worst bodies in turn."""
    turn = tenant
    while time.monotonic() < until:
        turn += 1
        body = bodies[turn % len(bodies)]
        with contextlib.suppress(OSError, ValueError):
            answers.append(post(url, body=body, token=f"t{tenant}", Content_Encoding="gzip")[0])


@pytest.mark.parametrize("kind", [slow("sqlite"), slow("postgres")])
def test_memory_stays_bounded_at_the_worst_of_all_at_once(
    tmp_path: pathlib.Path, kind: str, request: pytest.FixtureRequest
) -> None:
    """Six tenants, each with the worst bodies on four connections and idle ones beside; half heads; a victim is served throughout."""
    url = request.getfixturevalue(f"{kind}_url")
    access.upgrade(access.open_engine(url))
    # of no namespace: each is a caller of its own, that may write the rows of the bodies' one
    (tmp_path / "tokens").write_text("".join(f"t{n}\n" for n in range(TENANTS)) + "victim victim\n")
    words = ["ingest", "--port", "0", "--database", url, "--tokens", str(tmp_path / "tokens")]
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "stitchfleet.plugin.command", *words], stderr=log)
    try:
        deadline = time.monotonic() + 60
        while "://" not in (text := (tmp_path / "log").read_text()) and time.monotonic() < deadline:
            time.sleep(0.05)
        at = text.split()[-1]
        parts = urllib.parse.urlsplit(at)
        where = (str(parts.hostname), parts.port or 0)
        answers, bodies, until = list[int](), worst_bodies(), time.monotonic() + 45
        threads = [
            threading.Thread(target=attack, args=(at, n, bodies, until, answers))
            for n in range(TENANTS)
            for _ in range(4)
        ]
        slowest = 0.0
        with contextlib.ExitStack() as stack:
            for _ in range(100):
                idle = stack.enter_context(socket.create_connection(where, timeout=60))
                idle.sendall(head(CHUNKED, "t0") + b"400000\r\n" + bytes(1 << 19))
                stack.enter_context(socket.create_connection(where, timeout=60)).sendall(b"POST /v1")
            for thread in threads:
                thread.start()
            served = 0
            while time.monotonic() < until:
                began = time.monotonic()
                status, _ = post(at, whole_job(run_id=f"v{served}", namespace="victim"), token="victim")
                slowest = max(slowest, time.monotonic() - began)
                assert status == 200
                served += 1
            for thread in threads:
                thread.join()
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
        print(
            f"{kind}: peak {peak:.0f} MiB; victim served {served} times, at most {slowest:.1f} s; answers {sorted(set(answers))}"
        )
        assert 200 in answers
        assert set(answers) <= {200, 413, 429, 503}
        assert peak < 512
        assert slowest < 30, "a sender waits so long"
    finally:
        process.terminate()
        process.wait()


# ---- docs/limits.md ----------------------------------------------------------------------------------------------------------


def limits_of_the_page() -> list[list[str]]:
    page = pathlib.Path(__file__).parents[3] / "docs" / "limits.md"
    lines = [line.strip("|").split("|") for line in page.read_text().splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line] for line in lines if line[0].strip() != "what"]


@pytest.mark.parametrize("line", limits_of_the_page(), ids=lambda line: line[0])
def test_the_page_of_limits_says_what_the_program_does(line: list[str]) -> None:
    from .test_table import ATTACKS

    _, bound, _, where, _, tried = line
    room, module, *names = where.strip("`").split(".")
    value: object = importlib.import_module(f"stitchfleet.telemetry.{room}.{module}")
    for part in names:
        value = getattr(value, part)
    assert value == int(bound.replace(",", ""))
    if tried.startswith("`"):
        sources = (path.read_text() for path in pathlib.Path(__file__).parents[1].rglob("test_*.py"))
        assert any(f"def {tried.strip('`')}(" in source for source in sources), "the test that goes beyond it"
    else:
        assert tried in {attack.name for attack in ATTACKS}
