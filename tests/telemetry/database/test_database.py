"""The database's schema: made in one go, checked before use, and its migrations say the same as the models."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import time
from array import array

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from stitchfleet.telemetry.database import access, models, partitions, places
from stitchfleet.telemetry.database.errors import DatabaseError
from stitchfleet.telemetry.database.store import TABLES_OF_PROCESSES, insert_rows
from stitchfleet.telemetry.database.weeks import Week
from stitchfleet.telemetry.pod.recording import DAY_NS, PLAIN
from stitchfleet.telemetry.totals.freezing import delete_namespace, freeze
from stitchfleet.telemetry.totals.weekly import week_report

from ..conftest import query
from ..totals.test_weekly import MONDAY, job


@pytest.fixture
def url(empty_url: str) -> str:
    """A database without tables: here they are made."""
    return empty_url


def test_the_migrations_make_what_the_models_say(url: str) -> None:
    engine = access.open_engine(url)
    assert access.upgrade(engine) == (None, access.SCHEMA)
    assert access.upgrade(engine) == (access.SCHEMA, access.SCHEMA)
    with engine.connect() as connection:
        name = connection.dialect.name

        def belongs(entry: object, _name: str | None, kind: str, reflected: bool, _other: object) -> bool:
            """All but PostgreSQL's partitions and what only the other database has."""
            of = entry if kind == "table" else getattr(entry, "table", None)
            assert isinstance(of, sa.Table)
            dialects = {each.info.get("dialect", name) for each in (of, entry) if isinstance(each, sa.Table | sa.Index)}
            return dialects == {name} and not of.name.startswith("iteration_blocks_")

        context = MigrationContext.configure(connection, opts={"include_object": belongs})
        assert compare_metadata(context, models.metadata) == []
        assert access.check(connection) == access.SCHEMA


def test_a_migration_that_is_interrupted_leaves_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = access.open_engine(url)
    real = access.alembic_command.upgrade

    def half(*arguments: object) -> None:
        real(*arguments)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(access.alembic_command, "upgrade", half)
        with pytest.raises(KeyboardInterrupt):
            access.upgrade(engine)
    assert sa.inspect(engine).get_table_names() == []
    assert access.upgrade(engine) == (None, access.SCHEMA)


STALL = """
import sys, time
from stitchfleet.telemetry.database import access
real = access.alembic_command.upgrade
def stall(*arguments):
    real(*arguments)
    print("there", flush=True)
    time.sleep(600)
access.alembic_command.upgrade = stall
access.upgrade(access.open_engine(sys.argv[1]))
"""


def test_a_migration_that_is_killed_leaves_a_database_that_works_as_before(url: str) -> None:
    populate_the_first_schema(url)
    before = everything(url)
    process = subprocess.Popen([sys.executable, "-c", STALL, url], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    process.kill()
    process.wait()
    process.stdout.close()
    assert query(url, "SELECT version_num FROM alembic_version") == [("0001",)]
    assert everything(url) == before
    assert access.upgrade(access.open_engine(url)) == (1, access.SCHEMA)


FIRST_KEY = ("run_id", "cluster", "attempt", "rank", "process")
"""What the first schema knows a process by."""


def populate_the_first_schema(url: str) -> None:
    """A database as the first version made it: a job of two blocks on two days, and one of a week that was frozen."""
    engine = access.open_engine(url)
    with access.writing(engine) as connection:
        access.alembic_command.upgrade(access._config(connection), "0001")
        if connection.dialect.name == "postgresql":
            for day in (MONDAY // DAY_NS, MONDAY // DAY_NS + 1):
                name = partitions.name_of(day)
                connection.exec_driver_sql(
                    f"CREATE TABLE {name} PARTITION OF iteration_blocks FOR VALUES FROM ({day}) TO ({day + 1})"
                )
        blocks = [(MONDAY + 10**11, PLAIN, 50, 10**8), (MONDAY + DAY_NS + 10**11, PLAIN, 30, 10**8)]
        for rows in (
            job(blocks=blocks, pairs=[(5, 4), (6, 5)]),
            job("long-ago", started=MONDAY - 20 * DAY_NS, pairs=[(5, 4), (6, 5)], namespace="other"),
        ):
            (owner,) = rows.tables["jobs"]
            for name, entries in rows.tables.items():
                for entry in entries:
                    whole = entry | {column: owner[column] for column in FIRST_KEY}
                    whole.pop("function", None)
                    if name == "iteration_blocks":
                        whole["started_ns"] = whole["ended_ns"] - 10**6 * whole.pop("elapsed_ms")
                    if name == "iteration_blocks" and connection.dialect.name == "postgresql":
                        whole["durations"] = list(array("f", entry["durations"]))
                    connection.execute(sa.Table(name, sa.MetaData(), autoload_with=connection).insert(), whole)
        rollup = {name: owner[name] for name in FIRST_KEY} | {
            "week": "2026-W44", "plain_count": 7, "plain_ns": 700, "stitched_count": 3, "stitched_ns": 240, "uncounted_count": 0,
            "uncounted_ns": 0, "overhead_ns": 5, "overhead_is_estimate": 0, "pairs": 2, "saving": None, "method": "m",
        }  # fmt: skip
        rollups = sa.Table("weekly_rollups", sa.MetaData(), autoload_with=connection)
        connection.execute(rollups.insert(), [rollup | {"revision": revision} for revision in (1, 2)])
    engine.dispose()


def everything(url: str) -> dict[str, list[tuple[object, ...]]]:
    """All rows by table, each with the process's own key and without the database's number for it; and the view `iterations`."""
    found = {}
    engine = access.open_engine(url)
    with engine.connect() as connection:
        tables = set(sa.inspect(connection).get_table_names())
        for table in (*TABLES_OF_PROCESSES, sa.table("iterations")):
            if table is models.functions and table.name not in tables:
                found[table.name] = []
                continue
            there = [column["name"] for column in sa.inspect(connection).get_columns(table.name)]
            mine = [name for name in there if name != "process_id" and name not in FIRST_KEY]
            joined = "process_id" in there and table.name != "jobs"
            key = [f"j.{name}" if joined else f"o.{name}" for name in FIRST_KEY if joined or name in there]
            columns = ", ".join(
                [*key, *(f'o."{name}"' for name in sorted(mine) if name not in CHANGED.get(table.name, ()))]
            )
            source = f"{table.name} AS o" + (" JOIN jobs AS j ON j.process_id = o.process_id" if joined else "")
            rows = connection.execute(sa.text(f"SELECT {columns} FROM {source}"))
            found[table.name] = sorted((tuple(row) for row in rows), key=repr)
    engine.dispose()
    return found


CHANGED = {
    "iteration_blocks": {"started_ns", "elapsed_ms", "function"},
    "arm_blocks": {"function"},
    "iterations": {"function", "namespace"},
    "weekly_rollups": {
        "stands_for_job", "device_hours", "saved_hours", "saved_hours_low", "saved_hours_high", "ended_ns", "phase", "reason",
        "fallback", "reverted", "lost", "last_sequence", "functions",
    },
}  # fmt: skip
"""Columns of which the first schemas have nothing, or which say the same in other words from a later one on."""


def test_an_upgrade_from_the_first_version_keeps_every_row(url: str) -> None:
    populate_the_first_schema(url)
    before = everything(url)
    assert (len(before["iterations"]), len(before["jobs"]), len(before["weekly_rollups"])) == (80, 2, 2)
    assert access.upgrade(access.open_engine(url)) == (1, access.SCHEMA)
    assert everything(url) == before
    with access.writing(access.open_engine(url)) as connection:
        insert_rows(connection, job(blocks=[(MONDAY + 10**11, PLAIN, 50, 10**8)]))
    assert everything(url) == before, "what comes again after the upgrade is there already"


def test_what_was_frozen_before_the_upgrade_says_the_same_after_it(url: str) -> None:
    populate_the_first_schema(url)
    engine = access.open_engine(url)
    access.upgrade(engine)
    week = Week.parse("2026-W44")
    with engine.connect() as connection:
        found = week_report(connection, week)
    assert [(entry.run_id, entry.plain_count, entry.stitched_ns) for entry in found.jobs] == [("long-ago", 7, 240)]
    assert (found.revision, found.has_late_data) == (2, True)
    with access.writing(engine) as connection:
        assert [(entry.week, entry.revision) for entry in freeze(connection, week.end_day)] == [(week, 3)]
    with engine.connect() as connection:
        again = week_report(connection, week)
    assert (again.jobs, again.revision, again.has_late_data) == (found.jobs, 3, False)


def test_a_program_of_the_schema_before_is_told_that_it_must_be_updated(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = access.open_engine(url)
    access.upgrade(engine)
    monkeypatch.setattr(access, "SCHEMA", access.SCHEMA - 1)
    with engine.connect() as connection, pytest.raises(DatabaseError, match="update it"):
        access.check(connection)


def test_an_older_database_is_refused_with_the_command_to_run(url: str) -> None:
    populate_the_first_schema(url)
    with (
        access.open_engine(url).connect() as connection,
        pytest.raises(DatabaseError, match="`stitchfleet db upgrade`"),
    ):
        access.check(connection)


@pytest.mark.slow
def test_two_programs_that_make_the_database_at_once_make_it_once(url: str) -> None:
    code = "import sys; from stitchfleet.telemetry.database import access as d; print(d.upgrade(d.open_engine(sys.argv[1])))"
    makers = [
        subprocess.Popen([sys.executable, "-c", code, url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    outputs = [maker.communicate() for maker in makers]
    there, made = f"({access.SCHEMA}, {access.SCHEMA})\n", f"(None, {access.SCHEMA})\n"
    assert sorted(out for out, _ in outputs) == [there, there, made], outputs


def test_an_empty_database_is_refused_with_the_command_to_run(url: str) -> None:
    with access.open_engine(url).connect() as connection, pytest.raises(DatabaseError, match="db upgrade"):
        access.check(connection)


def test_somebody_elses_database_is_left_alone(url: str) -> None:
    engine = access.open_engine(url)
    with access.writing(engine) as connection:
        connection.exec_driver_sql("CREATE TABLE theirs (x integer)")
    with pytest.raises(DatabaseError, match="not stitchfleet's"):
        access.upgrade(engine)
    assert sa.inspect(engine).get_table_names() == ["theirs"]


@pytest.mark.parametrize(("oldest", "served"), [(access.SCHEMA, True), (access.SCHEMA + 1, False)])
def test_a_newer_database_is_served_as_far_as_it_says(url: str, oldest: int, served: bool) -> None:
    """After a rollback an older program meets a newer schema."""
    engine = access.open_engine(url)
    access.upgrade(engine)
    with access.writing(engine) as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0007'")
        connection.exec_driver_sql(f"UPDATE schema_facts SET value = {oldest} WHERE name = 'oldest_reader'")
    with engine.connect() as connection:
        if served:
            assert access.check(connection) == 7
        else:
            with pytest.raises(DatabaseError, match="update it"):
                access.check(connection)
    if served:
        assert access.upgrade(engine) == (7, 7)
    else:
        with pytest.raises(DatabaseError, match="update it"):
            access.upgrade(engine)


@pytest.mark.parametrize("bad", ["", "nonsense", "mysql://host/db", "sqlite:////proc/nowhere/x.db"])
def test_a_url_that_cannot_be_used_is_one_line(bad: str) -> None:
    with pytest.raises(DatabaseError) as caught:
        access.open_engine(bad)
    assert "\n" not in str(caught.value)


def test_a_day_has_its_partition_before_its_rows_come(postgres_url: str) -> None:
    engine = access.open_engine(postgres_url)
    access.upgrade(engine)
    today = time.time_ns() // DAY_NS
    with access.writing(engine) as connection:
        assert partitions.existing(connection) == list(range(today, today + partitions.AHEAD_DAYS + 1))
        assert partitions.ensure_ahead(connection, today + 1) == [today + partitions.AHEAD_DAYS + 1]
        insert_rows(connection, job(blocks=[(MONDAY + 10**11, PLAIN, 50, 10**8)]))
        assert partitions.existing(connection)[0] == MONDAY // DAY_NS, "a late day's is made when its rows come"
    assert query(postgres_url, "SELECT count(*) FROM iteration_blocks_20261116") == [(1,)]


def test_a_days_rows_are_not_padded_for_a_column_that_came_later(postgres_url: str) -> None:
    engine = access.open_engine(postgres_url)
    access.upgrade(engine)
    with engine.connect() as connection:
        day = partitions.name_of(partitions.existing(connection)[0])
    of_day = sa.text(
        "SELECT attname, attlen, attstorage FROM pg_attribute WHERE attrelid = CAST(:day AS regclass) AND attnum > 0 ORDER BY attnum"
    )
    with engine.connect() as connection:
        columns = connection.execute(of_day, {"day": day}).all()
    padding = offset = 0
    for _, size, _ in columns:
        if size > 0:
            padding += -offset % size
            offset += size + -offset % size
    assert padding == 2, "a smallint before a bigint"
    assert all(size > 0 for _, size, _ in columns[:-2]), "those of varying length come last"
    assert {name: storage for name, _, storage in columns}["durations"] == "e", (
        "long arrays lie outside the row, uncompressed"
    )


def test_partitions_are_made_while_others_write(postgres_url: str) -> None:
    """An open transaction that has written holds up nobody who needs another day's partition."""
    engine = access.open_engine(postgres_url)
    access.upgrade(engine)
    with access.writing(engine) as slow:
        insert_rows(slow, job("slow", blocks=[(MONDAY + 10**11, PLAIN, 50, 10**8)]))
        slow_day = MONDAY // DAY_NS
    with access.writing(engine) as slow:
        insert_rows(slow, job("slower", blocks=[(MONDAY + 10**11, PLAIN, 50, 10**8)]))
        with access.writing(engine) as other:
            other.exec_driver_sql("SET lock_timeout = '5s'")
            assert partitions.ensure(other, [slow_day - 1]) == [slow_day - 1]


def test_where_the_database_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STITCHFLEET_DATABASE", raising=False)
    monkeypatch.delenv("STITCHFLEET_CACHE", raising=False)
    monkeypatch.delenv("STITCHFLEET_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    assert places.database_url(None) == "sqlite:////c/stitchfleet/stitchfleet.db"
    assert places.database_url("x.db") == "sqlite:///x.db"
    assert places.records_folder() == pathlib.Path("/c/stitchfleet/records")
    monkeypatch.setenv("STITCHFLEET_CACHE", "/elsewhere")
    assert places.records_folder() == pathlib.Path("/elsewhere/records")
    monkeypatch.setenv("STITCHFLEET_DATABASE", "sqlite:////d/x.db")
    assert places.database_url(None) == "sqlite:////d/x.db"
    assert access.file_of("sqlite:////d/x.db") == pathlib.Path("/d/x.db")
    assert access.file_of("sqlite://") is None
    assert access.file_of("?") is None


def test_a_namespace_is_deleted_whole_and_nothing_else(url: str) -> None:
    engine = access.open_engine(url)
    access.upgrade(engine)
    blocks = [(MONDAY + 10**11, PLAIN, 50, 10**8)]
    with access.writing(engine) as connection:
        insert_rows(connection, job("kept", blocks=blocks, pairs=[(5, 4), (6, 5)]))
        freeze(connection, MONDAY // DAY_NS + 7)
    before = everything(url)
    with access.writing(engine) as connection:
        insert_rows(connection, job("gone", blocks=blocks, pairs=[(5, 4), (6, 5)], namespace="secret"))
    with access.writing(engine) as connection:
        deleted = delete_namespace(connection, "secret")
        assert (deleted["jobs"], deleted["iteration_blocks"], deleted["arm_blocks"]) == (1, 1, 4)
    assert everything(url) == before
    assert len(before["weekly_rollups"]) == 1
