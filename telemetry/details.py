"""What the pages show of one job beyond its figures: its iterations over time, its clusters, its events."""

from __future__ import annotations

import json
from array import array
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from .models import clusters, events, functions, iteration_blocks
from .weeks import Week

MAX_EVENTS = 200


@dataclass(frozen=True)
class ClusterLine:
    """One kind of cluster, as the job saw it at its end."""

    name: str
    ops: dict[str, int]
    instances: int
    state: str
    largest_error: float | None
    """Largest absolute difference from TensorFlow's own result."""
    over_tolerance: float | None
    """The largest difference as a share of what is allowed; above 1 it is reverted."""
    kernel: str
    scopes: list[str]


@dataclass(frozen=True)
class EventLine:
    """Something that happened."""

    time_ns: int
    kind: str
    message: str


@dataclass(frozen=True)
class Detail:
    """One process. steps, arms and durations (milliseconds) are of its iterations, in order of time; of a process with several
    training functions those of the one that took most of the time, whose name `function` is then."""

    steps: list[int] = field(default_factory=list)
    arms: list[int] = field(default_factory=list)
    durations_ms: array[float] = field(default_factory=lambda: array("f"))
    clusters: list[ClusterLine] = field(default_factory=list)
    events: list[EventLine] = field(default_factory=list)
    function: str = ""
    other_functions: int = 0


def detail(connection: sa.Connection, process_id: int, week: Week | None) -> Detail:
    """The details of one process, its iterations those of the week."""
    of_week = () if week is None else (iteration_blocks.c.day >= week.first_day, iteration_blocks.c.day < week.end_day)
    shown, name, others = _longest_function(connection, process_id, of_week)
    found = Detail(function=name, other_functions=others)
    statement = _of(iteration_blocks, process_id).where(*of_week, iteration_blocks.c.function == shown)
    statement = statement.order_by(iteration_blocks.c.day, iteration_blocks.c.sequence)
    for row in connection.execute(statement):
        found.steps.extend(range(row.first_step, row.first_step + row.stride * (len(row.durations) // 4), row.stride))
        found.arms.extend(arm for _, count, arm in json.loads(row.arms) for _ in range(count))
        found.durations_ms.extend(value / 1e3 for value in array("f", row.durations))
    latest: dict[str, Any] = {}
    for row in connection.execute(_of(clusters, process_id).order_by(clusters.c.sequence)):
        latest[row.name] = row
    found.clusters.extend(_cluster_line(row.name, row.state, json.loads(row.facts)) for row in latest.values())
    found.clusters.sort(key=lambda line: -line.instances * sum(line.ops.values()))
    recent = _of(events, process_id).order_by(events.c.sequence.desc()).limit(MAX_EVENTS)
    found.events.extend(
        EventLine(row.time_ns, row.kind, row.message) for row in reversed(connection.execute(recent).all())
    )
    return found


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


def _cluster_line(name: str, state: str, facts: dict[str, Any]) -> ClusterLine:
    """From what the plugin records of a cluster; what it does not say is left empty."""
    executables = [entry for entry in facts.get("executables") or [] if isinstance(entry, dict)]
    ops = facts.get("ops")
    counts: dict[str, int] = defaultdict(int)
    if isinstance(ops, dict):
        for op, count in ops.items():
            counts[str(op)] += int(count)
    kernels = sorted({str(entry["kernel"]) for entry in executables if entry.get("kernel")})
    return ClusterLine(
        name=name,
        ops=dict(counts),
        instances=int(facts.get("instances") or 1),
        state=state,
        largest_error=_largest(facts, executables, "largest_error"),
        over_tolerance=_largest(facts, executables, "error_over_tolerance"),
        kernel=", ".join(kernels) or str(facts.get("kernel") or ""),
        scopes=[str(scope) for scope in facts.get("scopes") or []],
    )


def _largest(facts: dict[str, Any], executables: list[dict[str, Any]], name: str) -> float | None:
    # numbers that were not finite are words in JSON ("inf"), which float reads
    seen = [float(entry[name]) for entry in (facts, *executables) if entry.get(name) is not None]
    return max(seen) if seen else None
