"""A week's report as one HTML page that needs nothing from elsewhere: no script, no font, no picture to load. It prints well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from . import savings
from .details import ClusterLine, Detail, EventLine
from .pictures import PLAIN_COLOUR, STITCHED_COLOUR, UNCOUNTED_COLOUR, Bar, iterations_picture, savings_picture
from .report import hours, moment, percent, saved_words, saving_words
from .weekly import JobWeek, ProcessKey, Status, UnitTotal, WeekReport

MAX_BARS = 20
MAX_DETAILED = 8
MAX_CLUSTERS = 25
MAX_EVENTS = 40

STYLE = f"""
body {{ font: 15px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; color: #1d2530; margin: 2rem auto;
  max-width: 980px; padding: 0 1rem; }}
h1 {{ font-size: 1.6rem; margin-bottom: .1rem; }} h2 {{ font-size: 1.2rem; margin-top: 2.2rem; }} h3 {{ font-size: 1rem; }}
.quiet {{ color: #5a6675; }} .big {{ font-size: 2rem; font-weight: 600; }} .loss {{ color: #c1443c; }}
.cards {{ display: flex; gap: 1rem; flex-wrap: wrap; margin: 1rem 0; }}
.card {{ border: 1px solid #d9dee5; border-radius: 8px; padding: .8rem 1.1rem; flex: 1 1 200px; }}
table {{ border-collapse: collapse; width: 100%; font-size: 13px; }}
th, td {{ text-align: left; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid #e6e9ee; vertical-align: top; }}
td.figure, th.figure {{ text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }}
td.code {{ font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 12px; overflow-wrap: anywhere; }}
svg {{ width: 100%; height: auto; }}
svg text {{ font: 12px system-ui, "DejaVu Sans", sans-serif; fill: #1d2530; }} svg .tick {{ fill: #5a6675; font-size: 11px; }}
svg .axis {{ fill: #5a6675; }} svg .grid {{ stroke: #e6e9ee; }} svg .zero {{ stroke: #8a94a3; }}
.key span {{ display: inline-block; width: .8em; height: .8em; border-radius: 50%; margin: 0 .3em 0 1em; }}
.key .plain {{ background: {PLAIN_COLOUR}; }} .key .stitched {{ background: {STITCHED_COLOUR}; }}
.key .uncounted {{ background: {UNCOUNTED_COLOUR}; }}
@media print {{ body {{ margin: 0; max-width: none; }} section {{ break-inside: avoid; }} h2 {{ break-after: avoid; }} }}
"""

KEY = (
    '<p class="key quiet"><span class="plain"></span>plain (TensorFlow\'s own graph)<span class="stitched"></span>stitched'
    '<span class="uncounted"></span>not counted (warm-up, compiling, verifying, first after a change)</p>'
)


def detailed_jobs(report: WeekReport) -> list[JobWeek]:
    """The jobs that the page shows in detail: those with the most device-hours."""
    return [job for job in report.jobs if job.iterations][:MAX_DETAILED]


def as_html(report: WeekReport, details: Mapping[ProcessKey, Detail]) -> str:
    """The page; `details` for the jobs of `detailed_jobs`."""
    parts = [
        f"<h1>What stitching saved</h1><p class='quiet'>Week {report.week}, {report.week.in_words} (UTC)"
        f"{'' if report.is_over else ', not over yet'}"
        f"{f', revision {report.revision}' if report.revision else ''}. Made {moment(report.made_ns)} UTC.</p>"
    ]
    if not report.jobs:
        parts.append("<p>No job ran in this week.</p>")
    parts += [_unit_section(total, [job for job in report.jobs if job.unit == total.unit]) for total in report.totals()]
    unmeasured = [job for job in report.jobs if job.status is Status.UNMEASURED]
    if unmeasured:
        parts.append(_unmeasured_section(unmeasured))
    parts += [_job_section(job, details[job.key]) for job in detailed_jobs(report) if job.key in details]
    parts.append(
        f"<section><h2>How this was measured</h2><p>{escape(savings.DEFINITION)}</p>"
        "<p>The interval of a job is Student's t on the logarithm of the ratio of its plain and stitched means; in a total, "
        "errors of jobs that are submissions of the same thing add up in full, those of others in squares. "
        f"Method {savings.METHOD}.</p></section>"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Stitchfleet, week {report.week}</title><style>{STYLE}</style></head><body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def html_table(headings: Sequence[str], lines: Sequence[Sequence[str]], figures: frozenset[int] = frozenset()) -> str:
    """A table of texts, which it escapes; the columns in `figures` are flush right."""

    def cells(tag: str, line: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=figure' if column in figures else ''}>{escape(text)}</{tag}>"
            for column, text in enumerate(line)
        )

    body = "".join(f"<tr>{cells('td', line)}</tr>" for line in lines)
    return f"<table><thead><tr>{cells('th', headings)}</tr></thead><tbody>{body}</tbody></table>"


def _card(heading: str, figure: str, below: str, is_loss: bool = False) -> str:
    return (
        f'<div class="card"><div class="quiet">{escape(heading)}</div><div class="big{" loss" if is_loss else ""}">'
        f'{escape(figure)}</div><div class="quiet">{escape(below)}</div></div>'
    )


def _unit_section(total: UnitTotal, jobs: Sequence[JobWeek]) -> str:
    saved = total.saved
    if total.measured:
        what = _card(
            f"{total.unit} device-time saved",
            hours(saved.value, sign=True),
            f"95% interval {hours(saved.low, True)} to {hours(saved.high, True)}",
            saved.high < 0,
        )
    else:
        what = _card(
            f"{total.unit} device-time saved", "unmeasured", f"known cost of trying {hours(max(0.0, -saved.value))}"
        )
    ran = _card(
        "of device-time that ran", hours(total.device_hours), f"{hours(total.overhead_hours)} spent on stitching itself"
    )
    which = _card(
        "jobs measured",
        str(total.measured),
        f"{total.slower} slower, {total.not_stitched} not stitched, {total.unmeasured} unmeasured",
    )
    parts = [f"<section><h2>{total.unit} jobs</h2>", f'<div class="cards">{what}{ran}{which}</div>']
    listed = [job for job in jobs if job.status is Status.MEASURED]
    if listed:
        parts.append(_savings_of(listed, total))
    known = [job for job in jobs if job.status is not Status.UNMEASURED]
    if known:
        parts.append(_jobs_table(known))
    return "".join([*parts, "</section>"])


def _savings_of(jobs: Sequence[JobWeek], total: UnitTotal) -> str:
    shown = sorted(jobs, key=lambda job: -abs(job.saved_hours or 0.0))[:MAX_BARS]
    largest = max(abs(edge) for job in shown for edge in (job.saved_hours_interval or (0.0, 0.0)))
    largest = max(largest, abs(total.saved.low), abs(total.saved.high))
    unit, factor = ("hours", 1.0) if largest >= 1 else ("minutes", 60.0) if largest * 60 >= 1 else ("seconds", 3600.0)
    bars = []
    for job in shown:
        low, high = job.saved_hours_interval or (0.0, 0.0)
        label = f"{job.name} ({job.run_id[:8]})"
        bars.append(Bar(label, (job.saved_hours or 0.0) * factor, low * factor, high * factor))
    bars.append(
        Bar("all jobs together", total.saved.value * factor, total.saved.low * factor, total.saved.high * factor, True)
    )
    rest = (
        f"<p class='quiet'>The {MAX_BARS} with the largest effect of {len(jobs)}.</p>" if len(jobs) > MAX_BARS else ""
    )
    return savings_picture(bars, f"{total.unit} device-{unit}") + rest


def _jobs_table(jobs: Sequence[JobWeek]) -> str:
    lines = []
    for job in jobs[:200]:
        saving = job.saving if job.status is Status.MEASURED else None
        lines.append(
            (
                *(job.name, job.namespace, f"{job.device_count} {job.device_kind}", hours(job.device_hours)),
                f"{job.stitched_count:,} of {job.iterations:,}",
                f"{saving.plain_ns / 1e6:.2f} → {saving.stitched_ns / 1e6:.2f}" if saving else "",
                saving_words(saving) if saving else job.status.value + (f": {job.reason}" if job.reason else ""),
                saved_words(job) + ("*" if job.overhead_is_estimate else ""),
            )
        )
    headings = ("job", "namespace", "devices", "device-time", "stitched iterations", "ms an iteration")
    note = (
        "<p class='quiet'>* ended without a word: what stitching cost is taken from its uncounted iterations.</p>"
        if any(job.overhead_is_estimate for job in jobs)
        else ""
    )
    more = f"<p class='quiet'>and {len(jobs) - 200} more jobs; the CSV has all.</p>" if len(jobs) > 200 else ""
    return (
        html_table((*headings, "saving an iteration (95%)", "device-time saved (95%)"), lines, frozenset({3, 4, 5}))
        + more
        + note
    )


def _unmeasured_section(jobs: Sequence[JobWeek]) -> str:
    lines = [
        (
            job.name,
            job.namespace,
            f"{job.device_count} {job.device_kind}",
            hours(job.device_hours),
            f"{job.stitched_count:,}",
        )
        for job in jobs[:200]
    ]
    return (
        "<section><h2>Unmeasured jobs</h2><p>These ran stitched, but ended before two pairs of plain and stitched blocks were "
        "complete. Nothing is assumed about what they saved; they are in no total.</p>"
        + html_table(("job", "namespace", "devices", "device-time", "stitched iterations"), lines, frozenset({3, 4}))
        + "</section>"
    )


def _job_section(job: JobWeek, detail: Detail) -> str:
    about = [
        job.framework,
        f"{job.device_count} {job.device_kind}",
        f"run {job.run_id}",
        f"began {moment(job.started_ns)} UTC",
    ]
    if job.reason:
        about.append(job.reason)
    parts = [
        f"<section><h2>{escape(job.name)}</h2><p class='quiet'>{escape(' · '.join(part for part in about if part))}</p>",
    ]
    if job.status is Status.MEASURED and job.saving is not None:
        saving = job.saving
        parts.append(
            f"<p>An iteration took {saving.plain_ns / 1e6:.2f} ms plain and {saving.stitched_ns / 1e6:.2f} ms stitched: a saving of "
            f"<b>{percent(saving.relative)}</b> (95% interval {percent(saving.low)} to {percent(saving.high)}, from "
            f"{saving.pairs} pairs of blocks). In this week: {escape(saved_words(job))} of device-time.</p>"
        )
    if detail.steps:
        parts += [iterations_picture(detail), KEY]
    parts.append("</section>")
    if detail.clusters:
        parts.append(_clusters_section(detail.clusters))
    if detail.events:
        parts.append(_events_section(detail.events))
    return "".join(parts)


def _clusters_section(clusters: Sequence[ClusterLine]) -> str:
    lines = []
    for cluster in clusters[:MAX_CLUSTERS]:
        ops = sorted(cluster.ops.items(), key=lambda item: (-item[1], item[0]))
        words = ", ".join(f"{count} {op}" if count > 1 else op for op, count in ops[:6])
        if len(ops) > 6:
            words += f" and {len(ops) - 6} kinds more"
        lines.append(
            (
                *(cluster.name, f"{cluster.instances} x {sum(cluster.ops.values())}", words, cluster.state or "-"),
                "-" if cluster.largest_error is None else f"{cluster.largest_error:.2g}",
                "-" if cluster.over_tolerance is None else f"{100 * cluster.over_tolerance:.1f}%",
                cluster.kernel or "-",
            )
        )
    more = f"<p class='quiet'>and {len(clusters) - MAX_CLUSTERS} kinds more</p>" if len(clusters) > MAX_CLUSTERS else ""
    headings = ("cluster", "ops", "which", "state", "largest error", "of what is allowed", "kernel")
    return f"<section><h3>Clusters</h3>{html_table(headings, lines, frozenset({1, 4, 5}))}{more}</section>"


def _events_section(events: Sequence[EventLine]) -> str:
    lines = [(moment(event.time_ns, seconds=True), event.kind, event.message) for event in events[-MAX_EVENTS:]]
    heading = "Events" if len(events) <= MAX_EVENTS else f"The last {MAX_EVENTS} events"
    return f"<section><h3>{heading}</h3>{html_table(('time (UTC)', 'kind', 'what happened'), lines)}</section>"
