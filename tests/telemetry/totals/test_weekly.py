"""From rows to what a week saved: weeks are split, costs are charged, nothing is imputed, and freezing changes no figure."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Iterable, Iterator
from unittest.mock import ANY

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from stitchfleet.telemetry.database import access, models, partitions
from stitchfleet.telemetry.database.rows import Rows, rows_of_segment
from stitchfleet.telemetry.database.store import insert_rows
from stitchfleet.telemetry.database.weeks import Week
from stitchfleet.telemetry.pod.recording import DAY_NS, PLAIN, STITCHED, UNCOUNTED
from stitchfleet.telemetry.pod.spool import MAGIC, Iterations, Kind, Record, encode
from stitchfleet.telemetry.reports.configuration import Configuration
from stitchfleet.telemetry.reports.fleet import fleet_report
from stitchfleet.telemetry.reports.formats import as_json, as_text, jobs_text
from stitchfleet.telemetry.totals import freezing, weekly
from stitchfleet.telemetry.totals.freezing import delete_namespace
from stitchfleet.telemetry.totals.weekly import HOUR_NS, JobWeek, Status, standing, week_report

from ..helpers import identity

WEEK = Week(2026, 47)
MONDAY = WEEK.start_ns
MS = 1_000_000


@pytest.fixture
def engine(url: str) -> Iterator[sa.Engine]:
    made = access.open_engine(url)
    access.upgrade(made)
    yield made
    made.dispose()


def job(
    run_id: str = "run-1",
    *,
    blocks: list[tuple[int, int, int, int]] = (),  # type: ignore[assignment]
    pairs: list[tuple[int, int]] = (),  # type: ignore[assignment]
    pairs_at: int = MONDAY + HOUR_NS,
    started: int = MONDAY,
    overhead: int | None = 0,
    process: str = "p",
    phase: str = "stitched",
    **changes: object,
) -> Rows:
    """blocks: (end, arm, count, duration) in nanoseconds; pairs: (plain, stitched) durations; overhead None: no end was said."""
    about = {
        "format": 1, "process": process, "pid": 1, "host": "h", "started_ns": started,
        "job": identity(run_id, **changes).to_json(),
    }  # fmt: skip
    records: list[tuple[int, bytes]] = [(Kind.IDENTITY, json.dumps(about).encode())]
    step = 0
    for ended, arm, count, duration in blocks:
        block = Iterations(step, 1, ended - count * duration, ended, [(0, count, arm)])
        block.durations.extend([duration / 1e3] * count)
        records.append((Kind.ITERATIONS, block.encode()))
        step += count + 10
    for number, durations in enumerate(pairs):
        for arm, duration in enumerate(durations):
            facts = {"time_ns": pairs_at, "pair": number, "arm": arm, "first_step": 0, "durations_ns": [duration] * 10}
            records.append((Kind.ARM_BLOCK, json.dumps(facts).encode()))
    if overhead is not None:
        facts = {"time_ns": MONDAY + DAY_NS, "facts": {"overhead_ns": overhead, "phase": phase}}
        records.append((Kind.JOB_END, json.dumps(facts).encode()))
    data = MAGIC + b"".join(encode(Record(kind, n, body)) for n, (kind, body) in enumerate(records))
    rows, _ = rows_of_segment(data)
    assert rows.damaged == []
    return rows


def report(engine: sa.Engine, *rows: Rows, week: Week = WEEK) -> weekly.WeekReport:
    for entry in rows:
        with access.writing(engine) as connection:
            insert_rows(connection, entry)
    with engine.connect() as connection:
        return week_report(connection, week)


GOOD_PAIRS = [(100 * MS, 80 * MS), (102 * MS, 82 * MS), (98 * MS, 78 * MS), (100 * MS, 80 * MS)]


def test_saved_is_iterations_times_saving_less_what_stitching_cost(engine: sa.Engine) -> None:
    rows = job(
        blocks=[(MONDAY + 10**11, PLAIN, 50, 100 * MS), (MONDAY + 2 * 10**11, STITCHED, 900, 80 * MS)],
        pairs=GOOD_PAIRS, overhead=3 * 10**9, device_count=4,
    )  # fmt: skip
    (found,) = report(engine, rows).jobs
    assert found.status is Status.MEASURED
    assert found.saved_hours == pytest.approx(4 * (900 * 0.020 - 3) / 3600)
    assert found.device_hours == pytest.approx(4 * (50 * 0.1 + 900 * 0.08) / 3600)
    low, high = found.saved_hours_interval or (0.0, 0.0)
    assert low < found.saved_hours < high


def test_a_job_that_lost_counts_with_what_it_lost(engine: sa.Engine) -> None:
    slow = job(
        "slow", blocks=[(MONDAY + 10**11, STITCHED, 100, 120 * MS)], pairs=[(p, p + 20 * MS) for p, _ in GOOD_PAIRS]
    )
    good = job("good", blocks=[(MONDAY + 10**11, STITCHED, 300, 80 * MS)], pairs=GOOD_PAIRS)
    (total,) = report(engine, slow, good).totals()
    assert total.saved.value == pytest.approx((300 * 0.02 - 100 * 0.02) / 3600)
    assert (total.measured, total.slower) == (2, 1)


def test_unmeasured_jobs_are_listed_and_add_nothing(engine: sa.Engine) -> None:
    one_pair = job("few", blocks=[(MONDAY + 10**11, STITCHED, 100, 80 * MS)], pairs=GOOD_PAIRS[:1], overhead=10**9)
    good = job("good", blocks=[(MONDAY + 10**11, STITCHED, 300, 80 * MS)], pairs=GOOD_PAIRS)
    found = report(engine, one_pair, good)
    (total,) = found.totals()
    assert {entry.run_id: entry.status for entry in found.jobs} == {
        "few": Status.UNMEASURED, "good": Status.MEASURED,
    }  # fmt: skip
    assert total.saved.value == pytest.approx(300 * 0.02 / 3600)
    assert total.unmeasured_device_hours == pytest.approx(100 * 0.08 / 3600)
    assert total.unmeasured_overhead_hours == pytest.approx(1 / 3600)


def test_a_job_that_never_ran_stitched_cost_what_it_tried(engine: sa.Engine) -> None:
    tried = job("tried", blocks=[(MONDAY + 10**11, PLAIN, 100, 100 * MS)], overhead=2 * 10**9)
    found = report(engine, tried)
    assert found.jobs[0].status is Status.NOT_STITCHED
    assert found.jobs[0].saved_hours_interval == (pytest.approx(-2 / 3600),) * 2
    assert found.totals()[0].saved.value == pytest.approx(-2 / 3600)


def test_cpu_and_gpu_hours_never_mix(engine: sa.Engine) -> None:
    block = [(MONDAY + 10**11, STITCHED, 300, 80 * MS)]
    found = report(
        engine,
        job("c", blocks=block, pairs=GOOD_PAIRS),
        job("g", blocks=block, pairs=GOOD_PAIRS, device_kind="NVIDIA A100", device_count=8),
    )
    assert [total.unit for total in found.totals()] == ["CPU", "GPU"]
    assert found.totals()[1].saved.value == pytest.approx(8 * found.totals()[0].saved.value)


def test_a_job_that_crosses_a_week_is_split_there_and_nothing_is_counted_twice(engine: sa.Engine) -> None:
    sunday, monday = MONDAY - 10**9, MONDAY + 10**11
    rows = job(
        blocks=[(sunday, STITCHED, 200, 80 * MS), (monday, STITCHED, 300, 80 * MS)],
        pairs=GOOD_PAIRS, pairs_at=MONDAY - HOUR_NS, started=MONDAY - 2 * HOUR_NS, overhead=10**9,
    )  # fmt: skip
    (after,) = report(engine, rows).jobs
    (before,) = report(engine, week=Week(2026, 46)).jobs
    assert (before.stitched_count, after.stitched_count) == (200, 300)
    assert (before.overhead_ns, after.overhead_ns) == (10**9, 0), "what stitching cost belongs to the week it began in"
    with engine.connect() as connection:
        (whole,) = weekly.processes(connection, None).jobs
    assert whole.saved_hours == pytest.approx((before.saved_hours or 0) + (after.saved_hours or 0))
    assert report(engine, week=Week(2026, 48)).jobs == []


def test_pairs_of_a_later_week_do_not_change_an_earlier_one(engine: sa.Engine) -> None:
    rows = job(
        blocks=[(MONDAY - 10**9, STITCHED, 200, 80 * MS)],
        pairs=GOOD_PAIRS,
        pairs_at=MONDAY + 5,
        started=MONDAY - HOUR_NS,
    )
    report(engine, rows)
    assert report(engine, week=Week(2026, 46)).jobs[0].status is Status.UNMEASURED


def test_what_a_killed_job_paid_is_taken_from_its_uncounted_iterations(engine: sa.Engine) -> None:
    rows = job(
        blocks=[
            (MONDAY + 10**11, UNCOUNTED, 4, 5_000 * MS),  # TensorFlow's own start
            (MONDAY + 2 * 10**11, UNCOUNTED, 10, 300 * MS),  # verifying
            (MONDAY + 3 * 10**11, STITCHED, 500, 80 * MS),
        ],
        pairs=GOOD_PAIRS, overhead=None,
    )  # fmt: skip
    (found,) = report(engine, rows).jobs
    assert found.overhead_is_estimate
    assert found.ended_ns is None
    assert found.overhead_ns == pytest.approx(10 * 200 * MS, rel=1e-6)


@pytest.mark.parametrize("frozen", [False, True])
def test_ranks_that_ended_otherwise_are_named(engine: sa.Engine, frozen: bool) -> None:
    """In the report, which lists the job among the noteworthy ones, and by `stitchfleet jobs`; also after the week is frozen."""
    block = [(MONDAY + 10**11, STITCHED, 300, 80 * MS)]

    def ranks(run_id: str, *phases: str) -> list[Rows]:
        return [
            job(
                run_id,
                blocks=[] if rank else block,
                pairs=[] if rank else GOOD_PAIRS,
                overhead=None if phase == "killed" else 0,
                phase=phase,
                rank=rank,
                process=f"p{rank}",
                world_size=len(phases),
            )
            for rank, phase in enumerate(phases)
        ]

    rows = [*ranks("alike", "stitched", "stitched"), *ranks("apart", "stitched", "plain", "stitched", "compile")]
    rows += [*ranks("killed", "stitched", "killed"), *ranks("one", "stitched")]
    report(engine, *rows)
    if frozen:
        freeze(engine)
    with engine.connect() as connection:
        fleet = fleet_report(connection, WEEK, Configuration(), 0)
        of_all_time = standing(weekly.processes(connection, None).jobs)
    found = {entry.run_id: entry.apart for entry in fleet.report.jobs}
    assert found == {"alike": (), "apart": (1, 3), "killed": (), "one": ()}
    assert {entry.run_id: entry.apart for entry in of_all_time} == found
    assert [entry.run_id for entry in fleet.noteworthy("CPU")] == ["apart"]
    assert "ranks 1, 3 ended plain" in as_text(fleet)
    assert "stitched, not ranks 1, 3" in jobs_text(of_all_time)
    by_run = {entry["run_id"]: entry["ranks_apart"] for entry in json.loads(as_json(fleet))["jobs"]}
    assert by_run["apart"] == [1, 3]


def test_the_lowest_rank_stands_for_a_job(engine: sa.Engine) -> None:
    block = [(MONDAY + 10**11, STITCHED, 300, 80 * MS)]
    ranks = [
        job("r", blocks=block, pairs=GOOD_PAIRS, rank=rank, process=f"p{rank}", device_count=4, world_size=4)
        for rank in (2, 0, 3)
    ]
    child = job("r", blocks=[(MONDAY + 10**11, PLAIN, 3, MS)], process="child", device_count=4, world_size=4)
    found, of_child = report(engine, child, *ranks).jobs
    assert (found.key.rank, found.key.process) == (0, "p0")
    assert found.device_hours == pytest.approx(4 * 300 * 0.08 / 3600)
    assert (of_child.key.rank, of_child.key.process) == (0, "child"), (
        "it trained at the same rank, and is no part of the other"
    )
    assert of_child.device_hours == pytest.approx(4 * 3 * 0.001 / 3600)


def test_freezing_a_week_changes_no_figure_and_late_data_make_a_revision(engine: sa.Engine) -> None:
    first = job("first", blocks=[(MONDAY + 10**11, STITCHED, 300, 80 * MS)], pairs=GOOD_PAIRS, overhead=10**9)
    killed = job(
        "killed", overhead=None, pairs=GOOD_PAIRS,
        blocks=[(MONDAY + 10**11, UNCOUNTED, 9, 400 * MS), (MONDAY + 3 * 10**11, STITCHED, 500, 80 * MS)],
    )  # fmt: skip
    before = report(engine, first, killed)

    assert [entry.processes for entry in freeze(engine)] == [2]
    frozen = report(engine)
    assert (before.revision, frozen.revision) == (0, 1)
    assert frozen.jobs == before.jobs
    assert freeze(engine) == []
    (done,) = prune(engine)
    assert (done.week, done.revision, done.blocks) == (WEEK, 1, 3)
    assert count_blocks(engine) == 0
    assert report(engine) == dataclasses.replace(frozen, made_ns=ANY)
    assert prune(engine) == []
    with_late = report(engine, job("late", blocks=[(MONDAY + 10**11, STITCHED, 100, 80 * MS)], pairs=GOOD_PAIRS))
    assert {entry.run_id for entry in with_late.jobs} == {"first", "killed", "late"}
    assert (with_late.revision, with_late.has_late_data) == (1, True)
    assert freeze(engine)[0].revision == 2
    assert count_blocks(engine) == 0, "those of the first revision are gone: what came since is only kept with them"
    again = report(engine)
    assert (again.revision, again.has_late_data, again.jobs) == (2, False, with_late.jobs)


def freeze(engine: sa.Engine, before_day: int = WEEK.end_day) -> list[freezing.Frozen]:
    with access.writing(engine) as connection:
        return freezing.freeze(connection, before_day)


def prune(engine: sa.Engine, before_day: int = WEEK.end_day) -> list[freezing.Pruned]:
    with access.writing(engine) as connection:
        return freezing.prune(connection, before_day)


def count_blocks(engine: sa.Engine) -> int:
    with engine.connect() as connection:
        return connection.scalar(sa.select(sa.func.count()).select_from(models.iteration_blocks)) or 0


def rows_of(engine: sa.Engine, statement: str) -> list[tuple[object, ...]]:
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(sa.text(statement))]


FIRST = job("first", blocks=[(MONDAY + 10**11, STITCHED, 300, 80 * MS)], pairs=GOOD_PAIRS, overhead=None)


@pytest.mark.parametrize(
    "late",
    [
        job("first", blocks=[(MONDAY + k * 10**11, STITCHED, 300, 80 * MS) for k in (1, 2)], overhead=None),
        job("first", pairs=[*GOOD_PAIRS, *[(100 * MS, 60 * MS)] * 4], overhead=None),
        job("first", overhead=10**9),
        job("other"),
    ],
    ids=["iterations", "pairs", "end", "another job"],
)
@pytest.mark.parametrize("pruned", [False, True])
def test_whatever_comes_late_is_said_and_makes_a_revision(engine: sa.Engine, late: Rows, pruned: bool) -> None:
    before = report(engine, FIRST)
    freeze(engine)
    if pruned:
        prune(engine)
    again = report(engine, FIRST)
    assert (again.jobs, again.has_late_data) == (before.jobs, False), "what was there already is not late"
    after = report(engine, late)
    assert (after.revision, after.has_late_data) == (1, True)
    assert after.jobs != before.jobs
    (done,) = freeze(engine)
    assert done.revision == 2
    frozen = report(engine)
    assert (frozen.jobs, frozen.revision, frozen.has_late_data) == (after.jobs, 2, False)
    assert count_blocks(engine) == (0 if pruned else max(1, len(late.tables["iteration_blocks"])))


def test_the_totals_that_are_kept_are_the_reports(engine: sa.Engine) -> None:
    rows = [
        job("a", blocks=[(MONDAY + 10**11, STITCHED, 300, 80 * MS)], pairs=GOOD_PAIRS, namespace="one"),
        job("b", blocks=[(MONDAY + 10**11, STITCHED, 200, 80 * MS)], pairs=GOOD_PAIRS, namespace="two", device_kind="T4"),
        job("c", blocks=[(MONDAY + 10**11, STITCHED, 200, 80 * MS)], pairs=GOOD_PAIRS[:1], namespace="two"),
    ]  # fmt: skip
    before = report(engine, *rows)
    with engine.connect() as connection:
        assert freezing.stored_totals(connection, WEEK) is None
    freeze(engine)
    with engine.connect() as connection:
        assert freezing.stored_totals(connection, WEEK) == (1, before.totals())
    found = rows_of(
        engine, "SELECT unit, dimension, name, jobs, measured FROM weekly_savings ORDER BY unit, dimension, name"
    )
    assert found == [
        ("CPU", "device kind", "cpu", 2, 1),
        ("CPU", "fleet", "", 2, 1),
        ("CPU", "namespace", "one", 1, 1),
        ("CPU", "namespace", "two", 1, 0),
        ("GPU", "device kind", "T4", 1, 1),
        ("GPU", "fleet", "", 1, 1),
        ("GPU", "namespace", "two", 1, 1),
    ]
    sums = rows_of(
        engine, "SELECT unit, sum(saved_hours), count(*) FROM weekly_job_savings GROUP BY unit ORDER BY unit"
    )
    assert sums == [(total.unit, pytest.approx(total.saved.value), total.jobs) for total in before.totals()]
    assert rows_of(engine, "SELECT DISTINCT substr(CAST(week_start AS text), 1, 10) FROM weekly_savings") == [
        ("2026-11-16",)
    ]


def test_a_namespace_that_is_deleted_is_in_no_frozen_total(engine: sa.Engine) -> None:
    kept = job("kept", blocks=[(MONDAY + 10**11, STITCHED, 300, 80 * MS)], pairs=GOOD_PAIRS)
    gone = job("gone", blocks=[(MONDAY + 10**11, STITCHED, 200, 80 * MS)], pairs=GOOD_PAIRS, namespace="secret")
    alone = report(engine, kept)
    report(engine, gone)
    freeze(engine)
    with access.writing(engine) as connection:
        delete_namespace(connection, "secret")
    with engine.connect() as connection:
        assert freezing.stored_totals(connection, WEEK) == (1, alone.totals())
    assert rows_of(engine, "SELECT name FROM weekly_totals WHERE dimension = 'namespace'") == [("team",)]


def with_one_job(url: str) -> tuple[sa.Engine, list[tuple[int, int, int, int]]]:
    """A database with a job, "first", and the job's blocks."""
    made = access.open_engine(url)
    access.upgrade(made)
    blocks = [(MONDAY + 10**11, STITCHED, 300, 80 * MS)]
    report(made, job("first", blocks=blocks))
    return made, blocks


def test_rows_that_come_while_a_week_is_being_frozen_wait_and_are_kept(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, blocks = with_one_job(postgres_url)
    real = freezing._drop_blocks

    def insert_late(connection: sa.Connection, week: Week) -> int:
        """After the week was found complete, before its blocks go."""
        with access.writing(made) as other:
            other.exec_driver_sql("SET LOCAL lock_timeout = '300ms'")
            with pytest.raises(sa.exc.OperationalError, match="lock timeout"):
                insert_rows(other, job("late", blocks=blocks))
        return real(connection, week)

    monkeypatch.setattr(freezing, "_drop_blocks", insert_late)
    freeze(made)
    assert [entry.blocks for entry in prune(made)] == [1]
    late = report(made, job("late", blocks=blocks))
    assert {entry.run_id: entry.stitched_count for entry in late.jobs} == {"first": 300, "late": 300}


def test_a_partition_is_not_dropped_under_rows_that_are_on_their_way(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, blocks = with_one_job(postgres_url)
    real = partitions.ensure

    def freeze_meanwhile(connection: sa.Connection, days: Iterable[int]) -> list[int]:
        found = real(connection, days)
        with access.writing(made) as other:
            other.exec_driver_sql("SET LOCAL lock_timeout = '300ms'")
            with pytest.raises(sa.exc.OperationalError, match="lock timeout"):
                freezing.freeze(other, WEEK.end_day)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(partitions, "ensure", freeze_meanwhile)
        report(made, job("second", blocks=blocks))
    freeze(made)
    assert [entry.blocks for entry in prune(made)] == [2]


def test_a_week_that_is_not_over_is_not_frozen(engine: sa.Engine) -> None:
    report(engine, job(blocks=[(MONDAY + 10**11, STITCHED, 300, 80 * MS)]))
    assert freeze(engine, WEEK.end_day - 1) == []
    freeze(engine)
    assert prune(engine, WEEK.end_day - 1) == []


def test_what_was_lost_is_known(engine: sa.Engine) -> None:
    rows = job(blocks=[(MONDAY + 10**11, PLAIN, 3, MS)])
    for sequence, lost in ((90, 5), (91, 12)):
        rows.tables["events"].append(
            {
                "sequence": sequence,
                "time_ns": 1,
                "kind": "records-lost",
                "message": "",
                "facts": f'{{"lost": {lost}}}',
            }
        )
    assert report(engine, rows).jobs[0].lost == 12


@pytest.mark.parametrize(
    ("name", "other", "same"),
    [
        ("bert-1", "bert-2", True),
        ("bert-x7k2p", "bert-9zz1q", True),
        ("bert-20261121-1", "bert-20261122-7", True),
        ("bert", "bert-1", True),
        ("bert-large", "bert-small", False),
        ("bert-1", "dien-1", False),
    ],
)
def test_submissions_of_the_same_thing_share_a_template(engine: sa.Engine, name: str, other: str, same: bool) -> None:
    found = report(engine, job("a", name=name), job("b", name=other)).jobs
    assert (found[0].template == found[1].template) is same


def test_an_empty_week(engine: sa.Engine) -> None:
    found = report(engine)
    assert (found.jobs, found.totals()) == ([], [])


@given(st.integers(0, 30_000))
def test_every_day_lies_in_its_week(day: int) -> None:
    week = Week.of_day(day)
    assert week.first_day <= day < week.end_day
    assert Week.parse(str(week)) == week
    assert Week.at(day * DAY_NS) == Week.at((day + 1) * DAY_NS - 1) == week
    assert week.monday.weekday() == 0
    assert str(week) == (datetime.date(1970, 1, 1) + datetime.timedelta(days=day)).strftime("%G-W%V")


@pytest.mark.parametrize(
    "bad", ["", "2026", "2026-W60", "2026-W00", "2025-W53", "26-W07", "2026-W7", "W07-2026", "0000-W01"]
)
def test_no_week(bad: str) -> None:
    with pytest.raises(ValueError, match="YYYY-Www"):
        Week.parse(bad)


def test_a_job_week_is_a_value(engine: sa.Engine) -> None:
    (found,) = report(engine, job(blocks=[(MONDAY + 10**11, PLAIN, 3, MS)])).jobs
    assert isinstance(found, JobWeek)
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.lost = 3  # type: ignore[misc]


# ---- several training functions ---------------------------------------------------------------------------------------------


def of_functions(rows: Rows, functions: list[int], pairs: list[int]) -> Rows:
    """The same rows, the k-th block of iterations being of function functions[k], the k-th pair of function pairs[k]."""
    for row, function in zip(rows.tables["iteration_blocks"], functions, strict=True):
        row["function"] = function
    for row in rows.tables["arm_blocks"]:
        row["function"] = pairs[row["pair"]]
    return rows


def test_a_jobs_saving_is_the_sum_over_its_training_functions(engine: sa.Engine) -> None:
    """A critic that saves a half in 300 steps of 10 us, and a generator that saves a tenth in 100 of 100 us."""
    rows = of_functions(
        job(
            blocks=[
                (MONDAY + HOUR_NS, STITCHED, 300, 5_000),
                (MONDAY + 2 * HOUR_NS, STITCHED, 100, 90_000),
            ],
            pairs=[(10_000, 5_000), (100_000, 90_000), (10_000, 5_000), (100_000, 90_000)],
        ),
        [0, 1],
        [0, 1, 0, 1],
    )
    (entry,) = report(engine, rows).jobs
    assert entry.saving is not None
    saved_ns = 300 * 5_000 + 100 * 10_000
    assert entry.stitched_count * entry.saving.saved_ns == pytest.approx(saved_ns)
    assert entry.saving.relative == pytest.approx(saved_ns / (300 * 10_000 + 100 * 100_000))
    assert (entry.saving.pairs, entry.saving.low, entry.saving.high) == (4, *[pytest.approx(entry.saving.relative)] * 2)
    assert entry.saved_hours == pytest.approx(saved_ns / HOUR_NS)
    with engine.connect() as connection:
        by_sql = connection.scalar(
            sa.text(
                "SELECT sum(b.stitched_count * (p.plain - p.stitched)) FROM iteration_blocks AS b JOIN ("
                "SELECT function, avg(CASE arm WHEN 0 THEN mean_ns END) AS plain, avg(CASE arm WHEN 1 THEN mean_ns END) AS stitched"
                " FROM arm_blocks GROUP BY function) AS p ON p.function = b.function"
            )
        )
    assert by_sql == pytest.approx(saved_ns)


def test_a_training_function_without_pairs_saves_nothing_and_says_so_in_no_other_ones_name(engine: sa.Engine) -> None:
    rows = of_functions(
        job(
            blocks=[(MONDAY + HOUR_NS, STITCHED, 300, 5_000), (MONDAY + 2 * HOUR_NS, STITCHED, 100, 90_000)],
            pairs=[(10_000, 5_000), (10_000, 5_000)],
        ),
        [0, 1],
        [0, 0],
    )
    (entry,) = report(engine, rows).jobs
    assert entry.saving is not None
    assert entry.saved_hours == pytest.approx(300 * 5_000 / HOUR_NS)
    assert entry.saving.stitched_ns == pytest.approx((300 * 5_000 + 100 * 90_000) / 400)


def test_functions_stay_apart_when_a_weeks_blocks_are_gone(engine: sa.Engine) -> None:
    rows = of_functions(
        job(
            blocks=[(MONDAY + HOUR_NS, STITCHED, 300, 5_000), (MONDAY + 2 * HOUR_NS, STITCHED, 100, 90_000)],
            pairs=[(10_000, 5_000), (100_000, 90_000), (11_000, 5_000), (100_000, 80_000)],
        ),
        [0, 1],
        [0, 1, 0, 1],
    )
    (before,) = report(engine, rows).jobs
    freeze(engine)
    prune(engine)
    late = report(engine, job("late", blocks=[(MONDAY + HOUR_NS, STITCHED, 1, 1)]))
    found = {entry.run_id: entry for entry in late.jobs}
    assert found["run-1"].saving == before.saving
    assert found["run-1"].functions == before.functions == ((0, 300, 1_500_000), (1, 100, 9_000_000))
