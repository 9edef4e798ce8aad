"""A week's report as one HTML page that loads nothing from elsewhere: no script, no font, no picture. It prints well."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from ..statistics import savings
from ..statistics.savings import Total
from ..totals.weekly import JobWeek, ProcessKey, Status, UnitTotal, WeekReport
from .charts import (
    PLAIN_COLOUR,
    STITCHED_COLOUR,
    UNCOUNTED_COLOUR,
    Bar,
    TrendPoint,
    coverage_chart,
    iterations_chart,
    savings_chart,
    trend_chart,
)
from .configuration import Configuration
from .details import ClusterLine, Detail, EventLine
from .fleet import Dimension, FleetReport
from .formats import (
    COVERAGE_HEADINGS,
    WEEK_HEADINGS,
    cents,
    coverage_line,
    group_headings,
    group_line,
    hours,
    moment,
    of_devices,
    percent,
    revision_words,
    saved_words,
    saving_words,
    unreadable_words,
    week_lines,
    why_noteworthy,
)
from .printable import printable

MAX_BARS = 12
MAX_LINES = 25
MAX_DETAILED = 8
MAX_CLUSTERS = 25
MAX_EVENTS = 40
MAX_CELL = 400
"""Most characters in a cell of a table."""


def escape(text: str) -> str:
    """Text chosen by somebody else, made printable and escaped for HTML."""
    return html.escape(printable(text))


STYLE = f"""
body {{ font: 15px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; color: #1d2530; margin: 2rem auto;
  max-width: 980px; padding: 0 1rem; }}
h1 {{ font-size: 1.6rem; margin-bottom: .1rem; }} h2 {{ font-size: 1.25rem; margin-top: 2.4rem; }}
h3 {{ font-size: 1rem; margin: 1.6rem 0 .3rem; }}
.quiet {{ color: #5a6675; }} .big {{ font-size: 1.7rem; font-weight: 600; line-height: 1.25; }} .loss {{ color: #c1443c; }}
.cards {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(200px, 1fr)); gap: 1rem; margin: 1rem 0; }}
.card {{ border: 1px solid #d9dee5; border-radius: 8px; padding: .8rem 1.1rem; break-inside: avoid; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; width: 100%; font-size: 13px; }}
th, td {{ text-align: left; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid #e6e9ee; vertical-align: top; }}
td:first-child {{ overflow-wrap: anywhere; min-width: 7em; }}
td.figure, th.figure {{ text-align: right; font-variant-numeric: tabular-nums; }} td.figure {{ white-space: nowrap; }}
svg {{ display: block; width: 100%; height: auto; max-width: 700px; }}
.key span {{ display: inline-block; width: .8em; height: .8em; border-radius: 50%; margin: 0 .3em 0 1em; }}
.key .plain {{ background: {PLAIN_COLOUR}; }} .key .stitched {{ background: {STITCHED_COLOUR}; }}
.key .uncounted {{ background: {UNCOUNTED_COLOUR}; }}
@media (max-width: 600px) {{ body {{ margin: 1rem auto; padding: 0 .8rem; }} }}
@media print {{
  @page {{ size: A4; margin: 14mm 12mm; }}
  body {{ margin: 0; padding: 0; max-width: none; font-size: 10.5pt; print-color-adjust: exact; -webkit-print-color-adjust: exact; }}
  .wide {{ overflow: visible; }} svg {{ break-inside: avoid; max-width: 140mm; }}
  .cards {{ grid-template-columns: repeat(4, 1fr); gap: .6rem; }} .card {{ padding: .5rem .7rem; font-size: 9pt; }}
  .big {{ font-size: 14pt; }}
  table {{ font-size: 8pt; }}
  td.figure {{ white-space: normal; }} h2, h3 {{ break-after: avoid; }}
  tr {{ break-inside: avoid; }} thead {{ display: table-header-group; }}
}}
"""

KEY = (
    '<p class="key quiet"><span class="plain"></span>plain (TensorFlow\'s own graph)<span class="stitched"></span>stitched'
    '<span class="uncounted"></span>not counted (warm-up, compiling, verifying, first after a change)</p>'
)


def detailed_jobs(report: WeekReport) -> list[JobWeek]:
    """The jobs that the page shows in detail: those with the most device-hours."""
    return [job for job in report.jobs if job.iterations][:MAX_DETAILED]


def as_html(fleet: FleetReport, details: Mapping[ProcessKey, Detail]) -> str:
    """The page. `details`: for the jobs of `detailed_jobs`."""
    report = fleet.report
    parts = [
        f"<h1>What stitching saved</h1><p class='quiet'>Week {report.week}, {report.week.in_words} (UTC)"
        f"{'' if report.is_over else ', not over yet'}"
        f"{f', {revision_words(report)}' if report.revision else ''}. Made {moment(report.made_ns)} UTC.</p>"
    ]
    if report.jobs:
        parts += [_unit_section(fleet, total) for total in report.totals()]
        parts.append(_coverage_section(report.totals()))
    else:
        parts.append("<p>No job ran in this week.</p>")
    if len(fleet.trend) > 1:
        parts.append(_trend_section(fleet))
    for unit in report.units:
        parts += [_groups_section(fleet, dimension, unit) for dimension in fleet.dimensions]
        parts.append(_jobs_sections(fleet, unit))
    if report.unreadable:
        parts.append(f"<p class='loss'>{unreadable_words(report.unreadable)}</p>")
    unmeasured = [job for job in report.jobs if job.status is Status.UNMEASURED]
    if unmeasured:
        parts.append(_unmeasured_section(unmeasured))
    parts += [
        _job_section(job, details[job.key], f"job-{place}")
        for place, job in enumerate(detailed_jobs(report))
        if job.key in details
    ]
    parts.append(
        f"<section><h2>How this was measured</h2><p>{escape(savings.DEFINITION)}</p>"
        "<p>The interval of a job is Student's t on the logarithm of the ratio of its plain and stitched means; in a total and in "
        "a group, errors of jobs that are submissions of the same thing add up in full, those of others in squares. Intervals of "
        f"groups therefore do not add up to the total's. Method {savings.METHOD}.</p>{_prices(fleet.configuration)}</section>"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        # the page is complete: whatever a name in it tries to include, a browser loads nothing and runs nothing
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>Stitchfleet, week {report.week}</title><style>{STYLE}</style></head><body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _prices(configuration: Configuration) -> str:
    if not configuration.prices:
        return ""
    prices = ", ".join(f"{kind} {price:g} {configuration.currency}" for kind, price in configuration.prices.items())
    return (
        f"<p>Money is hours avoided times the configured price of a device-hour of the job's device kind: {escape(prices)}. "
        "It says what those hours are worth at that price; no invoice gets smaller by it unless fewer devices are paid for.</p>"
    )


def html_table(headings: Sequence[str], lines: Sequence[Sequence[str]], figures: frozenset[int] = frozenset()) -> str:
    """A table of texts, which are escaped. The columns in `figures` are flush right."""

    def cells(tag: str, line: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=figure' if column in figures else ''}>{escape(printable(text, MAX_CELL))}</{tag}>"
            for column, text in enumerate(line)
        )

    body = "".join(f"<tr>{cells('td', line)}</tr>" for line in lines)
    return (
        f'<div class="wide"><table><thead><tr>{cells("th", headings)}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _chart(svg: str) -> str:
    return f'<div class="wide">{svg}</div>'


def _more(count: int, shown: int) -> str:
    return f"<p class='quiet'>and {count - shown:,} more; the CSV has all.</p>" if count > shown else ""


def _card(heading: str, figure: str, below: str, is_loss: bool = False) -> str:
    return (
        f'<div class="card"><div class="quiet">{escape(heading)}</div><div class="big{" loss" if is_loss else ""}">'
        f'{escape(figure)}</div><div class="quiet">{escape(below)}</div></div>'
    )


def _unit_section(fleet: FleetReport, total: UnitTotal) -> str:
    saved = total.saved
    if total.measured:
        what = _card(
            f"{of_devices(total.unit, 'time')} saved",
            hours(saved.value, sign=True),
            f"95% interval {hours(saved.low, True)} to {hours(saved.high, True)}",
            saved.high < 0,
        )
    else:
        what = _card(
            f"{of_devices(total.unit, 'time')} saved",
            "unmeasured",
            f"known cost of trying {hours(max(0.0, -saved.value))}",
        )
    ran = _card(
        f"of {of_devices(total.unit, 'time')} that ran",
        hours(total.device_hours),
        f"{hours(total.overhead_hours)} spent on stitching itself",
    )
    which = _card(
        "jobs measured",
        f"{total.measured:,}",
        f"{total.slower:,} slower, {total.not_stitched:,} not stitched, {total.unmeasured:,} unmeasured",
    )
    return f'<section><h2>{total.unit} jobs</h2><div class="cards">{what}{ran}{which}{_money_card(fleet, total.unit)}</div></section>'


def _money_card(fleet: FleetReport, unit: str) -> str:
    money, currency = fleet.whole(unit).money, fleet.configuration.currency
    if money is None:
        return ""
    if money.amount is None:
        return _card("hours avoided times price", "no amount", f"no price for {', '.join(money.unpriced)}")
    amount = money.amount
    interval = f"95% interval {cents(amount.low)} to {cents(amount.high)} {currency}"
    return _card("hours avoided times price", f"{cents(amount.value)} {currency}", interval, amount.high < 0)


def _coverage_section(totals: Sequence[UnitTotal]) -> str:
    chart = coverage_chart(
        [(f"{total.unit} jobs", total.measured, total.unmeasured, total.not_stitched) for total in totals], "coverage"
    )
    lines = [coverage_line(total) for total in totals]
    return (
        f"<section><h2>Coverage</h2>{_chart(chart)}"
        + html_table(COVERAGE_HEADINGS, lines, frozenset(range(1, len(COVERAGE_HEADINGS))))
        + "<p class='quiet'>An enabled job is measured, unmeasured (too few pairs of blocks) or not stitched. Fell back: it went "
        "back to, or stayed with, TensorFlow's own graph, whether it was measured before or not.</p></section>"
    )


def _scaled(edges: Sequence[float]) -> tuple[str, float]:
    """Name and factor of the unit of time that suits hours of which the largest is among `edges`."""
    largest = max((abs(edge) for edge in edges), default=0.0)
    return ("hours", 1.0) if largest >= 1 else ("minutes", 60.0) if largest * 60 >= 1 else ("seconds", 3600.0)


def _trend_section(fleet: FleetReport) -> str:
    parts = ["<section><h2>Weeks up to this one</h2>"]
    for unit in fleet.trend_units:
        totals = [next((total for total in past.totals if total.unit == unit), None) for past in fleet.trend]
        name, factor = _scaled([edge for t in totals if t is not None for edge in (t.saved.low, t.saved.high)])
        points = [
            TrendPoint(
                str(past.week),
                total.saved.value * factor if total is not None and total.measured else None,
                total.saved.low * factor if total is not None else 0.0,
                total.saved.high * factor if total is not None else 0.0,
                past.revision == 0 or past.has_late_data,
            )
            for past, total in zip(fleet.trend, totals, strict=True)
        ]
        chart = trend_chart(points, of_devices(unit, name), f"trend-{unit}")
        lines = html_table(WEEK_HEADINGS, week_lines(fleet, unit), frozenset({1, 2, 3, 4}))
        parts.append(f"<h3>{unit} jobs</h3>{_chart(chart)}{lines}")
    parts.append(
        "<p class='quiet'>A hollow dot is a week whose figures can still change; the others are frozen.</p></section>"
    )
    return "".join(parts)


def _groups_section(fleet: FleetReport, dimension: Dimension, unit: str) -> str:
    groups = fleet.groups(dimension, unit)
    lines = [group_line(fleet, group, dimension) for group in groups]
    measured = [(line[0], group.total.saved) for line, group in zip(lines, groups, strict=True) if group.total.measured]
    chart = _forest(measured, unit, f"{unit}-{dimension.name}") if len(measured) > 1 else ""
    headings = group_headings(fleet, dimension)
    return (
        f"<section><h2>{unit} jobs by {dimension.value}</h2>{chart}"
        + html_table(headings, lines[:MAX_LINES], frozenset(range(1, len(headings))))
        + f"{_more(len(groups), MAX_LINES)}</section>"
    )


def _forest(entries: Sequence[tuple[str, Total]], unit: str, salt: str) -> str:
    """A chart of the MAX_BARS entries with the largest effect, in the given order."""
    largest = sorted(entries, key=lambda entry: -abs(entry[1].value))[:MAX_BARS]
    shown = [entry for entry in entries if entry in largest]
    name, factor = _scaled([edge for _, saved in shown for edge in (saved.low, saved.high)])
    bars = [Bar(label, saved.value * factor, saved.low * factor, saved.high * factor) for label, saved in shown]
    rest = (
        f"<p class='quiet'>The {MAX_BARS} with the largest effect of {len(entries):,}.</p>"
        if len(entries) > MAX_BARS
        else ""
    )
    return _chart(savings_chart(bars, of_devices(unit, name), salt)) + rest


def _jobs_sections(fleet: FleetReport, unit: str) -> str:
    parts = []
    if top := fleet.top(unit):
        bars = [
            (
                job.name,
                Total(job.saved_hours or 0.0, *(job.saved_hours_interval or (0.0, 0.0)), 1, 1),
            )
            for job in top
        ]
        parts.append(
            f"<section><h2>{unit} jobs that saved most</h2>{_forest(bars, unit, f'top-{unit}')}{_jobs_table(top)}</section>"
        )
    if noteworthy := fleet.noteworthy(unit):
        lines = [
            (*(job.name, job.namespace, job.run_id[:12], saved_words(job)), why_noteworthy(job))
            for job in noteworthy[:MAX_LINES]
        ]
        headings = ("job", "namespace", "run", "device-time saved (95%)", "what happened")
        parts.append(
            f"<section><h2>{unit} jobs that are slower, had clusters reverted, or fell back, all or some of their ranks</h2>"
            f"{html_table(headings, lines)}{_more(len(noteworthy), MAX_LINES)}</section>"
        )
    known = [job for job in fleet.members(unit) if job.status is not Status.UNMEASURED]
    if known:
        parts.append(f"<section><h2>{unit} jobs with the most device-time</h2>{_jobs_table(known)}</section>")
    return "".join(parts)


def _jobs_table(jobs: Sequence[JobWeek]) -> str:
    lines = []
    for job in jobs[:MAX_LINES]:
        saving = job.saving if job.status is Status.MEASURED else None
        lines.append(
            (
                *(job.name, job.namespace, saved_words(job) + ("*" if job.overhead_is_estimate else "")),
                saving_words(saving) if saving else job.status.value + (f": {job.reason}" if job.reason else ""),
                f"{saving.plain_ns / 1e6:.2f} → {saving.stitched_ns / 1e6:.2f}" if saving else "",
                *(f"{job.device_count} {job.device_kind}", hours(job.device_hours)),
                f"{job.stitched_count:,} of {job.iterations:,}",
            )
        )
    headings = ("job", "namespace", "device-time saved (95%)", "saving per iteration (95%)", "ms per iteration")
    note = (
        "<p class='quiet'>* ended without a report: the cost of stitching is estimated from its uncounted iterations.</p>"
        if any(job.overhead_is_estimate for job in jobs)
        else ""
    )
    return (
        html_table((*headings, "devices", "device-time", "stitched iterations"), lines, frozenset({2, 4, 6, 7}))
        + _more(len(jobs), MAX_LINES)
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
        for job in jobs[:MAX_LINES]
    ]
    return (
        "<section><h2>Unmeasured jobs</h2><p>These ran stitched, but ended before two pairs of plain and stitched blocks were "
        "complete. Nothing is assumed about what they saved; they are in no total.</p>"
        + html_table(("job", "namespace", "devices", "device-time", "stitched iterations"), lines, frozenset({3, 4}))
        + f"{_more(len(jobs), MAX_LINES)}</section>"
    )


def _job_section(job: JobWeek, detail: Detail, salt: str) -> str:
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
    if detail.function:
        others = (
            "another training function"
            if detail.other_functions == 1
            else f"{detail.other_functions} other training functions"
        )
        parts.append(
            f"<p class='quiet'>Steps of {escape(detail.function)}; the job's iterations are also those of {others}.</p>"
        )
    if detail.curve.points:
        parts += [_chart(iterations_chart(detail.curve, salt)), KEY]
    if detail.unreadable:
        parts.append(f"<p class='loss'>{unreadable_words(detail.unreadable)}</p>")
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
