"""The database's schema: made in one go, checked before use, and its migrations say the same as the models."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from stitchfleet.telemetry import database, models, places
from stitchfleet.telemetry.database import DatabaseError


@pytest.fixture
def url(tmp_path: pathlib.Path) -> str:
    return f"sqlite:///{tmp_path}/telemetry.db"


def test_the_migrations_make_what_the_models_say(url: str) -> None:
    engine = database.open_engine(url)
    assert database.upgrade(engine) == (None, 1)
    assert database.upgrade(engine) == (1, 1)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), models.metadata) == []
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
    assert database.upgrade(engine) == (None, 1)


def test_two_programs_that_make_the_database_at_once_make_it_once(url: str) -> None:
    code = "import sys; from stitchfleet.telemetry import database as d; print(d.upgrade(d.open_engine(sys.argv[1])))"
    makers = [
        subprocess.Popen([sys.executable, "-c", code, url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    outputs = [maker.communicate() for maker in makers]
    assert sorted(out for out, _ in outputs) == ["(1, 1)\n", "(1, 1)\n", "(None, 1)\n"], outputs


def test_an_empty_database_is_refused_with_the_command_to_run(url: str) -> None:
    with database.open_engine(url).connect() as connection, pytest.raises(DatabaseError, match="db upgrade"):
        database.check(connection)


def test_somebody_elses_database_is_left_alone(url: str) -> None:
    engine = database.open_engine(url)
    with database.writing(engine) as connection:
        connection.exec_driver_sql("CREATE TABLE theirs (x)")
    with pytest.raises(DatabaseError, match="not stitchfleet's"):
        database.upgrade(engine)
    assert sa.inspect(engine).get_table_names() == ["theirs"]


@pytest.mark.parametrize(("oldest", "served"), [(1, True), (2, False)])
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


@pytest.mark.parametrize("bad", ["", "nonsense", "postgresql://host/db", "sqlite:////proc/nowhere/x.db"])
def test_a_url_that_cannot_be_used_is_one_line(bad: str) -> None:
    with pytest.raises(DatabaseError) as caught:
        database.open_engine(bad)
    assert "\n" not in str(caught.value)


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
