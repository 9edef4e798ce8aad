"""A week's report as managers read it: groups of jobs, money, noteworthy jobs, and the weeks before.

A group's figures and its interval come from the same function as the fleet's (weekly.Columns), applied to its jobs alone. Intervals
of groups do not add up to the fleet's, because errors of unrelated jobs cancel. CPU and GPU jobs are never in one group.

Money is hours avoided times the price of an hour, job by job; its interval is that of the hours, weighted by the prices. A group
with a measured job whose device kind has no price has no amount: a sum over the other jobs would be less than it claims to be.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from ..database.models import jobs
from ..database.weeks import Week
from ..pod.recording import GRAPH
from ..statistics import savings
from ..statistics.savings import Contribution, Total
from ..totals.freezing import stored_totals
from ..totals.weekly import JobWeek, Status, UnitTotal, WeekReport, week_report
from .configuration import Configuration

TOP_JOBS = 10
DEFAULT_TREND_WEEKS = 8


class Dimension(enum.Enum):
    """By what jobs are grouped."""

    NAMESPACE = "namespace"
    TEAM = "team"
    MODEL = "model"
    DEVICE = "device kind"
    COST_CENTRE = "cost centre"


@dataclass(frozen=True)
class Money:
    """Hours avoided times their price, in the configuration's currency."""

    amount: Total | None
    """None if `unpriced` is not empty."""
    unpriced: tuple[str, ...]
    """Device kinds of measured jobs for which the configuration has no price."""


@dataclass(frozen=True)
class Group:
    """Jobs of one unit. `name` None: the jobs for which the dimension has no value (no such label, no cost centre)."""

    name: str | None
    total: UnitTotal
    money: Money | None
    """None if the configuration has no prices."""


@dataclass(frozen=True)
class PastWeek:
    """The totals of a week's own report."""

    week: Week
    revision: int
    """0: never frozen; n: the week was frozen n times."""
    has_late_data: bool
    """Whether data came after the latest revision; the figures contain it."""
    is_over: bool
    totals: list[UnitTotal]
    is_superseded: bool = False
    """Whether the week has a later revision."""


@dataclass(frozen=True)
class FleetReport:
    """Everything that a report says of a week."""

    report: WeekReport
    configuration: Configuration
    trend: list[PastWeek]
    """The weeks before this one and this one, oldest first."""

    @property
    def trend_units(self) -> list[str]:
        """The units of all weeks of the trend."""
        return sorted({total.unit for past in self.trend for total in past.totals})

    def members(self, unit: str) -> list[JobWeek]:
        """The week's jobs of a unit."""
        return self.report.members(unit)

    def whole(self, unit: str) -> Group:
        """The group of all jobs of a unit. Raises ValueError if the unit has no jobs."""
        (total,) = (total for total in self.report.totals() if total.unit == unit)
        return Group(None, total, self.money(self.members(unit)))

    def groups(self, dimension: Dimension, unit: str) -> list[Group]:
        """The groups of a dimension among the jobs of a unit, those that saved most first. Jobs without a value for the dimension
        come last."""
        namer, members = self._namer(dimension), self.members(unit)
        places: dict[str | None, int] = {}
        of = [places.setdefault(namer(job), len(places)) for job in members]
        totals = self.report.columns(unit).totals(unit, of, len(places))
        of_names: list[list[JobWeek]] = [[] for _ in places]
        if self.configuration.prices:
            for place, job in zip(of, members, strict=True):
                of_names[place].append(job)
        found = [Group(name, totals[place], self.money(of_names[place])) for name, place in places.items()]
        return sorted(found, key=lambda group: (group.name is None, -group.total.saved.value, group.name or ""))

    @property
    def dimensions(self) -> list[Dimension]:
        """All dimensions; cost centres only if the configuration has some."""
        return [each for each in Dimension if each is not Dimension.COST_CENTRE or self.configuration.cost_centres]

    def top(self, unit: str) -> list[JobWeek]:
        """The measured jobs that saved most, at most TOP_JOBS; without jobs that saved nothing."""
        saved = [job for job in self.members(unit) if job.status is Status.MEASURED and (job.saved_hours or 0.0) > 0]
        return sorted(saved, key=lambda job: (-(job.saved_hours or 0.0), job.key))[:TOP_JOBS]

    def noteworthy(self, unit: str) -> list[JobWeek]:
        """Jobs that are slower, had a cluster reverted, or fell back, also on a part of their ranks; those that lost most come
        first."""
        found = [job for job in self.members(unit) if job.is_slower or job.reverted or job.fallback or job.apart]
        return sorted(found, key=lambda job: (job.saved_hours or 0.0, job.key))

    def money(self, members: Sequence[JobWeek]) -> Money | None:
        """The money that `members` saved, without unmeasured jobs; None if the configuration has no prices."""
        if not self.configuration.prices:
            return None
        parts, unpriced = [], set()
        for job in members:
            part = job.contribution
            if part is None:
                continue
            price = self.configuration.price(job.device_kind)
            if price is None:
                unpriced.add(job.device_kind)
            else:
                parts.append(Contribution(part.template, part.value * price, part.error * price, part.degrees))
        return Money(None if unpriced else savings.total(parts), tuple(sorted(unpriced)))

    def _namer(self, dimension: Dimension) -> Callable[[JobWeek], str | None]:
        chosen: dict[Dimension, Callable[[JobWeek], str | None]] = {
            Dimension.NAMESPACE: lambda job: job.namespace,
            Dimension.TEAM: self.team,
            Dimension.MODEL: self.model,
            Dimension.DEVICE: lambda job: job.device_kind,
            Dimension.COST_CENTRE: self.cost_centre,
        }
        return chosen[dimension]

    def team(self, job: JobWeek) -> str | None:
        """The job's team, by the configured label; None without one."""
        return job.labels.get(self.configuration.team_label) or None

    def model(self, job: JobWeek) -> str | None:
        """The name of the job's model. If the configuration has a model_label: that label's value, or None. Otherwise the name
        that the job was given for its model or, without one, the job's name without the part that counts runs, with the beginning
        of the graph's fingerprint, since scripts of one name often train two models."""
        if self.configuration.model_label:
            return job.labels.get(self.configuration.model_label) or None
        if job.model_fingerprint and not job.model_fingerprint.startswith(GRAPH):
            return job.model_fingerprint
        graph = job.model_fingerprint.removeprefix(GRAPH)[:6]
        return f"{job.template[3]} ({graph})" if graph else job.template[3] or None

    def cost_centre(self, job: JobWeek) -> str | None:
        """The job's cost centre; None if the configuration has none for it."""
        return self.configuration.cost_centre(job.labels)


def fleet_report(
    connection: sa.Connection,
    week: Week,
    configuration: Configuration,
    trend_weeks: int,
    revision: int | None = None,
) -> FleetReport:
    """The report of the week, with up to `trend_weeks` weeks before it, starting with the first week in which a job ran.

    revision: which of the week's revisions to show; None: what the database holds now. The weeks before are shown as they are
    now. Raises RevisionError if the week has no such revision.
    """
    report = week_report(connection, week, revision)
    began = connection.scalar(sa.select(sa.func.min(jobs.c.started_ns)))
    first = week.first_day if began is None else max(week.first_day - 7 * trend_weeks, Week.at(began).first_day)
    trend = [_past_week(connection, Week.of_day(day)) for day in range(first, week.first_day, 7)]
    this = PastWeek(week, report.revision, report.has_late_data, report.is_over, report.totals(), report.is_superseded)
    return FleetReport(report, configuration, [*trend, this])


def _past_week(connection: sa.Connection, week: Week) -> PastWeek:
    stored = stored_totals(connection, week)
    if stored is not None:
        return PastWeek(week, stored[0], False, True, stored[1])
    made = week_report(connection, week)
    return PastWeek(week, made.revision, made.has_late_data, made.is_over, made.totals())
