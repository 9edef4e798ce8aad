"""A week's figures, its groups and its jobs as text, JSON and CSV."""

from __future__ import annotations

import csv
import datetime
import functools
import io
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ..statistics import savings
from ..statistics.savings import Saving
from ..totals.weekly import STITCHED_PHASE, JobWeek, Status, UnitTotal, WeekReport
from .fleet import Dimension, FleetReport, Group, Money, PastWeek
from .printable import MAX_SHOWN, printable, spreadsheet_cell

_T = TypeVar("_T")
MAX_LISTED = 20
"""Lines of one table in a terminal; CSV and JSON have all."""


def hours(value: float, sign: bool = False, like: float | None = None) -> str:
    """Device-hours for people, such as "1.50 h": in hours, minutes or seconds, whichever suits `like` (in hours; default: the
    value itself). sign: with a sign also if positive."""
    size = abs(value if like is None else like)
    if size == 0:
        return "0 s"
    for unit, factor in (("h", 1.0), ("min", 60.0), ("s", 3600.0)):
        if size * factor >= 1.0 or unit == "s":
            digits = 2 if abs(value) * factor < 10 else 1
            shown = round(value * factor, digits) or 0.0  # zero has no minus sign
            return f"{shown:{'+' if sign else ''}.{digits}f} {unit}"
    raise AssertionError("unreachable")


def interval_words(value: float, low: float, high: float) -> str:
    """Device-hours with their 95% interval (all in hours), in one suitable unit of time."""
    shown = [hours(each, True, max(abs(value), abs(low), abs(high))) for each in (value, low, high)]
    return f"{shown[0]} ({shown[1].split()[0]} to {shown[2].split()[0]})"


def percent(value: float) -> str:
    """A share (1.0 is 100%) as a percentage with a sign and one decimal."""
    return f"{100 * value:+.1f}%"


def moment(time_ns: int | None, seconds: bool = False) -> str:
    """A time in nanoseconds since 1970 as text in UTC, to the minute or, if `seconds` is True, the second; "-" for None."""
    if time_ns is None:
        return "-"
    form = "%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M"
    return datetime.datetime.fromtimestamp(time_ns / 1e9, datetime.timezone.utc).strftime(form)


def table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """Lines of text in columns. The first column and columns without figures are flush left. Cells are made printable."""
    lines = [[printable(cell, MAX_SHOWN) for cell in line] for line in lines]
    widths = [max(len(line[k]) for line in (headings, *lines)) for k in range(len(headings))]
    right = [k > 0 and any(line[k][:1] in "+-0123456789" for line in lines if line[k]) for k in range(len(headings))]
    return [
        "  ".join(
            cell.rjust(width) if flush else cell.ljust(width) for cell, width, flush in zip(line, widths, right)
        ).rstrip()
        for line in (headings, *lines)
    ]


def saving_words(saving: Saving | None) -> str:
    """The saving per iteration with its interval, or "unmeasured"."""
    if saving is None:
        return "unmeasured"
    return f"{percent(saving.relative)} ({percent(saving.low)} to {percent(saving.high)})"


def saved_words(job: JobWeek) -> str:
    """The device-hours that a job saved, with their interval, or "unmeasured"."""
    value, interval = job.saved_hours, job.saved_hours_interval
    if value is None or interval is None:
        return "unmeasured"
    if job.status is Status.NOT_STITCHED:
        return hours(value, sign=True)
    return interval_words(value, *interval)


def of_devices(unit: str, what: str) -> str:
    """A unit before `what`, such as GPU-hours or CPU device-hours, since the two are never added. unit: "CPU" or "GPU"."""
    return f"GPU-{what}" if unit == "GPU" else f"{unit} device-{what}"


def total_words(total: UnitTotal) -> str:
    """The report's summary sentence for one unit."""
    if total.measured == 0:
        what = f"{of_devices(total.unit, 'hours')} saved: none measured"
        if total.saved.value < 0:
            what += f"; stitching cost {hours(-total.saved.value)}"
    else:
        what = (
            f"{of_devices(total.unit, 'hours')} saved: {hours(total.saved.value, True)} "
            f"(95% interval {hours(total.saved.low, True)} to {hours(total.saved.high, True)})"
        )
    what += f", of {hours(total.device_hours)} that ran."
    return what + (
        f" Jobs: {total.measured} measured ({total.slower} of them slower), {total.not_stitched} not stitched, "
        f"{total.unmeasured} unmeasured ({hours(total.unmeasured_device_hours)}, in no total)."
    )


def hours_words(total: UnitTotal) -> str:
    """The hours saved with their interval; a group without a measured job has no estimate."""
    if total.measured == 0:
        return f"none measured{f', cost {hours(-total.saved.value)}' if total.saved.value < 0 else ''}"
    return interval_words(total.saved.value, total.saved.low, total.saved.high)


def money_words(money: Money, currency: str) -> str:
    """The amount with its interval, or why there is none."""
    if money.amount is None:
        return f"no amount: no price for {', '.join(money.unpriced)}"
    value, low, high = map(cents, (money.amount.value, money.amount.low, money.amount.high))
    return f"{value} {currency} ({low} to {high})"


def cents(amount: float) -> str:
    """An amount with two decimals and a sign; zero has no sign."""
    return f"{round(amount, 2):+,.2f}" if round(amount, 2) else "0.00"


def ranks_words(job: JobWeek) -> str:
    """The ranks that ended otherwise than the rank that stands for the job, in words; at most four are named."""
    if len(job.apart) == 1:
        return f"rank {job.apart[0]}"
    shown = ", ".join(map(str, job.apart[:4]))
    return f"ranks {shown}{f' and {len(job.apart) - 4} more' if len(job.apart) > 4 else ''}"


def why_noteworthy(job: JobWeek) -> str:
    """Why a job is noteworthy, in words."""
    said = []
    if job.is_slower:
        steps_slower = job.saving is not None and job.saving.high < 0
        said.append("slower" if steps_slower else "stitching cost more than its steps saved")
    if job.reverted:
        said.append(f"{len(job.reverted)} cluster{'s' if len(job.reverted) > 1 else ''} reverted")
    if job.fallback:
        said.append(f"fell back: {job.fallback}")
    if job.apart:
        said.append(f"{ranks_words(job)} ended {'plain' if job.phase == STITCHED_PHASE else 'stitched'}")
    return "; ".join(said)


MONEY_HEADING = "hours avoided times price (95%)"


def as_text(fleet: FleetReport) -> str:
    """The report for a terminal."""
    report = fleet.report
    state = "" if report.is_over else ", not over yet"
    frozen = f", {revision_words(report)}" if report.revision else ""
    lines = [f"Week {report.week}, {report.week.in_words} (UTC{state}{frozen})", ""]
    if not report.jobs:
        odd = [unreadable_words(report.unreadable), ""] if report.unreadable else []
        return "\n".join([*lines, "No job ran in this week.", "", *odd, *_trend_text(fleet)])
    for total in report.totals():
        lines.append(total_words(total))
        money = fleet.whole(total.unit).money
        if money is not None:
            lines.append(f"{total.unit} hours avoided times price: {money_words(money, fleet.configuration.currency)}.")
    lines += ["", *_coverage_text(report.totals())]
    for unit in report.units:
        for dimension in fleet.dimensions:
            lines += ["", f"{unit} jobs by {dimension.value}"]
            groups = fleet.groups(dimension, unit)
            headings = group_headings(fleet, dimension)
            lines += _bounded(headings, groups, functools.partial(group_line, fleet, dimension=dimension))
        if top := fleet.top(unit):
            lines += ["", f"{unit} jobs that saved most", *_job_table(top)]
        if noteworthy := fleet.noteworthy(unit):
            lines += [
                "",
                f"{unit} jobs that are slower, had clusters reverted, or fell back, all or some of their ranks",
            ]
            lines += _bounded(
                ("job", "namespace", "run", "device-time saved (95%)", "what happened"),
                noteworthy,
                lambda job: (job.name, job.namespace, job.run_id[:12], saved_words(job), why_noteworthy(job)),
            )
    listed = [job for job in report.jobs if job.status is not Status.UNMEASURED]
    if listed:
        lines += ["", "Jobs with the most device-time", *_job_table(listed)]
    unmeasured = [job for job in report.jobs if job.status is Status.UNMEASURED]
    if unmeasured:
        lines += ["", "Unmeasured: too few pairs of plain and stitched blocks to say what they saved"]
        lines += _bounded(
            ("job", "namespace", "run", "devices", "device-time", "stitched iterations", "known cost"),
            unmeasured,
            lambda job: (
                *(job.name, job.namespace, job.run_id[:12], _devices(job), hours(job.device_hours)),
                *(str(job.stitched_count), hours(job.overhead_hours)),
            ),
        )
    if any(job.overhead_is_estimate for job in report.jobs):
        lines += ["", "* ended without a report: the cost of stitching is estimated from its uncounted iterations"]
    lost = sum(job.lost for job in report.jobs)
    if lost:
        lines += [
            "",
            f"{lost} records of these jobs were lost (full or slow disk); their figures come from the other records.",
        ]
    if report.unreadable:
        lines += ["", unreadable_words(report.unreadable)]
    lines += ["", *_trend_text(fleet)]
    return "\n".join(map(printable, [*lines, f"Method {savings.METHOD}. {savings.DEFINITION}", ""]))


def unreadable_words(count: int) -> str:
    """A sentence that says how many rows the figures leave out."""
    return f"{count} rows of the database cannot be read, and are in none of these figures."


def _bounded(headings: Sequence[str], entries: Sequence[_T], line_of: Callable[[_T], Sequence[str]]) -> list[str]:
    """A table of at most MAX_LISTED lines, which says how many more there are."""
    more = [f"... and {len(entries) - MAX_LISTED} more; CSV and JSON have all"] if len(entries) > MAX_LISTED else []
    return table(headings, [line_of(entry) for entry in entries[:MAX_LISTED]]) + more


COVERAGE_HEADINGS = (
    "",
    "enabled",
    "measured",
    "unmeasured",
    "not stitched",
    "fell back",
    "slower",
    "clusters reverted",
)


def coverage_line(total: UnitTotal) -> tuple[str, ...]:
    """Numbers of jobs under COVERAGE_HEADINGS. Measured, unmeasured and not stitched add up to enabled; the other columns overlap
    with them."""
    counts = (total.jobs, total.measured, total.unmeasured, total.not_stitched, total.fell_back, total.slower)
    return (f"{total.unit} jobs", *(f"{count:,}" for count in (*counts, total.reverted)))


def _coverage_text(totals: Sequence[UnitTotal]) -> list[str]:
    return ["Coverage", *table(COVERAGE_HEADINGS, [coverage_line(total) for total in totals])]


def group_headings(fleet: FleetReport, dimension: Dimension) -> tuple[str, ...]:
    """Headings of a dimension's table."""
    money = (MONEY_HEADING,) if fleet.configuration.prices else ()
    counts = ("jobs", "measured", "unmeasured", "fell back", "slower")
    return (dimension.value, "device-time saved (95%)", *money, "device-time", *counts)


def group_line(fleet: FleetReport, group: Group, dimension: Dimension) -> tuple[str, ...]:
    """The cells of a group's line under `group_headings`."""
    total = group.total
    money = () if group.money is None else (money_words(group.money, fleet.configuration.currency),)
    counts = (total.jobs, total.measured, total.unmeasured, total.fell_back, total.slower)
    name = f"no {dimension.value}" if group.name is None else group.name
    return (name, hours_words(total), *money, hours(total.device_hours), *(f"{count:,}" for count in counts))


WEEK_HEADINGS = ("week", "device-time saved (95%)", "device-time", "jobs", "measured", "figures")


def week_lines(fleet: FleetReport, unit: str) -> list[tuple[str, ...]]:
    """The weeks that have jobs of the unit, under WEEK_HEADINGS."""
    return [
        (
            *(str(past.week), hours_words(total), hours(total.device_hours)),
            *(f"{total.jobs:,}", f"{total.measured:,}", revision_words(past)),
        )
        for past in fleet.trend
        for total in past.totals
        if total.unit == unit
    ]


def revision_words(week: WeekReport | PastWeek) -> str:
    """Says from which data a week's figures were computed."""
    if week.revision == 0:
        return "not frozen" if week.is_over else "not over yet"
    if week.is_superseded:
        return f"revision {week.revision}, which is not the latest"
    return f"revision {week.revision}" + (" and data that came since" if week.has_late_data else "")


def _trend_text(fleet: FleetReport) -> list[str]:
    if len(fleet.trend) < 2:
        return []
    lines = []
    for unit in fleet.trend_units:
        lines += [f"{unit} jobs, weeks up to this one", *table(WEEK_HEADINGS, week_lines(fleet, unit)), ""]
    return lines


def _devices(job: JobWeek) -> str:
    return f"{job.device_count} {job.device_kind}"


def _job_table(entries: Sequence[JobWeek]) -> list[str]:
    headings = (
        "job",
        "namespace",
        "run",
        "devices",
        "device-time",
        "iterations",
        "stitched",
        "plain ms",
        "stitched ms",
    )
    return _bounded((*headings, "saving per iteration (95%)", "device-time saved (95%)"), entries, _job_line)


def _job_line(job: JobWeek) -> tuple[str, ...]:
    saving = job.saving if job.status is Status.MEASURED else None
    return (
        *(job.name, job.namespace, job.run_id[:12], _devices(job), hours(job.device_hours)),
        *(str(job.iterations), str(job.stitched_count)),
        f"{saving.plain_ns / 1e6:.2f}" if saving else "",
        f"{saving.stitched_ns / 1e6:.2f}" if saving else "",
        saving_words(saving) if saving else job.status.value,
        saved_words(job) + ("*" if job.overhead_is_estimate else ""),
    )


def job_facts(job: JobWeek) -> dict[str, Any]:
    """One job for machines. Hours are device-hours, not rounded; null: unmeasured, or not known."""
    interval = job.saved_hours_interval
    saving = job.saving
    return {
        **{name: getattr(job.key, name) for name in ("run_id", "cluster", "attempt", "rank", "process", "namespace")},
        "name": job.name,
        "user": job.user,
        "model_fingerprint": job.model_fingerprint,
        "framework": job.framework,
        "labels": dict(job.labels),
        "unit": job.unit,
        "device_kind": job.device_kind,
        "device_count": job.device_count,
        "started": _iso(job.started_ns),
        "ended": _iso(job.ended_ns),
        "phase": job.phase,
        "reason": job.reason,
        "status": job.status.value,
        "device_hours": job.device_hours,
        "iterations": job.iterations,
        "iterations_plain": job.plain_count,
        "iterations_stitched": job.stitched_count,
        "overhead_hours": job.overhead_hours,
        "overhead_is_estimate": job.overhead_is_estimate,
        "pairs": saving.pairs if saving else 0,
        "plain_ms": saving.plain_ns / 1e6 if saving else None,
        "stitched_ms": saving.stitched_ns / 1e6 if saving else None,
        "saving": saving.relative if saving else None,
        "saving_low": saving.low if saving else None,
        "saving_high": saving.high if saving else None,
        "saved_hours": job.saved_hours,
        "saved_hours_low": interval[0] if interval else None,
        "saved_hours_high": interval[1] if interval else None,
        "slower": job.is_slower,
        "fallback": job.fallback or None,
        "clusters_reverted": list(job.reverted),
        "ranks_apart": list(job.apart),
        "records_lost": job.lost,
    }


def _iso(time_ns: int | None) -> str | None:
    if time_ns is None:
        return None
    return datetime.datetime.fromtimestamp(time_ns / 1e9, datetime.timezone.utc).isoformat(timespec="milliseconds")


def _fleet_job_facts(fleet: FleetReport, job: JobWeek) -> dict[str, Any]:
    """A job, with what the configuration adds to it."""
    return {
        **job_facts(job),
        "team": fleet.team(job),
        "model": fleet.model(job),
        "cost_centre": fleet.cost_centre(job),
        **_money_facts(fleet, fleet.money([job]) if job.contribution is not None else None),
    }


def _total_facts(total: UnitTotal) -> dict[str, Any]:
    return {
        "unit": total.unit,
        "saved_hours": total.saved.value,
        "saved_hours_low": total.saved.low,
        "saved_hours_high": total.saved.high,
        "templates": total.saved.templates,
        "device_hours": total.device_hours,
        "overhead_hours": total.overhead_hours,
        "jobs": total.jobs,
        "jobs_measured": total.measured,
        "jobs_slower": total.slower,
        "jobs_not_stitched": total.not_stitched,
        "jobs_unmeasured": total.unmeasured,
        "jobs_fell_back": total.fell_back,
        "jobs_reverted": total.reverted,
        "unmeasured_device_hours": total.unmeasured_device_hours,
        "unmeasured_overhead_hours": total.unmeasured_overhead_hours,
    }


def _money_facts(fleet: FleetReport, money: Money | None) -> dict[str, Any]:
    """Null: there are no prices, or a device kind has none."""
    amount = money.amount if money else None
    return {
        "hours_avoided_times_price": amount.value if amount else None,
        "hours_avoided_times_price_low": amount.low if amount else None,
        "hours_avoided_times_price_high": amount.high if amount else None,
        "currency": fleet.configuration.currency or None,
        "device_kinds_without_price": list(money.unpriced) if money else [],
    }


def _group_facts(fleet: FleetReport, group: Group) -> dict[str, Any]:
    return {**_total_facts(group.total), **_money_facts(fleet, group.money)}


def _groups(fleet: FleetReport) -> list[dict[str, Any]]:
    return [
        {"dimension": dimension.value, "name": group.name, **_group_facts(fleet, group)}
        for unit in fleet.report.units
        for dimension in fleet.dimensions
        for group in fleet.groups(dimension, unit)
    ]


def _past_weeks(fleet: FleetReport) -> list[dict[str, Any]]:
    return [
        {
            "week": str(past.week),
            "revision": past.revision,
            "has_late_data": past.has_late_data,
            "is_over": past.is_over,
            **_total_facts(total),
        }
        for past in fleet.trend
        for total in past.totals
    ]


def _names(entries: Sequence[JobWeek]) -> list[dict[str, Any]]:
    return [job.key._asdict() for job in entries]


def as_json(fleet: FleetReport) -> str:
    """The report for machines. The field `format` counts incompatible changes of this document."""
    report = fleet.report
    document = {
        "format": 1,
        "week": str(report.week),
        "revision": report.revision,
        "has_late_data": report.has_late_data,
        "is_over": report.is_over,
        "unreadable_rows": report.unreadable,
        "made": _iso(report.made_ns),
        "method": savings.METHOD,
        "definition": savings.DEFINITION,
        "prices": dict(fleet.configuration.prices),
        "totals": [_group_facts(fleet, fleet.whole(unit)) for unit in report.units],
        "groups": _groups(fleet),
        "weeks": _past_weeks(fleet),
        "top_jobs": {unit: _names(fleet.top(unit)) for unit in report.units},
        "noteworthy_jobs": {unit: _names(fleet.noteworthy(unit)) for unit in report.units},
    }
    # one line per job: a fleet has many, and Python's own encoder is ten times slower if it has to indent
    whole = json.dumps(document, indent=2).removesuffix("\n}")
    lines = ",\n".join(f"    {json.dumps(_fleet_job_facts(fleet, job))}" for job in report.jobs)
    return f'{whole},\n  "jobs": [{f"{chr(10)}{lines}{chr(10)}  " if lines else ""}]\n}}\n'


CSV_LINES = ("jobs", "groups", "weeks")


def as_csv(fleet: FleetReport, lines: str = "jobs") -> str:
    """The report as CSV (RFC 4180), one line per job, per group (the first ones are all jobs of a unit) or per week. lines:
    "jobs", "groups" or "weeks".

    Empty cells: unmeasured, or not known. Labels are one JSON object, lists are JSON arrays.
    """
    report = fleet.report
    about = {"week": str(report.week), "revision": report.revision, "has_late_data": report.has_late_data}
    if lines == "weeks":
        return csv_of(_past_weeks(fleet))
    if lines == "groups":
        wholes = [{"dimension": "all", "name": None, **_group_facts(fleet, fleet.whole(unit))} for unit in report.units]
        return csv_of([{**about, **entry} for entry in (*wholes, *_groups(fleet))])
    return csv_of([{**about, **_fleet_job_facts(fleet, job)} for job in report.jobs])


def csv_of(entries: Sequence[dict[str, Any]]) -> str:
    """Entries with equal keys as CSV, without texts that a spreadsheet would treat as formulas."""
    out = io.StringIO()
    if not entries:
        return ""
    writer = csv.DictWriter(out, list(entries[0]), lineterminator="\r\n")
    writer.writeheader()
    for entry in entries:
        writer.writerow({name: _cell(value) for name, value in entry.items()})
    return out.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, (dict, list)):
        return json.dumps(value, sort_keys=True)
    return spreadsheet_cell(value) if isinstance(value, str) else value


def jobs_text(entries: Sequence[JobWeek]) -> str:
    """The text of `stitchfleet jobs`: one line per job, newest first."""
    rows = [
        (
            *(job.name, job.namespace, job.run_id[:12], moment(job.started_ns), _state(job)),
            *(str(job.iterations), str(job.stitched_count)),
            saving_words(job.saving) if job.stitched_count else job.status.value,
            saved_words(job),
            str(job.lost) if job.lost else "",
        )
        for job in sorted(entries, key=lambda job: -job.started_ns)
    ]
    headings = ("job", "namespace", "run", "started (UTC)", "state", "iterations", "stitched")
    return "\n".join([*table((*headings, "saving per iteration (95%)", "device-time saved (95%)", "lost"), rows), ""])


def _state(job: JobWeek) -> str:
    if job.ended_ns is None:
        return "end unknown"
    return (job.phase or "ended") + (f", not {ranks_words(job)}" if job.apart else "")
