"""Writing rows. Every insert is ON CONFLICT DO NOTHING on a key that the sender made: what comes twice changes nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from . import freezing, partitions
from .models import PROCESS_KEY, frozen_weeks, iteration_blocks, jobs, metadata
from .recording import DAY_NS
from .rows import Row, Rows
from .weeks import Week

TABLES_OF_PROCESSES = tuple(table for table in metadata.sorted_tables if "process_id" in table.primary_key.columns)
"""Those whose rows are of a process."""


Key = tuple[Any, ...]
"""Of a process: the values of PROCESS_KEY."""


@dataclass(frozen=True)
class Inserted:
    """Rows that were not there before, each with the row of `jobs` whose it is; both have their process_id."""

    blocks: list[tuple[Row, Row]]
    ends: list[tuple[Row, Row]]


def insert_rows(connection: sa.Connection, *batches: Rows, known: Mapping[Key, int] = MappingProxyType({})) -> Inserted:
    """Inserts what is not there yet; makes the day partitions that are missing. The transaction is the caller's.

    known: the process_id of those that are registered already.
    """
    processes: dict[int, Row] = {}
    entries: dict[str, list[Row]] = defaultdict(list)
    for rows in batches:
        for job in rows.tables["jobs"]:
            owner = known.get(key_of(job)) or register(connection, job).process_id
            processes[owner] = {"process_id": owner, **job}
            for name, mine in rows.tables.items():
                if name != "jobs":
                    entries[name] += ({"process_id": owner, **row} for row in mine)
    partitions.ensure(connection, {row["day"] for row in entries["iteration_blocks"]})
    blocks = entries["iteration_blocks"] = _new_blocks(connection, entries["iteration_blocks"])
    ends = [row for row in entries["job_ends"] if not _has_end(connection, row["process_id"])]
    changed: dict[str, int] = {}
    for table in TABLES_OF_PROCESSES:
        if found := entries.get(table.name):
            # in the order of the key, so that two writers of the same rows never wait for each other crosswise
            found = sorted(found, key=lambda row: tuple(row[column.name] for column in table.primary_key.columns))
            statement = _insert(connection, table).on_conflict_do_nothing()
            done = connection.execute(statement, found, execution_options={"preserve_rowcount": True})
            changed[table.name] = done.rowcount
    days = {row["day"] for row in blocks} | {processes[row["process_id"]]["started_ns"] // DAY_NS for row in ends}
    if changed.get("arm_blocks", 0) > 0:
        days |= {row["ended_ns"] // DAY_NS for row in entries["arm_blocks"]}
    _mark_late(connection, days)
    return Inserted(
        *([(processes[row["process_id"]], row) for row in found] for found in (blocks, ends)),
    )


class Registered(NamedTuple):
    """What `jobs` has of a process."""

    process_id: int
    uid: str


def key_of(job: Row) -> Key:
    """That of a row of `jobs`."""
    return tuple(job[name] for name in PROCESS_KEY)


def register(connection: sa.Connection, job: Row) -> Registered:
    """Inserts a row of `jobs` where it is not there; tells the one that is there its model, once that is known."""
    key = [jobs.c[name] == job[name] for name in PROCESS_KEY]
    question = sa.select(jobs.c.process_id, jobs.c.uid, jobs.c.model_fingerprint).where(*key)
    # asked first: an insert that does nothing takes a number all the same
    found = connection.execute(question).first()
    if found is None:
        connection.execute(_insert(connection, jobs).on_conflict_do_nothing(), job)
        found = connection.execute(question).one()
    if job["model_fingerprint"] and not found.model_fingerprint:
        named = sa.update(jobs).where(jobs.c.process_id == found.process_id, jobs.c.model_fingerprint == "")
        connection.execute(named.values(model_fingerprint=job["model_fingerprint"]))
    return Registered(found.process_id, found.uid)


def _insert(connection: sa.Connection, table: sa.Table) -> Any:
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)


def _new_blocks(connection: sa.Connection, entries: list[Row]) -> list[Row]:
    """Those that are not in the database, nor were before their week's blocks were dropped."""
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
    last = freezing.last_dropped_sequences(connection, {(row["process_id"], weeks[row["day"]]) for row in found})
    return [row for row in found if row["sequence"] > last.get((row["process_id"], weeks[row["day"]]), -1)]


def _has_end(connection: sa.Connection, owner: int) -> bool:
    ends = metadata.tables["job_ends"]
    return connection.scalar(sa.select(ends.c.process_id).where(ends.c.process_id == owner)) is not None


def _mark_late(connection: sa.Connection, days: set[int]) -> None:
    """Notes that frozen weeks have got data in these days, which their revisions do not have."""
    weeks = {str(week) for week in map(Week.of_day, days)}
    if weeks:
        late = sa.update(frozen_weeks).where(frozen_weeks.c.week.in_(weeks), frozen_weeks.c.has_late_data == 0)
        connection.execute(late.values(has_late_data=1))


def delete_namespace(connection: sa.Connection, namespace: str) -> dict[str, int]:
    """Deletes all rows of a namespace's jobs, frozen weeks included; returns how many, by table. The transaction is the caller's."""
    of_namespace = sa.select(jobs.c.process_id).where(jobs.c.namespace == namespace)
    weeks = freezing.weeks_with(connection, of_namespace)
    deleted = {}
    # jobs last: they say whose the others are
    for table in sorted(TABLES_OF_PROCESSES, key=lambda table: table is jobs):
        deleted[table.name] = connection.execute(sa.delete(table).where(table.c.process_id.in_(of_namespace))).rowcount
    for week in weeks:
        freezing.renew_totals(connection, week)
    return deleted
