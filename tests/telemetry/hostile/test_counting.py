"""docs/counting.md, worked out by SQL alone and compared with the report, the frozen week and the metrics."""

from __future__ import annotations

import pathlib
import random
import re

import pytest
import sqlalchemy as sa

from stitchfleet.telemetry.pod.recording import DAY_NS, PLAIN, STITCHED, UNCOUNTED
from stitchfleet.telemetry.totals.weekly import week_report

from ..servers import ingest_server, post
from .client import end, event, loss, pairs, segment, steps
from .test_weeks import LAST_WEEK, frozen

DOCUMENT = pathlib.Path(__file__).parents[3] / "docs" / "counting.md"
HOUR_NS = 3600 * 10**9


def statement() -> sa.TextClause:
    """The SQL that the page shows."""
    found = re.search(r"```sql\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert found
    return sa.text(found[1])


def fleet(source: random.Random) -> list[tuple[str, bytes]]:
    """Jobs of ranks, restarts, attempts, second trainings and shared run ids, each segment with its tenant; some are sent twice."""
    found = []
    for number in range(25):
        namespace = source.choice("ab")
        run = {"run_id": f"run-{source.randrange(8)}", "cluster": source.choice(("one", "two")), "namespace": namespace}
        devices = {"device_kind": source.choice(("cpu", "CPU", "A100")), "device_count": source.choice((1, 4, 8))}
        attempt, world = source.randrange(2), source.choice((1, 2, 4))
        first_rank = source.choice((0, 0, 0, 1))
        for rank in range(first_rank, world):
            for process in range(source.choice((1, 1, 2))):
                at = LAST_WEEK.start_ns + source.randrange(7 * DAY_NS)
                blocks = [
                    steps(
                        source.randrange(1, 50),
                        1e5,
                        at=at,
                        first=100 * k,
                        arm=source.choice((PLAIN, STITCHED, UNCOUNTED)),
                    )
                    for k in range(source.randrange(4))
                ]
                parts = [
                    *blocks,
                    *pairs(at=at),
                    event("reverted", facts={"cluster": f"c{rank}"}, at=at),
                    loss(rank, at=at),
                ]
                if source.random() < 0.7:
                    parts.append(end(at=at, overhead_ns=source.randrange(10**12)))
                sent = segment(
                    *parts, process=f"p{number}-{rank}-{process}", rank=rank, world_size=world, attempt=attempt,
                    started=LAST_WEEK.start_ns + HOUR_NS, **run, **devices,
                )  # fmt: skip
                found += [(namespace, sent)] * source.choice((1, 1, 2))
    return found


@pytest.mark.parametrize("seed", [1, 2])
def test_each_figure_by_sql_alone(url: str, seed: int) -> None:
    with ingest_server(url, tokens="a a\nb b\n") as served:
        for tenant, sent in fleet(random.Random(seed)):
            assert post(served.url, sent, token=tenant)[0] == 200
        engine, metrics = served.ingest.engine, served.metrics()
    bounds = {"first": LAST_WEEK.first_day, "end": LAST_WEEK.end_day}
    with engine.connect() as connection:

        def rows(text: str | sa.TextClause) -> list[tuple[object, ...]]:
            clause = sa.text(text) if isinstance(text, str) else text
            return [tuple(row) for row in connection.execute(clause, bounds)]

        lines = {int(str(owner)): float(str(hours)) for owner, hours in rows(statement())}
        kinds = {int(str(owner)): str(kind) for owner, kind in rows("SELECT process_id, lower(device_kind) FROM jobs")}
        overheads = {
            int(str(owner)): float(str(hours))
            for owner, hours in rows(
                "SELECT j.process_id, j.device_count * e.overhead_ns / 3600e9 FROM jobs AS j "
                "JOIN job_ends AS e ON e.process_id = j.process_id"
            )
        }
        without = rows(
            "SELECT count(*) FROM ("
            "SELECT DISTINCT run_id, cluster, namespace, attempt FROM jobs EXCEPT "
            "SELECT run_id, cluster, namespace, attempt FROM jobs AS j JOIN iteration_blocks AS b ON b.process_id = j.process_id"
            ") AS without"
        )[0][0]
        of_rank_0 = dict(
            rows(
                "SELECT CASE lower(j.device_kind) WHEN 'cpu' THEN 'cpu' ELSE 'gpu' END, "
                "sum(j.device_count * (b.plain_ns + b.stitched_ns + b.uncounted_ns) / 1e9) "
                "FROM jobs AS j JOIN iteration_blocks AS b ON b.process_id = j.process_id WHERE j.rank = 0 GROUP BY 1"
            )
        )
        report = week_report(connection, LAST_WEEK)
    trained = {job.process_id: job for job in report.jobs if job.iterations}
    assert {owner: job.device_hours for owner, job in trained.items()} == pytest.approx(lines)
    assert len(report.jobs) - len(trained) == without, "a job that trained nothing is one line"
    for job in trained.values():
        if not job.overhead_is_estimate:
            assert job.overhead_hours == pytest.approx(overheads.get(job.process_id, 0.0))
        others = {entry.key.rank for entry in report.jobs if entry.key.job == job.key.job}
        assert others == {job.key.rank}, "one rank stands for a job"
    for total in report.totals():
        mine = [job for job in report.jobs if job.unit == total.unit]
        assert total.jobs == len(mine)
        of_unit = [hours for owner, hours in lines.items() if (kinds[owner] == "cpu") == (total.unit == "CPU")]
        assert total.device_hours == pytest.approx(sum(of_unit))
    for unit, seconds in of_rank_0.items():
        assert metrics[f"stitchfleet_actual_device_seconds_total.{unit}"] == pytest.approx(float(str(seconds)))
    frozen(engine, LAST_WEEK.end_day, prune_too=True)
    with engine.connect() as connection:
        again = week_report(connection, LAST_WEEK)
        kept = dict(
            tuple(row)
            for row in connection.execute(
                sa.text(
                    "SELECT r.process_id, r.device_hours FROM weekly_rollups AS r JOIN frozen_weeks AS f "
                    "ON f.week = r.week AND f.revision = r.revision WHERE r.stands_for_job = 1 AND r.device_hours > 0"
                )
            )
        )
        by_view = connection.execute(
            sa.text("SELECT unit, sum(device_hours) FROM weekly_job_savings GROUP BY unit ORDER BY unit")
        ).all()
    assert kept == pytest.approx(lines)
    assert again.totals() == report.totals()
    assert dict(tuple(row) for row in by_view) == pytest.approx({t.unit: t.device_hours for t in report.totals()})


def test_the_page_says_for_how_long_weeks_stay_open() -> None:
    from stitchfleet.telemetry.database.store import KEEP_DAYS

    assert f"more than {KEEP_DAYS} days ago" in DOCUMENT.read_text()
