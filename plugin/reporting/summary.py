"""Makes a job's summary at its end: one JSON document of what happened. summary_text.py prints it."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable, Mapping
from typing import Any

from ..arms.switch import Arm
from ..base.containment import HEALTH, say
from ..base.memory_watch import peak_bytes
from ..clusters.step_graph import file_name, joined
from ..guard.kernels import Executable
from ..job.job import Job
from ..job.program import Program
from ..job.saving_text import saving_facts
from ..native.library import SignatureStatistics, State
from . import summaries
from .summary_text import FORMAT


def finish(job: Job) -> None:
    """Hands over the last records, and writes the step graphs and, if the settings ask for it, the summary."""
    job.records.finish(job.main_program, job.programs, cluster_facts(job))
    steps = _write_step_graphs(job)
    if job.settings.summary is not None:
        try:
            summaries.write(job.settings.summary, make_summary(job, steps))
        except OSError as error:
            say(f"the summary could not be written: {error}")


def _write_step_graphs(job: Job) -> dict[str, str]:
    """Writes the step graph of each program beside the job's records. Returns program -> file, without those that failed."""
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
    """The whole document. Names of fields say the units (_ms, _us, _bytes). steps: program -> the file of its step graph."""
    main = job.main_program
    plans = [plan for program in job.programs for plan in program.plans]
    return {
        "format": FORMAT,
        "run_id": job.run_id,
        "pid": os.getpid(),
        "rank": job.world.rank,
        "world_size": job.world.size,
        "worlds": list(job.ranks.sizes) if job.ranks is not None else [job.world.size],
        "store_of_ranks": job.ranks.place_of_store if job.ranks is not None else None,
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
        "saving": saving_facts(job.records.saving_of_job()),
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
            "steps_disturbed_ms": job.records.overhead_ns(job.programs) / 1e6,
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
        "saving": saving_facts(job.records.saving(program)),
        "overhead_ms": program.overhead_ns / 1e6,
    }


def _statistics(job: Job, executable: Executable) -> SignatureStatistics | None:
    if job.native is None:
        return None
    try:
        return job.native.statistics(executable.signature)
    except KeyError:
        return None


def cluster_facts(job: Job) -> Iterable[dict[str, Any]]:
    """One entry for each cluster by name, with its executables (one for each set of input shapes) inside."""
    for name, known in sorted(job.stitcher.clusters.items()):
        executables = []
        for executable in job.kernels.of({name}) if job.kernels else []:
            seen, kernel = _statistics(job, executable), executable.kernel
            about = kernel.metadata if kernel else None
            executables.append(
                {
                    "state": "failed" if executable.is_failed else State.NAMES[seen.state] if seen else "requested",
                    "inputs": [list(argument.shape) for argument in executable.inputs],
                    "kernel": about.symbol if about else None,
                    "architecture": about.launch.arch if about and about.launch else "cpu",
                    "library": str(kernel.library) if kernel else None,
                    "hlo": (kernel.hlo or None) if kernel else None,
                    "failure": executable.failure,
                    "intermediate_bytes": about.intermediate_bytes if about else None,
                    "bytes_read": about.bytes_read if about else None,
                    "bytes_written": about.bytes_written if about else None,
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
