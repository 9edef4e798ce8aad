"""The database's schema: made in one go, checked before use, and its migrations say the same as the models."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import time

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from stitchfleet.telemetry import database, models, partitions, places
from stitchfleet.telemetry.database import DatabaseError
from stitchfleet.telemetry.recording import DAY_NS, PLAIN
from stitchfleet.telemetry.store import TABLES_OF_PROCESSES, delete_namespace, insert_rows
from stitchfleet.telemetry.weekly import freeze

from .conftest import query
from .test_weekly import MONDAY, job


def test_the_migrations_make_what_the_models_say(url: str) -> None:
    engine = database.open_engine(url)
    assert database.upgrade(engine) == (None, 2)
    assert database.upgrade(engine) == (2, 2)
    with engine.connect() as connection:
        name = connection.dialect.name

        def belongs(entry: object, _name: str | None, kind: str, reflected: bool, _other: object) -> bool:
            """All but PostgreSQL's partitions and what only the other database has."""
            of = entry if kind == "table" else getattr(entry, "table", None)
            assert isinstance(of, sa.Table)
            return of.info.get("dialect", name) == name and not of.name.startswith("iteration_blocks_")

        context = MigrationContext.configure(connection, opts={"include_object": belongs})
        assert compare_metadata(context, models.metadata) == []
        assert database.check(connection) == database.SCHEMA == database.newest_migration()


def test_a_migration_that_is_interrupted_leaves_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = database.open_engine(url)
    real = database.alembic_command.upgrade

    def half(*arguments: object) -> None:
        real(*arguments)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(database.alembic_command, "upgrade", half)
        with pytest.raises(KeyboardInterrupt):
            database.upgrade(engine)
    assert sa.inspect(engine).get_table_names() == []
    assert database.upgrade(engine) == (None, 2)


STALL = """
import sys, time
from stitchfleet.telemetry import database
real = database.alembic_command.upgrade
def stall(*arguments):
    real(*arguments)
    print("there", flush=True)
    time.sleep(600)
database.alembic_command.upgrade = stall
database.upgrade(database.open_engine(sys.argv[1]))
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
    assert database.upgrade(database.open_engine(url)) == (1, 2)


def populate_the_first_schema(url: str) -> None:
    """A database as the first version made it, with a job of two blocks in it."""
    engine = database.open_engine(url)
    with database.writing(engine) as connection:
        database.alembic_command.upgrade(database._config(connection), "0001")
        insert_rows(connection, job(blocks=[(MONDAY + 10**11, PLAIN, 50, 10**8)], pairs=[(5, 4), (6, 5)]))
    engine.dispose()


def everything(url: str) -> dict[str, list[tuple[object, ...]]]:
    names = [table.name for table in TABLES_OF_PROCESSES]
    return {name: query(url, f"SELECT * FROM {name} ORDER BY 1, 2, 3, 4, 5, 6, 7") for name in [*names, "iterations"]}


def test_an_upgrade_from_the_first_version_keeps_every_row(url: str) -> None:
    populate_the_first_schema(url)
    before = everything(url)
    assert len(before["iterations"]) == 50
    assert database.upgrade(database.open_engine(url)) == (1, 2)
    assert everything(url) == before


def test_a_program_one_version_back_goes_on_after_a_rollback(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = database.open_engine(url)
    database.upgrade(engine)
    monkeypatch.setattr(database, "SCHEMA", 1)
    with database.writing(engine) as connection:
        assert database.check(connection) == 2
        insert_rows(connection, job(blocks=[(MONDAY + 10**11, PLAIN, 50, 10**8)]))
    assert database.upgrade(engine) == (2, 2)


def test_an_older_database_is_refused_with_the_command_to_run(url: str) -> None:
    populate_the_first_schema(url)
    with (
        database.open_engine(url).connect() as connection,
        pytest.raises(DatabaseError, match="`stitchfleet db upgrade`"),
    ):
        database.check(connection)


def test_two_programs_that_make_the_database_at_once_make_it_once(url: str) -> None:
    code = "import sys; from stitchfleet.telemetry import database as d; print(d.upgrade(d.open_engine(sys.argv[1])))"
    makers = [
        subprocess.Popen([sys.executable, "-c", code, url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    outputs = [maker.communicate() for maker in makers]
    assert sorted(out for out, _ in outputs) == ["(2, 2)\n", "(2, 2)\n", "(None, 2)\n"], outputs


def test_an_empty_database_is_refused_with_the_command_to_run(url: str) -> None:
    with database.open_engine(url).connect() as connection, pytest.raises(DatabaseError, match="db upgrade"):
        database.check(connection)


def test_somebody_elses_database_is_left_alone(url: str) -> None:
    engine = database.open_engine(url)
    with database.writing(engine) as connection:
        connection.exec_driver_sql("CREATE TABLE theirs (x integer)")
    with pytest.raises(DatabaseError, match="not stitchfleet's"):
        database.upgrade(engine)
    assert sa.inspect(engine).get_table_names() == ["theirs"]


@pytest.mark.parametrize(("oldest", "served"), [(2, True), (3, False)])
def test_a_newer_database_is_served_as_far_as_it_says(url: str, oldest: int, served: bool) -> None:
    """After a rollback an older program meets a newer schema."""
    engine = database.open_engine(url)
    database.upgrade(engine)
    with database.writing(engine) as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0007'")
        connection.exec_driver_sql(f"UPDATE schema_facts SET value = {oldest} WHERE name = 'oldest_reader'")
    with engine.connect() as connection:
        if served:
            assert database.check(connection) == 7
        else:
            with pytest.raises(DatabaseError, match="update it"):
                database.check(connection)
    if served:
        assert database.upgrade(engine) == (7, 7)
    else:
        with pytest.raises(DatabaseError, match="update it"):
            database.upgrade(engine)


@pytest.mark.parametrize("bad", ["", "nonsense", "mysql://host/db", "sqlite:////proc/nowhere/x.db"])
def test_a_url_that_cannot_be_used_is_one_line(bad: str) -> None:
    with pytest.raises(DatabaseError) as caught:
        database.open_engine(bad)
    assert "\n" not in str(caught.value)


def test_a_day_has_its_partition_before_its_rows_come(postgres_url: str) -> None:
    engine = database.open_engine(postgres_url)
    database.upgrade(engine)
    today = time.time_ns() // DAY_NS
    with database.writing(engine) as connection:
        assert partitions.existing(connection) == list(range(today, today + partitions.AHEAD_DAYS + 1))
        assert partitions.ensure_ahead(connection, today + 1) == [today + partitions.AHEAD_DAYS + 1]
        insert_rows(connection, job(blocks=[(MONDAY + 10**11, PLAIN, 50, 10**8)]))
        assert partitions.existing(connection)[0] == MONDAY // DAY_NS, "a late day's is made when its rows come"
    assert query(postgres_url, "SELECT count(*) FROM iteration_blocks_20261116") == [(1,)]


def test_partitions_are_made_while_others_write(postgres_url: str) -> None:
    """An open transaction that has written holds up nobody who needs another day's partition."""
    engine = database.open_engine(postgres_url)
    database.upgrade(engine)
    with database.writing(engine) as slow:
        insert_rows(slow, job("slow", blocks=[(MONDAY + 10**11, PLAIN, 50, 10**8)]))
        slow_day = MONDAY // DAY_NS
    with database.writing(engine) as slow:
        insert_rows(slow, job("slower", blocks=[(MONDAY + 10**11, PLAIN, 50, 10**8)]))
        with database.writing(engine) as other:
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
    assert database.file_of("sqlite:////d/x.db") == pathlib.Path("/d/x.db")
    assert database.file_of("sqlite://") is None
    assert database.file_of("?") is None


def test_a_namespace_is_deleted_whole_and_nothing_else(url: str) -> None:
    engine = database.open_engine(url)
    database.upgrade(engine)
    blocks = [(MONDAY + 10**11, PLAIN, 50, 10**8)]
    with database.writing(engine) as connection:
        insert_rows(connection, job("kept", blocks=blocks, pairs=[(5, 4), (6, 5)]))
        freeze(connection, MONDAY // DAY_NS + 7)
    before = everything(url)
    with database.writing(engine) as connection:
        insert_rows(connection, job("gone", blocks=blocks, pairs=[(5, 4), (6, 5)], namespace="secret"))
    with database.writing(engine) as connection:
        deleted = delete_namespace(connection, "secret")
        assert (deleted["jobs"], deleted["iteration_blocks"], deleted["arm_blocks"]) == (1, 1, 4)
    assert everything(url) == before
    assert len(before["weekly_rollups"]) == 1
