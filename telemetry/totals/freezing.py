"""Freezes weeks: stores a closed week's figures as a numbered revision.

    freeze            writes what each process did and saved into weekly_rollups, and the totals into weekly_totals
    prune             drops the iterations of frozen weeks
    delete_namespace  drops all rows of a namespace, and recomputes the totals of frozen weeks

If late data arrives for a frozen week (store notes it), the week is frozen again as its next revision; earlier ones stay as
published.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from ..database import partitions
from ..database.models import frozen_weeks, iteration_blocks, jobs, weekly_rollups, weekly_totals
from ..database.store import TABLES_OF_PROCESSES, last_dropped_sequences
from ..database.weeks import Week
from ..statistics import savings
from ..statistics.savings import Total
from .weekly import MAX_ROLLUP, STORED, JobWeek, UnitTotal, frozen_jobs, processes, standing, unit_total

FLEET = "fleet"
_DIMENSIONS: dict[str, Callable[[JobWeek], str]] = {
    FLEET: lambda job: "",
    "namespace": lambda job: job.namespace,
    "device kind": lambda job: job.device_kind,
}
"""Dimensions for which a week's totals are kept: those that no configuration decides."""
_SAVED = {
    "saved_hours": "value",
    "saved_hours_low": "low",
    "saved_hours_high": "high",
    "saved_jobs": "jobs",
    "templates": "templates",
}
_PLAIN_FIELDS = tuple(field.name for field in dataclasses.fields(UnitTotal) if field.name not in ("unit", "saved"))


SETTLE_DAYS = 1
"""Days after its end at which a week is frozen. Until then, spools that had no connection may deliver its data."""


@dataclass(frozen=True)
class Frozen:
    """A week's new revision. processes: number of processes whose figures it has."""

    week: Week
    revision: int
    processes: int
    unreadable: int
    """Number of rows of the database that were left out because they cannot be read."""


@dataclass(frozen=True)
class Pruned:
    """A week whose iterations were dropped; `blocks` is how many."""

    week: Week
    revision: int
    blocks: int


def freeze(connection: sa.Connection, before_day: int) -> list[Frozen]:
    """Makes a revision of each week that ended by `before_day` (in days since 1970) and has none, or has late data. Uses the
    caller's transaction, in which writers of blocks wait."""
    partitions.hold_writers(connection)
    known = {row.week: row for row in connection.execute(sa.select(frozen_weeks))}
    late = {Week.parse(name) for name, row in known.items() if row.has_late_data}
    done = []
    for week in sorted(late | {week for week in _weeks_with_blocks(connection, before_day) if str(week) not in known}):
        if week.end_day <= before_day:
            last = known.get(str(week))
            done.append(_freeze_week(connection, week, (last.revision if last else 0) + 1))
            if last is not None and last.blocks_dropped:
                _drop_blocks(connection, week)
    return done


def prune(connection: sa.Connection, before_day: int) -> list[Pruned]:
    """Drops the iteration blocks of frozen weeks that ended by `before_day` (in days since 1970) and have no late data, and empty
    partitions of such days. Uses the caller's transaction, in which writers of blocks wait."""
    pruned = []
    partitions.hold_writers(connection)
    of_weeks = (frozen_weeks.c.blocks_dropped == 0, frozen_weeks.c.has_late_data == 0)
    statement = sa.select(frozen_weeks).where(*of_weeks, frozen_weeks.c.first_day + 7 <= before_day)
    for row in connection.execute(statement.order_by(frozen_weeks.c.week)).all():
        week = Week.parse(row.week)
        pruned.append(Pruned(week, row.revision, _drop_blocks(connection, week)))
        connection.execute(sa.update(frozen_weeks).where(frozen_weeks.c.week == row.week).values(blocks_dropped=1))
    partitions.drop(
        connection,
        [
            day
            for day in partitions.existing(connection)
            if Week.of_day(day).end_day <= before_day and not partitions.has_rows(connection, day)
        ],
    )
    return pruned


def _weeks_with_blocks(connection: sa.Connection, before_day: int) -> set[Week]:
    if partitions.is_partitioned(connection):
        days: Sequence[int] = [
            day for day in partitions.existing(connection) if day < before_day and partitions.has_rows(connection, day)
        ]
    else:
        days = connection.scalars(
            sa.select(iteration_blocks.c.day).where(iteration_blocks.c.day < before_day).distinct()
        ).all()
    return {Week.of_day(day) for day in days}


def _freeze_week(connection: sa.Connection, week: Week, revision: int) -> Frozen:
    read = processes(connection, week)
    entries, members = read.jobs, standing(read.jobs)
    of_jobs = {entry.process_id for entry in members}
    if entries:
        last = last_dropped_sequences(connection, {(entry.process_id, week) for entry in entries})
        last |= {(owner, week): sequence for owner, sequence in _last_sequences(connection, week)}
        rows = [
            {
                **_rollup(entry, week, revision),
                "stands_for_job": int(entry.process_id in of_jobs),
                "last_sequence": last.get((entry.process_id, week)),
            }
            for entry in entries
        ]
        connection.execute(sa.insert(weekly_rollups), rows)
    _write_totals(connection, week, revision, members)
    facts = {
        "revision": revision,
        "frozen_ns": time.time_ns(),
        "has_late_data": 0,
        "unreadable_rows": read.unreadable,
    }
    if revision == 1:
        about = {"week": str(week), "first_day": week.first_day, "blocks_dropped": 0}
        connection.execute(sa.insert(frozen_weeks).values(**about, **facts))
    else:
        connection.execute(sa.update(frozen_weeks).where(frozen_weeks.c.week == str(week)).values(**facts))
    return Frozen(week, revision, len(entries), read.unreadable)


def _last_sequences(connection: sa.Connection, week: Week) -> Iterable[tuple[int, int]]:
    """(process_id, highest sequence) of the processes that have blocks in the week."""
    of_week = (iteration_blocks.c.day >= week.first_day, iteration_blocks.c.day < week.end_day)
    statement = sa.select(iteration_blocks.c.process_id, sa.func.max(iteration_blocks.c.sequence)).where(*of_week)
    return (
        (owner, sequence) for owner, sequence in connection.execute(statement.group_by(iteration_blocks.c.process_id))
    )


def _drop_blocks(connection: sa.Connection, week: Week) -> int:
    """Drops a week's blocks; returns their number."""
    of_week = (iteration_blocks.c.day >= week.first_day, iteration_blocks.c.day < week.end_day)
    if not partitions.is_partitioned(connection):
        return connection.execute(sa.delete(iteration_blocks).where(*of_week)).rowcount
    count = connection.scalar(sa.select(sa.func.count()).select_from(iteration_blocks).where(*of_week)) or 0
    partitions.drop(connection, range(week.first_day, week.end_day))
    return count


def _rollup(entry: JobWeek, week: Week, revision: int) -> dict[str, Any]:
    interval = entry.saved_hours_interval
    same = ("process_id", *STORED, "device_hours", "saved_hours")
    values = {name: getattr(entry, name) for name in same}
    return {name: min(value, MAX_ROLLUP) if isinstance(value, int) else value for name, value in values.items()} | {
        "week": str(week),
        "revision": revision,
        "overhead_is_estimate": int(entry.overhead_is_estimate),
        "pairs": entry.saving.pairs if entry.saving else 0,
        "saving": json.dumps(dataclasses.asdict(entry.saving)) if entry.saving else None,
        "method": savings.METHOD,
        "saved_hours_low": interval[0] if interval else None,
        "saved_hours_high": interval[1] if interval else None,
        "reverted": json.dumps(entry.reverted),
        "functions": json.dumps(entry.functions) if {number for number, *_ in entry.functions} - {0} else None,
    }


# ---- totals -----------------------------------------------------------------------------------------------------------------


def _write_totals(connection: sa.Connection, week: Week, revision: int, members: Sequence[JobWeek]) -> None:
    groups: dict[tuple[str, str, str], list[JobWeek]] = defaultdict(list)
    for job in members:
        for dimension, name_of in _DIMENSIONS.items():
            groups[job.unit, dimension, name_of(job)].append(job)
    rows = []
    for (unit, dimension, name), mine in groups.items():
        total = unit_total(unit, mine)
        rows.append(
            {"week": str(week), "revision": revision, "unit": unit, "dimension": dimension, "name": name}
            | {column: getattr(total.saved, field) for column, field in _SAVED.items()}
            | {field: getattr(total, field) for field in _PLAIN_FIELDS}
        )
    if rows:
        connection.execute(sa.insert(weekly_totals), rows)


def stored_totals(connection: sa.Connection, week: Week) -> tuple[int, list[UnitTotal]] | None:
    """The revision and the fleet's totals by unit of a frozen week; None if it is not frozen, or has late data."""
    frozen = connection.execute(sa.select(frozen_weeks).where(frozen_weeks.c.week == str(week))).first()
    if frozen is None or frozen.has_late_data:
        return None
    of_week = (weekly_totals.c.week == str(week), weekly_totals.c.revision == frozen.revision)
    statement = sa.select(weekly_totals).where(*of_week, weekly_totals.c.dimension == FLEET)
    return frozen.revision, [
        UnitTotal(
            unit=row.unit,
            saved=Total(**{field: getattr(row, column) for column, field in _SAVED.items()}),
            **{field: getattr(row, field) for field in _PLAIN_FIELDS},
        )
        for row in connection.execute(statement.order_by(weekly_totals.c.unit))
    ]


# ---- deleting ---------------------------------------------------------------------------------------------------------------


def delete_namespace(connection: sa.Connection, namespace: str) -> dict[str, int]:
    """Deletes all rows of a namespace's jobs, including those of frozen weeks; returns table -> number of rows deleted. Uses the
    caller's transaction.

    Writers wait meanwhile, and then register their process again: what a running job sends afterwards is stored anew.
    """
    partitions.hold_writers(connection)
    of_namespace = sa.select(jobs.c.process_id).where(jobs.c.namespace == namespace)
    weeks = _weeks_with(connection, of_namespace)
    deleted = {}
    # jobs last: the other tables' rows refer to it
    for table in sorted(TABLES_OF_PROCESSES, key=lambda table: table is jobs):
        deleted[table.name] = connection.execute(sa.delete(table).where(table.c.process_id.in_(of_namespace))).rowcount
    for week in weeks:
        _renew_totals(connection, week)
    return deleted


def _weeks_with(connection: sa.Connection, process_ids: sa.Select[Any]) -> list[Week]:
    """Frozen weeks that have rows of these processes, in any revision."""
    statement = sa.select(weekly_rollups.c.week).where(weekly_rollups.c.process_id.in_(process_ids)).distinct()
    return sorted(map(Week.parse, connection.scalars(statement)))


def _renew_totals(connection: sa.Connection, week: Week) -> None:
    """After rows of a frozen week were deleted: recomputes the totals of its latest revision, and drops those of earlier ones."""
    revision = connection.scalar(sa.select(frozen_weeks.c.revision).where(frozen_weeks.c.week == str(week)))
    connection.execute(sa.delete(weekly_totals).where(weekly_totals.c.week == str(week)))
    if revision is not None:
        _write_totals(connection, week, revision, frozen_jobs(connection, week, revision).jobs)
