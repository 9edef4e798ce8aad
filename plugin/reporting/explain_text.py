"""Formats a JobStory as text for a terminal. The page (explain_page.py) uses parts of it."""

from __future__ import annotations

import textwrap

from .explain_story import ClusterKind, JobStory
from .step_picture import microseconds
from .summary_text import steps_line, unmeasured_line

TIMES_NOTE = (
    "times are of one call, the mean of the few that were computed both ways; TensorFlow's include the call of a function. Their "
    "sum is not the step's wall time: operators run side by side"
)
HEADINGS = ("cluster", "times", "ops", "state", "TensorFlow", "kernel", "saves a step", "error", "kernel's name")
FIGURES = frozenset((1, 2, 4, 5, 6, 7))


def cells(kind: ClusterKind) -> tuple[str, ...]:
    """The cells of a row of the table of clusters, under HEADINGS. The error is shown as a percentage of the tolerance."""
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
    """Lines on the main program's steps, its saving, the time of the clusters' operators before and after, and its loops."""
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
    """(reason, count, text that lists the operators) of the operators that stayed in TensorFlow, largest count first."""
    lines = []
    for reason, ops in story.stayed_out.items():
        ordered = sorted(ops.items(), key=lambda item: (-item[1], item[0]))
        words = ", ".join(f"{count} {op}" for op, count in ordered[:8])
        words += f" and {len(ordered) - 8} kinds more" if len(ordered) > 8 else ""
        lines.append((reason, sum(ops.values()), words))
    return sorted(lines, key=lambda line: (-line[1], line[0]))


def as_text(story: JobStory) -> list[str]:
    """The whole story as lines for a terminal."""
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
