"""The ingest server: what it takes is in the database once, what it does not take it says, counts, and the sender keeps."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gzip
import http.client
import json
import pathlib
import random
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import time
import urllib.parse
from array import array
from collections.abc import Iterator
from typing import Any

import openapi_spec_validator
import pytest
import sqlalchemy as sa

from scripts.benchmark.postgres import PostgresServer
from stitchfleet.telemetry.database import access, rows
from stitchfleet.telemetry.ingest import metrics
from stitchfleet.telemetry.ingest.api_server import ApiServer as Client
from stitchfleet.telemetry.ingest.authentication import StaticTokens, TokenReviewer
from stitchfleet.telemetry.ingest.report_pages import Readers, ReportPages, made_by_process
from stitchfleet.telemetry.ingest.serving import Ingest, Limits
from stitchfleet.telemetry.pod import spool, wire
from stitchfleet.telemetry.pod.recording import DAY_NS, PLAIN, STITCHED, UNCOUNTED
from stitchfleet.telemetry.pod.spool import OPEN, SEALED, SHIPPING, Iterations, Kind, Record
from stitchfleet.telemetry.shipping import shipper

from ...marks import slow
from ..conftest import query
from ..helpers import identity
from ..servers import TOKEN, ApiServer, Served, api_server, ingest_server, post, request
from ..shipping.test_shipper import WHOLE, counts, record_job

NOW_NS = time.time_ns()


pytestmark = pytest.mark.usefixtures("shipper_here")


@pytest.fixture
def server(sqlite_url: str) -> Iterator[Served]:
    with ingest_server(sqlite_url) as served:
        yield served


def segment(*records: tuple[int, bytes], first: int = 1, process: str = "p", format: int = 1, **changes: Any) -> bytes:
    """A segment of one job, its records numbered from `first`."""
    about = {
        "format": format, "process": process, "pid": 1, "host": "h", "started_ns": NOW_NS,
        "job": identity(**changes).to_json(),
    }  # fmt: skip
    numbered = [(Kind.IDENTITY, json.dumps(about).encode(), first - 1)]
    numbered += [(kind, body, first + index) for index, (kind, body) in enumerate(records)]  # type: ignore[misc]
    return spool.MAGIC + b"".join(spool.encode(Record(kind, number, body)) for kind, body, number in numbered)


def iterations(
    arm: int = PLAIN, count: int = 10, us: float = 1000.0, at: int = NOW_NS, step: int = 0
) -> tuple[int, bytes]:
    block = Iterations(step, 1, at - 1, at, [(0, count, arm)], array("f", [us] * count))
    return Kind.ITERATIONS, block.encode()


def event(message: str = "m", kind: str = "k", **facts: object) -> tuple[int, bytes]:
    return Kind.EVENT, json.dumps({"kind": kind, "message": message, "facts": facts, "time_ns": 5}).encode()


# ---- what is taken -----------------------------------------------------------------------------------------------------------


def test_a_job_arrives_over_http_whole_and_its_spool_is_empty_after(tmp_path: pathlib.Path, url: str) -> None:
    record_job(tmp_path / "spool")
    with ingest_server(url) as served:
        assert shipper.main([str(tmp_path / "spool"), "--ingest", served.url]) == 0
        assert counts(url) == WHOLE
        assert not spool.segments(tmp_path / "spool", OPEN, SEALED, SHIPPING)
        found = served.metrics()
    assert found["stitchfleet_ingest_iterations_total"] == 100
    assert found["stitchfleet_ingest_requests_total.200"] == 1


def test_a_batch_sent_twice_or_out_of_order_changes_nothing(url: str) -> None:
    parts = [segment(iterations(step=20 * n), event(str(n)), first=10 * n + 1) for n in range(4)]
    end = segment((Kind.JOB_END, b'{"time_ns": 7, "facts": {"overhead_ns": 3000000000}}'), first=90)
    with ingest_server(url) as served:
        for batch in ([parts[3], end], [parts[1], parts[0]], parts, [end], [parts[2], parts[2]]):
            assert post(served.url, *batch)[0] == 200
        found = served.metrics()
    assert [counts(url)[name] for name in ("jobs", "job_ends", "iteration_blocks", "events")] == [1, 1, 4, 4]
    assert found["stitchfleet_ingest_iterations_total"] == 40
    assert found["stitchfleet_ingest_duplicate_blocks_total"] == 5
    assert found["stitchfleet_actual_device_seconds_total.cpu"] == pytest.approx(40 * 0.001)
    assert found["stitchfleet_overhead_device_seconds_total.cpu"] == 3


@pytest.mark.parametrize("known_in", [0, 1])
def test_a_model_named_in_one_segment_of_a_batch_is_the_jobs(server: Served, sqlite_url: str, known_in: int) -> None:
    named = (Kind.MODEL, b'{"fingerprint": "graph:1"}')
    records = [[event("a")], [event("b")]]
    records[known_in].append(named)
    both = [segment(*part, first=1 + 10 * k, model_fingerprint="") for k, part in enumerate(records)]
    assert post(server.url, *both)[0] == 200
    assert query(sqlite_url, "SELECT model_fingerprint FROM jobs") == [("graph:1",)]


def test_senders_of_the_same_batch_at_once_make_it_once(url: str) -> None:
    batch = [segment(iterations(step=20 * n), event(str(n)), first=10 * n + 1) for n in range(8)]
    with ingest_server(url) as served, concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: post(served.url, *batch)[0], range(24)))
        found = served.metrics()
    assert answers == [200] * 24
    assert counts(url)["iteration_blocks"] == 8
    assert found["stitchfleet_ingest_iterations_total"] == 80


def test_device_seconds_are_of_rank_0_by_unit_against_the_mean_of_plain_blocks(server: Served) -> None:
    pairs = [
        (
            Kind.ARM_BLOCK,
            json.dumps({"pair": n, "arm": PLAIN, "first_step": 0, "durations_ns": [d], "time_ns": 1}).encode(),
        )
        for n, d in enumerate((900_000, 1_100_000))
    ]
    blocks = [
        iterations(STITCHED, 100, 800.0), iterations(UNCOUNTED, 5, 2000.0, step=200), iterations(PLAIN, 10, step=300)
    ]  # fmt: skip
    gpu = {"run_id": "g", "device_kind": "NVIDIA A100", "device_count": 8, "world_size": 2}
    for rank in (0, 1):
        assert post(server.url, segment(*pairs, *blocks, process=f"p{rank}", rank=rank, **gpu))[0] == 200
    assert post(server.url, segment(*blocks))[0] == 200
    found = server.metrics()
    assert found["stitchfleet_actual_device_seconds_total.gpu"] == pytest.approx(8 * (0.08 + 0.01 + 0.01))
    assert found["stitchfleet_baseline_equivalent_device_seconds_total.gpu"] == pytest.approx(8 * (0.1 + 0.01 + 0.01))
    cpu = found["stitchfleet_actual_device_seconds_total.cpu"]
    assert cpu == pytest.approx(0.1)
    assert found["stitchfleet_baseline_equivalent_device_seconds_total.cpu"] == pytest.approx(cpu), (
        "unmeasured: no saving"
    )


def test_a_compressed_body_is_the_same(server: Served) -> None:
    body = wire.encode([segment(iterations())])
    assert post(server.url, body=gzip.compress(body), Content_Encoding="gzip")[0] == 200
    assert server.metrics()["stitchfleet_ingest_iterations_total"] == 10
    assert wire.compressed(bytes(100_000)) is not None
    assert wire.compressed(random.Random(1).randbytes(100_000)) is None, "it does not pay"


# ---- who may send ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", ["", "Basic YTpi", "Bearer", "Bearer wrong", f"Bearer {TOKEN}x"])
def test_a_wrong_token_is_refused_and_counted(server: Served, header: str) -> None:
    headers = {"Authorization": header} if header else {}
    status, _, text = request(server.url, "POST", wire.PATH, wire.encode([segment(event())]), headers)
    assert (status, list(json.loads(text))) == (401, ["error"])
    found = server.metrics()
    assert found["stitchfleet_ingest_rejections_total.token_missing"] + (
        found["stitchfleet_ingest_rejections_total.token_refused"]
    ) == 1  # fmt: skip
    assert query(str(server.ingest.engine.url), "SELECT count(*) FROM jobs") == [(0,)]


def test_a_static_token_can_be_of_one_namespace(sqlite_url: str) -> None:
    with ingest_server(sqlite_url, tokens=f"# of the platform\n{TOKEN}\n\nother lab  # a laptop\n") as served:
        assert post(served.url, segment(event()), token="other")[0] == 403
        assert post(served.url, segment(event(), namespace="lab"), token="other")[0] == 200
        assert post(served.url, segment(event(), run_id="r"), token=TOKEN)[0] == 200
    with pytest.raises(ValueError, match="line 1"):
        StaticTokens("a b c")


@pytest.fixture
def api(tmp_path: pathlib.Path) -> Iterator[ApiServer]:
    with api_server() as found:
        yield found


@pytest.fixture
def reviewer(api: ApiServer, tmp_path: pathlib.Path) -> TokenReviewer:
    (tmp_path / "own").write_text(api.own_token + "\n")
    return TokenReviewer(api.url, own_token=tmp_path / "own", authority=None)


def test_a_pod_writes_rows_of_its_own_namespace_and_pod_only(
    sqlite_url: str, api: ApiServer, reviewer: TokenReviewer
) -> None:
    token = api.add("pods")
    with ingest_server(sqlite_url, reviewer=reviewer) as served:
        assert post(served.url, segment(event()), token=token)[0] == 200
        for other in ({"namespace": "elsewhere"}, {"uid": "u-2"}, {"namespace": ""}, {"uid": ""}):
            status, answer = post(served.url, segment(event(), run_id="x", **other), token=token)
            assert (status, "may write those of" in answer["error"]) == (403, True), other
        mixed = [segment(event(), run_id="y"), segment(event(), run_id="y", namespace="elsewhere")]
        assert post(served.url, *mixed, token=token)[0] == 403
        assert served.metrics()["stitchfleet_ingest_rejections_total.forbidden"] == 5
    assert query(sqlite_url, "SELECT DISTINCT run_id FROM jobs") == [("run-1",)], (
        "of a refused batch nothing is written"
    )
    assert api.reviews[0]["spec"] == {"token": "pods", "audiences": ["stitchfleet-ingest"]}
    assert len(api.reviews) == 1, "the API server is not asked for each batch"


def test_nobody_writes_into_anothers_run(url: str, api: ApiServer, reviewer: TokenReviewer) -> None:
    victim, neighbour = api.add("victim"), api.add("neighbour", uid="u-2")
    stranger = api.add("stranger", namespace="elsewhere", uid="u-3")
    with ingest_server(url, reviewer=reviewer) as served:
        assert post(served.url, segment(event()), token=victim)[0] == 200
        answers = [
            post(served.url, segment(event("forged"), first=50, namespace="elsewhere", uid="u-3"), token=stranger),
            post(served.url, segment(event("forged"), first=50, uid="u-2"), token=neighbour),
        ]
        assert [status for status, _ in answers] == [200, 403], "a run id of another namespace's is another run"
        own_process = segment(event("rank 1"), first=50, uid="u-2", rank=1, process="q")
        assert post(served.url, own_process, token=neighbour)[0] == 200, "another rank of the same job is another pod"
    found = query(url, "SELECT j.namespace, e.message FROM events AS e JOIN jobs AS j ON j.process_id = e.process_id")
    assert sorted(found) == [("elsewhere", "forged"), ("team", "m"), ("team", "rank 1")]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"authenticated": False, "error": "token has expired"}, "expired"),
        ({"audiences": ["vault"]}, "vault"),
        ({"audiences": []}, "audience"),
        ({"audiences": None}, "audience"),
        ({"user": {"username": "jane"}}, "not a service account"),
        ({"user": {"username": "system:serviceaccount:a:b:c"}}, "not a service account"),
        ({"uid": None}, "not bound to a pod"),
    ],
)
def test_a_token_that_kubernetes_does_not_vouch_for_is_refused(
    sqlite_url: str, api: ApiServer, reviewer: TokenReviewer, changes: dict[str, Any], said: str
) -> None:
    api.add("odd", **changes)
    with ingest_server(sqlite_url, reviewer=reviewer) as served:
        status, answer = post(served.url, segment(event()), token="odd")
        assert status == 401
        assert said in answer["error"]
        assert "odd" not in answer["error"]
        assert served.metrics()["stitchfleet_ingest_rejections_total.token_refused"] == 1


def test_a_token_that_expires_is_refused_when_it_is_asked_for_again(
    sqlite_url: str, api: ApiServer, tmp_path: pathlib.Path
) -> None:
    clock = [0.0]
    (tmp_path / "own").write_text(api.own_token)
    reviewer = TokenReviewer(api.url, own_token=tmp_path / "own", authority=None, clock=lambda: clock[0])
    api.add("pods")
    with ingest_server(sqlite_url, reviewer=reviewer) as served:
        assert post(served.url, segment(event()), token="pods")[0] == 200
        del api.statuses["pods"]
        clock[0] = 61.0
        status, answer = post(served.url, segment(event()), token="pods")
        assert (status, "expired" in answer["error"]) == (401, True)
        api.add("pods")
        clock[0] = 67.0
        assert post(served.url, segment(event()), token="pods")[0] == 200


def test_an_api_server_that_does_not_answer_is_asked_again_later(
    sqlite_url: str, api: ApiServer, reviewer: TokenReviewer, tmp_path: pathlib.Path
) -> None:
    api.add("pods")
    api.failing = True
    with ingest_server(sqlite_url, reviewer=reviewer) as served:
        status, answer = post(served.url, segment(event()), token="pods")
        assert (status, answer["retry_after"]) == (503, "5")
        api.failing = False
        assert post(served.url, segment(event()), token="pods")[0] == 200, "that it failed is not remembered"
        (tmp_path / "own").write_text("expired")
        api.add("more")
        assert post(served.url, segment(event()), token="more")[0] == 503, "our own token is the one refused"
        assert served.metrics()["stitchfleet_ingest_rejections_total.reviewer_unavailable"] == 2


# ---- what is refused or passed over ------------------------------------------------------------------------------------------


def test_a_body_of_100_mb_is_refused_before_it_is_sent(server: Served) -> None:
    parts = urllib.parse.urlsplit(server.url)
    with socket.create_connection((str(parts.hostname), int(parts.port or 0)), timeout=60) as connection:
        head = f"POST {wire.PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {100 << 20}\r\n\r\n"
        connection.sendall(head.encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")
    assert server.metrics()["stitchfleet_ingest_rejections_total.too_large"] == 1


def test_a_body_that_never_comes_holds_its_room_for_a_while_only(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stitchfleet.telemetry.ingest.serving.BODY_SECONDS", 0.3)
    parts = urllib.parse.urlsplit(server.url)
    with socket.create_connection((str(parts.hostname), int(parts.port or 0)), timeout=60) as connection:
        head = f"POST {wire.PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 5000\r\n\r\n"
        connection.sendall(head.encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 408 ")
    found = server.metrics()
    assert found["stitchfleet_ingest_rejections_total.slow"] == 1
    assert found["stitchfleet_ingest_pending_bytes"] == 0


def test_a_body_that_grows_too_large_is_cut_off(server: Served) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(100):
            yield bytes(1 << 20)

    try:
        status, _, _ = request(server.url, "POST", wire.PATH, chunks(), {"Authorization": f"Bearer {TOKEN}"})
        assert status == 413
    except (BrokenPipeError, ConnectionResetError):
        pass  # it had said so and closed while the body was still being sent
    status, answer = post(server.url, body=gzip.compress(bytes(100 << 20)), Content_Encoding="gzip")
    assert (status, "large" in answer["error"].lower() or "size" in answer["error"]) == (413, True), answer
    found = server.metrics()
    assert found["stitchfleet_ingest_rejections_total.too_large"] == 2
    assert found["stitchfleet_ingest_body_bytes_total"] == 0
    assert found["stitchfleet_ingest_pending_bytes"] == 0


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "not a batch"),
        (b"{}", "not a batch"),
        (b"STITCHBATCH2\n", "version 2"),
        (wire.MAGIC + b"\1\0", "within a length"),
        (wire.MAGIC + struct.pack("<I", 99) + b"short", "within a segment of 99 bytes"),
    ],
)
def test_a_body_that_is_no_batch_is_one_line(server: Served, body: bytes, said: str) -> None:
    status, answer = post(server.url, body=body)
    assert (status, said in answer["error"]) == (400, True), answer
    assert server.metrics()["stitchfleet_ingest_rejections_total.malformed"] == 1


def test_a_body_that_says_gzip_and_is_none_is_refused(server: Served) -> None:
    assert post(server.url, body=wire.encode([segment(event())]), Content_Encoding="gzip")[0] == 400


def test_what_is_odd_is_counted_and_the_rest_arrives(server: Served) -> None:
    bad = [
        iterations(us=float("nan")), iterations(us=-1.0), (Kind.EVENT, b"["), (77, b""),
    ]  # fmt: skip
    backwards = [iterations(at=NOW_NS), iterations(at=NOW_NS - 10**9, step=50)]
    status, answer = post(
        server.url, segment(*bad, event("kept"), *backwards), segment(event(), first=1, process="q")[:-3]
    )
    assert status == 200
    assert [entry["outcome"] for entry in answer["segments"]] == ["stored", "stored"]
    assert answer["segments"][0]["damaged_records"] == 4
    again, far = (spool.encode(Record(Kind.EVENT, number, event()[1])) for number in (1, 9))
    assert post(server.url, segment(event("a"), process="r") + again + far)[0] == 200
    found = server.metrics()
    assert found["stitchfleet_ingest_damaged_records_total"] == 4
    assert {reason: found[f"stitchfleet_ingest_irregular_records_total.{reason}"] for reason in rows.IRREGULARITIES} == {
        rows.DUPLICATE_SEQUENCE: 1, rows.MISSING_SEQUENCE: 7, rows.CLOCK_BACKWARDS: 1,
    }  # fmt: skip
    assert found["stitchfleet_ingest_iterations_total"] == 20


def test_a_segment_of_the_future_stays_with_its_sender(tmp_path: pathlib.Path, server: Served) -> None:
    folder = tmp_path / "spool"
    folder.mkdir()
    for number, data in enumerate((segment(event(), format=3), segment(event("now"), first=5), b"nothing at all" * 9)):
        (folder / f"{number:010d}{SEALED}").write_bytes(data)
    assert shipper.main([str(folder), "--ingest", server.url]) == 1
    assert [path.name for path in spool.segments(folder, OPEN, SEALED, SHIPPING)] == [f"{0:010d}{SEALED}"]
    assert [path.name for path in folder.glob("*.damaged")] == [f"{2:010d}.damaged"]
    found = server.metrics()
    assert found["stitchfleet_ingest_future_segments_total"] == 1
    assert query(str(server.ingest.engine.url), "SELECT message FROM events") == [("now",)]


def test_blocks_dated_far_from_today_are_accepted_counted_and_dropped(url: str) -> None:
    near = [NOW_NS, NOW_NS - 20 * DAY_NS, NOW_NS + DAY_NS]
    far = [0, NOW_NS - 400 * DAY_NS, NOW_NS + 30 * DAY_NS]
    with ingest_server(url) as served:
        blocks = [iterations(at=at, step=100 * n) for n, at in enumerate((*near, *far))]
        status, answer = post(served.url, segment(*blocks, event()))
        assert (status, answer["segments"][0]["dropped_blocks"]) == (200, 3)
        found = served.metrics()
    assert found["stitchfleet_ingest_dropped_blocks_total.too_old"] == 2
    assert found["stitchfleet_ingest_dropped_blocks_total.too_new"] == 1
    days = query(url, "SELECT DISTINCT day FROM iteration_blocks ORDER BY day")
    assert days == [(day,) for day in sorted(at // DAY_NS for at in near)], "their partitions were made for them"


def test_what_a_process_says_it_lost_is_counted_once(server: Served) -> None:
    def loss(lost: int) -> tuple[int, bytes]:
        return Kind.LOSS, json.dumps({"time_ns": 1, "lost": lost, "reason": "full"}).encode()

    for _ in range(2):
        assert post(server.url, segment(loss(5), loss(12)))[0] == 200
    assert post(server.url, segment(loss(20), first=9))[0] == 200
    assert server.metrics()["stitchfleet_lost_records_total"] == 20


def test_a_value_that_the_database_refuses_costs_its_own_segment_only(server: Served) -> None:
    with server.ingest.engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE TRIGGER t BEFORE INSERT ON events WHEN new.message = 'bad' BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
    status, answer = post(
        server.url, *(segment(event(text), first=5 * n + 1) for n, text in enumerate(("a", "bad", "b")))
    )
    assert (status, [entry["outcome"] for entry in answer["segments"]]) == (200, ["stored", "damaged", "stored"])
    assert query(str(server.ingest.engine.url), "SELECT message FROM events ORDER BY 1") == [("a",), ("b",)]


def test_what_was_written_before_the_database_went_away_is_counted(server: Served) -> None:
    """A batch with a row that is refused is written segment by segment: the first ones are there when the rest comes again."""
    engine, begun = server.ingest.engine, list[int]()
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE TRIGGER t BEFORE INSERT ON events WHEN new.message = 'bad' BEGIN SELECT RAISE(ABORT, 'no'); END"
        )

    def goes_away(connection: sa.Connection) -> None:
        if connection.get_execution_options().get("stitchfleet_write"):
            begun.append(1)
            if len(begun) == 4:  # the whole batch, the first segment, the bad one, the last one
                raise sa.exc.OperationalError("BEGIN", {}, Exception("server closed the connection"))

    sa.event.listen(engine, "begin", goes_away)
    batch = [
        segment(iterations(step=100 * n), event(text), first=5 * n + 1) for n, text in enumerate(("a", "bad", "b"))
    ]
    assert post(server.url, *batch)[0] == 503
    assert server.metrics()["stitchfleet_ingest_iterations_total"] == 10
    assert post(server.url, *batch)[0] == 200
    found = server.metrics()
    assert found["stitchfleet_ingest_iterations_total"] == 20
    assert found["stitchfleet_actual_device_seconds_total.cpu"] == pytest.approx(20 * 0.001)
    assert found["stitchfleet_ingest_damaged_records_total"] == 3, "the bad segment's: its job, a block, an event"
    assert query(str(engine.url), "SELECT message FROM events ORDER BY 1") == [("a",), ("b",)]


# ---- what fails beside it ----------------------------------------------------------------------------------------------------


def test_too_much_at_once_is_refused_until_there_is_room(sqlite_url: str) -> None:
    first = segment(event())
    limits = Limits(pending_bytes=4 * len(wire.encode([first])))  # half of it for one alone
    with ingest_server(sqlite_url, limits=limits) as served, concurrent.futures.ThreadPoolExecutor(4) as pool:
        with sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None) as other:
            other.execute("BEGIN IMMEDIATE")
            waiting = [pool.submit(post, served.url, first) for _ in range(2)]
            while served.metrics()["stitchfleet_ingest_pending_requests"] < 2:
                time.sleep(0.01)
            status, answer = post(served.url, first)
            assert (status, answer["retry_after"]) == (429, "5")
            other.execute("COMMIT")
        assert [one.result()[0] for one in waiting] == [200, 200]
        assert post(served.url, first)[0] == 200
        found = served.metrics()
    assert (found["stitchfleet_ingest_rejections_total.busy"], found["stitchfleet_ingest_pending_bytes"]) == (1, 0)


@pytest.mark.slow
def test_a_database_that_goes_away_in_the_middle_of_a_batch_loses_nothing(
    tmp_path: pathlib.Path, postgres_server: PostgresServer
) -> None:
    url = postgres_server.new_database()
    record_job(tmp_path / "spool")
    words = [str(tmp_path / "spool"), "--ingest"]
    with ingest_server(url) as served, concurrent.futures.ThreadPoolExecutor(1) as pool:
        holder = access.open_engine(url).connect()
        holder.exec_driver_sql("LOCK TABLE job_ends IN ACCESS EXCLUSIVE MODE")
        ship = pool.submit(shipper.main, [*words, served.url])
        while holder.scalar(sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted")) == 0:
            time.sleep(0.01)  # until the batch waits in the middle of its transaction
        postgres_server.stop()
        try:
            assert ship.result(60) == 1
            status, answer = post(served.url, segment(event(), run_id="away"))
            assert (status, answer["retry_after"]) == (503, "5")
            assert request(served.url, "GET", "/readyz")[0] == 503
            assert request(served.url, "GET", "/healthz")[0] == 200
            assert served.metrics()["stitchfleet_ingest_database_up"] == 0
            assert len(spool.segments(tmp_path / "spool", SEALED)) == 1
        finally:
            postgres_server.start()
        holder.invalidate()
        holder.close()
        assert counts(url) == dict.fromkeys(WHOLE, 0)
        assert shipper.main([*words, served.url]) == 0
        found = served.metrics()
    assert counts(url) == WHOLE
    assert found["stitchfleet_ingest_rejections_total.database"] == 2
    assert found["stitchfleet_ingest_database_up"] == 1
    assert found["stitchfleet_ingest_iterations_total"] == 100


def test_a_full_disk_refuses_batches_until_there_is_room(
    server: Served, sqlite_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    full = [True]

    def bound(connection: Any, *_rest: object) -> None:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages if full[0] else 1 << 30}")

    sa.event.listen(server.ingest.engine, "checkout", bound)
    big = segment(event("x" * 200_000))
    status, answer = post(server.url, big)
    assert (status, answer) == (503, {"error": "the database cannot be written to", "retry_after": "5"})
    assert "full" in capsys.readouterr().err, "why is for the log, not for whoever sends"
    assert query(sqlite_url, "SELECT count(*) FROM jobs") == [(0,)]
    full[0] = False
    assert post(server.url, big)[0] == 200
    assert query(sqlite_url, "SELECT count(*) FROM events") == [(1,)]
    assert server.metrics()["stitchfleet_ingest_rejections_total.database"] == 1


# ---- pages -------------------------------------------------------------------------------------------------------------------


def test_it_is_ready_when_the_database_is(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stitchfleet.telemetry.ingest.serving.PROBE_SECONDS", 0.0)
    with ingest_server(empty_url, upgrade=False) as served:
        status, _, text = request(served.url, "GET", "/readyz")
        assert (status, b"db upgrade" in text) == (503, True)
        assert post(served.url, segment(event()))[0] == 503
        engine = access.open_engine(empty_url)
        access.upgrade(engine)
        engine.dispose()
        assert request(served.url, "GET", "/readyz")[::2] == (200, b"ok\n")
        assert post(served.url, segment(event()))[0] == 200


def test_prometheus_learns_of_the_database_where_nobody_asks(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stitchfleet.telemetry.ingest.serving.PROBE_SECONDS", 0.0)
    monkeypatch.setattr("stitchfleet.telemetry.ingest.serving.WATCH_SECONDS", 0.05)
    with ingest_server(empty_url, upgrade=False) as served:
        time.sleep(0.2)
        assert served.metrics()["stitchfleet_ingest_database_up"] == 0
        upgraded(empty_url)
        deadline = time.monotonic() + 60
        while served.metrics()["stitchfleet_ingest_database_up"] == 0 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert served.metrics()["stitchfleet_ingest_database_up"] == 1


def test_the_interface_describes_itself(server: Served) -> None:
    status, _, text = request(server.url, "GET", "/openapi.json")
    assert status == 200
    document = json.loads(text)
    openapi_spec_validator.validate(document)
    server.ingest.pages = ReportPages(Readers(Client("http://nowhere")), made_by_process("sqlite://"), print)
    routes = {route.resource.canonical for route in server.ingest.application().router.routes() if route.resource}
    assert set(document["paths"]) == routes
    _, answer = post(server.url, segment(event()))
    schema = document["paths"][wire.PATH]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
    (receipt,) = answer["segments"]
    properties = schema["properties"]["segments"]["items"]
    assert sorted(receipt) == sorted(properties["properties"]) == sorted(properties["required"])


def test_no_metric_says_which_job(server: Served) -> None:
    assert post(server.url, segment(iterations(), run_id="secret-run", namespace="secret-team"))[0] == 200
    text = request(server.url, "GET", "/metrics")[2].decode()
    assert "secret" not in text
    labels = {metric._labelnames for metric in server.ingest.metrics.registry._collector_to_names}  # type: ignore[attr-defined]
    assert labels <= {(), ("unit",), ("reason",), ("code",), ("version",)}
    assert all(f'reason="{reason}"' in text for reason in metrics.REJECTIONS), "each is there from the beginning"


# ---- the process -------------------------------------------------------------------------------------------------------------


def start(url: str, tmp_path: pathlib.Path, *words: str) -> tuple[subprocess.Popen[str], str]:
    """`stitchfleet ingest`, and its URL."""
    (tmp_path / "tokens").write_text(TOKEN)
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "stitchfleet.plugin.command", "ingest", "--port", "0", "--database", url),
            *("--tokens", str(tmp_path / "tokens"), *words),
        ],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    line = process.stderr.readline()
    while line and "://" not in line:
        line = process.stderr.readline()
    return process, line.rpartition(" ")[2].strip()


def upgraded(url: str) -> str:
    engine = access.open_engine(url)
    access.upgrade(engine)
    engine.dispose()
    return url


def test_sigterm_ends_what_is_under_way_first(tmp_path: pathlib.Path, sqlite_url: str) -> None:
    process, at = start(upgraded(sqlite_url), tmp_path)
    with (
        concurrent.futures.ThreadPoolExecutor(1) as pool,
        sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        posted = pool.submit(post, at, segment(event()))
        while b"stitchfleet_ingest_pending_requests 1.0" not in request(at, "GET", "/metrics")[2]:
            time.sleep(0.01)
        parts = urllib.parse.urlsplit(at)
        process.send_signal(signal.SIGTERM)
        while process.poll() is None:
            try:
                socket.create_connection((str(parts.hostname), int(parts.port or 0)), timeout=10).close()
            except OSError:
                break  # nobody new is let in
            time.sleep(0.01)
        with pytest.raises(concurrent.futures.TimeoutError):
            posted.result(1.0)
        assert process.poll() is None
        other.execute("COMMIT")
        assert posted.result()[0] == 200
    assert process.communicate(timeout=60)[1] == ""
    assert process.returncode == 0
    assert query(sqlite_url, "SELECT count(*) FROM events") == [(1,)]


def test_an_end_that_comes_as_the_database_answers_is_no_hang(sqlite_url: str) -> None:
    ingest = Ingest(access.open_engine(sqlite_url), None, None)

    async def end_as_the_database_answers() -> set[asyncio.Task[None]]:
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "run_in_executor", lambda *_work: answer)
            watch = asyncio.create_task(ingest._watch_database())
            await asyncio.sleep(0)
            answer.set_result("")
            await asyncio.sleep(0)
            watch.cancel()
            return (await asyncio.wait({watch}, timeout=1))[1]

    assert not asyncio.run(end_as_the_database_answers())


@pytest.mark.parametrize("url", ["postgres", slow("sqlite")], indirect=True)
def test_what_was_acknowledged_survives_the_servers_death(tmp_path: pathlib.Path, url: str) -> None:
    upgraded(url)
    acknowledged, number = set[int](), 0
    for life in range(3):
        process, at = start(url, tmp_path)
        killer = concurrent.futures.ThreadPoolExecutor(1)
        killer.submit(lambda process=process, life=life: (time.sleep(0.05 + 0.1 * life), process.kill()))
        try:
            while True:
                number += 1
                if post(at, segment(event(str(number)), first=2 * number))[0] == 200:
                    acknowledged.add(number)
        except (OSError, ValueError, http.client.HTTPException):
            pass  # the server is dead
        process.communicate()
        killer.shutdown()
    there = {int(str(text)) for (text,) in query(url, "SELECT message FROM events")}
    assert acknowledged <= there <= set(range(1, number + 1))
    assert acknowledged


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--database", "/nowhere-at-all/\0x"], "ingest"),
        (["--database", "mysql://x/y"], "not supported"),
        (["--tokens", "/nowhere"], "No such file"),
        (["--port", "1", "--host", "203.0.113.1"], "203.0.113.1"),
    ],
)
def test_a_mistake_is_one_line(
    tmp_path: pathlib.Path, sqlite_url: str, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from stitchfleet.plugin.command import main

    (tmp_path / "tokens").write_text(TOKEN)
    given = ["ingest", "--database", upgraded(sqlite_url), "--tokens", str(tmp_path / "tokens"), *words]
    assert main(given) == 2
    err = capsys.readouterr().err
    assert (said in err, err.count("\n")) == (True, 1), err


def test_a_database_that_was_not_upgraded_is_refused_with_the_command_to_run(
    tmp_path: pathlib.Path, empty_sqlite_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from stitchfleet.plugin.command import main

    (tmp_path / "tokens").write_text(TOKEN)
    words = ["ingest", "--database", empty_sqlite_url]
    assert main(words) == 2
    assert "who may write?" in capsys.readouterr().err
    assert main([*words, "--tokens", str(tmp_path / "tokens")]) == 2
    assert "stitchfleet db upgrade" in capsys.readouterr().err
