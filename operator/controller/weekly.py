"""A SavingsReport's status, from the database. The figures are those of telemetry's weekly report; nothing is computed anew."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from stitchfleet.telemetry.database import models
from stitchfleet.telemetry.database.weeks import Week
from stitchfleet.telemetry.reports.formats import revision_words
from stitchfleet.telemetry.totals.weekly import UnitTotal, WeekReport, unit_total

from ..policy.names import Object
from ..policy.roster import asked
from .conditions import condition, merged, with_times

READY, CLOSED = "Ready", "Closed"
"""Types of conditions. Ready: the figures are those of the database. Closed: the week is over and frozen, and no data came since."""


def week_of(spec: Mapping[str, Any]) -> Week:
    """The week of a report's spec. Raises ValueError if it is not valid."""
    return Week.parse(str(spec.get("week", "")))


def revision_of(spec: Mapping[str, Any]) -> int | None:
    """The revision that a report's spec names; None: the figures with all data that came since."""
    found = spec.get("revision")
    return None if found is None else int(found)


def status_of(report: WeekReport, spec: Mapping[str, Any], generation: int, before: Mapping[str, Any]) -> Object:
    """The status of a SavingsReport. report: of the week and, if the spec names one, of the revision in `spec`. generation:
    metadata.generation of the object. before: its present status, for the times at which conditions changed."""
    week = report.week
    namespace = (spec.get("scope") or {}).get("namespace")
    totals = _totals(report, namespace)
    is_closed = report.is_over and report.revision > 0 and not report.has_late_data
    conditions = [
        condition(READY, True, "Measured" if totals else "NoJobs", _words(totals), generation),
        condition(CLOSED, is_closed, "Frozen" if is_closed else "Open", _closed_words(report), generation),
    ]
    return {
        "observedGeneration": generation,
        "week": str(week),
        "revision": report.revision,
        "start": _iso(week.start_ns),
        "end": _iso(week.end_ns),
        "totals": [_facts(total) for total in totals],
        "summary": _words(totals),
        "unreadableRows": report.unreadable,
        "conditions": with_times(conditions, before.get("conditions") or ()),
    }


def pods_of(connection: sa.Connection, spec: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> Object:
    """The field `pods` of a status: counts by state of those of `pods` that are in the report's namespace (all, if its scope
    names none). pods: the pods with the label that exist now, which is why only this week's report has the field."""
    now = datetime.datetime.now(datetime.timezone.utc)
    uids = sorted(str(pod["metadata"]["uid"]) for pod in pods)
    reported: set[str] = set()
    for start in range(0, len(uids), models.MAX_ASKED):
        some = uids[start : start + models.MAX_ASKED]
        reported |= set(connection.scalars(sa.select(models.jobs.c.uid).where(models.jobs.c.uid.in_(some))))
    found = asked([dict(pod) for pod in pods], reported, now, (spec.get("scope") or {}).get("namespace"))
    return {
        "pods": {
            "asked": found.total,
            "injected": found.injected,
            "notInjected": found.not_injected,
            "silent": found.silent,
            "examples": found.examples,
        }
    }


def unavailable(reason: str, message: str, generation: int, before: Mapping[str, Any]) -> Object:
    """A patch of the status for a report whose figures cannot be read: it sets the condition Ready to False and keeps all
    figures."""
    return {
        "conditions": merged([condition(READY, False, reason, message, generation)], before.get("conditions") or ())
    }


def _totals(report: WeekReport, namespace: str | None) -> list[UnitTotal]:
    if namespace is None:
        return report.totals()
    found = []
    for unit in report.units:
        mine = [job for job in report.members(unit) if job.namespace == namespace]
        if mine:
            found.append(unit_total(unit, mine))
    return found


def _facts(total: UnitTotal) -> Object:
    """A unit's figures. Hours are device-hours; a saving may be negative."""
    return {
        "unit": total.unit,
        "savedHours": total.saved.value,
        "savedHoursLow": total.saved.low,
        "savedHoursHigh": total.saved.high,
        "deviceHours": total.device_hours,
        "overheadHours": total.overhead_hours,
        "unmeasuredDeviceHours": total.unmeasured_device_hours,
        "jobs": {
            "total": total.jobs,
            "measured": total.measured,
            "unmeasured": total.unmeasured,
            "notStitched": total.not_stitched,
            "slower": total.slower,
            "fellBack": total.fell_back,
            "reverted": total.reverted,
        },
    }


def _words(totals: Sequence[UnitTotal]) -> str:
    if not totals:
        return "no job ran with stitchfleet"
    return "; ".join(
        f"{total.unit}: {total.saved.value:+.3g} device-hours saved ({total.saved.low:+.3g} to {total.saved.high:+.3g}), "
        f"{total.measured} of {total.jobs} jobs measured"
        for total in totals
    )


def _closed_words(report: WeekReport) -> str:
    if not report.is_over:
        return "the week is not over"
    if report.revision == 0:
        return "the week is not frozen yet"
    return "data came after it was frozen" if report.has_late_data else revision_words(report)


def _iso(time_ns: int) -> str:
    return datetime.datetime.fromtimestamp(time_ns / 1e9, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
