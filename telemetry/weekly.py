"""What each job, and the fleet, saved in a week: the rows of the database to figures.

A job that crosses a week's boundary is split there: its iterations by the day they ended in (no block of the database crosses
midnight). Its saving per iteration comes from all pairs measured up to the week's end. What stitching cost (tracing, verifying) is
charged to the week in which the job began.

In a distributed job all ranks step together, so the lowest rank's iterations stand for the job, and its devices are all devices.

Once `freeze` has put a week's figures into weekly_rollups and dropped its blocks, the week is read from there; what arrives later
for it is added, and becomes a revision of its own when the week is frozen again.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import re
import time
from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from . import partitions, savings
from .models import PROCESS_KEY, arm_blocks, events, iteration_blocks, job_ends, jobs, weekly_rollups
from .recording import PLAIN, STITCHED, UNCOUNTED
from .rows import LOSS_EVENT
from .savings import Contribution, Saving, Total
from .weeks import Week

HOUR_NS = 3_600 * 10**9
WARM_UP_ITERATIONS = 4
"""Of a job that did not say what stitching cost it: this many first iterations are TensorFlow's own start, and not charged."""

REVERT_EVENTS = ("reverted", "revert")
"""Kinds of the events by which the plugin says that a cluster went back to TensorFlow's own operators."""
FALLBACK_EVENTS = ("plain", "does-not-pay", "memory", "switched-off")
"""Those by which it says that a whole program did."""
FALLBACK_PHASES = ("plain", "reverted")
"""Phases that a job ends in which did so and stayed there."""

ProcessKey = tuple[str, str, int, int, str]
_COUNTS = ("plain_count", "plain_ns", "stitched_count", "stitched_ns", "uncounted_count", "uncounted_ns")


class Status(enum.Enum):
    """What is known of a job's saving."""

    MEASURED = "measured"
    UNMEASURED = "unmeasured"
    """It ran stitched, and too few pairs of blocks say how much that saved."""
    NOT_STITCHED = "not stitched"
    """It saved nothing, and may have paid for the attempt."""


@dataclass(frozen=True)
class JobWeek:
    """One job in one week (or in all its time). Times in nanoseconds of one process; hours are of all the job's devices.

    What follows from its fields is kept: a report of 70,000 jobs asks each for it once a group.
    """

    key: ProcessKey
    """run_id, cluster, attempt, rank, process."""
    namespace: str
    name: str
    user: str
    model_fingerprint: str
    device_kind: str
    device_count: int
    framework: str
    labels: dict[str, str]
    started_ns: int
    ended_ns: int | None
    """None: still running, or killed."""
    phase: str
    reason: str
    plain_count: int
    plain_ns: int
    stitched_count: int
    stitched_ns: int
    uncounted_count: int
    uncounted_ns: int
    overhead_ns: int
    overhead_is_estimate: bool
    saving: Saving | None
    lost: int
    """Records that the process could not keep."""
    fallback: str = ""
    """Why the job as a whole went back to, or stayed with, TensorFlow's own graph; empty: it did not, or nobody said so."""
    reverted: tuple[str, ...] = ()
    """Clusters that the guard took out, on any of the job's ranks."""

    @property
    def run_id(self) -> str:
        return self.key[0]

    @functools.cached_property
    def unit(self) -> str:
        """CPU or GPU: hours of the two are never added up."""
        return "CPU" if self.device_kind == "cpu" else "GPU"

    @property
    def iterations(self) -> int:
        return self.plain_count + self.stitched_count + self.uncounted_count

    @functools.cached_property
    def device_hours(self) -> float:
        """Devices allocated times the time that all iterations took."""
        return self.device_count * (self.plain_ns + self.stitched_ns + self.uncounted_ns) / HOUR_NS

    @property
    def overhead_hours(self) -> float:
        return self.device_count * self.overhead_ns / HOUR_NS

    @functools.cached_property
    def status(self) -> Status:
        if self.stitched_count == 0:
            return Status.NOT_STITCHED
        return Status.UNMEASURED if self.saving is None else Status.MEASURED

    @functools.cached_property
    def saved_hours(self) -> float | None:
        """Of the job in this week, what stitching cost subtracted; negative where it lost. None: unmeasured."""
        if self.status is Status.UNMEASURED:
            return None
        return self._hours(self.saving.saved_ns if self.saving else 0.0)

    @functools.cached_property
    def saved_hours_interval(self) -> tuple[float, float] | None:
        """The 95% interval of saved_hours."""
        if self.status is Status.UNMEASURED:
            return None
        if self.saving is None or self.stitched_count == 0:
            return (-self.overhead_hours, -self.overhead_hours)
        return (self._hours(self.saving.saved_low_ns), self._hours(self.saving.saved_high_ns))

    def _hours(self, saved_ns: float) -> float:
        return self.device_count * self.stitched_count * saved_ns / HOUR_NS - self.overhead_hours

    @functools.cached_property
    def template(self) -> tuple[str, str, str, str]:
        """What this job is a submission of: cluster, namespace, model, and the name without the part that counts runs."""
        return (self.key[1], self.namespace, self.model_fingerprint, _COUNTING_PART.sub("", self.name))

    @functools.cached_property
    def is_slower(self) -> bool:
        """Measured, and the whole interval of what it saved is below zero."""
        interval = self.saved_hours_interval
        return self.status is Status.MEASURED and interval is not None and interval[1] < 0

    def contribution(self) -> Contribution | None:
        """The job's part of the fleet's total; None while unmeasured."""
        return self._contribution

    @functools.cached_property
    def _contribution(self) -> Contribution | None:
        value = self.saved_hours
        if value is None:
            return None
        if self.saving is None or self.stitched_count == 0:
            return Contribution(self.template, value, 0.0, 1.0)
        error = self.device_count * self.stitched_count * self.saving.saved_error_ns / HOUR_NS
        return Contribution(self.template, value, error, float(self.saving.degrees))


_COUNTING_PART = re.compile(r"([-_.](?=[a-z0-9]*\d)[a-z0-9]+)+$")
"""-17, -20261121, -x7k2p at a name's end."""


@dataclass(frozen=True)
class UnitTotal:
    """Figures of the fleet or a group of its jobs, for one unit, CPU or GPU; hours are device-hours."""

    unit: str
    saved: Total
    device_hours: float
    jobs: int
    """All that ran with stitching enabled."""
    measured: int
    not_stitched: int
    unmeasured: int
    unmeasured_device_hours: float
    unmeasured_overhead_hours: float
    overhead_hours: float
    """Of the jobs in the total; subtracted already."""
    slower: int
    """Measured jobs whose whole interval is below zero."""
    fell_back: int
    """Jobs that went back to, or stayed with, TensorFlow's own graph; measured or not."""
    reverted: int
    """Jobs of which the guard took a cluster out."""


@dataclass(frozen=True)
class WeekReport:
    """A week's jobs, those with the most device-hours first, and what they add up to."""

    week: Week
    revision: int
    """0: from the blocks themselves; n: the week was frozen n times."""
    made_ns: int
    jobs: list[JobWeek]

    @property
    def is_over(self) -> bool:
        return self.made_ns >= self.week.end_ns

    def totals(self) -> list[UnitTotal]:
        return [unit_total(unit, [job for job in self.jobs if job.unit == unit]) for unit in self.units]

    @property
    def units(self) -> list[str]:
        return sorted({job.unit for job in self.jobs})


def unit_total(unit: str, members: Sequence[JobWeek]) -> UnitTotal:
    """Adds up jobs that are all of the unit."""
    unmeasured = [job for job in members if job.status is Status.UNMEASURED]
    return UnitTotal(
        unit=unit,
        saved=savings.total(part for job in members if (part := job.contribution()) is not None),
        device_hours=sum(job.device_hours for job in members),
        jobs=len(members),
        measured=sum(job.status is Status.MEASURED for job in members),
        not_stitched=sum(job.status is Status.NOT_STITCHED for job in members),
        unmeasured=len(unmeasured),
        unmeasured_device_hours=sum(job.device_hours for job in unmeasured),
        unmeasured_overhead_hours=sum(job.overhead_hours for job in unmeasured),
        overhead_hours=sum(job.overhead_hours for job in members if job.status is not Status.UNMEASURED),
        slower=sum(job.is_slower for job in members),
        fell_back=sum(bool(job.fallback) for job in members),
        reverted=sum(bool(job.reverted) for job in members),
    )


# ---- reading ----------------------------------------------------------------------------------------------------------------


def week_report(connection: sa.Connection, week: Week) -> WeekReport:
    """The report of a week, from what the database holds now."""
    revision = connection.scalar(
        sa.select(sa.func.max(weekly_rollups.c.revision)).where(weekly_rollups.c.week == str(week))
    )
    found = one_process_for_each_job(processes(connection, week))
    return WeekReport(week, revision or 0, time.time_ns(), found)


def one_process_for_each_job(entries: Iterable[JobWeek]) -> list[JobWeek]:
    """The process that stands for each job: of the lowest rank the one with the most time. Most device-hours first."""
    best: dict[tuple[str, str, int], JobWeek] = {}
    for entry in entries:
        job = entry.key[:3]
        if job not in best or _rank_order(entry) < _rank_order(best[job]):
            best[job] = entry
    return sorted(best.values(), key=lambda entry: (-entry.device_hours, entry.key))


def _rank_order(entry: JobWeek) -> tuple[bool, int, float, str]:
    return (entry.iterations == 0, entry.key[3], -entry.device_hours, entry.key[4])


def processes(connection: sa.Connection, week: Week | None) -> list[JobWeek]:
    """All training processes that ran or began in the week; None: all there are, in all their time."""
    sums, stored, with_blocks = _sums(connection, week)
    members = _members(connection, week, set(sums))
    # a frozen week says what it said: only who has blocks again since then is measured anew
    pairs = _pair_means(connection, week) if week is None or with_blocks else {}
    lost = _lost(connection)
    reverted, fallbacks = _reverted(connection, week, members), _fallbacks(connection, week, members)
    found = []
    for row in members:
        key = _key(row)
        counts = sums.get(key, dict.fromkeys(_COUNTS, 0))
        saving = stored[key].saving if key in stored else None
        if week is None or key not in stored or key in with_blocks:
            saving = savings.estimate_from_means(pairs.get(key, [])) or saving
        begun_here = week is None or week.start_ns <= row["started_ns"] < week.end_ns
        overhead, is_estimate = 0, False
        if begun_here and row["overhead_ns"] is not None:
            overhead = row["overhead_ns"]
        elif begun_here and counts["stitched_count"] > 0:
            frozen_overhead = stored[key].overhead_ns if key in stored else 0
            overhead = frozen_overhead or _estimated_overhead(connection, key, counts, saving)
            is_estimate = True
        found.append(
            JobWeek(
                key=key,
                namespace=row["namespace"],
                name=row["name"],
                user=row["user"],
                model_fingerprint=row["model_fingerprint"],
                device_kind=row["device_kind"],
                device_count=row["device_count"],
                framework=f"{row['framework']} {row['framework_version']}".strip(),
                labels=json.loads(row["labels"]),
                started_ns=row["started_ns"],
                ended_ns=row["ended_ns"],
                phase=row["phase"] or "",
                reason=row["reason"] or "",
                overhead_ns=overhead,
                overhead_is_estimate=is_estimate,
                saving=saving,
                lost=lost.get(key, 0),
                fallback=_fallback(row, fallbacks.get(key, "")),
                reverted=tuple(sorted(reverted.get(key[:3], ()))),
                **counts,
            )
        )
    return found


def _key(row: Any) -> ProcessKey:
    return (row["run_id"], row["cluster"], row["attempt"], row["rank"], row["process"])


def _key_columns(table: sa.Table) -> list[sa.Column[Any]]:
    return [table.c[name] for name in PROCESS_KEY]


@dataclass(frozen=True)
class _Stored:
    """What a frozen week says of a process beside its counts."""

    saving: Saving | None
    overhead_ns: int


def _sums(
    connection: sa.Connection, week: Week | None
) -> tuple[dict[ProcessKey, dict[str, int]], dict[ProcessKey, _Stored], set[ProcessKey]]:
    """Counts and times by arm, of the blocks and of the frozen weeks whose blocks are gone; what else those say; who has blocks."""
    blocks = sa.select(*_key_columns(iteration_blocks), *(_sum(iteration_blocks.c[n]) for n in _COUNTS))
    if week is not None:
        blocks = blocks.where(iteration_blocks.c.day >= week.first_day, iteration_blocks.c.day < week.end_day)
    latest = (
        sa.select(
            *_key_columns(weekly_rollups),
            weekly_rollups.c.week,
            sa.func.max(weekly_rollups.c.revision).label("revision"),
        )
        .group_by(*_key_columns(weekly_rollups), weekly_rollups.c.week)
        .subquery()
    )
    same = [weekly_rollups.c[name] == latest.c[name] for name in (*PROCESS_KEY, "week", "revision")]
    frozen = sa.select(weekly_rollups).join(latest, sa.and_(*same)).order_by(weekly_rollups.c.week)
    if week is not None:
        frozen = frozen.where(weekly_rollups.c.week == str(week))
    sums: dict[ProcessKey, dict[str, int]] = defaultdict(lambda: dict.fromkeys(_COUNTS, 0))
    stored: dict[ProcessKey, _Stored] = {}
    with_blocks: set[ProcessKey] = set()
    for statement in (frozen, blocks.group_by(*_key_columns(iteration_blocks))):
        for row in connection.execute(statement).mappings():
            target = sums[_key(row)]
            for name in _COUNTS:
                target[name] += row[name]
            if "saving" in row:
                saving = Saving(**json.loads(row["saving"])) if row["saving"] is not None else None
                before = stored.get(_key(row))
                stored[_key(row)] = _Stored(
                    saving or (before.saving if before else None),
                    row["overhead_ns"] + (before.overhead_ns if before else 0),
                )
            else:
                with_blocks.add(_key(row))
    return dict(sums), stored, with_blocks


def _sum(column: sa.Column[Any]) -> sa.Label[int]:
    # PostgreSQL's sum of a bigint is a numeric
    return sa.cast(sa.func.sum(column), sa.BigInteger).label(column.name)


def _members(connection: sa.Connection, week: Week | None, with_iterations: set[ProcessKey]) -> list[Any]:
    same = sa.and_(*(jobs.c[name] == job_ends.c[name] for name in PROCESS_KEY))
    columns = (job_ends.c.ended_ns, job_ends.c.phase, job_ends.c.reason, job_ends.c.overhead_ns)
    statement = sa.select(jobs, *columns).join(job_ends, same, isouter=True)
    if week is not None:
        # nobody runs in a week who began after it
        statement = statement.where(jobs.c.started_ns < week.end_ns)
    return [
        row
        for row in connection.execute(statement).mappings()
        if week is None or row["started_ns"] >= week.start_ns or _key(row) in with_iterations
    ]


def _pair_means(connection: sa.Connection, week: Week | None) -> dict[ProcessKey, list[tuple[float, float]]]:
    """(plain, stitched) mean of each complete pair, by process."""
    plain, stitched = arm_blocks.alias(), arm_blocks.alias()
    same = [plain.c[name] == stitched.c[name] for name in (*PROCESS_KEY, "pair")]
    statement = (
        sa.select(*_key_columns_of(plain), plain.c.mean_ns.label("plain"), stitched.c.mean_ns.label("stitched"))
        .join(stitched, sa.and_(*same))
        .where(plain.c.arm == PLAIN, stitched.c.arm == STITCHED)
        .order_by(*_key_columns_of(plain), plain.c.pair)
    )
    if week is not None:
        statement = statement.where(plain.c.ended_ns < week.end_ns, stitched.c.ended_ns < week.end_ns)
    found: dict[ProcessKey, list[tuple[float, float]]] = defaultdict(list)
    for run_id, cluster, attempt, rank, process, *means in connection.execute(statement):
        found[run_id, cluster, attempt, rank, process].append((means[0], means[1]))
    return found


def _key_columns_of(alias: Any) -> list[sa.Column[Any]]:
    return [alias.c[name] for name in PROCESS_KEY]


def _lost(connection: sa.Connection) -> dict[ProcessKey, int]:
    found: dict[ProcessKey, int] = {}
    statement = sa.select(*_key_columns(events), events.c.facts).where(events.c.kind == LOSS_EVENT)
    for row in connection.execute(statement).mappings():
        found[_key(row)] = max(found.get(_key(row), 0), int(json.loads(row["facts"]).get("lost", 0)))
    return found


def _events_of(
    connection: sa.Connection, kinds: Sequence[str], week: Week | None, members: Sequence[Any]
) -> Iterable[Any]:
    """Events of some kinds up to the week's end, of processes in `members` and maybe others, in order of time."""
    # nothing happened in a process before it began: what is older is of others
    since = min((row["started_ns"] for row in members), default=0)
    statement = sa.select(events).where(events.c.kind.in_(kinds), events.c.time_ns >= since).order_by(events.c.time_ns)
    if week is not None:
        statement = statement.where(events.c.time_ns < week.end_ns)
    return connection.execute(statement).mappings()


def _reverted(
    connection: sa.Connection, week: Week | None, members: Sequence[Any]
) -> dict[tuple[str, str, int], set[str]]:
    """Names of the clusters that the guard took out, by job."""
    found: dict[tuple[str, str, int], set[str]] = defaultdict(set)
    for row in _events_of(connection, REVERT_EVENTS, week, members):
        found[_key(row)[:3]].add(str(json.loads(row["facts"]).get("cluster", "")) or row["message"])
    return found


def _fallbacks(connection: sa.Connection, week: Week | None, members: Sequence[Any]) -> dict[ProcessKey, str]:
    """What a process last said of going back to plain."""
    return {_key(row): row["message"] for row in _events_of(connection, FALLBACK_EVENTS, week, members)}


def _fallback(row: Any, said: str) -> str:
    """The phase in which a process ended tells whether it fell back; of one that ended without a word, what it said before."""
    if row["ended_ns"] is None:
        return said
    return (row["reason"] or said or "no reason was given") if row["phase"] in FALLBACK_PHASES else ""


def _estimated_overhead(
    connection: sa.Connection, key: ProcessKey, counts: dict[str, int], saving: Saving | None
) -> int:
    """For a process that ended without a word: what its uncounted iterations took beyond plain ones, without the warm-up's."""
    typical = (
        saving.plain_ns if saving else counts["plain_ns"] / counts["plain_count"] if counts["plain_count"] else None
    )
    if typical is None:
        return 0
    first = connection.execute(
        sa.select(iteration_blocks.c.arms, iteration_blocks.c.durations)
        .where(*(iteration_blocks.c[name] == value for name, value in zip(PROCESS_KEY, key, strict=True)))
        .order_by(iteration_blocks.c.day, iteration_blocks.c.sequence)
        .limit(1)
    ).first()
    count, spent = counts["uncounted_count"], float(counts["uncounted_ns"])
    if first is not None:
        durations = array("f", first.durations)
        arms = [arm for _, length, arm in json.loads(first.arms) for _ in range(length)]
        for arm, duration in list(zip(arms, durations, strict=True))[:WARM_UP_ITERATIONS]:
            if arm == UNCOUNTED:
                count, spent = count - 1, spent - duration * 1e3
    return max(0, round(spent - count * typical))


# ---- freezing ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Frozen:
    """What `freeze` did to one week."""

    week: Week
    revision: int
    processes: int
    blocks: int


def freeze(connection: sa.Connection, before_day: int) -> list[Frozen]:
    """Puts the figures of each week that ended by `before_day` into weekly_rollups and drops its iteration blocks.

    In the caller's transaction: either both happen or neither.
    """
    partitions.hold_writers(connection)
    days = connection.scalars(
        sa.select(iteration_blocks.c.day).where(iteration_blocks.c.day < before_day).distinct()
    ).all()
    done = []
    for week in sorted({Week.of_day(day) for day in days}):
        if week.end_day > before_day:
            continue
        last = connection.scalar(
            sa.select(sa.func.max(weekly_rollups.c.revision)).where(weekly_rollups.c.week == str(week))
        )
        revision = (last or 0) + 1
        entries = processes(connection, week)
        if entries:
            connection.execute(sa.insert(weekly_rollups), [_rollup(entry, week, revision) for entry in entries])
        done.append(Frozen(week, revision, len(entries), _drop_blocks(connection, week)))
    empty = [day for day in partitions.existing(connection) if Week.of_day(day).end_day <= before_day]
    partitions.drop(connection, empty)
    return done


def _drop_blocks(connection: sa.Connection, week: Week) -> int:
    """Drops a week's blocks; returns how many there were."""
    of_week = (iteration_blocks.c.day >= week.first_day, iteration_blocks.c.day < week.end_day)
    if not partitions.is_partitioned(connection):
        return connection.execute(sa.delete(iteration_blocks).where(*of_week)).rowcount
    count = connection.scalar(sa.select(sa.func.count()).select_from(iteration_blocks).where(*of_week)) or 0
    partitions.drop(connection, range(week.first_day, week.end_day))
    return count


def _rollup(entry: JobWeek, week: Week, revision: int) -> dict[str, Any]:
    row: dict[str, Any] = dict(zip(PROCESS_KEY, entry.key, strict=True))
    row |= {name: getattr(entry, name) for name in (*_COUNTS, "overhead_ns")}
    return row | {
        "week": str(week),
        "revision": revision,
        "overhead_is_estimate": int(entry.overhead_is_estimate),
        "pairs": entry.saving.pairs if entry.saving else 0,
        "saving": json.dumps(dataclasses.asdict(entry.saving)) if entry.saving else None,
        "method": savings.METHOD,
    }
