"""The command: arguments in, races run, a table and a JSON file out."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import machine
from .contestants import (
    CONTESTANTS,
    DEFAULT_CONTESTANTS,
    ROOT,
    WORKLOADS,
    Contestant,
    UnknownNameError,
    Workload,
    find_contestants,
    find_workload,
)
from .figures import Figures, Ratio, figures_of, largest_difference
from .launches import Launches, plain_launches, stitched_launches, xla_launches
from .processes import watched
from .race import Limits, Outcome, run_race

FORMAT = 1


@dataclass(frozen=True)
class Result:
    """One contestant of one workload: what happened, and its figures where there are any."""

    outcome: Outcome
    figures: Figures | None
    launches: Launches | None
    compile_s: float | None


def build_parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {c.name:<12} {c.help}" for c in CONTESTANTS.values())
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=(
            "Compares workloads as they are, compiled by XLA, and under a whole `stitchfleet run`, interleaved in one run:\n"
            "each is warmed up alone and stopped; then each in turn is alone on the machine for some seconds, several rounds.\n"
            f"\ncontestants:\n{listed}\n\nworkloads: {', '.join(WORKLOADS)}, or the path of a script with the same options"
        ),
    )
    parser.add_argument("--workloads", default="bert", metavar="A,B", help="what to run (default: bert)")
    parser.add_argument(
        "--contestants",
        default=",".join(DEFAULT_CONTESTANTS),
        metavar="A,B",
        help=f"how to run it; plain is always there (default: {','.join(DEFAULT_CONTESTANTS)})",
    )
    parser.add_argument("--rounds", type=_whole(2), default=8, metavar="N", help="slices of each (default 8)")
    parser.add_argument("--seconds", type=_above_zero, default=6.0, metavar="S", help="length of a slice (default 6)")
    parser.add_argument("--arguments", default="", metavar="WORDS", help="further arguments for the workloads' scripts")
    parser.add_argument(
        "--warm-up-limit", type=_above_zero, default=900.0, metavar="S", help="give up after (default 900)"
    )
    parser.add_argument(
        "--cache", type=pathlib.Path, metavar="DIR", help="kernel cache (default: .cache/stitchfleet in the project)"
    )
    parser.add_argument("--cold", action="store_true", help="use an empty kernel cache, so that compile time is seen")
    parser.add_argument("--no-modules", action="store_true", help="do not run XLA once more to count its kernels")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write everything there")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR", help="keep the contestants' output and logs there")
    return parser


def _whole(least: int) -> Any:
    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"given {text!r}, expected a whole number from {least} up")
        return int(text)

    return parse


def _above_zero(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"given {text!r}, expected a number of seconds above zero")
    return value


def say(line: str) -> None:
    """Progress, on standard error: standard output is for the table."""
    print(f"[{time.strftime('%H:%M:%S')}] {line}", file=sys.stderr, flush=True)


def main(words: Sequence[str] | None = None) -> int:
    """Exit code 0; 1 when a contestant failed; 2 for a mistake on the command line; 130 after Ctrl-C."""
    parser = build_parser()
    arguments = parser.parse_args(words)
    try:
        workloads = [find_workload(name.strip()) for name in arguments.workloads.split(",") if name.strip()]
        contestants = find_contestants(arguments.contestants)
        extra = tuple(shlex.split(arguments.arguments))
    except (UnknownNameError, ValueError) as error:
        parser.error(str(error))
    if not workloads:
        parser.error("--workloads: none given")
    if arguments.json is not None and not arguments.json.absolute().parent.is_dir():
        parser.error(f"--json: there is no folder {arguments.json.absolute().parent}")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        with contextlib.ExitStack() as stack:
            folder = arguments.keep or pathlib.Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="stitchfleet-bench-"))
            )
            folder = folder.absolute()
            folder.mkdir(parents=True, exist_ok=True)
            cache = folder / "cache" if arguments.cold else (arguments.cache or ROOT / ".cache" / "stitchfleet")
            results = {w.name: _race(w, contestants, arguments, folder, cache.absolute(), extra) for w in workloads}
    except KeyboardInterrupt:
        print("scripts/bench: interrupted", file=sys.stderr)
        return 130
    except OSError as error:
        print(f"scripts/bench: {error}", file=sys.stderr)
        return 2
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(document(results, arguments), indent=1, default=str) + "\n")
    print("\n".join(table(results, arguments.rounds, arguments.seconds)))
    return int(any(result.outcome.failure for rows in results.values() for result in rows))


def _race(
    workload: Workload,
    contestants: Sequence[Contestant],
    arguments: argparse.Namespace,
    folder: pathlib.Path,
    cache: pathlib.Path,
    extra: tuple[str, ...],
) -> list[Result]:
    limits = Limits(arguments.rounds, arguments.seconds, warm_up_s=arguments.warm_up_limit)
    place = folder / f"{workload.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    mark = f"{os.getpid()}-{time.monotonic_ns()}/"
    modules: Launches | None = None
    with watched(mark):
        outcomes = run_race(workload, contestants, limits, mark, place, cache, extra, say)
        raced = {o.contestant.name for o in outcomes if not o.failure}
        if {"plain", "xla"} <= raced and not arguments.no_modules:
            say(f"{workload.name}: counting the kernels of XLA's module")
            try:
                modules = xla_launches(workload, CONTESTANTS["xla"], mark, place, extra)
            except (RuntimeError, ValueError, OSError) as error:
                say(f"  {workload.name}: XLA's kernels are not counted: {error}")
    return evaluate(outcomes, modules)


def evaluate(outcomes: Sequence[Outcome], modules: Launches | None) -> list[Result]:
    """Figures of all contestants beside the first one's (plain)."""
    reference = outcomes[0]
    stitched = next((o.summary for o in outcomes if o.contestant.is_stitched and o.summary is not None), None)
    results = []
    for outcome in outcomes:
        figures = None if outcome.failure or reference.failure else figures_of(outcome, reference)
        launches: Launches | None = None
        if outcome.contestant.name in ("plain", "plain-again", "idle"):
            launches = plain_launches(stitched) if stitched else None
        elif outcome.contestant.is_stitched:
            launches = stitched_launches(outcome.summary) if outcome.summary else None
        elif outcome.contestant.name == "xla":
            launches = modules
        results.append(Result(outcome, figures, launches, _compile_seconds(outcome, figures, reference)))
        if figures is None and not outcome.failure and not reference.failure:
            say(f"  {outcome.contestant.name}: no slice had enough whole steps; give longer --seconds")
    return results


def _compile_seconds(outcome: Outcome, figures: Figures | None, reference: Outcome) -> float | None:
    """Stitched: how long the compile service was busy beside the job. XLA: what its first steps took beyond plain's first ones."""
    if outcome.contestant.is_stitched:
        return outcome.summary["overheads"]["compile_service_busy_ms"] / 1e3 if outcome.summary else None
    plain = figures_of(reference, reference)
    if not outcome.contestant.name.startswith("xla") or figures is None or plain is None:
        return None
    return max(0.0, figures.start_up_s - plain.start_up_s)


# ---- out ---------------------------------------------------------------------------------------------------------------------


def table(results: dict[str, list[Result]], rounds: int, seconds: float) -> list[str]:
    """The results as lines of text."""
    lines = [
        f"{machine.cpu_name()}, {machine.cores()} cores, {machine.memory_bytes() / 2**30:.0f} GiB; "
        f"{rounds} rounds of {seconds:g} s each, interleaved",
    ]
    for name, rows in results.items():
        lines += [
            "",
            f"{name:<13}{'ms/step':>9}{'wall':>9}  {'plain/this, 95% interval':<26}{'by wall':<26}"
            f"{'launches':>9}{'compile s':>11}{'peak MiB':>10}{'cores':>7}",
        ]
        for result in rows:
            lines.append(_row(result))
        for result in rows:
            outcome = result.outcome
            if outcome.note:
                lines.append(f"  {outcome.contestant.name}: {outcome.note}")
            if outcome.new_kernels:
                lines.append(f"  {outcome.contestant.name}: {outcome.new_kernels} kernels were new to the cache")
        if any(result.launches for result in rows):
            products = next(result.launches.products for result in rows if result.launches)
            lines.append(f"  launches: for memory-intensive work, each iteration, beside {products} matrix products")
    return lines


def _row(result: Result) -> str:
    outcome, figures = result.outcome, result.figures
    name = f"  {outcome.contestant.name:<11}"
    if figures is None:
        return f"{name} {'failed: ' + outcome.failure if outcome.failure else 'no figures'}"
    compile_s = "-" if result.compile_s is None else f"{result.compile_s:.1f}"
    launches = "-" if result.launches is None else f"{result.launches.memory}"
    return (
        f"{name}{figures.median_ms:>9.2f}{figures.wall_ms:>9.2f}  "
        f"{_ratio_text(figures.ratio_of_medians):<26}{_ratio_text(figures.ratio_of_wall):<26}"
        f"{launches:>9}{compile_s:>11}{outcome.peak_bytes / 2**20:>10.0f}{figures.cores:>7.2f}"
    )


def _ratio_text(ratio: Ratio | None) -> str:
    return "-" if ratio is None else f"{ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"


def document(results: dict[str, list[Result]], arguments: argparse.Namespace) -> dict[str, Any]:
    """Everything, for machines. Times as their names say, sizes in bytes; raw slices and step times are included."""
    return {
        "format": FORMAT,
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": {"cpu": machine.cpu_name(), "cores": machine.cores(), "memory_bytes": machine.memory_bytes()},
        "versions": machine.versions(),
        "rounds": arguments.rounds,
        "slice_seconds": arguments.seconds,
        "arguments": arguments.arguments,
        "workloads": {name: [_facts(row, rows[0].outcome) for row in rows] for name, rows in results.items()},
    }


def _facts(result: Result, reference: Outcome) -> dict[str, Any]:
    outcome = result.outcome
    common, difference = largest_difference(outcome.losses, reference.losses)
    return {
        "contestant": outcome.contestant.name,
        "failure": outcome.failure or None,
        "note": outcome.note or None,
        "figures": dataclasses.asdict(result.figures) if result.figures else None,
        "launches": dataclasses.asdict(result.launches) if result.launches else None,
        "compile_s": result.compile_s,
        "new_kernels": outcome.new_kernels,
        "warm_up_s": outcome.warm_up_s,
        "peak_bytes": outcome.peak_bytes,
        "helpers_peak_bytes": outcome.helpers_peak_bytes,
        "losses_beside_plain": {"steps": common, "largest_relative_difference": difference},
        "slices": [dataclasses.asdict(window) for window in outcome.slices],
        "starts": outcome.starts,
        "seconds": outcome.seconds,
        "summary": outcome.summary,
    }
