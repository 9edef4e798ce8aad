"""A week's figures and the list of jobs as text, JSON and CSV."""

from __future__ import annotations

import csv
import datetime
import io
import json
from collections.abc import Sequence
from typing import Any

from . import savings
from .savings import Saving
from .weekly import JobWeek, Status, UnitTotal, WeekReport


def hours(value: float, sign: bool = False) -> str:
    """Device-hours for people: in hours, minutes or seconds, whichever reads well."""
    size = abs(value)
    if value == 0:
        return "0 s"
    for unit, factor in (("h", 1.0), ("min", 60.0), ("s", 3600.0)):
        if size * factor >= 1.0 or unit == "s":
            return f"{value * factor:{'+' if sign else ''}.{2 if size * factor < 10 else 1}f} {unit}"
    raise AssertionError("unreachable")


def percent(value: float) -> str:
    return f"{100 * value:+.1f}%"


def moment(time_ns: int | None, seconds: bool = False) -> str:
    """UTC, to the minute or the second."""
    if time_ns is None:
        return "-"
    form = "%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M"
    return datetime.datetime.fromtimestamp(time_ns / 1e9, datetime.timezone.utc).strftime(form)


def table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """Text in columns; the first is flush left, as are those that hold no figure."""
    widths = [max(len(line[k]) for line in (headings, *lines)) for k in range(len(headings))]
    right = [k > 0 and any(line[k][:1] in "+-0123456789" for line in lines if line[k]) for k in range(len(headings))]
    return [
        "  ".join(
            cell.rjust(width) if flush else cell.ljust(width) for cell, width, flush in zip(line, widths, right)
        ).rstrip()
        for line in (headings, *lines)
    ]


def saving_words(saving: Saving | None) -> str:
    if saving is None:
        return "unmeasured"
    return f"{percent(saving.relative)} ({percent(saving.low)} to {percent(saving.high)})"


def saved_words(job: JobWeek) -> str:
    value, interval = job.saved_hours, job.saved_hours_interval
    if value is None or interval is None:
        return "unmeasured"
    if job.status is Status.NOT_STITCHED:
        return hours(value, sign=True)
    return f"{hours(value, sign=True)} ({hours(interval[0], True)} to {hours(interval[1], True)})"


def total_words(total: UnitTotal) -> str:
    """The one sentence."""
    if total.measured == 0:
        what = f"{total.unit} device-hours saved: none measured"
        if total.saved.value < 0:
            what += f"; stitching cost {hours(-total.saved.value)}"
    else:
        what = (
            f"{total.unit} device-hours saved: {hours(total.saved.value, True)} "
            f"(95% interval {hours(total.saved.low, True)} to {hours(total.saved.high, True)})"
        )
    what += f", of {hours(total.device_hours)} that ran."
    return what + (
        f" Jobs: {total.measured} measured ({total.slower} of them slower), {total.not_stitched} not stitched, "
        f"{total.unmeasured} unmeasured ({hours(total.unmeasured_device_hours)}, in no total)."
    )


def as_text(report: WeekReport) -> str:
    """The report for a terminal."""
    state = "" if report.is_over else ", not over yet"
    frozen = f", revision {report.revision}" if report.revision else ""
    lines = [f"Week {report.week}, {report.week.in_words} (UTC{state}{frozen})", ""]
    if not report.jobs:
        return "\n".join([*lines, "No job ran in this week.", ""])
    lines += [total_words(total) for total in report.totals()]
    listed = [job for job in report.jobs if job.status is not Status.UNMEASURED]
    if listed:
        lines += ["", *_job_table(listed)]
    unmeasured = [job for job in report.jobs if job.status is Status.UNMEASURED]
    if unmeasured:
        lines += ["", "Unmeasured: too few pairs of plain and stitched blocks to say what they saved"]
        lines += table(
            ("job", "namespace", "run", "devices", "device-time", "stitched iterations", "known cost"),
            [
                (
                    *(job.name, job.namespace, job.run_id[:12], _devices(job), hours(job.device_hours)),
                    *(str(job.stitched_count), hours(job.overhead_hours)),
                )
                for job in unmeasured
            ],
        )
    if any(job.overhead_is_estimate for job in report.jobs):
        lines += ["", "* ended without a word: what stitching cost is taken from its uncounted iterations"]
    lost = sum(job.lost for job in report.jobs)
    if lost:
        lines += ["", f"{lost} records of these jobs were lost (full or slow disk); their figures rest on the rest."]
    return "\n".join([*lines, "", f"Method {savings.METHOD}. {savings.DEFINITION}", ""])


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
    rows = []
    for job in entries:
        saving = job.saving if job.status is Status.MEASURED else None
        rows.append(
            (
                *(job.name, job.namespace, job.run_id[:12], _devices(job), hours(job.device_hours)),
                *(str(job.iterations), str(job.stitched_count)),
                f"{saving.plain_ns / 1e6:.2f}" if saving else "",
                f"{saving.stitched_ns / 1e6:.2f}" if saving else "",
                saving_words(saving) if saving else job.status.value,
                saved_words(job) + ("*" if job.overhead_is_estimate else ""),
            )
        )
    return table((*headings, "saving an iteration (95%)", "device-time saved (95%)"), rows)


def job_facts(job: JobWeek) -> dict[str, Any]:
    """One job for machines. Hours are device-hours, not rounded; null: unmeasured, or not known."""
    interval = job.saved_hours_interval
    saving = job.saving
    return {
        **dict(zip(("run_id", "cluster", "attempt", "rank", "process"), job.key, strict=True)),
        "namespace": job.namespace,
        "name": job.name,
        "user": job.user,
        "model_fingerprint": job.model_fingerprint,
        "framework": job.framework,
        "labels": job.labels,
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
        "records_lost": job.lost,
    }


def _iso(time_ns: int | None) -> str | None:
    if time_ns is None:
        return None
    return datetime.datetime.fromtimestamp(time_ns / 1e9, datetime.timezone.utc).isoformat(timespec="milliseconds")


def as_json(report: WeekReport) -> str:
    """The report for machines; `format` counts incompatible changes of this document."""
    return (
        json.dumps(
            {
                "format": 1,
                "week": str(report.week),
                "revision": report.revision,
                "is_over": report.is_over,
                "made": _iso(report.made_ns),
                "method": savings.METHOD,
                "definition": savings.DEFINITION,
                "totals": [
                    {
                        "unit": total.unit,
                        "saved_hours": total.saved.value,
                        "saved_hours_low": total.saved.low,
                        "saved_hours_high": total.saved.high,
                        "templates": total.saved.templates,
                        "device_hours": total.device_hours,
                        "overhead_hours": total.overhead_hours,
                        "jobs_measured": total.measured,
                        "jobs_slower": total.slower,
                        "jobs_not_stitched": total.not_stitched,
                        "jobs_unmeasured": total.unmeasured,
                        "unmeasured_device_hours": total.unmeasured_device_hours,
                        "unmeasured_overhead_hours": total.unmeasured_overhead_hours,
                    }
                    for total in report.totals()
                ],
                "jobs": [job_facts(job) for job in report.jobs],
            },
            indent=2,
        )
        + "\n"
    )


def as_csv(report: WeekReport) -> str:
    """One line a job (RFC 4180); empty: unmeasured, or not known. Labels as one JSON object."""
    return csv_of([{"week": str(report.week), **job_facts(job)} for job in report.jobs])


def csv_of(entries: Sequence[dict[str, Any]]) -> str:
    """Lines of equal keys as CSV. A text that a spreadsheet would take for a formula gets a quote before it."""
    out = io.StringIO()
    if not entries:
        return ""
    writer = csv.DictWriter(out, list(entries[0]), lineterminator="\r\n")
    writer.writeheader()
    for entry in entries:
        writer.writerow({name: _cell(value) for name, value in entry.items()})
    return out.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, dict):
        return json.dumps(value, sort_keys=True)
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return value


def jobs_text(entries: Sequence[JobWeek]) -> str:
    """`stitchfleet jobs`: one line a job, the newest first."""
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
    return "\n".join([*table((*headings, "saving an iteration (95%)", "device-time saved (95%)", "lost"), rows), ""])


def _state(job: JobWeek) -> str:
    if job.ended_ns is None:
        return "no end seen"
    return job.phase or "ended"
