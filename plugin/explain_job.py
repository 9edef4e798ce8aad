"""`stitchfleet explain SUMMARY.json`: a job's step in words, and as a page (explain_page.py) or a picture (step_picture.py).

SUMMARY.json is what `stitchfleet run --summary SUMMARY.json` wrote. Times are those of the calls that were computed both ways to
compare them: TensorFlow's operators, called as a function (that call is in their time, some microseconds), and the kernel.
"""

from __future__ import annotations

import json
import pathlib
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import step_graph
from .step_picture import KindTimes, draw, microseconds
from .summary import loop_lines, steps_line, unmeasured_line

FORMAT = 1
TIMES_NOTE = (
    "times are of one call, the mean of the few that were computed both ways; TensorFlow's include the call of a function. Their "
    "sum is not the step's wall time: operators run side by side"
)


@dataclass(frozen=True)
class Kind:
    """One structure of cluster. fallback_us, kernel_us: means over its executables by their calls; None where not measured."""

    name: str
    instances: int
    ops: dict[str, int]
    scopes: tuple[str, ...]
    state: str
    kernel: str
    hlo: tuple[str, ...]
    fallback_us: float | None
    kernel_us: float | None
    over_tolerance: float | None
    """Largest error that was seen, as a share of what is allowed."""
    failure: str

    @property
    def saved_us(self) -> float | None:
        """Of the operators' time of one step; negative where the kernel is slower."""
        if self.fallback_us is None or self.kernel_us is None:
            return None
        return self.instances * (self.fallback_us - self.kernel_us)


@dataclass(frozen=True)
class JobStory:
    """What a summary says. kinds: those that save most first; stayed_out: reason -> operator -> count; loops: a line each."""

    run_id: str
    versions: str
    program: dict[str, Any]
    kinds: tuple[Kind, ...]
    stayed_out: dict[str, dict[str, int]]
    loops: tuple[str, ...]
    reverts: tuple[str, ...]
    graph_path: pathlib.Path | None

    @property
    def operators_us(self) -> tuple[float, float]:
        """Time of one step's clusters by TensorFlow's operators and by the kernels, where both were measured."""
        both = [kind for kind in self.kinds if kind.saved_us is not None]
        before = sum(kind.instances * (kind.fallback_us or 0.0) for kind in both)
        return before, before - sum(kind.saved_us or 0.0 for kind in both)


def explain_job(path: pathlib.Path, html: pathlib.Path | None = None, svg: pathlib.Path | None = None) -> str:
    """The job's step in words; also as a page and a picture where files for them are given.

    Raises OSError, and ValueError with a line for people where the file is no summary, or has no step to draw.
    """
    from .explain_page import as_html

    story = read_story(path)
    if html is not None or svg is not None:
        picture = draw(
            _step(story), {kind.name: KindTimes(kind.fallback_us, kind.kernel_us, kind.state) for kind in story.kinds}
        )
        if svg is not None:
            svg.write_text(picture + "\n")
        if html is not None:
            html.write_text(as_html(story, picture))
    return "\n".join(as_text(story))


def read_story(path: pathlib.Path) -> JobStory:
    """Raises OSError, and ValueError for a file that is no summary or tells of no step."""
    expected = "expected a summary that `stitchfleet run --summary FILE` wrote"
    try:
        summary: Any = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path}: not JSON ({error}), {expected}") from None
    if not isinstance(summary, dict) or not {"format", "programs", "clusters", "stayed_out"} <= summary.keys():
        raise ValueError(f"{path}: given JSON of something else, {expected}")
    if summary["format"] != FORMAT:
        raise ValueError(f"{path}: given a summary of format {summary['format']}, expected {FORMAT}")
    try:
        program = next((p for p in summary["programs"] if p["name"] == summary["main"]), None)
        if program is None:
            raise ValueError(f"{path}: no training step was seen in this job")
        kinds = sorted((_kind(facts) for facts in summary["clusters"]), key=lambda kind: -(kind.saved_us or 0.0))
        return JobStory(
            str(summary["run_id"]),
            ", ".join(f"{name} {version}" for name, version in summary["versions"].items()),
            program,
            tuple(kinds),
            summary["stayed_out"],
            tuple(loop_lines(summary)),
            tuple(summary["reverts"]),
            _graph_path(path, program.get("step_graph")),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: a summary with something missing ({error!r}), {expected}") from None


def _graph_path(summary: pathlib.Path, named: str | None) -> pathlib.Path | None:
    """The step graph's file: where the summary says, or beside the summary (both were copied from elsewhere)."""
    if named is None:
        return None
    beside = summary.parent / pathlib.Path(named).name
    return beside if beside.exists() and not pathlib.Path(named).exists() else pathlib.Path(named)


def _step(story: JobStory) -> step_graph.StepGraph:
    if story.graph_path is None:
        why = story.program["reason"] or "TensorFlow was never offered the stitched arm"
        raise ValueError(f"no picture: the summary names no step graph ({why})")
    try:
        return step_graph.read(story.graph_path)
    except FileNotFoundError:
        raise ValueError(f"no picture: {story.graph_path} is not there (it may also lie beside the summary)") from None
    except ValueError as error:
        raise ValueError(f"{story.graph_path}: {error}") from None


def _kind(facts: dict[str, Any]) -> Kind:
    executables: Sequence[dict[str, Any]] = facts["executables"]
    timed = [e for e in executables if e["fallback_us"] is not None and e["kernel_us"] is not None]
    weights = [max(1, sum(e["calls"].values())) for e in timed]
    errors = [e["error_over_tolerance"] for e in executables if e["error_over_tolerance"] is not None]

    def mean(key: str) -> float | None:
        return sum(w * e[key] for w, e in zip(weights, timed)) / sum(weights) if timed else None

    return Kind(
        name=facts["name"],
        instances=facts["instances"],
        ops=facts["ops"],
        scopes=tuple(facts["scopes"]),
        state=facts["state"],
        kernel=", ".join(sorted({str(e["kernel"]) for e in executables if e["kernel"]})),
        hlo=tuple(str(e["hlo"]) for e in executables if e["hlo"]),
        fallback_us=mean("fallback_us"),
        kernel_us=mean("kernel_us"),
        over_tolerance=max(errors, default=None),
        failure=next((str(e["failure"]) for e in executables if e["failure"]), ""),
    )


HEADINGS = ("cluster", "times", "ops", "state", "TensorFlow", "kernel", "saves a step", "error", "kernel's name")
FIGURES = frozenset((1, 2, 4, 5, 6, 7))


def cells(kind: Kind) -> tuple[str, ...]:
    """A line of the table, under HEADINGS. The error is a share of what is allowed."""
    return (
        kind.name,
        str(kind.instances),
        str(sum(kind.ops.values())),
        kind.state,
        "-" if kind.fallback_us is None else microseconds(kind.fallback_us),
        "-" if kind.kernel_us is None else microseconds(kind.kernel_us),
        "-" if kind.saved_us is None else f"{kind.saved_us / 1e3:.2f} ms",
        "-" if kind.over_tolerance is None else f"{kind.over_tolerance:.1%}",
        kind.kernel or kind.failure[:60] or "-",
    )


def head_lines(story: JobStory) -> list[str]:
    """Where the time went before and after."""
    program = story.program
    lines = [steps_line(program)]
    saving = program["saving"]
    if saving is None:
        lines.append(f"an iteration: {unmeasured_line(program)}")
    else:
        lines.append(
            f"an iteration: {saving['plain_ms']:.2f} ms plain, {saving['stitched_ms']:.2f} ms stitched: {saving['ratio']:.3f}x "
            f"(saving {saving['relative']:+.1%}, 95% interval {saving['low']:+.1%} to {saving['high']:+.1%})"
        )
    before, after = story.operators_us
    instances = sum(kind.instances for kind in story.kinds)
    lines.append(
        f"the operators of its {instances} clusters: {before / 1e3:.2f} ms by TensorFlow, {after / 1e3:.2f} ms by kernels"
    )
    return [*lines, *story.loops]


def reasons(story: JobStory) -> list[tuple[str, int, str]]:
    """(reason, count, operators) of what stayed in TensorFlow, most first."""
    lines = []
    for reason, ops in story.stayed_out.items():
        ordered = sorted(ops.items(), key=lambda item: (-item[1], item[0]))
        words = ", ".join(f"{count} {op}" for op, count in ordered[:8])
        words += f" and {len(ordered) - 8} kinds more" if len(ordered) > 8 else ""
        lines.append((reason, sum(ops.values()), words))
    return sorted(lines, key=lambda line: (-line[1], line[0]))


def as_text(story: JobStory) -> list[str]:
    """For a terminal."""
    table = [HEADINGS, *(cells(kind) for kind in story.kinds)]
    widths = [max(len(line[column]) for line in table) for column in range(len(HEADINGS))]
    lines = [f"run {story.run_id[:12]} ({story.versions})", *(f"  {line}" for line in head_lines(story)), ""]
    for line in table:
        shown = [text.rjust(w) if k in FIGURES else text.ljust(w) for k, (text, w) in enumerate(zip(line, widths))]
        lines.append(f"  {'  '.join(shown)}".rstrip())
    note = f"({TIMES_NOTE}. The error is the largest seen, of what is allowed.)"
    lines += textwrap.wrap(note, 110, initial_indent="  ", subsequent_indent="   ")
    lines += ["", "  what stayed in TensorFlow, and why"]
    lines += [f"    {count:>5}  {reason}: {words}" for reason, count, words in reasons(story)]
    lines += ["", "  phases"]
    for phase, facts in story.program["phases"].items():
        lines.append(f"    {phase:<12} {facts['steps']:>6} counted steps, median {facts['median_ms']:9.2f} ms")
    lines += [f"  reverted: {line}" for line in story.reverts]
    return lines
