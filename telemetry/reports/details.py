"""What the page shows of one job besides its figures: its iterations over time, its clusters, its events."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from ..database import schema
from ..database.models import clusters, events, functions, iteration_blocks
from ..database.weeks import Week
from ..totals.weekly import UNREADABLE
from .thinning import Curve, Thinner

MAX_EVENTS = 200
MAX_CLUSTERS = 1000
"""Most kinds of clusters of a job that are kept."""
ROWS_AT_ONCE = 64
"""Rows fetched at a time: a block of iterations has up to some tens of kilobytes."""


@dataclass(frozen=True)
class ClusterLine:
    """One kind of cluster, in its state at the job's end."""

    name: str
    ops: dict[str, int]
    instances: int
    state: str
    largest_error: float | None
    """Largest absolute difference from TensorFlow's own result."""
    over_tolerance: float | None
    """The largest difference as a multiple of what is allowed; a cluster above 1 is reverted."""
    kernel: str
    scopes: list[str]


@dataclass(frozen=True)
class EventLine:
    """An event of the job."""

    time_ns: int
    kind: str
    message: str


@dataclass
class Detail:
    """One process. `curve`: its iterations; for a process with several training functions, those of the function that took most of
    the time, whose name is then `function`."""

    curve: Curve = field(default_factory=Curve)
    clusters: list[ClusterLine] = field(default_factory=list)
    events: list[EventLine] = field(default_factory=list)
    function: str = ""
    other_functions: int = 0
    unreadable: int = 0
    """Number of rows of the database that cannot be read."""


def detail(connection: sa.Connection, process_id: int, week: Week | None) -> Detail:
    """The details of one process: its iterations of the week (None: all), and its clusters and latest events, of whatever week.

    The iterations are read block by block; if they are many, a 300th of them is in memory at a time (thinning.MAX_BUCKETS).
    """
    of_week = () if week is None else (iteration_blocks.c.day >= week.first_day, iteration_blocks.c.day < week.end_day)
    shown, name, others = _longest_function(connection, process_id, of_week)
    found = Detail(function=name, other_functions=others)
    blocks = iteration_blocks.c
    of_shown = (blocks.process_id == process_id, *of_week, blocks.function == shown)
    _read_iterations(connection, of_shown, found)
    _read_clusters(connection, process_id, found)
    recent = sa.select(events.c.time_ns, events.c.kind, events.c.message).where(events.c.process_id == process_id)
    recent = recent.order_by(events.c.sequence.desc()).limit(MAX_EVENTS)
    found.events.extend(
        EventLine(row.time_ns, row.kind, row.message) for row in reversed(connection.execute(recent).all())
    )
    return found


def _streamed(connection: sa.Connection, statement: sa.Select[Any]) -> Iterator[Any]:
    """The rows, fetched ROWS_AT_ONCE at a time."""
    yield from connection.execute(statement.execution_options(yield_per=ROWS_AT_ONCE))


def _read_iterations(connection: sa.Connection, conditions: tuple[sa.ColumnElement[bool], ...], found: Detail) -> None:
    import numpy as np

    from .charts import round_steps

    blocks = iteration_blocks.c
    in_order = (blocks.day, blocks.sequence)
    counted = (blocks.plain_count + blocks.stitched_count + blocks.uncounted_count).label("count")
    heads = sa.select(blocks.first_step, blocks.stride, counted).where(*conditions).order_by(*in_order)
    count, first, last, counts_up = 0, 0, None, True
    for row in _streamed(connection, heads):
        counts_up = counts_up and (last is None or row.first_step > last) and row.stride > 0
        first = row.first_step if last is None else first
        last = row.first_step + row.stride * (row.count - 1)
        count += row.count
    if last is None:
        return
    thinner = Thinner(count, round_steps(first, last) if counts_up else ())
    on_postgresql = connection.dialect.name == "postgresql"
    # as bytes: psycopg would make a float object of each value
    durations = sa.func.array_send(blocks.durations) if on_postgresql else blocks.durations
    whole = sa.select(
        blocks.first_step, blocks.stride, blocks.arms, sa.type_coerce(durations, sa.LargeBinary).label("durations")
    )
    for row in _streamed(connection, whole.where(*conditions).order_by(*in_order)):
        try:
            if on_postgresql:
                # a header of five words, then each element preceded by its length
                values = np.frombuffer(row.durations, ">u4")[6::2].astype("<u4").view("<f4")
            else:
                values = np.frombuffer(row.durations, "<f4")
            thinner.add(row.first_step, max(1, row.stride), json.loads(row.arms), values)
        except UNREADABLE:
            found.unreadable += 1
    found.curve = thinner.finish()


def _read_clusters(connection: sa.Connection, process_id: int, found: Detail) -> None:
    latest: dict[str, ClusterLine] = {}
    for row in _streamed(connection, _of(clusters, process_id).order_by(clusters.c.sequence)):
        try:
            line = _cluster_line(row.name, row.state, schema.decoded(row.facts.encode(), schema.ClusterFacts))
        except UNREADABLE:
            found.unreadable += 1
            continue
        if row.name in latest or len(latest) < MAX_CLUSTERS:
            latest[row.name] = line
    found.clusters.extend(sorted(latest.values(), key=lambda line: -line.instances * sum(line.ops.values())))


def _longest_function(
    connection: sa.Connection, process_id: int, of_week: tuple[sa.ColumnElement[bool], ...]
) -> tuple[int, str, int]:
    """The number of the training function that took most of the time, its name, and how many others there are."""
    time_ns = sa.func.sum(
        iteration_blocks.c.plain_ns + iteration_blocks.c.stitched_ns + iteration_blocks.c.uncounted_ns
    )
    statement = sa.select(iteration_blocks.c.function).where(iteration_blocks.c.process_id == process_id, *of_week)
    numbers = connection.scalars(statement.group_by(iteration_blocks.c.function).order_by(time_ns.desc())).all()
    if len(numbers) < 2:
        return (numbers[0] if numbers else 0), "", 0
    named = sa.select(functions.c.name).where(functions.c.process_id == process_id, functions.c.function == numbers[0])
    return numbers[0], connection.scalar(named) or f"number {numbers[0]}", len(numbers) - 1


def _of(table: sa.Table, process_id: int) -> sa.Select[Any]:
    return sa.select(table).where(table.c.process_id == process_id)


def _cluster_line(name: str, state: str, facts: schema.ClusterFacts) -> ClusterLine:
    """The line for what the plugin records of a cluster; fields that are missing are left empty."""
    executables = facts.executables or []
    kernels = sorted({entry.kernel for entry in executables if entry.kernel})
    return ClusterLine(
        name=name,
        ops=facts.ops or {},
        instances=facts.instances or 1,
        state=state,
        largest_error=_largest([facts.largest_error, *(entry.largest_error for entry in executables)]),
        over_tolerance=_largest([facts.error_over_tolerance, *(entry.error_over_tolerance for entry in executables)]),
        kernel=", ".join(kernels) or facts.kernel or "",
        scopes=facts.scopes or [],
    )


def _largest(values: Iterable[float | str | None]) -> float | None:
    # numbers that were not finite are strings in JSON ("inf"), which float reads
    return max((float(value) for value in values if value is not None), default=None)
