"""What late, misdated, repeated and unreadable rows do to the weeks' figures."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from stitchfleet.telemetry.database import access
from stitchfleet.telemetry.database.rows import rows_of_segment
from stitchfleet.telemetry.database.store import KEEP_DAYS, insert_rows
from stitchfleet.telemetry.database.weeks import Week
from stitchfleet.telemetry.pod.recording import DAY_NS, STITCHED
from stitchfleet.telemetry.reports.configuration import Configuration
from stitchfleet.telemetry.reports.details import detail
from stitchfleet.telemetry.reports.fleet import fleet_report
from stitchfleet.telemetry.reports.formats import as_csv, as_json, as_text, jobs_text
from stitchfleet.telemetry.reports.page import as_html
from stitchfleet.telemetry.totals.freezing import freeze, prune
from stitchfleet.telemetry.totals.weekly import HOUR_NS, WeekReport, processes, standing, week_report

from ..conftest import query
from ..servers import ingest_server, post
from .client import MS, NOW_NS, Part, arm_block, end, event, loss, pairs, segment, steps, whole_job

MINUTE_NS = 60 * 10**9
LAST_WEEK = Week.at(NOW_NS - 8 * DAY_NS)  # that it is over by more than a day, on a Monday too
BEFORE = Week.at(NOW_NS - 15 * DAY_NS)
TODAY = NOW_NS // DAY_NS
numbers = itertools.count(1)


@pytest.fixture
def engine(url: str) -> Iterator[sa.Engine]:
    made = access.open_engine(url)
    access.upgrade(made)
    yield made
    made.dispose()


def send(engine: sa.Engine, *parts: Part, first: int | None = None, closed: bool = True, **job: object) -> None:
    """As the ingest server would write it."""
    sent = segment(*parts, first=100 * next(numbers) if first is None else first, **job)  # type: ignore[arg-type]
    rows, _ = rows_of_segment(sent)
    assert rows.damaged == []
    with access.writing(engine) as connection:
        insert_rows(connection, rows, closed_before=TODAY - KEEP_DAYS if closed else None)


def report(engine: sa.Engine, week: Week = LAST_WEEK) -> WeekReport:
    with engine.connect() as connection:
        return week_report(connection, week)


def frozen(engine: sa.Engine, before_day: int = TODAY - 1, prune_too: bool = False) -> None:
    with access.writing(engine) as connection:
        freeze(connection, before_day)
        if prune_too:
            prune(connection, before_day)


# ---- number 4 ----------------------------------------------------------------------------------------------------------------


def test_hours_of_a_job_whose_clock_was_set_back_are_in_their_week(engine: sa.Engine) -> None:
    monday = LAST_WEEK.end_ns
    job = {"started": monday + MINUTE_NS}
    send(
        engine,
        steps(100, 1e6, at=monday - HOUR_NS),
        event("reverted", facts={"cluster": "c"}, at=monday - HOUR_NS),
        **job,
    )
    (found,) = report(engine).jobs
    assert (found.plain_count, found.reverted) == (100, ("c",))
    frozen(engine, LAST_WEEK.end_day, prune_too=True)
    assert query(engine.url.render_as_string(False), "SELECT count(*) FROM iteration_blocks") == [(0,)]
    (kept,) = report(engine).jobs
    assert (kept.plain_count, kept.plain_ns, kept.reverted) == (100, 100 * 10**9, ("c",)), "pruned with a rollup"
    with engine.connect() as connection:
        (whole,) = processes(connection, None).jobs
    assert whole.plain_count == 100


# ---- number 6 ----------------------------------------------------------------------------------------------------------------


def test_a_week_that_ended_long_ago_stays_as_it_was_published(engine: sa.Engine) -> None:
    old = Week.at(NOW_NS - 60 * DAY_NS)
    at = old.start_ns + DAY_NS
    send(engine, steps(900, 8e4, at=at, arm=STITCHED), *pairs(at=at), end(at=at), started=at - HOUR_NS, closed=False)
    frozen(engine)
    before = report(engine, old)
    late = [
        end(at=at + HOUR_NS, overhead_ns=10**15),
        *pairs(20, 10**12, 1, at=at),
        event("reverted", facts={"cluster": "c"}, at=at),
        loss(77, at=at),
    ]
    for process in ("p", "another"):
        send(engine, *late, process=process, started=at - HOUR_NS, device_count=60_000)
    frozen(engine)
    after = report(engine, old)
    assert (after.revision, after.has_late_data) == (1, False)
    assert after.jobs == before.jobs
    assert after.totals() == before.totals()


@pytest.mark.parametrize(("days", "is_closed"), [(14, False), (60, True)])
def test_a_model_that_is_named_late_is_a_revision_of_the_weeks_that_are_open(
    engine: sa.Engine, days: int, is_closed: bool
) -> None:
    """Errors of jobs of one model add up in full: the name moves the interval of every total."""
    week = Week.at(NOW_NS - days * DAY_NS)
    at = week.start_ns + DAY_NS
    for run in ("a", "b"):
        job = {"run_id": run, "name": f"train-{run}7", "started": at - HOUR_NS, "model_fingerprint": ""}
        send(engine, steps(900, 8e4, at=at, arm=STITCHED), *pairs(at=at), end(at=at), closed=False, **job)
    frozen(engine)
    before = report(engine, week)
    send(engine, event(at=at), run_id="a", name="train-a7", started=at - HOUR_NS, model_fingerprint="m")
    assert report(engine, week).has_late_data == (not is_closed)
    frozen(engine)
    after = report(engine, week)
    assert after.revision == (1 if is_closed else 2)
    assert sorted(entry.model_fingerprint for entry in after.jobs) == ([""] * 2 if is_closed else ["", "m"])
    assert (after.totals() == before.totals()) == is_closed


def test_the_server_leaves_them_alone_too(url: str) -> None:
    old = Week.at(NOW_NS - 60 * DAY_NS)
    at = old.start_ns + DAY_NS
    with ingest_server(url) as served:
        send(served.ingest.engine, steps(10, at=at), end(at=at), started=at, closed=False)
        frozen(served.ingest.engine)
        sent = segment(end(at=at, overhead_ns=10**15), process="q", started=at, device_count=1000)
        assert post(served.url, sent)[0] == 200
        frozen(served.ingest.engine)
        assert report(served.ingest.engine, old).revision == 1


# ---- number 9 ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("late", "field", "value"),
    [
        (event("reverted", facts={"cluster": "c"}, at=LAST_WEEK.start_ns + DAY_NS), "reverted", ("c",)),
        (event("reverted", facts={"cluster": "c"}, at=BEFORE.start_ns + DAY_NS), "reverted", ("c",)),
        (loss(5, at=LAST_WEEK.start_ns + DAY_NS), "lost", 5),
        (loss(7, at=NOW_NS, after_death=True), "lost", 7),
        (event("memory", "too much", at=LAST_WEEK.start_ns + DAY_NS), "fallback", "too much"),
        (end(at=LAST_WEEK.start_ns + 2 * DAY_NS, phase="plain", reason="slow"), "fallback", "slow"),
    ],
    ids=["reverted", "reverted the week before", "lost", "dropped after its end", "fell back", "ended in it"],
)
def test_what_comes_late_reaches_the_frozen_weeks_that_it_is_about(
    engine: sa.Engine, late: Part, field: str, value: object
) -> None:
    job = {"started": BEFORE.start_ns + HOUR_NS}
    for week in (BEFORE, LAST_WEEK):
        send(engine, steps(100, 8e4, at=week.start_ns + DAY_NS, arm=STITCHED), *pairs(at=week.start_ns + DAY_NS), **job)
    send(engine, steps(10, at=LAST_WEEK.start_ns + DAY_NS), run_id="other", started=LAST_WEEK.start_ns)
    frozen(engine)
    assert report(engine).revision == 1
    for turn in range(2):
        send(engine, late, first=50_000, **job)
        assert report(engine).has_late_data is (turn == 0), "what comes again is not late again"
        assert {entry.run_id: getattr(entry, field) for entry in report(engine).jobs}["run-1"] == value
        frozen(engine)
        assert report(engine).revision == 2


def test_a_revert_on_another_rank_reaches_the_process_that_stands_for_the_job(engine: sa.Engine) -> None:
    at = LAST_WEEK.start_ns + DAY_NS
    for rank in (0, 1):
        send(engine, steps(100, at=at, arm=STITCHED), *pairs(at=at), rank=rank, process=f"p{rank}", started=at)
    frozen(engine)
    send(engine, event("reverted", facts={"cluster": "c"}, at=at), rank=1, process="p1", started=at)
    frozen(engine)
    (found,) = report(engine).jobs
    assert (found.key.rank, found.reverted, report(engine).revision) == (0, ("c",), 2)


def test_late_pairs_reach_all_weeks_after_them(engine: sa.Engine) -> None:
    """The kind of number 9: a saving comes from all pairs up to the week's end."""
    job = {"started": BEFORE.start_ns + HOUR_NS}
    for week in (BEFORE, LAST_WEEK):
        send(engine, steps(100, 8e4, at=week.start_ns + DAY_NS, arm=STITCHED), **job)
    send(engine, *pairs(3, at=BEFORE.start_ns + DAY_NS), **job)
    frozen(engine)
    late = [arm_block(90 + n, n % 2, [MS], BEFORE.start_ns + 2 * DAY_NS) for n in range(2)]
    send(engine, *(arm_block(90, arm, [MS * 50], BEFORE.start_ns + 2 * DAY_NS) for arm in (0, 1)), **job)
    assert late
    assert [report(engine, week).has_late_data for week in (BEFORE, LAST_WEEK)] == [True, True]
    assert report(engine).jobs[0].saving is not None
    assert report(engine).jobs[0].saving.pairs == 4  # type: ignore[union-attr]


# ---- number 10 ---------------------------------------------------------------------------------------------------------------


def test_a_loss_hides_no_others_and_an_answer_follows_its_commit(url: str) -> None:
    with ingest_server(url) as served:
        assert post(served.url, segment(loss(20), run_id="a"))[0] == 200
        for first, lost in ((1, -50), (5, 3), (9, 2)):
            assert post(served.url, segment(loss(lost), first=first, run_id="b"))[0] == 200
        found = served.metrics()
        with served.ingest.engine.connect() as connection:
            lost_of = {entry.run_id: entry.lost for entry in processes(connection, None).jobs}
    assert lost_of == {"a": 20, "b": 3}
    assert found["stitchfleet_lost_records_total"] == 23
    assert found["stitchfleet_ingest_requests_total.500"] == 0


# ---- number 7 ----------------------------------------------------------------------------------------------------------------


def test_two_trainings_of_one_run_are_both_in_jobs_and_in_the_report(url: str) -> None:
    at = LAST_WEEK.start_ns + DAY_NS
    with ingest_server(url) as served:
        for process, count in (("first", 900), ("second", 100)):
            sent = segment(
                steps(50, 1e5, at=at), steps(count, 8e4, at=at, first=100, arm=STITCHED), *pairs(at=at), end(at=at),
                process=process, started=at, device_kind="GPU", device_count=4,
            )  # fmt: skip
            assert post(served.url, sent)[0] == 200
        engine, metrics = served.ingest.engine, served.metrics()
    with engine.connect() as connection:
        assert {job.key.process for job in standing(processes(connection, None).jobs)} == {"first", "second"}
    for _ in range(2):
        found = report(engine)
        assert {(job.key.process, job.stitched_count) for job in found.jobs} == {("first", 900), ("second", 100)}
        (total,) = found.totals()
        assert total.device_hours * 3600 == pytest.approx(metrics["stitchfleet_actual_device_seconds_total.gpu"])
        assert total.overhead_hours * 3600 == pytest.approx(metrics["stitchfleet_overhead_device_seconds_total.gpu"])
        frozen(engine)
    assert found.revision == 1
    lines = query(url, "SELECT process, stitched_count FROM weekly_job_savings ORDER BY process")
    assert lines == [("first", 900), ("second", 100)]


# ---- number 8 ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["CPU", "cpu", " Cpu "])
def test_a_cpu_is_a_cpu_in_whatever_case(url: str, kind: str) -> None:
    at = LAST_WEEK.start_ns + DAY_NS
    with ingest_server(url) as served:
        assert post(served.url, segment(steps(10, at=at), end(at=at), device_kind=kind, started=at))[0] == 200
        found = served.metrics()
        assert found["stitchfleet_actual_device_seconds_total.cpu"] > 0
        assert found["stitchfleet_actual_device_seconds_total.gpu"] == 0
        engine = served.ingest.engine
    with access.writing(engine) as connection:  # as a program before this one stored it
        connection.execute(sa.text("UPDATE jobs SET device_kind = :kind"), {"kind": kind})
    assert [job.unit for job in report(engine).jobs] == ["CPU"]
    frozen(engine)
    assert [total.unit for total in report(engine).totals()] == ["CPU"]
    assert query(url, "SELECT unit FROM weekly_job_savings") == [("CPU",)]


# ---- number 3: rows from before the door had a schema ------------------------------------------------------------------------

AT = LAST_WEEK.start_ns + DAY_NS
BAD_ROWS = {
    "an event whose facts are a list": "UPDATE events SET facts = '[]' WHERE kind = 'reverted'",
    "an event whose facts are no JSON": "UPDATE events SET facts = '{' WHERE kind = 'reverted'",
    "a cluster that is a list": """UPDATE events SET facts = '{"cluster": []}' WHERE kind = 'reverted'""",
    "a loss that is a text": """UPDATE events SET facts = '{"lost": "x"}' WHERE kind = 'records-lost'""",
    "a loss of 10^30": """UPDATE events SET facts = '{"lost": 1000000000000000000000000000000}' WHERE kind = 'records-lost'""",
    "a loss below nothing": """UPDATE events SET facts = '{"lost": -5}' WHERE kind = 'records-lost'""",
    "a mean of 10^200 ns": "UPDATE arm_blocks SET mean_ns = 1e200 WHERE pair = 0",
    "a mean without time": "UPDATE arm_blocks SET mean_ns = 0 WHERE pair = 0",
    "two blocks whose sum leaves 64 bits": "UPDATE iteration_blocks SET plain_ns = 9000000000000000000",
    "arms that are no JSON": "UPDATE iteration_blocks SET arms = '{'",
    "instances that are a text": """UPDATE clusters SET facts = '{"instances": "abc"}'""",
    "operators that are texts": """UPDATE clusters SET facts = '{"ops": {"a": "x"}}'""",
    "an error that is a text": """UPDATE clusters SET facts = '{"largest_error": "foo"}'""",
    "scopes that are a number": """UPDATE clusters SET facts = '{"scopes": 5, "executables": 5}'""",
    "clusters that are no JSON": "UPDATE clusters SET facts = 'x'",
    "labels that are a list": "UPDATE jobs SET labels = '[1]' WHERE run_id = 'bad'",
    "labels that are no JSON": "UPDATE jobs SET labels = '{' WHERE run_id = 'bad'",
    "a name of 24 kB that counts": f"UPDATE jobs SET name = '{'-1a' * 8000}' WHERE run_id = 'bad'",
    "an overhead of 64 bits": "UPDATE job_ends SET overhead_ns = 9000000000000000000",
    "two billion devices": "UPDATE jobs SET device_count = 2147483647 WHERE run_id = 'bad'",
    "a start in the year 2262": "UPDATE jobs SET started_ns = 9200000000000000000 WHERE run_id = 'bad'",
}  # fmt: skip


OF_THE_PAGE = (
    *(name for name, statement in BAD_ROWS.items() if "clusters SET" in statement or "SET arms" in statement),
    *("labels that are a list", "two billion devices"),
)
"""Those that the page alone reads, and some that it shows."""


@pytest.mark.parametrize("name", BAD_ROWS)
def test_whoever_reads_survives_a_bad_row(engine: sa.Engine, name: str) -> None:
    """It is counted and said where a figure is without it, and the others' figures stand."""
    from .client import cluster

    send(engine, steps(100, 8e4, at=AT, arm=STITCHED), *pairs(at=AT), run_id="good", started=AT)
    send(
        engine, steps(5, at=AT, first=0), steps(5, at=AT, first=50), *pairs(at=AT), event("reverted", facts={"cluster": "c"}, at=AT),
        loss(3, at=AT), cluster("c"), run_id="bad", started=AT,
    )  # fmt: skip
    with access.writing(engine) as connection:
        of_bad = "process_id = (SELECT process_id FROM jobs WHERE run_id = 'bad')"
        statement = BAD_ROWS[name]
        if "UPDATE jobs" not in statement:
            statement += f" {'AND' if 'WHERE' in statement else 'WHERE'} {of_bad}"
        connection.exec_driver_sql(statement.replace("%", "%%"))
    for state in ("as it is", "frozen", "pruned"):
        began = time.perf_counter()
        with engine.connect() as connection:
            fleet = fleet_report(connection, LAST_WEEK, Configuration(), 2)
            texts = [
                as_text(fleet),
                jobs_text(standing(processes(connection, None).jobs)),
                as_csv(fleet),
                as_json(fleet),
            ]
            if state == "as it is" and name in OF_THE_PAGE:
                details = {job.key: detail(connection, job.process_id, LAST_WEEK) for job in fleet.report.jobs}
                texts.append(as_html(fleet, details))
                assert ("cannot be read" in texts[-1]) is (
                    name not in ("labels that are a list", "two billion devices")
                )
        assert time.perf_counter() - began < 10
        assert all(len(text) < 300_000 for text in texts)
        good = next(job for job in fleet.report.jobs if job.run_id == "good")
        assert (good.stitched_count, good.saving.pairs if good.saving else 0) == (100, 4), state
        assert all(len(job.name) <= 253 for job in fleet.report.jobs), "the name's work is quadratic"
        odd = any(word in statement for word in ("events SET", "arm_blocks SET"))
        assert fleet.report.unreadable == (1 if odd else 0), state
        assert ("rows of the database cannot be read" in texts[0]) is odd
        assert json.loads(texts[3])["unreadable_rows"] == fleet.report.unreadable
        frozen(engine, prune_too=state == "frozen")
    if "leaves 64 bits" in name and engine.dialect.name == "sqlite":
        assert (
            query(engine.url.render_as_string(False), "SELECT max(plain_ns) FROM weekly_rollups")[0][0] == (1 << 63) - 1
        )


def test_a_revision_that_cannot_be_read_is_said(engine: sa.Engine) -> None:
    send(engine, steps(100, 8e4, at=AT, arm=STITCHED), *pairs(at=AT), run_id="good", started=AT)
    send(engine, steps(100, 8e4, at=AT, arm=STITCHED), *pairs(at=AT), run_id="bad", started=AT)
    frozen(engine)
    of_bad = "process_id = (SELECT process_id FROM jobs WHERE run_id = 'bad')"
    with access.writing(engine) as connection:
        connection.exec_driver_sql(f"UPDATE weekly_rollups SET saving = '[]', functions = 'x' WHERE {of_bad}")
    found = report(engine)
    assert ([job.run_id for job in found.jobs], found.unreadable) == (["good"], 1)
    with engine.connect() as connection:
        assert len(processes(connection, None).jobs) == 2


def test_the_sums_of_many_years_fit(url: str) -> None:
    """A tenant that says its iterations took 115 days each, a thousand times over."""
    with ingest_server(url) as served:
        for turn in range(25):
            parts = [steps(1, 9.99e12, first=100 * turn + 2 * n, at=NOW_NS) for n in range(40)]
            assert post(served.url, segment(*parts, first=1000 * turn + 1, run_id="long"))[0] == 200
        assert post(served.url, whole_job(run_id="good"))[0] == 200
        engine = served.ingest.engine
    frozen(engine, Week.at(NOW_NS).end_day, prune_too=True)
    found = report(engine, Week.at(NOW_NS))
    assert {job.run_id for job in found.jobs} == {"long", "good"}
    (long,) = [job for job in found.jobs if job.run_id == "long"]
    assert long.plain_ns == (1 << 63) - 1, "as much as the column holds"


# ---- number 20: the page's memory --------------------------------------------------------------------------------------------


def test_a_job_of_many_kinds_of_clusters_is_a_page_all_the_same(engine: sa.Engine) -> None:
    from .client import cluster

    for part in range(3):
        send(
            engine,
            *(cluster(f"c{part}-{n}", ops={"Exp": 1}) for n in range(500)),
            steps(5, at=AT, first=100 * part),
            started=AT,
        )
    with engine.connect() as connection:
        fleet = fleet_report(connection, LAST_WEEK, Configuration(), 0)
        (job,) = fleet.report.jobs
        found = detail(connection, job.process_id, LAST_WEEK)
        assert len(found.clusters) == 1000
        assert len(as_html(fleet, {job.key: found})) < 300_000


def test_the_memory_of_a_page_does_not_grow_with_the_iterations(engine: sa.Engine) -> None:
    """Peaks of Python's own allocations, of half a million iterations and of four times as many."""
    import tracemalloc

    peaks = []
    for turn, blocks in enumerate((120, 480)):
        first = 120 if turn else 0
        for part in range(first, blocks, 60):
            parts = [steps(4096, 1e3 + part, at=AT, first=5000 * (part + n), arm=STITCHED) for n in range(60)]
            send(engine, *parts, started=AT)
        with engine.connect() as connection:
            (job,) = week_report(connection, LAST_WEEK).jobs
            detail(connection, job.process_id, LAST_WEEK)  # what is imported, compiled and cached
            tracemalloc.start()
            found = detail(connection, job.process_id, LAST_WEEK)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        assert found.curve.count == 4096 * blocks == job.iterations
        assert len(found.curve.points) <= 9 * 300
    assert peaks[1] < 1.5 * peaks[0] < 40 << 20


def test_a_report_reads_what_a_process_may_have_without_end_in_parts(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by the second attack: losses, reverts and pairs of one process were all held at once."""
    from stitchfleet.telemetry.totals import weekly

    monkeypatch.setattr(weekly, "MAX_REVERTED", 5)
    monkeypatch.setattr(weekly, "MAX_PAIRS", 7)
    monkeypatch.setattr(weekly, "ROWS_AT_ONCE", 3)
    reverts = [event("reverted", facts={"cluster": f"{n}-{'c' * 1000}"}, at=AT) for n in range(50)]
    send(
        engine,
        steps(10, at=AT, arm=STITCHED),
        *pairs(20, at=AT),
        *reverts,
        *(loss(n, at=AT) for n in range(50)),
        started=AT,
    )
    send(engine, steps(10, at=AT), loss(1, at=AT), run_id="other", started=AT)
    found = {job.run_id: job for job in report(engine).jobs}
    assert found["run-1"].saving is not None
    assert (found["run-1"].saving.pairs, found["run-1"].lost, len(found["run-1"].reverted)) == (7, 49, 5)
    assert all(len(name) <= 256 for name in found["run-1"].reverted)
    assert (found["other"].lost, found["other"].reverted) == (1, ())
