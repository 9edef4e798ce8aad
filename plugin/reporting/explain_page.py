"""A job's step as one self-contained HTML page: the picture, its legend, the clusters, and what stayed in TensorFlow and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from .explain_story import ClusterKind, JobStory
from .explain_text import FIGURES, HEADINGS, TIMES_NOTE, cells, head_lines, reasons
from .step_picture import COLOURS, colour_of, label_of

STYLE = """
body { font: 15px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; color: #1d2530; margin: 2rem auto;
  max-width: 1760px; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: .1rem; } h2 { font-size: 1.2rem; margin-top: 1.6rem; }
.quiet { color: #5a6675; } .small { font-size: 13px; } .loss { color: #c1443c; }
.beside { display: flex; gap: 2rem; align-items: flex-start; flex-wrap: wrap; }
.picture { flex: 1 1 760px; min-width: 0; } .facts { flex: 1 1 640px; min-width: 0; }
.picture svg { width: 100%; height: auto; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th, td { text-align: left; padding: .25rem .7rem .25rem 0; border-bottom: 1px solid #e6e9ee; vertical-align: top; }
td.name { white-space: nowrap; } td.file { overflow-wrap: anywhere; }
td.figure, th.figure { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.chip { display: inline-block; width: .8em; height: .8em; border-radius: 3px; margin-right: .4em; }
.key span.chip { margin-left: .9em; }
code { font: 12px ui-monospace, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; }
"""


def as_html(story: JobStory, picture: str) -> str:
    """The page as HTML text. picture: SVG text."""
    labels = sorted({label_of(kind.name) for kind in story.kinds}, key=lambda label: [*COLOURS, label].index(label))
    key = "".join(f"{_chip(colour_of(label + '_'))}{escape(label)} " for label in labels)
    phases = [
        (phase, str(facts["steps"]), f"{facts['median_ms']:.2f} ms") for phase, facts in story.program["phases"].items()
    ]
    stayed = [(reason, str(count), words) for reason, count, words in reasons(story)]
    parts = [
        f"<h1>The step of {escape(story.program['name'])}</h1>",
        f"<p class='quiet'>run {escape(story.run_id)} ({escape(story.versions)})</p>",
        *(f"<p>{escape(line)}</p>" for line in head_lines(story)),
        *(f"<p class='loss'>reverted: {escape(line)}</p>" for line in story.reverts),
        "<div class='beside'><div class='picture'><h2>From top to bottom</h2>",
        picture,
        "</div><div class='facts'><h2>How to read it</h2>",
        f"<p class='key small'>{key}{_chip('#c3c9d1')}matrix product or convolution (TensorFlow's)</p>",
        "<p class='small quiet'>A coloured box is a cluster, merged into one kernel. It is the wider the longer TensorFlow takes "
        "(square root, with a least width); the filled part is the kernel's share of that, the pale one is saved. Lines are "
        "tensors; those that cross many rows are left out. A red "
        "edge: the kernel was the slower in those calls. A dashed "
        "frame holds rows that come several times in a row. Point at "
        "a box for its operators, places and times.</p>",
        "<h2>Clusters</h2>",
        _clusters_table(story.kinds),
        f"<p class='small quiet'>{escape(TIMES_NOTE)}.</p>",
        "<h2>What stayed in TensorFlow, and why</h2>",
        _table(("reason", "operators", "which"), stayed, frozenset({1})),
        "<h2>Phases</h2>",
        _table(("phase", "counted steps", "median"), phases, frozenset({1, 2})),
        "<h2>Inside a kernel</h2><p class='small'>The groups, schemes and mapping of a kernel, and why: "
        "<code>stitchfleet explain FILE</code> with its file.</p>",
        _files_table(story.kinds),
        "</div></div>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Stitchfleet: the step of {escape(story.program['name'])}</title><style>{STYLE}</style></head><body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _chip(colour: str) -> str:
    return f'<span class="chip" style="background:{colour}"></span>'


def _clusters_table(kinds: Sequence[ClusterKind]) -> str:
    shown = range(len(HEADINGS) - 1)  # the kernel's name is in the tooltip
    rows = []
    for kind in kinds:
        texts = cells(kind)
        first = f"{_chip(colour_of(kind.name))}{escape(texts[0])}"
        tooltip = escape("; ".join([texts[-1], *(scope or "(no name scope)" for scope in kind.scopes)]), quote=True)
        rows.append(
            f'<tr title="{tooltip}">'
            + f"<td class=name>{first}</td>"
            + "".join(_cell("td", escape(texts[k]), k in FIGURES) for k in shown[1:])
            + "</tr>"
        )
    head = "".join(_cell("th", escape(HEADINGS[k]), k in FIGURES) for k in shown)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _files_table(kinds: Sequence[ClusterKind]) -> str:
    rows = "".join(
        f"<tr><td class=name>{escape(kind.name)}</td><td class=file><code>{escape(file)}</code></td></tr>"
        for kind in kinds
        for file in kind.hlo
    )
    return f"<table><thead><tr><th>cluster</th><th>file</th></tr></thead><tbody>{rows}</tbody></table>"


def _table(headings: Sequence[str], lines: Iterable[Sequence[str]], figures: frozenset[int] = frozenset()) -> str:
    head = "".join(_cell("th", escape(text), k in figures) for k, text in enumerate(headings))
    body = "".join(
        "<tr>" + "".join(_cell("td", escape(text), k in figures) for k, text in enumerate(line)) + "</tr>"
        for line in lines
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(tag: str, html: str, is_figure: bool) -> str:
    return f"<{tag}{' class=figure' if is_figure else ''}>{html}</{tag}>"
