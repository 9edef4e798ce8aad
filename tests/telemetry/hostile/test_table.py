"""What a hostile client sends, what it is answered, and what must be unharmed: one line an attack, on both databases.

The server is one for each database; a victim's job is there before and must be there, whole, after each line. Its report, a freeze
and a prune of the fleet must work, too, with whatever the attack left behind."""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import sqlalchemy as sa

from stitchfleet.telemetry.database import access
from stitchfleet.telemetry.database.models import jobs
from stitchfleet.telemetry.database.weeks import Week
from stitchfleet.telemetry.pod import wire
from stitchfleet.telemetry.pod.spool import MAX_RECORDS, Iterations, Kind, Record, encode
from stitchfleet.telemetry.reports.configuration import Configuration
from stitchfleet.telemetry.reports.details import detail
from stitchfleet.telemetry.reports.fleet import fleet_report
from stitchfleet.telemetry.reports.formats import as_csv, as_json, as_text, jobs_text
from stitchfleet.telemetry.reports.page import as_html
from stitchfleet.telemetry.totals.freezing import freeze, prune
from stitchfleet.telemetry.totals.weekly import processes, standing

from ..servers import Served, ingest_server, post, request
from .client import (
    NOW_NS,
    Part,
    arm_block,
    cluster,
    end,
    event,
    identified,
    loss,
    pairs,
    segment,
    steps,
    whole_job,
)

TOKENS = "victim victim\nmallory mallory\n"
THIS_WEEK = Week.at(NOW_NS)
MAX_NAME = 253
STORED, DAMAGED = "stored", "damaged"


@dataclass(frozen=True)
class Attack:
    """One request. parts: the records of a segment of mallory's, its identity sound unless `about` says otherwise."""

    name: str
    parts: tuple[Part, ...] = ()
    status: int = 200
    outcome: str | None = STORED
    damaged: int = 1
    """Records that are not used; the rest of the segment is."""
    about: bytes | None = None
    first: int = 1
    job: dict[str, Any] = dataclasses.field(default_factory=dict)
    body: bytes | None = None
    token: str = "mallory"
    headers: dict[str, str] = dataclasses.field(default_factory=dict)


def refused(name: str, *parts: Part, **more: Any) -> Attack:
    """Each of the records is passed over and counted."""
    return Attack(name, parts, damaged=len(parts), **more)


def taken(name: str, *parts: Part, **more: Any) -> Attack:
    """All of it is stored, and harms nobody."""
    return Attack(name, parts, damaged=0, **more)


def nobody(name: str, **job: Any) -> Attack:
    """An identity that is none: nothing of the segment can be used."""
    about = identified(**{"namespace": "mallory", "run_id": "m", **job})
    return Attack(name, (event(),), outcome=DAMAGED, damaged=3, about=about)


def block(**changes: Any) -> Part:
    """A record of iterations whose head says what it likes."""
    sound = Iterations(0, 1, NOW_NS - 1, NOW_NS, [(0, 2, 0)])
    sound.durations.extend([1.0, 1.0])
    return Kind.ITERATIONS, dataclasses.replace(sound, **changes).encode()


DEEP = b'{"time_ns": 1, "kind": "k", "message": "m", "facts": {"a": ' + b"[" * 5000 + b"]" * 5000 + b"}}"
NOT_FINITE = b'{"time_ns": 1, "kind": "k", "message": "m", "facts": {"a": 1e999}}'

ATTACKS = [
    # ---- events
    refused("reverted with facts that are a list", event("reverted", facts=[])),
    refused("reverted with facts that are a text", event("reverted", facts="x")),
    refused("reverted of a cluster that is a list", event("reverted", facts={"cluster": [1]})),
    refused("facts 5,000 lists deep", (Kind.EVENT, DEEP)),
    refused("facts with a number beyond all", (Kind.EVENT, NOT_FINITE)),
    refused("facts with an integer of 400 digits", event(facts={"a": 10**400})),
    refused("facts with more entries than are read", event(facts={"a": [0] * 5000})),
    refused("an event without a kind", event(kind="")),
    refused("a kind longer than an index takes", event(kind="k" * 8000)),
    refused("an event that says what only a loss may", event("records-lost", facts={"lost": "abc"})),
    refused("an event before the beginning of time", event(at=-1)),
    refused("an event after its end", event(at=1 << 63)),
    refused("a time with a fraction", event(at=1.5)),
    refused("no JSON", (Kind.EVENT, b"{")),
    refused("a JSON list", (Kind.EVENT, b"[]")),
    refused("a record of 2 MB", event(facts={"a": "x" * (2 << 20)})),
    taken("a message of 200 kB is cut", event(message="x" * 200_000)),
    taken("a NUL and half a surrogate pair are mended", event(message="a\0b\ud800c")),
    # ---- losses
    refused("a loss below nothing", loss(-5)),
    refused("a loss of 10^30 records", loss(10**30)),
    refused("a loss of a text", loss("many")),
    taken("a loss as large as is believed", loss(10**12)),
    # ---- blocks of pairs
    refused("a block of 10^200 ns", arm_block(durations=[10**200])),
    refused("a block of 10^60 ns", arm_block(durations=[10**60])),
    refused("a block of negative time", arm_block(durations=[-1])),
    refused("a block without time", arm_block(durations=[0])),
    refused("a block of no iterations", arm_block(durations=[])),
    refused("a block of too many", arm_block(durations=[1] * 5000)),
    refused("a block of an arm that is none", arm_block(arm=7)),
    refused("a pair's number beyond its column", arm_block(pair=1 << 40)),
    refused("a function's number beyond its column", arm_block(function=1 << 15)),
    # ---- iterations
    refused("500 iterations of 10^13 us, twice", steps(500, 1e13), steps(500, 1e13, first=600)),
    refused("iterations that are no numbers", block(durations=Iterations(0, 1, 0, 0).durations.__class__("f", [math.nan, 1.0]))),
    refused("a stride of nothing", block(stride=0)),
    refused("a stride beyond its column", block(stride=1 << 40)),
    refused("steps beyond 64 bits", block(first_step=(1 << 63) - 1)),
    refused("an arm that is none", block(runs=[(0, 2, 9)])),
    refused("a run of no iterations", block(runs=[(0, 0, 0), (0, 2, 1)])),
    refused("iterations after the end of time", block(ended_ns=(1 << 63) - 1, started_ns=-(1 << 63))),
    refused("arms for more iterations than there are", block(runs=[(0, 4096, 0)])),
    refused("a record of iterations of 1 MB", (Kind.ITERATIONS, bytes(1 << 20))),
    refused("iterations of a function without its number", (Kind.FUNCTION_ITERATIONS, b"\1")),
    taken("two iterations a billion steps apart twice", steps(1), steps(1, first=1 << 40), steps(1, first=1 << 61)),
    taken("ten years' worth of the longest iterations", *(steps(1, 9.9e12, first=n) for n in range(40))),
    # ---- clusters and ends
    refused("instances that are a text", cluster(instances="abc")),
    refused("a count of operators that is a text", cluster(ops={"a": "x"})),
    refused("an error that is a text", cluster(largest_error="foo")),
    refused("an error in an executable that is a text", cluster(executables=[{"largest_error": "foo"}])),
    refused("scopes that are a number", cluster(scopes=5)),
    refused("executables that are a number", cluster(executables=5)),
    refused("an error beyond all numbers", (Kind.CLUSTER, b'{"name": "c", "facts": {"largest_error": 1e999}}')),
    refused("a cluster's name longer than an index takes", cluster("c" * 9000)),
    taken("an error that is infinite, in words", cluster(largest_error="inf", error_over_tolerance="nan")),
    refused("an overhead below nothing", end(overhead_ns=-1)),
    refused("an overhead of 10^30", end(overhead_ns=10**30)),
    refused("an overhead that is a text", end(overhead_ns="x")),
    refused("a phase that is a list", end(phase=[])),
    # ---- identities
    nobody("a rank below nothing", rank=-1),
    nobody("a rank beyond all", rank=1 << 31),
    nobody("an attempt that is a date", attempt=20261124065541),
    nobody("three billion devices", device_count=3_000_000_000),
    nobody("2^31 - 1 devices", device_count=(1 << 31) - 1),
    nobody("no devices", device_count=0),
    nobody("no run", run_id=""),
    nobody("a run id of 8 kB", run_id="r" * 8192),
    nobody("a process of 8 kB", process="p" * 8192),
    nobody("labels that are a list", labels=[1]),
    nobody("labels of numbers", labels={"a": 1}),
    nobody("a start that is a text", started="x"),
    nobody("a start after the end of time", started=1 << 63),
    nobody("a process id beyond its column", pid=1 << 40),
    nobody("a host that is a number", host=5),
    taken("a job name of 200 kB is cut", event(), job={"name": "n" * 200_000}),
    taken("a job name that a search for counts chokes on", event(), job={"name": "-1a" * 8000}),
    taken("a job name that is a terminal's command", *pairs(), job={"name": "\x1b]0;x\x07\x1b[2Jname\n\u202eevil", "run_id": "esc"}),
    taken("a job name that is a formula", event(), job={"name": "\n=cmd|'/c calc'!A0", "run_id": "csv"}),
    taken("a label that was Latin-1", event(), job={"labels": {"team": "caf\udce9"}, "run_id": "latin"}),
    taken("250 labels of 900 letters", event(), job={"labels": {f"l{n}": "x" * 900 for n in range(250)}, "run_id": "labels"}),
    taken("a CPU in capitals", steps(), job={"device_kind": "CPU", "run_id": "capitals"}),
    Attack("a format of the future", (event(),), outcome="future", damaged=0, about=identified(format=99, namespace="mallory")),
    Attack("a format that is none", (event(),), outcome=DAMAGED, damaged=3, about=identified(format="x", namespace="mallory")),  # type: ignore[arg-type]
    # ---- numbers and kinds of records
    Attack("a sequence number of 2^64 - 1", (event(),), damaged=2, first=(1 << 64) - 1),
    taken("a first record's number of two billion", event(), first=(1 << 31) - 1),
    taken("a gap of two billion records", body=wire.encode([
        segment(run_id="gap", namespace="mallory") + encode(Record(Kind.EVENT, (1 << 31) - 1, event()[1]))
    ])),
    refused("a kind that is none", (77, b"")),
    # ---- other tenants
    Attack("rows of another namespace", (event(),), status=403, outcome=None, job={"namespace": "victim"}),
    taken("the victim's run id, in a namespace of its own", event("forged"), end(overhead_ns=10**12), job={"run_id": "v"}),
    Attack("no token", (event(),), status=401, outcome=None, token=""),
    Attack("a token that nobody has", (event(),), status=401, outcome=None, token="x" * 3000),
    # ---- bodies
    Attack("no batch", body=b"{}", status=400, outcome=None),
    Attack("a length that is not there", body=wire.MAGIC + b"\xff\xff\xff\x7f", status=400, outcome=None),
    Attack("half a length", body=wire.MAGIC + b"\xff", status=400, outcome=None),
    Attack("a batch of nothing", body=wire.MAGIC, outcome=None),
    Attack("no gzip", body=b"x" * 50, status=400, outcome=None, headers={"Content_Encoding": "gzip"}),
    Attack("an encoding that nobody knows", body=wire.MAGIC, status=415, outcome=None, headers={"Content_Encoding": "zstd"}),
]  # fmt: skip


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def attacked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with a victim's job."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('hostile')}/telemetry.db"
    else:
        url = request.getfixturevalue("postgres_server").new_database()
    with ingest_server(url, tokens=TOKENS) as served:
        sent = whole_job(run_id="v", namespace="victim", name="victims-job")
        assert post(served.url, sent, token="victim")[0] == 200
        yield served


def test_the_table_has_each_attack_once() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_a_hostile_client_harms_nobody(attacked: Served, attack: Attack) -> None:
    before = attacked.metrics()
    job = {"namespace": "mallory", "run_id": f"m-{ATTACKS.index(attack)}", **attack.job}
    body = attack.body
    if body is None:
        body = wire.encode([segment(*attack.parts, first=attack.first, about=attack.about, **job)])
    status, answer = post(attacked.url, body=body, token=attack.token, **attack.headers)
    assert status == attack.status, answer
    if attack.outcome is not None:
        (receipt,) = answer["segments"]
        assert (receipt["outcome"], receipt["damaged_records"]) == (attack.outcome, attack.damaged), receipt
        assert all(len(why) <= 300 for why in receipt["damaged"])
    assert_nobody_is_harmed(attacked)
    after = attacked.metrics()
    assert after["stitchfleet_ingest_requests_total.500"] == 0
    for name, value in after.items():
        if name.endswith("_total") or "_total." in name:
            most = MAX_RECORDS if "irregular" in name else 1e15
            assert 0 <= value - before.get(name, 0.0) <= most, f"{name} is wrecked"


def assert_nobody_is_harmed(served: Served) -> None:
    """The victim's job is whole in each form of the report; the fleet can be frozen and pruned."""
    assert request(served.url, "GET", "/healthz")[0] == 200
    with served.ingest.engine.connect() as connection:
        fleet = fleet_report(connection, THIS_WEEK, Configuration(), 1)
        (victim,) = [job for job in fleet.report.jobs if job.namespace == "victim"]
        assert (victim.run_id, victim.plain_count, victim.stitched_count, victim.lost) == ("v", 50, 900, 0)
        assert victim.saving is not None
        assert (victim.saving.pairs, victim.overhead_ns, victim.reverted, victim.fallback) == (4, 10**9, (), "")
        assert fleet.report.unreadable == 0
        assert connection.scalar(sa.select(sa.func.max(sa.func.length(jobs.c.name)))) <= MAX_NAME
        assert all(math.isfinite(total.saved.value) and abs(total.saved.value) < 1e9 for total in fleet.report.totals())
        texts = (as_text(fleet), jobs_text(standing(processes(connection, None).jobs)))
        assert all("victims-job" in text for text in texts)
        for text in (*texts, as_csv(fleet)):
            assert len(text) < 400_000
        assert not any(sign in text for text in texts for sign in "\x1b\u202e\x07")
        json.loads(as_json(fleet))
    with access.writing(served.ingest.engine) as connection, connection.begin_nested() as attempt:
        freeze(connection, THIS_WEEK.end_day)
        prune(connection, THIS_WEEK.end_day)
        attempt.rollback()


def test_the_page_is_made_of_all_that_the_attacks_left(attacked: Served, tmp_path: pathlib.Path) -> None:
    with attacked.ingest.engine.connect() as connection:
        fleet = fleet_report(connection, THIS_WEEK, Configuration(), 1)
        details = {job.key: detail(connection, job.process_id, THIS_WEEK) for job in fleet.report.jobs}
        page = as_html(fleet, details)
    assert "victims-job" in page
    assert not any(sign in page for sign in "\x1b\u202e\x07")
