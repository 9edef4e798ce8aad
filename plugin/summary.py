"""What happened in a job, at its end: one JSON document for machines, and the same in words for the person at the terminal."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stitchfleet.telemetry.statistics.savings import Saving

from . import summaries
from .containment import HEALTH, say
from .memory_watch import peak_bytes
from .native_library import SignatureStatistics, State
from .program import Phase, Program
from .step_graph import file_name, joined
from .switch import Arm

if TYPE_CHECKING:
    from .job import Job
    from .kernels import Executable

FORMAT = 1


def finish(job: Job) -> None:
    """Writes the summary where the settings ask for it and hands the last records over."""
    job.records.finish(job)
    steps = _write_step_graphs(job)
    if job.settings.summary is not None:
        try:
            summaries.write(job.settings.summary, make_summary(job, steps))
        except OSError as error:
            say(f"the summary could not be written: {error}")


def _write_step_graphs(job: Job) -> dict[str, str]:
    """Program -> the file of its step graph, beside the job's records; only those that could be written."""
    written = {}
    for program in job.programs:
        plans = {"": program.plan, **{function: plan for function, (plan, _) in list(program.nested_plans.items())}}
        graph = joined({name: plan.step for name, plan in plans.items() if plan is not None and plan.step is not None})
        if not graph.blocks:
            continue
        path = job.records.folder / file_name(program.name)
        try:
            graph.write(path, program.name)
        except OSError as error:
            say(f"the picture of {program.name}'s step could not be written: {error}")
        else:
            written[program.name] = str(path)
    return written


def make_summary(job: Job, steps: Mapping[str, str]) -> dict[str, Any]:
    """The whole document; times in milliseconds, memory in bytes. steps: program -> the file of its step graph."""
    main = job.main_program
    plans = [plan for program in job.programs for plan in program.plans]
    return {
        "format": FORMAT,
        "run_id": job.run_id,
        "pid": os.getpid(),
        "started": job.started,
        "ended": time.time(),
        "versions": {
            "python": platform.python_version(),
            "tensorflow": job.records.identity.framework_version,
            "stitchfleet": job.records.identity.plugin_version,
        },
        "health": HEALTH.reason or "good",
        "main": main.name if main else None,
        "training_functions": [program.name for program in job.records.functions],
        "saving": _saving_facts(job.records.saving_of_job()),
        "programs": [
            _program_facts(job, program, steps.get(program.name)) for program in job.programs if program.steps
        ],
        "forgotten_functions": job.forgotten_programs,
        "clusters": list(cluster_facts(job)),
        "stayed_out": stayed_out(job),
        "loops": [
            {
                "name": loop.name,
                "loop": loop.frame,
                "nodes": len(loop.members),
                "left": len(loop.members - loop.vanished),
            }
            for plan in plans
            for loop in plan.loops
        ],
        "loops_that_stay": {loop: reason for plan in plans for loop, reason in plan.staying_loops.items()},
        "calls": _calls(job),
        "reverts": job.kernels.reverts if job.kernels else [],
        "suspicions": list(job.kernels.suspicions.values()) if job.kernels else [],
        "bundles": [str(folder) for folder in job.kernels.bundles] if job.kernels else [],
        "overheads": {
            "graph_rewriting_ms": job.stitcher.seconds * 1e3,
            "steps_disturbed_ms": sum(program.overhead_ns for program in job.programs) / 1e6,
            "compile_service_busy_ms": job.client.busy_seconds * 1e3,
        },
        "memory": {
            "peak_bytes": peak_bytes(),
            "plain_resident_bytes": job.memory.plain_peak,
            "stitched_resident_bytes": job.memory.stitched_peak,
        },
        "records": {"folder": str(job.records.folder), "lost": job.records.lost},
    }


def _program_facts(job: Job, program: Program, step_graph: str | None) -> dict[str, Any]:
    measured = {phase.value: durations for phase, durations in program.durations.items()}
    measured["plain blocks"] = program.plain_blocks
    medians = {
        name: {"steps": durations.count, "median_ms": durations.median_ns / 1e6}
        for name, durations in measured.items()
        if durations.count
    }
    return {
        "name": program.name,
        "kind": program.kind,
        "phase": program.phase.value,
        "reason": program.reason,
        "steps": program.steps,
        "total_ms": program.total_ns / 1e6,
        "steps_plain": program.steps_by_arm[Arm.PLAIN],
        "steps_stitched": program.steps_by_arm[Arm.STITCHED],
        "stitched_from_step": program.stitched_from_step,
        "stitched_after_seconds": program.stitched_after_seconds,
        "clusters": program.cluster_count,
        "step_graph": step_graph,
        "phases": medians,
        "saving": _saving_facts(job.records.saving(program)),
        "overhead_ms": program.overhead_ns / 1e6,
    }


def _saving_facts(saving: Saving | None) -> dict[str, Any] | None:
    """None: unmeasured."""
    if saving is None:
        return None
    return {
        "pairs": saving.pairs,
        "plain_ms": saving.plain_ns / 1e6,
        "stitched_ms": saving.stitched_ns / 1e6,
        "ratio": saving.plain_ns / saving.stitched_ns,
        "relative": saving.relative,
        "low": saving.low,
        "high": saving.high,
    }


def _statistics(job: Job, executable: Executable) -> SignatureStatistics | None:
    if job.native is None:
        return None
    try:
        return job.native.statistics(executable.signature)
    except KeyError:
        return None


def cluster_facts(job: Job) -> Iterable[dict[str, Any]]:
    """One record for each structure, its executables (one for each set of shapes) inside."""
    for name, known in sorted(job.stitcher.clusters.items()):
        executables = []
        for executable in job.kernels.of({name}) if job.kernels else []:
            seen = _statistics(job, executable)
            executables.append(
                {
                    "state": State.NAMES[seen.state] if seen and executable.state != "failed" else executable.state,
                    "inputs": [described["shape"] for described in executable.inputs],
                    "kernel": executable.metadata.get("symbol"),
                    "architecture": (executable.metadata.get("launch") or {}).get("arch", "cpu"),
                    "library": str(executable.library) if executable.library else None,
                    "hlo": executable.hlo or None,
                    "failure": executable.failure,
                    "intermediate_bytes": executable.metadata.get("intermediate_bytes"),
                    "bytes_read": executable.metadata.get("bytes_read"),
                    "bytes_written": executable.metadata.get("bytes_written"),
                    "calls": {
                        "fallback": seen.fallback_calls,
                        "verify": seen.verify_calls,
                        "stitched": seen.stitched_calls,
                    }
                    if seen
                    else {},
                    "fallback_us": _mean_us(seen.fallback_ns, seen.timed_calls) if seen else None,
                    "kernel_us": _mean_us(seen.kernel_ns, seen.timed_calls) if seen else None,
                    "mismatches": seen.mismatches if seen else 0,
                    "largest_error": seen.largest_error if seen and seen.verify_calls else None,
                    "error_over_tolerance": seen.worst_ratio if seen and seen.verify_calls else None,
                    "last_good_step": seen.last_good_step if seen else -1,
                }
            )
        states = {str(entry["state"]) for entry in executables}
        gave_up = job.native.cluster_statistics(name)[1] if job.native else False
        yield {
            "name": name,
            "ops": known.cluster.op_counts,
            "op_count": sum(known.cluster.op_counts.values()),
            "instances": known.instances,
            "scopes": sorted(set(known.scopes))[:8],
            "state": _overall(states),
            "gave_up_on_shapes": gave_up,
            "executables": executables,
        }


def _mean_us(total_ns: int, calls: int) -> float | None:
    return round(total_ns / calls / 1e3, 1) if calls else None


def _overall(states: set[str]) -> str:
    for state in ("reverted", "suspect", "stitched", "verify", "ready", "failed", "requested"):
        if state in states:
            return state
    return "never ran"


def stayed_out(job: Job) -> dict[str, dict[str, int]]:
    """Reason -> operator -> count, over the programs' graphs."""
    found: dict[str, dict[str, int]] = {}
    for program in job.programs:
        for plan in program.plans:
            for reason, ops in plan.left_out.items():
                target = found.setdefault(reason, {})
                for op, count in ops.items():
                    target[op] = target.get(op, 0) + count
    return found


def _calls(job: Job) -> dict[str, int]:
    totals = {"fallback": 0, "verify": 0, "stitched": 0}
    for executable in job.kernels.executables.values() if job.kernels else []:
        seen = _statistics(job, executable)
        if seen:
            totals["fallback"] += seen.fallback_calls
            totals["verify"] += seen.verify_calls
            totals["stitched"] += seen.stitched_calls
    return totals


def print_summaries(processes: Sequence[Mapping[str, Any]]) -> None:
    """The summaries of a job's processes in words, on standard error: standard output is the job's. Says so where there is none."""
    if not processes:
        say("no summary: the job ended without its exit handlers, or never imported TensorFlow")
        return
    for summary in processes:
        for line in describe(summary):
            print(line, file=sys.stderr)


def steps_line(program: Mapping[str, Any]) -> str:
    """How many steps a program ran, and where it ended."""
    line = f"{program['name']}: {program['steps']} steps, {program['steps_stitched']} stitched; phase at the end: {program['phase']}"
    return line + (f" ({program['reason']})" if program["reason"] else "")


def saving_line(saving: Mapping[str, Any] | None, what: str) -> str:
    """What was saved, and how sure that is; "" where nothing was measured. what: of which the times are."""
    if saving is None:
        return ""
    return (
        f"{what} took {saving['plain_ms']:.2f} ms plain and {saving['stitched_ms']:.2f} ms stitched: "
        f"{saving['ratio']:.3f}x, saving {saving['relative']:+.1%} "
        f"(95% interval {saving['low']:+.1%} to {saving['high']:+.1%}, {saving['pairs']} pairs of blocks)"
    )


_BEFORE_VERIFIED = "the job ended before its kernels were verified; they are kept for its next run"
_ENDED_IN = {
    Phase.WARM_UP.value: "the job ended in its first steps",
    Phase.TRACE.value: "the job ended in its first steps",
    Phase.COMPILE.value: "the job ended while its kernels were being compiled; those that were done are kept for its next run",
    Phase.BASELINE.value: _BEFORE_VERIFIED,
    Phase.VERIFY.value: _BEFORE_VERIFIED,
}


def unmeasured_line(program: Mapping[str, Any]) -> str:
    """That nothing says what the program saved, and why."""
    return f"unmeasured ({_ENDED_IN.get(program['phase'], 'too few pairs of plain and stitched blocks')})"


def loop_lines(summary: Mapping[str, Any]) -> list[str]:
    """What became of the job's while loops; nothing where it has none."""
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


def describe(summary: Mapping[str, Any]) -> list[str]:
    """A summary as lines of text."""
    of_process = f", process {summary['pid']}" if summary.get("is_one_of_several") else ""
    lines = ["", f"stitchfleet: what happened in run {summary['run_id'][:12]}{of_process}"]
    if summary["health"] != "good":
        lines.append(f"  switched off during the job: {summary['health']}")
    main = next((program for program in summary["programs"] if program["name"] == summary["main"]), None)
    if main is None:
        return [*lines, "  no training step was seen"]
    names = summary.get("training_functions") or [main["name"]]
    functions = [program for program in summary["programs"] if program["name"] in names]
    for program in functions:
        lines.append(f"  {steps_line(program)}")
        for phase, facts in program["phases"].items():
            lines.append(f"    {phase:<12} {facts['steps']:>6} counted steps, median {facts['median_ms']:9.2f} ms")
        if len(functions) > 1:
            lines.append(f"    {saving_line(program['saving'], 'a step') or 'saving: ' + unmeasured_line(program)}")
    whole = "an iteration" if len(functions) == 1 else f"all {len(functions)} training functions together: a step"
    lines.append(f"  {saving_line(summary.get('saving'), whole) or 'saving: ' + unmeasured_line(main)}")
    others = [p for p in summary["programs"] if p["name"] not in names and p["steps_stitched"] > 1]
    lines += [f"  not counted, since it does not train: {steps_line(program)}" for program in others]
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
        for cluster in ordered[:12]:
            seen = [e["error_over_tolerance"] for e in cluster["executables"] if e["error_over_tolerance"] is not None]
            error = f"  largest error {max(seen):6.1%} of what is allowed" if seen else ""
            lines.append(
                f"    {cluster['name']:<36} {cluster['instances']:>4} x {cluster['op_count']:>3} ops  {cluster['state']:<9}{error}"
            )
        if len(ordered) > 12:
            lines.append(f"    and {len(ordered) - 12} more kinds (in the summary file)")
    lines += [f"  {line}" for line in loop_lines(summary)]
    lines += [f"  reverted: {line}" for line in summary["reverts"]]
    lines += [f"  suspected: {line}" for line in summary.get("suspicions", [])]
    if summary["records"]["lost"]:
        lines.append(f"  {summary['records']['lost']} records were lost")
    return lines
