"""The controller maintains a PostgreSQL: partitions for the days to come, weeks frozen, days dropped that nobody keeps."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from stitchfleet.operator.controller.keeper import HOUSEKEEPING_SECONDS, Keeper
from stitchfleet.telemetry.database import access, models, partitions
from stitchfleet.telemetry.database.weeks import Week
from stitchfleet.telemetry.pod.recording import DAY_NS

from ...telemetry import synthetic
from ...telemetry.conftest import postgres_server as postgres_server
from ...telemetry.conftest import postgres_template as postgres_template
from ...telemetry.conftest import postgres_url as postgres_url
from .test_reports import NoPolicies, Reports

WEEK = Week(2026, 40)
KEEP_DAYS = 28


@pytest.fixture
def engine(postgres_url: str) -> Iterator[sa.Engine]:
    made = access.open_engine(postgres_url)
    yield made
    made.dispose()


def days(engine: sa.Engine) -> set[int]:
    with engine.connect() as connection:
        return set(partitions.existing(connection))


def blocks(engine: sa.Engine) -> int:
    with engine.connect() as connection:
        return int(connection.scalar(sa.select(sa.func.count()).select_from(models.iteration_blocks)) or 0)


def test_a_look_makes_the_next_days_partitions_and_drops_those_that_are_too_old(engine: sa.Engine) -> None:
    today = [WEEK.first_day]
    keeper = Keeper(engine, Reports(), NoPolicies(), KEEP_DAYS, now_ns=lambda: today[0] * DAY_NS)  # type: ignore[arg-type]
    keeper.look()
    assert set(range(today[0], today[0] + partitions.AHEAD_DAYS + 1)) <= days(engine)
    synthetic.fill(engine, WEEK, weeks=1, jobs=3, frozen=0)
    assert blocks(engine) > 0

    today[0] = WEEK.end_day + KEEP_DAYS + 1
    keeper.look()
    assert blocks(engine) > 0, "once an hour is enough"
    keeper._housekept -= HOUSEKEEPING_SECONDS
    keeper.look()
    assert blocks(engine) == 0
    left = days(engine)
    assert not left & set(range(WEEK.first_day, WEEK.end_day))
    assert set(range(today[0], today[0] + partitions.AHEAD_DAYS + 1)) <= left
    with engine.connect() as connection:
        frozen = connection.execute(sa.select(models.frozen_weeks.c.week, models.frozen_weeks.c.blocks_dropped)).all()
    assert (str(WEEK), 1) in [tuple(each) for each in frozen]
