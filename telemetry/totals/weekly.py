"""What each job, and the fleet, saved in a week: from the rows of the database to figures.

A job that crosses a week's boundary is split there: its iterations by the day on which they ended (no block of the database crosses
midnight). Its saving per iteration comes from all pairs measured up to the week's end. The cost of stitching (tracing, verifying) is
charged to the week in which the job began.

In a distributed job all ranks step together, so the lowest rank's iterations stand for the job, and its devices are all devices. Each
process of that rank that trained counts separately: of a script's two trainings, one after the other, both are counted
(docs/counting.md).

Rows that cannot be read, written by hand or before records had a schema, are left out and counted; the report says how many.

After freezing has written a week's figures into weekly_rollups, the week is read from there. If data arrives later, this is noted,
and the week's figures are computed anew (if its blocks are gone, from what was stored and what arrived); freezing again makes that
a revision.
"""

from __future__ import annotations

import enum
import functools
import json
import math
import re
import time
from array import array
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa

from ..database import schema
from ..database.models import (
    MAX_ASKED,
    PROCESS_KEY,
    arm_blocks,
    events,
    frozen_weeks,
    iteration_blocks,
    job_ends,
    jobs,
    weekly_rollups,
)
from ..database.rows import FALLBACK_EVENTS, REVERT_EVENTS, LossCount, unit_of
from ..database.schema import LOSS_EVENT, InvalidRecordError
from ..database.weeks import Week
from ..pod.garbage import not_collected
from ..pod.recording import MAX_DURATION_NS, PLAIN, STITCHED, UNCOUNTED
from ..pod.spool import AFTER_DEATH
from ..statistics import savings
from ..statistics.savings import Contribution, Saving, Total

HOUR_NS = 3_600 * 10**9
WARM_UP_ITERATIONS = 4
"""For a job that did not report the cost of stitching: this many first iterations are TensorFlow's own start-up, and not charged."""

FALLBACK_PHASES = ("plain", "reverted")
"""Final phases of jobs that fell back and stayed so."""
STITCHED_PHASE = "stitched"
"""Final phase of a job that ran stitched to its end."""


class ProcessKey(NamedTuple):
    """The values of models.PROCESS_KEY."""

    run_id: str
    cluster: str
    namespace: str
    attempt: int
    rank: int
    process: str

    @property
    def job(self) -> JobKey:
        """The key of the job to which the process belongs."""
        return self[:4]


JobKey = tuple[str, str, str, int]
MAX_ROLLUP = (1 << 63) - 1
"""Larger sums, which only rows from before the schema give, are stored as this."""
COUNTS = ("plain_count", "plain_ns", "stitched_count", "stitched_ns", "uncounted_count", "uncounted_ns")


class Status(enum.Enum):
    """What is known of a job's saving."""

    MEASURED = "measured"
    UNMEASURED = "unmeasured"
    """It ran stitched, but has too few pairs of blocks to measure the saving."""
    NOT_STITCHED = "not stitched"
    """It saved nothing, and may have paid for the attempt."""


@dataclass(frozen=True, slots=True)
class JobWeek:
    """One job in one week (or over all its time). Times are nanoseconds of one process; hours are of all the job's devices.

    Derived values are computed once: a report of 70,000 jobs reads them once per group.
    """

    process_id: int
    key: ProcessKey
    namespace: str
    name: str
    user: str
    model_fingerprint: str
    device_kind: str
    device_count: int
    framework: str
    labels: Mapping[str, str]
    started_ns: int
    ended_ns: int | None
    """None: it is still running, or was killed."""
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
    """Number of records that the process could not keep."""
    fallback: str = ""
    """Why the whole job went back to, or stayed with, TensorFlow's own graph; empty if it did not, or did not say so."""
    reverted: tuple[str, ...] = ()
    """Names of the clusters that the guard reverted, on any of the job's ranks."""
    functions: tuple[tuple[int, int, int], ...] = field(default=(), compare=False)
    """(number, stitched iterations, their nanoseconds) of each training function of the process; empty if read from a revision."""
    apart: tuple[int, ...] = ()
    """Ranks that ended otherwise than this process: stitched although it ended plain, or plain although it ended stitched."""

    unit: str = field(init=False)
    """CPU or GPU: hours of the two are never added."""
    status: Status = field(init=False)
    device_hours: float = field(init=False)
    """Number of allocated devices times the time of all iterations."""
    overhead_hours: float = field(init=False)
    contribution: Contribution | None = field(init=False)
    """The job's part of the fleet's total; None if it is unmeasured."""
    is_slower: bool = field(init=False)
    """Whether it is measured and the whole interval of its saving is below zero."""

    def __post_init__(self) -> None:
        found = functools.partial(object.__setattr__, self)
        found("unit", unit_of(self.device_kind))
        found("device_hours", self.device_count * (self.plain_ns + self.stitched_ns + self.uncounted_ns) / HOUR_NS)
        found("overhead_hours", self.device_count * self.overhead_ns / HOUR_NS)
        found("status", self._status())
        found("contribution", self._contribution())
        interval = self.saved_hours_interval if self.status is Status.MEASURED else None
        found("is_slower", interval is not None and interval[1] < 0)

    def _status(self) -> Status:
        if self.stitched_count == 0:
            return Status.NOT_STITCHED
        return Status.UNMEASURED if self.saving is None else Status.MEASURED

    @property
    def run_id(self) -> str:
        """The id of the run, the same in all processes of the job."""
        return self.key.run_id

    @property
    def iterations(self) -> int:
        """Number of iterations of all arms."""
        return self.plain_count + self.stitched_count + self.uncounted_count

    @property
    def saved_hours(self) -> float | None:
        """Device-hours that the job saved in this week, minus the cost of stitching; negative if it lost time. None: unmeasured."""
        return None if self.contribution is None else self.contribution.value

    @property
    def saved_hours_interval(self) -> tuple[float, float] | None:
        """The 95% interval of saved_hours, in device-hours; None: unmeasured."""
        if self.contribution is None:
            return None
        if self.saving is None or self.stitched_count == 0:
            return (-self.overhead_hours, -self.overhead_hours)
        return (self._hours(self.saving.saved_low_ns), self._hours(self.saving.saved_high_ns))

    def _hours(self, saved_ns: float) -> float:
        return self.device_count * self.stitched_count * saved_ns / HOUR_NS - self.overhead_hours

    @property
    def template(self) -> JobTemplate:
        """What this job is a submission of: cluster, namespace, model, and the name without the part that numbers runs."""
        return (self.key.cluster, self.namespace, self.model_fingerprint, without_counts(self.name))

    def _contribution(self) -> Contribution | None:
        if self.status is Status.UNMEASURED:
            return None
        if self.saving is None or self.stitched_count == 0:
            return Contribution(self.template, self._hours(0.0), 0.0, 1.0)
        error = self.device_count * self.stitched_count * self.saving.saved_error_ns / HOUR_NS
        return Contribution(self.template, self._hours(self.saving.saved_ns), error, float(self.saving.degrees))


JobTemplate = tuple[str, str, str, str]
_COUNT = re.compile(r"[a-z]*\d[a-z0-9]*")
_SEPARATOR = re.compile(r"[-_.](?=[^-_.]*\Z)")


def without_counts(name: str) -> str:
    """The name without a suffix such as -17, _20261121 or .x7k2p, which tells one submission's name from the next."""
    while (last := _SEPARATOR.search(name)) is not None and _COUNT.fullmatch(name, last.end()):
        name = name[: last.start()]
    return name


@dataclass(frozen=True)
class UnitTotal:
    """Figures of the fleet or a group of its jobs, for one unit (CPU or GPU); hours are device-hours."""

    unit: str
    saved: Total
    device_hours: float
    jobs: int
    """All jobs that ran with stitching enabled."""
    measured: int
    not_stitched: int
    unmeasured: int
    unmeasured_device_hours: float
    unmeasured_overhead_hours: float
    overhead_hours: float
    """Overhead of the jobs in the total; it is subtracted already."""
    slower: int
    """Measured jobs whose whole interval is below zero."""
    fell_back: int
    """Jobs that went back to, or stayed with, TensorFlow's own graph, measured or not."""
    reverted: int
    """Jobs of which the guard reverted a cluster."""


@dataclass(frozen=True)
class WeekReport:
    """A week's jobs, those with the most device-hours first, and their totals."""

    week: Week
    revision: int
    """0: never frozen; n: the week was frozen n times."""
    made_ns: int
    jobs: list[JobWeek]
    has_late_data: bool = False
    """Whether data came after the latest revision; the figures contain it."""
    unreadable: int = 0
    """Number of rows of the database that were left out because they cannot be read. Of a superseded revision, those that were
    read just now: what was left out when it was made is not kept."""
    is_superseded: bool = False
    """Whether the week has a later revision."""

    @property
    def is_over(self) -> bool:
        """Whether the week had ended when the report was made."""
        return self.made_ns >= self.week.end_ns

    def totals(self) -> list[UnitTotal]:
        """The total of each unit."""
        return list(self._totals)

    @functools.cached_property
    def _totals(self) -> list[UnitTotal]:
        return [self.columns(unit).total(unit) for unit in self.units]

    def columns(self, unit: str) -> Columns:
        """The figures of a unit's jobs, in the order of `members`; computed once."""
        found = self._columns.get(unit)
        if found is None:
            found = self._columns[unit] = Columns(self.members(unit))
        return found

    @functools.cached_property
    def _columns(self) -> dict[str, Columns]:
        return {}

    @property
    def units(self) -> list[str]:
        """The units that have jobs: CPU, GPU or both."""
        return sorted(self._by_unit)

    def members(self, unit: str) -> list[JobWeek]:
        """The jobs of a unit, those with the most device-hours first; empty if it has none."""
        return self._by_unit.get(unit, [])

    @functools.cached_property
    def _by_unit(self) -> dict[str, list[JobWeek]]:
        found: dict[str, list[JobWeek]] = defaultdict(list)
        for job in self.jobs:
            found[job.unit].append(job)
        return dict(found)


def unit_total(unit: str, members: Sequence[JobWeek]) -> UnitTotal:
    """Adds up jobs that all have the unit `unit`."""
    return Columns(members).total(unit)


class Columns:
    """The figures of many jobs as arrays, one per figure. A large fleet's jobs are added up once for each dimension by which they
    are grouped, and reading the figures from the jobs takes ten times as long as adding them."""

    def __init__(self, members: Sequence[JobWeek]) -> None:
        import numpy as np

        def floats(values: Iterable[float]) -> Any:
            return np.fromiter(values, np.float64, len(members))

        parts = [job.contribution for job in members]
        self._values = [part.value if part else 0.0 for part in parts]
        self._errors = floats(part.error if part else 0.0 for part in parts)
        self._degrees = floats(part.degrees if part else 1.0 for part in parts)
        codes: dict[Hashable, int] = {}
        self._templates = np.array([codes.setdefault(part.template, len(codes)) if part else 0 for part in parts], int)
        self._in_total = np.array([part is not None for part in parts], bool)
        self._measured = np.array([job.status is Status.MEASURED for job in members], bool)
        self._device_hours = floats(job.device_hours for job in members)
        self._overhead_hours = floats(job.overhead_hours for job in members)
        self._slower = np.array([job.is_slower for job in members], bool)
        self._fell_back = np.array([bool(job.fallback) for job in members], bool)
        self._reverted = np.array([bool(job.reverted) for job in members], bool)

    def total(self, unit: str) -> UnitTotal:
        """The total of all jobs. unit: "CPU" or "GPU"."""
        return self.totals(unit, [0] * len(self._values), 1)[0]

    def totals(self, unit: str, groups: Sequence[int], count: int) -> list[UnitTotal]:
        """The totals of `count` groups. groups: the group of each job, from 0. Jobs are added in their order, whatever their
        groups."""
        import numpy as np

        of = np.asarray(groups, int)

        def added(column: Any, where: Any = None) -> list[Any]:
            """Sums of floats, or numbers of true values, by group."""
            if column.dtype == bool:
                return list(np.bincount(of[column], minlength=count).tolist())
            chosen, what = (of, column) if where is None else (of[where], column[where])
            return list(np.bincount(chosen, weights=what, minlength=count).tolist())

        columns = {
            "device_hours": added(self._device_hours),
            "jobs": np.bincount(of, minlength=count).tolist(),
            "measured": added(self._measured),
            "not_stitched": added(self._in_total & ~self._measured),
            "unmeasured": added(~self._in_total),
            "unmeasured_device_hours": added(self._device_hours, ~self._in_total),
            "unmeasured_overhead_hours": added(self._overhead_hours, ~self._in_total),
            "overhead_hours": added(self._overhead_hours, self._in_total),
            "slower": added(self._slower),
            "fell_back": added(self._fell_back),
            "reverted": added(self._reverted),
        }
        saved = self._saved(of, count)
        return [
            UnitTotal(unit=unit, saved=saved[group], **{name: column[group] for name, column in columns.items()})
            for group in range(count)
        ]

    def _saved(self, of: Any, count: int) -> list[Total]:
        """As savings.total of each group's contributions."""
        import numpy as np

        mine = self._in_total
        templates = int(self._templates.max(initial=0)) + 1
        pairs, where = np.unique(of[mine] * templates + self._templates[mine], return_inverse=True)
        errors = np.bincount(where, weights=self._errors[mine])
        uncertainties = np.bincount(where, weights=self._errors[mine] / np.sqrt(self._degrees[mine]))
        of_templates: list[list[tuple[float, float]]] = [[] for _ in range(count)]
        for group, *sums in zip((pairs // templates).tolist(), errors.tolist(), uncertainties.tolist()):
            of_templates[group].append((sums[0], sums[1]))
        values: list[list[float]] = [[] for _ in range(count)]
        for group, value, is_in in zip(of.tolist(), self._values, mine.tolist()):
            if is_in:
                values[group].append(value)
        return [
            savings.combined(math.fsum(values[group]), len(values[group]), of_templates[group])
            for group in range(count)
        ]


# ---- reading ----------------------------------------------------------------------------------------------------------------


class RevisionError(ValueError):
    """The week has no such revision."""

    EXIT_STATUS = 3
    """Exit status of the process that makes a report's document, if this error ends it."""


def week_report(connection: sa.Connection, week: Week, revision: int | None = None) -> WeekReport:
    """The report of a week from what the database holds now, or as one of its revisions has it. Raises RevisionError."""
    frozen = connection.execute(sa.select(frozen_weeks).where(frozen_weeks.c.week == str(week))).first()
    latest = frozen.revision if frozen else 0
    if revision is not None and not 1 <= revision <= latest:
        known = f"the latest is {latest}" if latest else "it is not frozen yet"
        raise RevisionError(f"{week} has no revision {revision}: {known}")
    if frozen is None or (revision is None and frozen.has_late_data):
        found = processes(connection, week)
        return WeekReport(week, latest, time.time_ns(), standing(found.jobs), frozen is not None, found.unreadable)
    shown = latest if revision is None else revision
    mine = frozen_jobs(connection, week, shown)
    unreadable = mine.unreadable + (frozen.unreadable_rows if shown == latest else 0)
    return WeekReport(week, shown, time.time_ns(), mine.jobs, unreadable=unreadable, is_superseded=shown < latest)


def settled_revisions(connection: sa.Connection) -> dict[Week, int]:
    """Frozen weeks for which no data came since, with their revision: their reports no longer change."""
    statement = sa.select(frozen_weeks.c.week, frozen_weeks.c.revision).where(frozen_weeks.c.has_late_data == 0)
    return {Week.parse(row.week): row.revision for row in connection.execute(statement)}


@dataclass(frozen=True)
class Read:
    """The jobs that were made of the rows of the database, and how many rows could not be read."""

    jobs: list[JobWeek]
    unreadable: int


def frozen_jobs(connection: sa.Connection, week: Week, revision: int) -> Read:
    """A revision's jobs, each given by the processes that stand for it. Most device-hours first."""
    of_revision = (weekly_rollups.c.week == str(week), weekly_rollups.c.revision == revision)
    statement = (
        sa.select(
            *_ABOUT, *(weekly_rollups.c[name] for name in (*STORED, "overhead_is_estimate", "saving", "reverted"))
        )
        .join(weekly_rollups, weekly_rollups.c.process_id == jobs.c.process_id)
        .where(*of_revision, weekly_rollups.c.stands_for_job == 1)
    )
    others = (
        sa.select(*(jobs.c[name] for name in PROCESS_KEY), weekly_rollups.c.phase)
        .join(weekly_rollups, weekly_rollups.c.process_id == jobs.c.process_id)
        .where(*of_revision, weekly_rollups.c.stands_for_job == 0, weekly_rollups.c.ended_ns.is_not(None))
    )
    found, unreadable = [], 0
    with not_collected():
        ended: dict[JobKey, list[tuple[int, str]]] = defaultdict(list)
        for *key, phase in connection.execute(others.execution_options(yield_per=ROWS_AT_ONCE)):
            whole = ProcessKey(*key)
            ended[whole.job].append((whole.rank, phase))
        for row in connection.execute(statement).all():
            try:
                job = _frozen_job(row)
                found.append(_beside(job, ended[job.key.job]) if job.key.job in ended else job)
            except UNREADABLE:
                unreadable += 1
    return Read(sorted(found, key=_report_order), unreadable)


UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError)
"""Errors that reading an invalid row may raise."""


STORED = (*COUNTS, "overhead_ns", "ended_ns", "phase", "reason", "fallback", "lost")
"""Fields of a JobWeek that are columns of weekly_rollups, unchanged."""


def _frozen_job(row: Any) -> JobWeek:
    # by position: a fleet has many jobs, and looking up each value by name would take longer than everything else
    is_estimate, saving, reverted = row[-3:]
    return JobWeek(
        **_about(row),
        **dict(zip(STORED, row[len(_ABOUT) : -3], strict=True)),
        overhead_is_estimate=bool(is_estimate),
        saving=_saving(saving),
        reverted=_names(reverted),
    )


def standing(entries: Iterable[JobWeek]) -> list[JobWeek]:
    """The processes that stand for their jobs: of the lowest rank that trained, all processes that did. Most device-hours first.

    For a job in which no process trained, one process of the lowest rank.
    """
    of_jobs: dict[JobKey, list[JobWeek]] = defaultdict(list)
    for entry in entries:
        of_jobs[entry.key.job].append(entry)
    found: list[JobWeek] = []
    for mine in of_jobs.values():
        if len(mine) > 1:
            first = min(mine, key=_rank_order)
            ended = [(entry.key.rank, entry.phase) for entry in mine if entry.ended_ns is not None]
            mine = [
                _beside(entry, ended)
                for entry in mine
                if entry is first or (entry.iterations and entry.key.rank == first.key.rank)
            ]
        found += mine
    return sorted(found, key=_report_order)


def _beside(job: JobWeek, ended: Iterable[tuple[int, str]]) -> JobWeek:
    """The job with the ranks that ended otherwise. ended: (rank, final phase) of the job's processes that ended."""
    if job.ended_ns is None:
        return job
    is_stitched = job.phase == STITCHED_PHASE
    apart = {rank for rank, phase in ended if rank != job.key.rank and (phase == STITCHED_PHASE) is not is_stitched}
    return replace(job, apart=tuple(sorted(apart))) if apart else job


def _report_order(entry: JobWeek) -> tuple[float, ProcessKey]:
    return (-entry.device_hours, entry.key)


def _rank_order(entry: JobWeek) -> tuple[bool, int, float, str]:
    return (entry.iterations == 0, entry.key.rank, -entry.device_hours, entry.key.process)


def processes(connection: sa.Connection, week: Week | None) -> Read:
    """All training processes that ran or began in the week; None: all processes, over all their time."""
    sums, functions, stored, unreadable = _sums(connection, week)
    members = _members(connection, week, set(sums))
    pairs, odd = _pair_means(connection, week, members)
    unreadable += odd
    lost, odd = _lost(connection, week, members)
    unreadable += odd
    reverted, odd = _reverted(connection, week, members)
    unreadable += odd
    fallbacks = _fallbacks(connection, week, members)
    # they ended without reporting: the cost of stitching is estimated
    estimated = {
        row.process_id
        for row in members
        if row.overhead_ns is None
        and _begun_in(week, row)
        and row.process_id in sums
        and sums[row.process_id]["stitched_count"] > 0
    }
    warm_ups = _warm_ups(connection, sorted(estimated))
    found = []
    for row in members:
        owner = row.process_id
        counts: dict[str, Any] = sums.get(owner) or dict.fromkeys(COUNTS, 0)
        try:
            saving = savings.estimate_job(
                [
                    savings.FunctionData(pairs.get((owner, function), []), count, total_ns)
                    for function, (count, total_ns) in _functions(owner, functions, pairs).items()
                ]
            ) or (stored[owner].saving if owner in stored else None)
            overhead = row.overhead_ns if row.overhead_ns is not None and _begun_in(week, row) else 0
            if owner in estimated:
                frozen_overhead = stored[owner].overhead_ns if owner in stored else 0
                overhead = frozen_overhead or _estimated_overhead(warm_ups.get(owner), counts, saving)
            found.append(
                JobWeek(
                    **_about(row),
                    ended_ns=row.ended_ns,
                    phase=row.phase or "",
                    reason=row.reason or "",
                    overhead_ns=overhead,
                    overhead_is_estimate=owner in estimated,
                    saving=saving,
                    lost=lost.get(owner, 0),
                    fallback=_fallback(row, fallbacks.get(owner, "")),
                    reverted=reverted.of(_key(row)),
                    functions=tuple(
                        (number, *stitched) for number, stitched in sorted(functions.get(owner, {}).items())
                    ),
                    **counts,
                )
            )
        except UNREADABLE:
            unreadable += 1
    return Read(found, unreadable)


def _key(row: Any) -> ProcessKey:
    return ProcessKey(row.run_id, row.cluster, row.namespace, row.attempt, row.rank, row.process)


_SAME = ("process_id", "name", "user", "model_fingerprint", "device_kind", "device_count", "started_ns")
"""Fields of a JobWeek that are columns of jobs, unchanged."""
_ABOUT = [jobs.c[name] for name in (*_SAME, "framework", "framework_version", "labels", *PROCESS_KEY)]


def _about(row: Any) -> dict[str, Any]:
    """The fields of a JobWeek that come from the columns _ABOUT, with which a row begins."""
    framework, version, labels, *key = row[len(_SAME) : len(_ABOUT)]
    facts = dict(zip(_SAME, row[: len(_SAME)], strict=True))
    # a name from before the schema bounded it must not make the report slow and long
    facts["name"] = facts["name"][: schema.FREE_TEXT[schema.Job]["name"]]
    whole = ProcessKey(*key)
    about = {"namespace": whole.namespace, "framework": f"{framework} {version}".strip(), "labels": _labels(labels)}
    return facts | about | {"key": whole}


@functools.lru_cache(maxsize=1024)
def _labels(text: str) -> Mapping[str, str]:
    try:
        return MappingProxyType({str(key): str(value) for key, value in json.loads(text).items()})
    except UNREADABLE:
        return MappingProxyType({})  # they only name groups


@functools.lru_cache(maxsize=1024)
def _names(text: str) -> tuple[str, ...]:
    return tuple(map(str, json.loads(text)))


_SAVING = msgspec.json.Decoder(Saving)


def _saving(text: str | None) -> Saving | None:
    if text is None:
        return None
    try:
        return _SAVING.decode(text)
    except msgspec.DecodeError:  # numbers that JSON does not allow, but that json.dumps writes
        return Saving(**json.loads(text))


@dataclass(frozen=True)
class _Stored:
    """What a week whose blocks are gone holds of a process besides its counts."""

    saving: Saving | None
    overhead_ns: int


Stitched = dict[int, tuple[int, int]]
"""By training function: number of stitched iterations, and their nanoseconds."""


def _sums(
    connection: sa.Connection, week: Week | None
) -> tuple[dict[int, dict[str, int]], dict[int, Stitched], dict[int, _Stored], int]:
    """By process: counts and times by arm, from the blocks and from frozen weeks whose blocks are gone; the stitched ones by
    function; what else those weeks hold; and how many rows cannot be read."""
    unreadable = 0
    sums: dict[int, dict[str, int]] = defaultdict(lambda: dict.fromkeys(COUNTS, 0))
    functions: dict[int, Stitched] = defaultdict(dict)
    stored: dict[int, _Stored] = {}
    latest = sa.and_(frozen_weeks.c.week == weekly_rollups.c.week, frozen_weeks.c.revision == weekly_rollups.c.revision)
    frozen = sa.select(weekly_rollups).join(frozen_weeks, latest).where(frozen_weeks.c.blocks_dropped == 1)
    if week is not None:
        frozen = frozen.where(weekly_rollups.c.week == str(week))

    def add(owner: int, function: int, count: int, total_ns: int) -> None:
        before = functions[owner].get(function, (0, 0))
        functions[owner][function] = (before[0] + count, before[1] + total_ns)

    for row in connection.execute(frozen.order_by(weekly_rollups.c.week)):
        target, before = sums[row.process_id], stored.get(row.process_id)
        for name in COUNTS:
            target[name] += getattr(row, name)
        try:
            of_functions = json.loads(row.functions) if row.functions else [(0, row.stitched_count, row.stitched_ns)]
            saving = _saving(row.saving) or (before.saving if before else None)
            for function, count, total_ns in of_functions:
                add(row.process_id, int(function), int(count), int(total_ns))
        except UNREADABLE:
            unreadable += 1
            saving = before.saving if before else None
        stored[row.process_id] = _Stored(saving, row.overhead_ns + (before.overhead_ns if before else 0))
    key = (iteration_blocks.c.process_id, iteration_blocks.c.function)
    blocks = sa.select(*key, *(_sum(connection, iteration_blocks.c[name]) for name in COUNTS))
    if week is not None:
        blocks = blocks.where(iteration_blocks.c.day >= week.first_day, iteration_blocks.c.day < week.end_day)
    for owner, function, *counts in connection.execute(blocks.group_by(*key)):
        target = sums[owner]
        whole = [int(count) for count in counts]
        for name, count in zip(COUNTS, whole, strict=True):
            target[name] += count
        add(owner, function, *whole[COUNTS.index("stitched_count") : COUNTS.index("stitched_ns") + 1])
    return dict(sums), dict(functions), stored, unreadable


def _functions(owner: int, functions: Mapping[int, Stitched], pairs: Mapping[tuple[int, int], object]) -> Stitched:
    """The functions of a process that ran stitched or have pairs."""
    known = functions.get(owner, {})
    return known or {0: (0, 0)} if (owner, 0) in pairs else known


def _sum(connection: sa.Connection, column: sa.Column[Any]) -> sa.ColumnElement[Any]:
    """The sum over a group's rows, computed so that it cannot overflow."""
    total = sa.func.sum(column)
    if connection.dialect.name == "postgresql":
        # the sum of bigints is a numeric, which is slow to read
        return sa.cast(sa.func.least(total, MAX_ROLLUP), sa.BigInteger)
    if not isinstance(column.type, sa.BigInteger):
        return total
    # SQLite's sum of integers fails beyond 64 bits; the sum of their upper halves cannot
    above = sa.func.sum(column.op(">>")(32))
    below = sa.func.sum(column.op("&")(0xFFFFFFFF))
    return sa.case((above + below.op(">>")(32) < 1 << 31, above * (1 << 32) + below), else_=MAX_ROLLUP)


def _members(connection: sa.Connection, week: Week | None, with_iterations: set[int]) -> list[Any]:
    """Processes that began in the week or have iterations in it, including those whose clock was set back after they began."""
    columns = (job_ends.c.ended_ns, job_ends.c.phase, job_ends.c.reason, job_ends.c.overhead_ns)
    statement = sa.select(*_ABOUT, *columns).join(job_ends, jobs.c.process_id == job_ends.c.process_id, isouter=True)
    if week is None:
        return list(connection.execute(statement))
    found = [
        row
        for row in connection.execute(statement.where(jobs.c.started_ns < week.end_ns))
        if row.started_ns >= week.start_ns or row.process_id in with_iterations
    ]
    others = sorted(with_iterations.difference(row.process_id for row in found))
    for first in range(0, len(others), MAX_ASKED):
        found += connection.execute(statement.where(jobs.c.process_id.in_(others[first : first + MAX_ASKED])))
    return found


ROWS_AT_ONCE = 1000
"""Rows fetched at a time of tables in which one process may have any number, so that a report's memory does not grow with it."""
MAX_PAIRS = 100_000
"""Most pairs of a training function; later ones are left out."""
MAX_REVERTED, MAX_CLUSTER_NAME = 1000, 256
"""Most clusters of a process that are named, and most characters of a name."""


def _pair_means(
    connection: sa.Connection, week: Week | None, members: Sequence[Any]
) -> tuple[dict[tuple[int, int], list[tuple[float, float]]], int]:
    """(plain, stitched) mean of each complete pair, by process and training function; and how many pairs have invalid means."""
    # numbers are assigned in the order in which processes first report
    first = min((row.process_id for row in members), default=0)
    plain, stitched = arm_blocks.alias(), arm_blocks.alias()
    statement = (
        sa.select(plain.c.process_id, plain.c.function, plain.c.mean_ns, stitched.c.mean_ns)
        .join(stitched, sa.and_(plain.c.process_id == stitched.c.process_id, plain.c.pair == stitched.c.pair))
        .where(plain.c.arm == PLAIN, stitched.c.arm == STITCHED, plain.c.process_id >= first)
        .order_by(plain.c.process_id, plain.c.pair)
    )
    if week is not None:
        statement = statement.where(plain.c.ended_ns < week.end_ns, stitched.c.ended_ns < week.end_ns)
    found: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    unreadable = 0
    for owner, function, plain_ns, stitched_ns in connection.execute(
        statement.execution_options(yield_per=ROWS_AT_ONCE)
    ):
        if len(found[owner, function]) >= MAX_PAIRS:
            continue
        if 0.0 < plain_ns <= MAX_DURATION_NS and 0.0 < stitched_ns <= MAX_DURATION_NS:
            found[owner, function].append((plain_ns, stitched_ns))
        else:
            unreadable += 1
    return found, unreadable


def _lost(connection: sa.Connection, week: Week | None, members: Sequence[Any]) -> tuple[dict[int, int], int]:
    """Records lost by process: those that it counted up to the week's end, and those dropped from its spool at any later time. Also
    how many events cannot be read."""
    found: dict[int, LossCount] = defaultdict(LossCount)
    first = min((row.process_id for row in members), default=0)
    of_losses = (events.c.kind == LOSS_EVENT, events.c.process_id >= first)
    statement = sa.select(events.c.process_id, events.c.facts).where(*of_losses)
    if week is not None:
        after_death = events.c.facts.contains(f'"{AFTER_DEATH}"')
        statement = statement.where(sa.or_(events.c.time_ns < week.end_ns, after_death))
    for owner, facts in connection.execute(statement.execution_options(yield_per=ROWS_AT_ONCE)):
        found[owner].add(facts)
    return {owner: count.lost for owner, count in found.items()}, sum(count.unreadable for count in found.values())


def _events_of(
    connection: sa.Connection, kinds: Sequence[str], week: Week | None, members: Sequence[Any]
) -> Iterable[Any]:
    """Events of some kinds up to the week's end, ordered by time, of the processes in `members` and possibly others."""
    first = min((row.process_id for row in members), default=0)
    statement = (
        sa.select(events, *(jobs.c[name] for name in PROCESS_KEY))
        .join(jobs, jobs.c.process_id == events.c.process_id)
        .where(events.c.kind.in_(kinds), events.c.process_id >= first)
        .order_by(events.c.time_ns)
    )
    if week is not None:
        statement = statement.where(events.c.time_ns < week.end_ns)
    return connection.execute(statement.execution_options(yield_per=ROWS_AT_ONCE))


class _Reverted:
    """Names of the clusters that the guard reverted, by process."""

    def __init__(self) -> None:
        self._of_jobs: dict[JobKey, dict[tuple[int, str], set[str]]] = defaultdict(lambda: defaultdict(set))

    def add(self, key: ProcessKey, name: str) -> None:
        names = self._of_jobs[key.job][key.rank, key.process]
        if len(names) < MAX_REVERTED:
            names.add(name[:MAX_CLUSTER_NAME])

    def of(self, key: ProcessKey) -> tuple[str, ...]:
        """The process's own clusters, and those of the job's other ranks, which step together with it."""
        found: set[str] = set()
        for (rank, process), names in self._of_jobs.get(key.job, {}).items():
            if process == key.process or rank != key.rank:
                found |= names
        return tuple(sorted(found))


def _reverted(connection: sa.Connection, week: Week | None, members: Sequence[Any]) -> tuple[_Reverted, int]:
    """The reverted clusters, and how many events cannot be read."""
    found, unreadable = _Reverted(), 0
    for row in _events_of(connection, REVERT_EVENTS, week, members):
        try:
            said = schema.decoded(row.facts.encode("utf-8", "replace"), schema.RevertFacts)
        except InvalidRecordError:
            unreadable += 1
            continue
        found.add(_key(row), said.cluster or row.message)
    return found, unreadable


def _fallbacks(connection: sa.Connection, week: Week | None, members: Sequence[Any]) -> dict[int, str]:
    """The last message of each process about falling back to plain."""
    return {row.process_id: row.message for row in _events_of(connection, FALLBACK_EVENTS, week, members)}


def _fallback(row: Any, said: str) -> str:
    """Why a process fell back, or "". The final phase decides; for a process that ended without reporting, its last message does."""
    if row.ended_ns is None:
        return said
    return (row.reason or said or "no reason was given") if row.phase in FALLBACK_PHASES else ""


def _begun_in(week: Week | None, row: Any) -> bool:
    return week is None or week.start_ns <= row.started_ns < week.end_ns


def _warm_ups(connection: sa.Connection, owners: Sequence[int]) -> dict[int, tuple[str, bytes]]:
    """Arms and durations of the first block of each of these processes."""
    found: dict[int, tuple[str, bytes]] = {}
    blocks = iteration_blocks.c
    for first in range(0, len(owners), MAX_ASKED):
        place = sa.func.row_number().over(partition_by=blocks.process_id, order_by=(blocks.day, blocks.sequence))
        asked = blocks.process_id.in_(owners[first : first + MAX_ASKED])
        # without the arrays, which are long
        key = (blocks.process_id, blocks.day, blocks.sequence)
        ordered = sa.select(*key, place.label("place")).where(asked).subquery()
        same = sa.and_(*(column == ordered.c[column.name] for column in key))
        statement = sa.select(blocks.process_id, blocks.arms, blocks.durations).join(ordered, same)
        for owner, arms, durations in connection.execute(statement.where(ordered.c.place == 1)):
            found[owner] = (arms, durations)
    return found


def _estimated_overhead(first: tuple[str, bytes] | None, counts: dict[str, int], saving: Saving | None) -> int:
    """For a process that ended without reporting, in ns: what its uncounted iterations took beyond plain ones, without those of the
    warm-up.

    first: arms and durations of its first block."""
    typical = (
        saving.plain_ns if saving else counts["plain_ns"] / counts["plain_count"] if counts["plain_count"] else None
    )
    if typical is None:
        return 0
    count, spent = counts["uncounted_count"], float(counts["uncounted_ns"])
    if first is not None:
        durations = array("f", first[1])[:WARM_UP_ITERATIONS]
        arms = [arm for _, length, arm in json.loads(first[0]) for _ in range(min(length, WARM_UP_ITERATIONS))]
        for arm, duration in zip(arms, durations):
            if arm == UNCOUNTED:
                count, spent = count - 1, spent - duration * 1e3
    return max(0, round(spent - count * typical))
