"""Inserts rows. Every insert is ON CONFLICT DO NOTHING on a key that the sender made: rows that arrive twice change nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from ..pod.recording import DAY_NS
from ..pod.spool import AFTER_DEATH
from . import partitions
from .models import (
    JOB_KEY,
    MAX_ASKED,
    PROCESS_KEY,
    events,
    frozen_weeks,
    iteration_blocks,
    jobs,
    metadata,
    weekly_rollups,
)
from .rows import COUNTED_EVENTS, REVERT_EVENTS, Row, Rows
from .weeks import Week

TABLES_OF_PROCESSES = tuple(table for table in metadata.sorted_tables if "process_id" in table.primary_key.columns)
"""Tables whose rows belong to a process."""

KEEP_DAYS = 35
"""Blocks older than this many days are dropped: no spool holds them that long, and a clock that is years wrong must not make
partitions. A frozen week that ended longer ago stays as it was published, whatever arrives."""

Key = tuple[Any, ...]
"""Key of a process: the values of PROCESS_KEY."""


@dataclass(frozen=True)
class Inserted:
    """Rows that did not exist before, each with the row of `jobs` to which it belongs; both have their process_id."""

    blocks: list[tuple[Row, Row]]
    ends: list[tuple[Row, Row]]


def hold(connection: sa.Connection, batches: Sequence[Rows]) -> None:
    """Makes the daily partitions that these rows need. Freezing, pruning and deleting wait until the transaction ends. A writer
    calls this first, so that a process that it registers or finds is not deleted while its rows are written."""
    partitions.ensure(connection, {row["day"] for rows in batches for row in rows.tables.get("iteration_blocks", ())})


def insert_rows(
    connection: sa.Connection,
    *batches: Rows,
    known: Mapping[Key, Registered] | None = None,
    closed_before: int | None = None,
) -> Inserted:
    """Inserts the rows that do not exist yet, and marks the frozen weeks that get late data by them. The transaction is the
    caller's.

    known: the processes, if the caller has called `hold` and registered them. closed_before: frozen weeks that ended by this day
    (since 1970) are not marked; None: no week is closed.
    """
    if known is None:
        hold(connection, batches)
        known = {
            key_of(job): register(connection, job, closed_before) for rows in batches for job in rows.tables["jobs"]
        }
    processes: dict[int, Row] = {}
    entries: dict[str, list[Row]] = defaultdict(list)
    for rows in batches:
        for job in rows.tables["jobs"]:
            owner = known[key_of(job)].process_id
            processes[owner] = {"process_id": owner, **job}
            for name, mine in rows.tables.items():
                if name != "jobs":
                    entries[name] += ({"process_id": owner, **row} for row in mine)
    blocks = entries["iteration_blocks"] = _new_blocks(connection, entries["iteration_blocks"])
    ends = [row for row in entries["job_ends"] if not _has_end(connection, row["process_id"])]
    new_events = _new_events(connection, entries["events"])
    changed: dict[str, int] = {}
    for table in TABLES_OF_PROCESSES:
        if found := entries.get(table.name):
            # in the order of the key, so that two writers of the same rows cannot deadlock
            found = sorted(found, key=lambda row: tuple(row[column.name] for column in table.primary_key.columns))
            statement = _insert(connection, table).on_conflict_do_nothing()
            done = connection.execute(statement, found, execution_options={"preserve_rowcount": True})
            changed[table.name] = done.rowcount
    late = _Late(connection, closed_before)
    late.on_days(
        {row["day"] for row in blocks}
        | {
            day
            for row in ends
            for day in (processes[row["process_id"]]["started_ns"] // DAY_NS, row["ended_ns"] // DAY_NS)
        }
        | {processes[process.process_id]["started_ns"] // DAY_NS for process in known.values() if process.is_new}
    )
    if changed.get("arm_blocks", 0) > 0:
        for row in entries["arm_blocks"]:
            late.since(row["process_id"], row["ended_ns"])
    for row in new_events:
        if row["kind"] in REVERT_EVENTS:
            # a cluster that was reverted on one rank counts for the process that stands for the job
            for process_id in _same_job(connection, processes[row["process_id"]]):
                late.since(process_id, row["time_ns"])
        else:
            # records dropped after a process's end may be of any of its weeks
            late.since(row["process_id"], 0 if AFTER_DEATH in row["facts"] else row["time_ns"])
    for process in known.values():
        if process.was_named:
            # its model decides which jobs are submissions of one thing, and so groups and the interval of each total
            late.since(process.process_id, 0)
    late.mark()
    return Inserted(
        *([(processes[row["process_id"]], row) for row in found] for found in (blocks, ends)),
    )


class Registered(NamedTuple):
    """What `jobs` holds of a process. is_new: whether `register` inserted it."""

    process_id: int
    uid: str
    is_new: bool
    was_named: bool
    """Whether the model became known by this call."""


def key_of(job: Row) -> Key:
    """The key of a row of `jobs`."""
    return tuple(job[name] for name in PROCESS_KEY)


def register(connection: sa.Connection, job: Row, closed_before: int | None = None) -> Registered:
    """Inserts a row of `jobs` if it does not exist. If it exists and its model has become known, updates the model.

    closed_before: as in `insert_rows`. A process that appears in a closed week keeps the model with which that week was
    published.
    """
    key = [jobs.c[name] == job[name] for name in PROCESS_KEY]
    question = sa.select(jobs.c.process_id, jobs.c.uid, jobs.c.model_fingerprint).where(*key)
    # select first: even an insert that does nothing uses up a number
    found = connection.execute(question).first()
    is_new = found is None
    if found is None:
        connection.execute(_insert(connection, jobs).on_conflict_do_nothing(), job)
        found = connection.execute(question).one()
    was_named = bool(job["model_fingerprint"]) and not found.model_fingerprint
    if was_named:
        published = (
            sa.select(weekly_rollups.c.week)
            .join(frozen_weeks, frozen_weeks.c.week == weekly_rollups.c.week)
            .where(weekly_rollups.c.process_id == found.process_id, frozen_weeks.c.first_day + 7 <= closed_before)
        )
        if closed_before is not None and connection.execute(published.limit(1)).first() is not None:
            was_named = False
    if was_named:
        named = sa.update(jobs).where(jobs.c.process_id == found.process_id, jobs.c.model_fingerprint == "")
        connection.execute(named.values(model_fingerprint=job["model_fingerprint"]))
    return Registered(found.process_id, found.uid, is_new, was_named)


def _insert(connection: sa.Connection, table: sa.Table) -> Any:
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)


def _new_blocks(connection: sa.Connection, entries: list[Row]) -> list[Row]:
    """The blocks that are not in the database, and were not in it before their week's blocks were dropped."""
    found: list[Row] = []
    by_process: dict[int, dict[tuple[int, int], Row]] = defaultdict(dict)
    for row in entries:
        by_process[row["process_id"]].setdefault((row["day"], row["sequence"]), row)
    for owner, mine in by_process.items():
        sequences = [sequence for _, sequence in mine]
        there = connection.execute(
            sa.select(iteration_blocks.c.day, iteration_blocks.c.sequence).where(
                iteration_blocks.c.process_id == owner,
                iteration_blocks.c.day.in_({day for day, _ in mine}),
                iteration_blocks.c.sequence.between(min(sequences), max(sequences)),
            )
        )
        known = {(row.day, row.sequence) for row in there}
        found += [row for place, row in mine.items() if place not in known]
    if not found:
        return found
    weeks = {day: Week.of_day(day) for day in {row["day"] for row in found}}
    last = last_dropped_sequences(connection, {(row["process_id"], weeks[row["day"]]) for row in found})
    return [row for row in found if row["sequence"] > last.get((row["process_id"], weeks[row["day"]]), -1)]


def last_dropped_sequences(
    connection: sa.Connection, wanted: Collection[tuple[int, Week]]
) -> dict[tuple[int, Week], int]:
    """(process_id, week) -> the highest sequence among its dropped blocks, for the processes and weeks in `wanted` (perhaps also
    others) whose blocks were dropped. A process sends its blocks in order of sequence."""
    weeks = {str(week) for _, week in wanted}
    statement = (
        sa.select(weekly_rollups.c.process_id, weekly_rollups.c.week, weekly_rollups.c.last_sequence)
        .join(frozen_weeks, sa.and_(*(frozen_weeks.c[name] == weekly_rollups.c[name] for name in ("week", "revision"))))
        .where(frozen_weeks.c.week.in_(weeks), frozen_weeks.c.blocks_dropped == 1)
        .where(weekly_rollups.c.last_sequence.is_not(None))
    )
    if len(wanted) <= MAX_ASKED:
        statement = statement.where(weekly_rollups.c.process_id.in_({owner for owner, _ in wanted}))
    return {(owner, Week.parse(week)): sequence for owner, week, sequence in connection.execute(statement)}


def _has_end(connection: sa.Connection, owner: int) -> bool:
    ends = metadata.tables["job_ends"]
    return connection.scalar(sa.select(ends.c.process_id).where(ends.c.process_id == owner)) is not None


def _new_events(connection: sa.Connection, entries: list[Row]) -> list[Row]:
    """Among the events that change a week's figures, those that are not in the database."""
    found = [row for row in entries if row["kind"] in COUNTED_EVENTS]
    for owner in {row["process_id"] for row in found}:
        sequences = [row["sequence"] for row in found if row["process_id"] == owner]
        between = events.c.sequence.between(min(sequences), max(sequences))
        there = set(connection.scalars(sa.select(events.c.sequence).where(events.c.process_id == owner, between)))
        found = [row for row in found if row["process_id"] != owner or row["sequence"] not in there]
    return found


def _same_job(connection: sa.Connection, job: Row) -> Sequence[int]:
    of_job = [jobs.c[name] == job[name] for name in JOB_KEY]
    return connection.scalars(sa.select(jobs.c.process_id).where(*of_job)).all()


class _Late:
    """Notes which frozen weeks have data that their latest revisions do not contain."""

    def __init__(self, connection: sa.Connection, closed_before: int | None) -> None:
        self.connection, self.closed_before = connection, closed_before
        self.weeks: set[str] = set()
        self.reaching: dict[int, str] = {}
        """For processes whose figures changed from some moment on: that moment's week."""

    def on_days(self, days: set[int]) -> None:
        self.weeks |= {str(Week.of_day(day)) for day in days}

    def since(self, process_id: int, time_ns: int) -> None:
        """Marks all weeks of the process from a moment on."""
        week = str(Week.at(time_ns))
        self.reaching[process_id] = min(week, self.reaching.get(process_id, week))

    def mark(self) -> None:
        if not self.weeks and not self.reaching:
            return
        first = min((*self.weeks, *self.reaching.values()))
        # if the data is newer than everything frozen, no week needs to be looked up
        question = sa.select(frozen_weeks.c.week, frozen_weeks.c.first_day).where(
            frozen_weeks.c.week >= first, frozen_weeks.c.has_late_data == 0
        )
        open_weeks = {
            row.week
            for row in self.connection.execute(question)
            if self.closed_before is None or row.first_day + 7 > self.closed_before
        }
        late = self.weeks & open_weeks
        for process_id, since in self.reaching.items():
            if any(week >= since for week in open_weeks - late):
                rollups = weekly_rollups.c
                of_process = sa.select(rollups.week).where(rollups.process_id == process_id, rollups.week >= since)
                late |= open_weeks.intersection(self.connection.scalars(of_process))
        if late:
            noted = sa.update(frozen_weeks).where(frozen_weeks.c.week.in_(late))
            self.connection.execute(noted.values(has_late_data=1))
