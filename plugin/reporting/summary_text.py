"""Formats a job's summary (summary.py) as text for a terminal. Needs only the document."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ..base.containment import say
from ..job.program import ProgramPhase
from ..job.saving_text import saving_line

FORMAT = 1
"""Version of the summary's format."""
MOST_LISTED = 12
"""Most functions, and most kinds of clusters, of which the text has lines of their own."""


def print_summaries(processes: Sequence[Mapping[str, Any]]) -> None:
    """Prints the summaries of a job's processes, or that there is none, to standard error: standard output belongs to the job. Of
    several ranks the lowest one's is printed in full, and the others' outcomes in a few lines."""
    if not processes:
        say("no summary: the job ended without its exit handlers, or never imported TensorFlow")
        return
    first = processes[0]
    if _is_one_of_ranks(first):
        lowest = first["rank"]
        lines = [line for summary in processes if summary["rank"] == lowest for line in describe(summary)]
        lines += rank_lines(processes)
    else:
        lines = [line for summary in processes for line in describe(summary)]
    for line in lines:
        print(line, file=sys.stderr)


def rank_lines(processes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines on the ranks of a distributed job: which have no summary, and the verdict of each, in one line if all are equal."""
    of_ranks = {int(summary["rank"]): summary for summary in reversed(processes)}
    size = int(processes[0]["world_size"])
    silent = [str(rank) for rank in range(size) if rank not in of_ranks]
    lines = [f"  ranks: of {', '.join(silent)} there is no summary (of {size})"] if silent else []
    said = {rank: rank_verdict(summary) for rank, summary in sorted(of_ranks.items())}
    if len(set(said.values())) == 1:
        return [*lines, f"  ranks: {len(said)} of {size} say the same: {next(iter(said.values()))}"]
    return [*lines, "  ranks: they do not say the same", *(f"    rank {rank}: {words}" for rank, words in said.items())]


def rank_verdict(summary: Mapping[str, Any]) -> str:
    """The outcome of a rank's training in words, without figures that differ from rank to rank."""
    names = summary.get("training_functions") or [summary["main"]]
    functions = [program for program in summary["programs"] if program["name"] in names]
    words = [steps_line(program) for program in functions] or ["no training step was seen"]
    words += [f"switched off: {summary['health']}"] if summary["health"] != "good" else []
    reverted = sorted(cluster["name"] for cluster in summary["clusters"] if cluster["state"] == "reverted")
    words += [f"reverted: {', '.join(reverted)}"] if reverted else []
    return "; ".join(words)


def steps_line(program: Mapping[str, Any]) -> str:
    """A line: how many steps a program ran, its last phase, and the reason for it."""
    line = f"{program['name']}: {program['steps']} steps, {program['steps_stitched']} stitched; phase at the end: {program['phase']}"
    return line + (f" ({program['reason']})" if program["reason"] else "")


_BEFORE_VERIFIED = "the job ended before its kernels were verified; they are kept for its next run"
_ENDED_IN = {
    ProgramPhase.WARM_UP.value: "the job ended in its first steps",
    ProgramPhase.TRACE.value: "the job ended in its first steps",
    ProgramPhase.COMPILE.value: "the job ended while its kernels were being compiled; those that were done are kept for its next run",
    ProgramPhase.BASELINE.value: _BEFORE_VERIFIED,
    ProgramPhase.VERIFY.value: _BEFORE_VERIFIED,
    ProgramPhase.AGREEMENT.value: "the job ended before its ranks had agreed on a step to begin with",
}


def unmeasured_line(program: Mapping[str, Any]) -> str:
    """Words: a program's saving is unmeasured, and why."""
    why = program["reason"] or _ENDED_IN.get(program["phase"], "too few pairs of plain and stitched blocks")
    return f"unmeasured ({why})"


def loop_lines(summary: Mapping[str, Any]) -> list[str]:
    """Lines on the job's while loops; none if it has none."""
    lines = []
    loops = summary.get("loops", [])
    if loops:
        before, after = (sum(loop[key] for loop in loops) for key in ("nodes", "left"))
        lines.append(
            f"loops: {len(loops)} run as one operator each, an iteration of {after} kernel calls instead of {before} nodes"
        )
    lines += [
        f"loop {name} stays in TensorFlow's executor: {reason}"
        for name, reason in summary.get("loops_that_stay", {}).items()
    ]
    return lines


def _is_one_of_ranks(summary: Mapping[str, Any]) -> bool:
    """Whether the process was ever one of several ranks."""
    return summary.get("world_size", 1) > 1 or len(summary.get("worlds", [])) > 1


def describe(summary: Mapping[str, Any]) -> list[str]:
    """A summary as lines of text."""
    of_process = f", process {summary['pid']}" if summary.get("is_one_of_several") else ""
    worlds = summary.get("worlds", [])
    if _is_one_of_ranks(summary):
        of_process = f", rank {summary['rank']} of {summary['world_size']}"
    lines = ["", f"stitchfleet: what happened in run {summary['run_id'][:12]}{of_process}"]
    if len(worlds) > 1:
        lines.append(f"  {len(worlds)} worlds, as ranks left and joined: of {', '.join(map(str, worlds))} ranks")
    if summary["health"] != "good":
        lines.append(f"  switched off during the job: {summary['health']}")
    main = next((program for program in summary["programs"] if program["name"] == summary["main"]), None)
    if main is None:
        return [*lines, "  no training step was seen"]
    names = summary.get("training_functions") or [main["name"]]
    functions = [program for program in summary["programs"] if program["name"] in names]
    listed = sorted(functions, key=lambda program: -float(program["total_ms"]))[:MOST_LISTED]
    for program in [program for program in functions if program in listed]:
        lines.append(f"  {steps_line(program)}")
        for phase, facts in program["phases"].items():
            lines.append(f"    {phase:<12} {facts['steps']:>6} counted steps, median {facts['median_ms']:9.2f} ms")
        if len(functions) > 1:
            lines.append(f"    {saving_line(program['saving'], 'a step') or 'saving: ' + unmeasured_line(program)}")
    if len(functions) > len(listed):
        lines.append(f"  and {len(functions) - len(listed)} more training functions of less time (in the summary file)")
    whole = "an iteration" if len(functions) == 1 else f"all {len(functions)} training functions together: a step"
    lines.append(f"  {saving_line(summary.get('saving'), whole) or 'saving: ' + unmeasured_line(main)}")
    others = [p for p in summary["programs"] if p["name"] not in names and p["steps_stitched"] > 1]
    lines += [f"  not counted, since it does not train: {steps_line(program)}" for program in others[:MOST_LISTED]]
    if len(others) > MOST_LISTED:
        lines.append(f"  not counted, since they do not train: {len(others) - MOST_LISTED} more functions")
    calls = summary["calls"]
    total = sum(calls.values())
    if total:
        lines.append(
            f"  calls of stitch ops: {calls['stitched']} kernel, {calls['verify']} both (verified), {calls['fallback']} fallback"
        )
    if summary["clusters"]:
        lines.append(
            f"  clusters: {sum(c['instances'] for c in summary['clusters'])} stitch ops of {len(summary['clusters'])} kinds"
        )
        ordered = sorted(summary["clusters"], key=lambda c: -c["instances"] * c["op_count"])
        for cluster in ordered[:MOST_LISTED]:
            seen = [e["error_over_tolerance"] for e in cluster["executables"] if e["error_over_tolerance"] is not None]
            error = f"  largest error {max(seen):6.1%} of what is allowed" if seen else ""
            lines.append(
                f"    {cluster['name']:<36} {cluster['instances']:>4} x {cluster['op_count']:>3} ops  {cluster['state']:<9}{error}"
            )
        if len(ordered) > MOST_LISTED:
            lines.append(f"    and {len(ordered) - MOST_LISTED} more kinds (in the summary file)")
    lines += [f"  {line}" for line in loop_lines(summary)]
    lines += [f"  reverted: {line}" for line in summary["reverts"]]
    lines += [f"  differed: {line}" for line in summary.get("suspicions", [])]
    if summary["records"]["lost"]:
        lines.append(f"  {summary['records']['lost']} records were lost")
    return lines
