"""Groups, money, jobs worth a look, and the weeks before: the same figures as the jobs', by the same method."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from stitchfleet.telemetry.database import access
from stitchfleet.telemetry.database.rows import Rows
from stitchfleet.telemetry.database.store import insert_rows
from stitchfleet.telemetry.database.weeks import Week
from stitchfleet.telemetry.pod.recording import PLAIN, STITCHED
from stitchfleet.telemetry.reports.configuration import Configuration
from stitchfleet.telemetry.reports.fleet import Dimension, FleetReport, fleet_report
from stitchfleet.telemetry.reports.formats import why_noteworthy
from stitchfleet.telemetry.statistics import savings
from stitchfleet.telemetry.totals.freezing import freeze
from stitchfleet.telemetry.totals.weekly import JobWeek, unit_total, week_report

from .. import synthetic
from ..totals.test_weekly import GOOD_PAIRS, MONDAY, MS, WEEK, job

A100, T4 = {"device_kind": "NVIDIA A100", "device_count": 8}, {"device_kind": "Tesla T4"}
STITCHED_BLOCK = [(MONDAY + 10**11, STITCHED, 300, 80 * MS)]


@pytest.fixture
def engine(url: str) -> Iterator[sa.Engine]:
    made = access.open_engine(url)
    access.upgrade(made)
    yield made
    made.dispose()


def fleet(
    engine: sa.Engine, *rows: Rows, configuration: Configuration | None = None, week: Week = WEEK, trend_weeks: int = 0
) -> FleetReport:
    for entry in rows:
        with access.writing(engine) as connection:
            insert_rows(connection, entry)
    with engine.connect() as connection:
        return fleet_report(connection, week, configuration or Configuration(), trend_weeks)


def good(run_id: str, **changes: object) -> Rows:
    return job(run_id, **{"blocks": STITCHED_BLOCK, "pairs": GOOD_PAIRS, **changes})  # type: ignore[arg-type]


def event(rows: Rows, kind: str, message: str, *, facts: str = "{}", time_ns: int = MONDAY + 10**11) -> Rows:
    known = {"sequence": 100 + len(rows.tables["events"]), "time_ns": time_ns, "kind": kind}
    rows.tables["events"].append({**known, "message": message, "facts": facts})
    return rows


def ended(rows: Rows, phase: str, reason: str = "") -> Rows:
    rows.tables["job_ends"][0].update(phase=phase, reason=reason)
    return rows


@pytest.fixture(scope="module")
def synthetic_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sa.Engine]:
    """Three weeks of a fleet, the first frozen."""
    made = access.open_engine(f"sqlite:///{tmp_path_factory.mktemp('fleet')}/fleet.db")
    access.upgrade(made)
    synthetic.fill(made, WEEK, weeks=3, jobs=60, frozen=1)
    yield made
    made.dispose()


@pytest.mark.parametrize("dimension", Dimension)
def test_the_groups_of_each_dimension_are_the_fleet_taken_apart(
    synthetic_engine: sa.Engine, dimension: Dimension
) -> None:
    configuration = Configuration(cost_centres={"nlp": "CC-1", "translation": "CC-1", "ads-ranking": "CC-2"})
    found = fleet(synthetic_engine, configuration=configuration)
    assert found.report.units == ["CPU", "GPU"]
    for unit in found.report.units:
        groups, whole = found.groups(dimension, unit), found.whole(unit)
        assert len(groups) > (unit == "GPU" or dimension is not Dimension.DEVICE)
        for field in (
            "device_hours",
            "jobs",
            "measured",
            "unmeasured",
            "not_stitched",
            "slower",
            "fell_back",
            "reverted",
        ):
            parts = sum(getattr(group.total, field) for group in groups)
            assert parts == pytest.approx(getattr(whole.total, field)), field
        assert sum(group.total.saved.value for group in groups) == pytest.approx(whole.total.saved.value)
        assert {group.total.unit for group in groups} == {unit}
    (total,) = (total for total in found.report.totals() if total.unit == "GPU")
    assert found.whole("GPU").total == total


def test_a_groups_interval_is_that_of_a_fleet_of_its_jobs_alone(synthetic_engine: sa.Engine) -> None:
    found = fleet(synthetic_engine)
    for group in found.groups(Dimension.NAMESPACE, "GPU"):
        alone = [entry for entry in found.members("GPU") if entry.namespace == group.name]
        parts = [part for entry in alone if (part := entry.contribution) is not None]
        assert group.total.saved == savings.total(parts)
        assert group.total == unit_total("GPU", alone)
        assert group.total.saved.low < group.total.saved.value < group.total.saved.high


def test_coverage_tells_each_enabled_job_once(synthetic_engine: sa.Engine) -> None:
    for total in fleet(synthetic_engine).report.totals():
        assert total.jobs == total.measured + total.unmeasured + total.not_stitched
        assert total.measured > 0


def test_cpu_and_gpu_jobs_of_one_namespace_are_two_groups(engine: sa.Engine) -> None:
    found = fleet(engine, good("c"), good("g", **A100))
    (cpu,), (gpu,) = (found.groups(Dimension.NAMESPACE, unit) for unit in ("CPU", "GPU"))
    assert (cpu.name, gpu.name) == ("team", "team")
    assert gpu.total.saved.value == pytest.approx(8 * cpu.total.saved.value)
    assert gpu.total.jobs == cpu.total.jobs == 1


def test_the_label_of_a_team_is_configuration_and_jobs_without_it_come_last(engine: sa.Engine) -> None:
    rows = [
        good("a", labels={"team": "nlp", "squad": "red"}),
        good("b", labels={"team": "nlp"}, pairs=[(p, s - 10 * MS) for p, s in GOOD_PAIRS]),
    ]
    found = fleet(engine, *rows)
    assert [group.name for group in found.groups(Dimension.TEAM, "CPU")] == ["nlp"]
    found = fleet(engine, configuration=Configuration(team_label="squad"))
    assert [group.name for group in found.groups(Dimension.TEAM, "CPU")] == ["red", None]


def test_a_model_goes_by_its_label_else_its_fingerprint_else_the_jobs_name(engine: sa.Engine) -> None:
    rows = [
        good("a", name="bert-17", model_fingerprint="", labels={"model": "large"}),
        good("b", name="bert-18", model_fingerprint="", labels={}),
        good("c", name="dien-1", model_fingerprint="ranking"),
        good("d", name="train-1", model_fingerprint="graph:0123456789abcdef"),
        good("e", name="train-2", model_fingerprint="graph:fedcba9876543210"),
    ]
    found = fleet(engine, *rows)
    assert {group.name: group.total.jobs for group in found.groups(Dimension.MODEL, "CPU")} == {
        "bert": 2, "ranking": 1, "train (012345)": 1, "train (fedcba)": 1,
    }  # fmt: skip
    found = fleet(engine, configuration=Configuration(model_label="model"))
    assert {group.name: group.total.jobs for group in found.groups(Dimension.MODEL, "CPU")} == {"large": 1, None: 4}


def test_money_is_the_hours_avoided_times_the_price_of_each_jobs_devices(engine: sa.Engine) -> None:
    configuration = Configuration(currency="EUR", prices={"NVIDIA A100": 2.0, "Tesla T4": 0.5})
    slow = good("slow", **T4, name="other", pairs=[(p, p + 20 * MS) for p, _ in GOOD_PAIRS])
    found = fleet(engine, good("fast", **A100), slow, configuration=configuration)
    money = found.whole("GPU").money
    assert money is not None
    assert money.amount is not None
    assert money.amount.value == pytest.approx((8 * 2.0 - 0.5) * 300 * 0.020 / 3600)
    (fast,) = (entry for entry in found.report.jobs if entry.run_id == "fast")
    alone = found.money([fast])
    assert alone is not None
    assert alone.amount is not None
    assert fast.saved_hours_interval is not None
    assert (alone.amount.low, alone.amount.high) == pytest.approx(
        tuple(2.0 * edge for edge in fast.saved_hours_interval)
    )


def test_without_the_price_of_one_measured_kind_there_is_no_amount(engine: sa.Engine) -> None:
    configuration = Configuration(currency="EUR", prices={"nvidia a100": 2.0})
    found = fleet(engine, good("a", **A100), good("t", **T4), configuration=configuration)
    money = {group.name: group.money for group in found.groups(Dimension.DEVICE, "GPU")}
    assert money["NVIDIA A100"] is not None
    assert money["NVIDIA A100"].amount is not None
    whole = found.whole("GPU").money
    assert whole is not None
    assert (whole.amount, whole.unpriced) == (None, ("Tesla T4",))
    assert fleet(engine).whole("GPU").money is None


def test_an_unmeasured_job_needs_no_price(engine: sa.Engine) -> None:
    configuration = Configuration(currency="EUR", prices={"NVIDIA A100": 2.0})
    found = fleet(engine, good("a", **A100), good("t", **T4, pairs=GOOD_PAIRS[:1]), configuration=configuration)
    money = found.whole("GPU").money
    assert money is not None
    assert money.amount is not None


def test_teams_share_a_cost_centre(engine: sa.Engine) -> None:
    rows = [good(team, labels={"team": team}) for team in ("nlp", "mt", "ads", "other")]
    found = fleet(engine, *rows, configuration=Configuration(cost_centres={"nlp": "C1", "mt": "C1", "ads": "C2"}))
    groups = found.groups(Dimension.COST_CENTRE, "CPU")
    assert [(group.name, group.total.jobs) for group in groups] == [("C1", 2), ("C2", 1), (None, 1)]
    assert Dimension.COST_CENTRE in found.dimensions
    assert Dimension.COST_CENTRE not in fleet(engine).dimensions


def test_the_jobs_that_saved_most_come_first_and_losses_are_not_among_them(engine: sa.Engine) -> None:
    slow = good("slow", pairs=[(p, p + 20 * MS) for p, _ in GOOD_PAIRS])
    rows = [good(f"r{count}", blocks=[(MONDAY + 10**11, STITCHED, 100 * count, 80 * MS)]) for count in range(1, 13)]
    top = fleet(engine, slow, *rows).top("CPU")
    assert [entry.run_id for entry in top] == [f"r{count}" for count in range(12, 2, -1)]


def noteworthy(found: FleetReport) -> dict[str, JobWeek]:
    return {entry.run_id: entry for entry in found.noteworthy("CPU")}


def test_slower_reverted_and_fallen_back_jobs_are_told(engine: sa.Engine) -> None:
    facts = '{"cluster": "softmax_1a"}'
    slow = good("slow", pairs=[(p, p + 20 * MS) for p, _ in GOOD_PAIRS])
    reverted = event(good("reverted"), "reverted", "softmax_1a reverted at step 9", facts=facts)
    plain = ended(job("plain", blocks=[(MONDAY + 10**11, PLAIN, 100, 100 * MS)]), "plain", "no operators to stitch")
    killed = event(good("killed", overhead=None), "does-not-pay", "stitching does not pay here")
    other_program = event(good("fine"), "plain", "no operators to stitch in its graph")
    found = fleet(engine, slow, reverted, plain, killed, other_program, good("better"))
    told = noteworthy(found)
    assert told.keys() == {"slow", "reverted", "plain", "killed"}, "the one that ended stitched did not fall back"
    assert next(iter(told)) == "slow", "what lost most comes first"
    assert told["slow"].is_slower
    assert told["reverted"].reverted == ("softmax_1a",)
    assert told["plain"].fallback == "no operators to stitch"
    assert told["killed"].fallback == "stitching does not pay here"
    (total,) = found.report.totals()
    assert (total.jobs, total.slower, total.reverted, total.fell_back) == (6, 1, 1, 2)


def test_a_cluster_reverted_on_any_rank_is_the_jobs(engine: sa.Engine) -> None:
    ranks = [good("r", rank=rank, process=f"p{rank}", world_size=2) for rank in (0, 1)]
    event(ranks[1], "reverted", "", facts='{"cluster": "softmax_1a"}')
    event(ranks[1], "revert", "", facts='{"cluster": "gelu_2b"}')
    assert noteworthy(fleet(engine, *ranks))["r"].reverted == ("gelu_2b", "softmax_1a")


def test_what_is_reverted_later_is_not_told_in_an_earlier_week(engine: sa.Engine) -> None:
    late = event(good("late"), "reverted", "", facts='{"cluster": "x"}', time_ns=WEEK.end_ns)
    assert noteworthy(fleet(engine, late)) == {}
    with engine.connect() as connection:
        assert week_report(connection, WEEK).jobs[0].reverted == ()


def test_the_trend_says_of_each_week_what_its_own_report_says(synthetic_engine: sa.Engine) -> None:
    found = fleet(synthetic_engine, trend_weeks=8)
    assert [str(past.week) for past in found.trend] == ["2026-W45", "2026-W46", "2026-W47"], (
        "from the first with a job on"
    )
    assert [past.revision for past in found.trend] == [1, 0, 0]
    for past in found.trend:
        own = fleet(synthetic_engine, week=past.week)
        assert past.totals == own.report.totals()
        assert past.totals == [own.whole(unit).total for unit in own.report.units]
    assert [str(past.week) for past in fleet(synthetic_engine, trend_weeks=1).trend] == ["2026-W46", "2026-W47"]


def test_freezing_changes_no_week_of_the_trend_but_its_revision(engine: sa.Engine) -> None:
    before = Week(2026, 45)
    early = [(before.start_ns + 10**11, STITCHED, 200, 80 * MS)]
    early_job = good("early", blocks=early, started=before.start_ns, pairs_at=before.start_ns + 10**10)
    open_trend = fleet(engine, early_job, good("now"), trend_weeks=4).trend
    assert [(str(past.week), len(past.totals)) for past in open_trend] == [
        ("2026-W45", 1),
        ("2026-W46", 0),
        ("2026-W47", 1),
    ]
    with access.writing(engine) as connection:
        freeze(connection, before.end_day)
    frozen_trend = fleet(engine, trend_weeks=4).trend
    assert [past.revision for past in frozen_trend] == [1, 0, 0]
    assert [dataclasses.replace(past, revision=0) for past in frozen_trend] == open_trend


def test_a_week_before_all_others_has_no_trend(engine: sa.Engine) -> None:
    assert len(fleet(engine, week=Week.parse("1970-W01"), trend_weeks=9).trend) == 1
    for week in ("1970-W01", "2261-W52"):
        assert len(fleet(engine, good("a"), week=Week.parse(week), trend_weeks=1).trend) == 1 + (week[0] == "2")


def test_a_job_that_lost_only_by_what_stitching_cost_is_told_apart_from_a_slower_one(engine: sa.Engine) -> None:
    slow = good("slow", pairs=[(p, p + 20 * MS) for p, _ in GOOD_PAIRS])
    costly = good("costly", overhead=60 * 10**9)
    told = noteworthy(fleet(engine, slow, costly))
    assert why_noteworthy(told["slow"]) == "slower"
    assert why_noteworthy(told["costly"]) == "stitching cost more than its steps saved"
