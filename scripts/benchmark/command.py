"""The command `scripts/bench`: parses arguments, runs races, prints a table and writes a JSON file."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import shlex
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import horovod_build
from ..zoo import catalog
from ..zoo.environments import ZooError
from ..zoo.table import table as zoo_table
from . import (
    busy,
    calls,
    changed,
    collectives,
    floors,
    functions,
    idle,
    kernels_cpu,
    machine,
    peers,
    products,
    step_kernels,
    telemetry,
)
from .collectives import Collectives
from .contestants import (
    CONTESTANTS,
    DEFAULT_CONTESTANTS,
    DISTRIBUTED,
    EARLIER,
    MIXED,
    PLAIN,
    ROOT,
    WORKLOADS,
    Contestant,
    UnknownNameError,
    Workload,
    at_ranks,
    earlier,
    find_contestants,
    find_workload,
    kernels_of,
    zoo_workloads,
)
from .coverage import Coverage, measure
from .coverage import table as coverage_table
from .figures import Figures, Ratio, beside, better_of, figures_of, geometric_mean, largest_difference
from .launches import (
    Launches,
    Traffic,
    of_iteration,
    plain_launches,
    stitch_traffic,
    stitched_launches,
    xla_launches,
)
from .processes import watched
from .progress import say
from .race import ContestantError, Limits, Outcome, installed, run_race

FORMAT = 2
_OF_ZOO = {"contestants": "plain,xla,stitched", "rounds": 5, "seconds": 4.0}


@dataclass(frozen=True)
class Result:
    """The result of one contestant on one workload. figures, launches, compile_s: None if they are not known."""

    outcome: Outcome
    figures: Figures | None
    launches: Launches | None
    compile_s: float | None


@dataclass(frozen=True)
class AgainstRival:
    """The stitched contestant compared with a rival, `name`: the better one of plain and XLA, or an earlier stitchfleet. Ratios
    above 1: stitched is faster."""

    name: str
    by_median: Ratio
    by_wall: Ratio


@dataclass(frozen=True)
class Section:
    """All results of one workload. earlier: the stitched contestant compared with that of another checkout. copy_bytes_per_s: the
    machine's copy bandwidth, the median of measurements between the rounds; None without a race."""

    results: list[Result]
    best: AgainstRival | None = None
    earlier: AgainstRival | None = None
    coverage: Coverage | None = None
    coverage_failure: str = ""
    copy_bytes_per_s: float | None = None
    traffic: Traffic | None = None
    collectives: Collectives | None = None

    @property
    def floor_ms(self) -> float | None:
        """Lower bound in ms on the time of a step's stitch ops: the bytes that they must read and write, at the copy's bandwidth."""
        if self.traffic is None or self.copy_bytes_per_s is None:
            return None
        return self.traffic.moved_bytes / self.copy_bytes_per_s * 1e3


_EPILOG = """\
examples:
  scripts/bench                                          the default: BERT's training step
  scripts/bench --workloads bert,dien --rounds 12        two workloads, and the geometric mean over both
  scripts/bench --workloads all --json all.json          every workload, in an hour or two
  scripts/bench --workloads horovod-bert --ranks 1,2,4   a job of several ranks, beside one of one rank
  scripts/bench --workloads dien --coverage              no race: what of the step is stitched, what stays out and why
  scripts/bench --contestants stitched --earlier ../old  before and after a change: old is a checkout with its own environment
  scripts/bench --zoo                                    models that nobody of this project wrote, from public packages
  scripts/bench --zoo hugging_face-bert,ocr              some of them; --zoo=list names all
  scripts/bench --peers                                  today's compilers of other frameworks on the same models
  scripts/bench --kernels-cpu                            single kernels of many sizes, compared with TensorFlow, XLA and a copy
  scripts/bench --floors                                 every kernel of the workloads' steps, and of patterns, and its byte floor
  scripts/bench --changed ../old                         which kernels of the jobs' clusters a change changes, and their times
  scripts/bench --products                               matrix products of the steps, and what the machine's arithmetic allows
  scripts/bench --functions                              exp, tanh and others, time per element, compared with glibc's vector library
  scripts/bench --calls                                  the call of a tf.function, its trace looked up by TensorFlow or by us
  scripts/bench --idle                                   overhead of a step with the plugin active and nothing switched on
  scripts/bench --admissions                             latency of the webhook, 100 pods per second and 200 at once
  scripts/bench --busy                                   how soon a job is stitched on a busy machine
  scripts/bench --telemetry                              the fleet's side: ingest, storage, a week of 70,000 jobs
  scripts/bench --telemetry --recording                  overhead of recording and sending in a training step
  scripts/bench --kernels                                CUDA kernels of whole steps by our plan, compared with XLA's

columns:
  ms/step    median duration of a step, by the script's own clock
  wall       wall time per step, which includes the time between steps
  plain/this above 1: faster than plain; with the 95% interval of the rounds' paired ratios
  launches   operators, stitch ops or kernels for memory-intensive work in a step, without matrix products and convolutions
  written    MiB of results and scratch that these write in a step; of TensorFlow's operators, allocations of 256 KiB and more
             (smaller ones stay in the caches)
  compile    seconds that the compile service was busy beside the job; for XLA, by how much its first steps were slower than plain's
  busy       processor time divided by wall time and cores, helpers included
"""


def build_parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {c.name:<12} {c.help}" for c in CONTESTANTS.values())
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=(
            "Compare workloads as they are, compiled by XLA, and under a whole `stitchfleet run`, interleaved in one run:\n"
            "each is warmed up alone and stopped; then each in turn has the machine alone for some seconds, in several rounds.\n"
            f"\ncontestants:\n{listed}\n\nworkloads: {', '.join(WORKLOADS)}, or the path of a script with the same options\n"
            f"in mixed_bfloat16, for a processor with AMX or AVX512-BF16: {', '.join(MIXED)}\n"
            f"workloads of several ranks, each on one core (Horovod is built once): {', '.join(DISTRIBUTED)}"
        ),
        epilog=_EPILOG,
    )
    parser.add_argument("--workloads", default="bert", metavar="A,B", help="workloads, or all (default: bert)")
    parser.add_argument(
        "--zoo",
        nargs="?",
        const="all",
        metavar="A,B",
        help="instead of workloads, models of public packages (scripts/zoo), in an environment of their own, which is made first "
        f"(3 GB); all, list, or some. Defaults then: {' '.join(f'--{name} {value}' for name, value in _OF_ZOO.items())}",
    )
    parser.add_argument(
        "--contestants",
        default=",".join(DEFAULT_CONTESTANTS),
        metavar="A,B",
        help=f"ways to run them; plain is always included (default: {','.join(DEFAULT_CONTESTANTS)})",
    )
    parser.add_argument(
        "--earlier",
        type=pathlib.Path,
        metavar="CHECKOUT",
        help="also race the stitchfleet of another checkout of this project, with its own environment and kernels",
    )
    parser.add_argument(
        "--ranks",
        type=_counts,
        default=(2, 4),
        metavar="N,M",
        help="numbers of processes of the workloads with several ranks (default 2,4)",
    )
    parser.add_argument("--rounds", type=_whole(2), default=8, metavar="N", help="slices per contestant (default 8)")
    parser.add_argument("--seconds", type=_above_zero, default=6.0, metavar="S", help="length of a slice (default 6)")
    parser.add_argument("--arguments", default="", metavar="WORDS", help="further arguments for the workloads' scripts")
    parser.add_argument(
        "--warm-up-limit", type=_above_zero, default=900.0, metavar="S", help="longest warm-up (default 900)"
    )
    parser.add_argument(
        "--cache", type=pathlib.Path, metavar="DIR", help="kernel cache (default: .cache/stitchfleet in the project)"
    )
    parser.add_argument("--cold", action="store_true", help="use an empty kernel cache, to measure compile time")
    parser.add_argument(
        "--coverage",
        action="store_true",
        help="no race: profile each workload plain and stitched, and list what is in no stitch op, and why",
    )
    parser.add_argument(
        "--no-counts",
        "--no-modules",
        dest="no_counts",
        action="store_true",
        help="only race: do not run plain, XLA and stitched once more to count what they launch and write",
    )
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write all results to FILE")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR", help="keep the contestants' output and logs in DIR")
    return parser


def _whole(least: int) -> Any:
    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"given {text!r}, expected a whole number from {least} up")
        return int(text)

    return parse


def _counts(text: str) -> tuple[int, ...]:
    return tuple(_whole(1)(word.strip()) for word in text.split(","))


def _above_zero(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"given {text!r}, expected a number of seconds above zero")
    return value


def _admissions(words: Sequence[str]) -> int:
    from . import admissions  # needs what the operator needs

    return admissions.main(words)


_OTHERS: Mapping[str, Callable[[Sequence[str]], int]] = {
    "--kernels-cpu": kernels_cpu.main,
    "--floors": floors.main,
    "--changed": changed.main,
    "--functions": functions.main,
    "--calls": calls.main,
    "--idle": idle.main,
    "--admissions": _admissions,
    "--busy": busy.main,
    "--telemetry": telemetry.main,
    "--peers": peers.main,
    "--products": products.main,
    "--kernels": step_kernels.main,
}
"""What is measured instead of races, by the first word of the command line."""


def main(words: Sequence[str] | None = None) -> int:
    """Runs the command. Returns the exit code: 0; 1 if a contestant failed; 2 for a mistake on the command line; 130 after Ctrl-C."""
    words = list(sys.argv[1:] if words is None else words)
    if words and words[0] in _OTHERS:
        return _OTHERS[words[0]](words[1:])
    parser = build_parser()
    arguments = parser.parse_args(words)
    if arguments.zoo is not None:
        parser.set_defaults(**_OF_ZOO)
        arguments = parser.parse_args(words)
    if arguments.zoo == "list":
        print("\n".join(f"{name:<34}{model.package}, {model.author}" for name, model in catalog.MODELS.items()))
        return 0
    try:
        names = ",".join(WORKLOADS) if arguments.workloads == "all" else arguments.workloads
        workloads = [find_workload(name.strip()) for name in names.split(",") if name.strip()]
        workloads = at_ranks(workloads, arguments.ranks) if arguments.zoo is None else zoo_workloads(arguments.zoo)
        contestants = find_contestants(arguments.contestants)
        if arguments.earlier is not None:
            contestants.append(earlier(arguments.earlier))
        extra = tuple(shlex.split(arguments.arguments))
    except (UnknownNameError, ValueError) as error:
        parser.error(str(error))
    if arguments.coverage and any(workload.ranks for workload in workloads):
        parser.error("--coverage: give a workload of one process")
    if arguments.earlier is not None and any(w.ranks or w.environment for w in workloads):
        parser.error("--earlier: give workloads of one process, none of the zoo")
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
            cache = folder / "cache" if arguments.cold else (arguments.cache or kernels_of(ROOT))
            for workload in workloads:
                installed(workload, say)
            sections: dict[str, Section] = {}
            for position, workload in enumerate(workloads, 1):
                say(f"{workload.name}: workload {position} of {len(workloads)}")
                sections[workload.name] = _section(workload, contestants, arguments, folder, cache.absolute(), extra)
                if arguments.json is not None:  # after each workload, so that an interrupted run leaves its results
                    arguments.json.write_text(json.dumps(document(sections, arguments), indent=1, default=str) + "\n")
    except KeyboardInterrupt:
        print("scripts/bench: interrupted", file=sys.stderr)
        return 130
    except (OSError, horovod_build.BuildError, ZooError) as error:
        print(f"scripts/bench: {error}", file=sys.stderr)
        return 2
    lines = coverage_lines(sections) if arguments.coverage else table(sections, arguments.rounds, arguments.seconds)
    print("\n".join(lines))
    if arguments.zoo is not None and not arguments.coverage:
        print("", *zoo_table(document(sections, arguments)), sep="\n")
    raced = [result for section in sections.values() for result in section.results]
    uncovered = arguments.coverage and any(section.coverage is None for section in sections.values())
    return int(uncovered or any(result.outcome.failure for result in raced))


def _section(
    workload: Workload,
    contestants: Sequence[Contestant],
    arguments: argparse.Namespace,
    folder: pathlib.Path,
    cache: pathlib.Path,
    extra: tuple[str, ...],
) -> Section:
    limits = Limits(arguments.rounds, arguments.seconds, warm_up_s=arguments.warm_up_limit)
    place = folder / f"{workload.name.replace('/', '-')}-{time.strftime('%Y%m%d-%H%M%S')}"
    mark = f"{os.getpid()}-{time.monotonic_ns()}/"
    modules: Launches | None = None
    coverage: Coverage | None = None
    failure = ""
    bandwidths: list[float] = []
    with watched(mark):
        outcomes: list[Outcome] = []
        if not arguments.coverage:
            outcomes = run_race(
                workload,
                contestants,
                limits,
                mark,
                place,
                cache,
                extra,
                say,
                lambda: bandwidths.append(machine.copy_bandwidth()),
            )
        raced = {o.contestant.name for o in outcomes if not o.failure}
        counts = not arguments.no_counts and not workload.ranks
        if {PLAIN, "xla"} <= raced and counts and workload.environment is None:
            say(f"{workload.name}: counting the kernels of XLA's module")
            try:
                modules = xla_launches(workload, CONTESTANTS["xla"], mark, place, extra)
            except (RuntimeError, ValueError, OSError) as error:
                say(f"  {workload.name}: XLA's kernels are not counted: {error}")
        if arguments.coverage or ({PLAIN, "stitched"} <= raced and counts):
            try:
                coverage = measure(workload, limits, mark, place, cache, extra, say)
            except (ContestantError, ValueError, OSError) as error:
                failure = str(error)
                say(f"  {workload.name}: no profile: {error}")
        timed: Collectives | None = None
        if workload.ranks > 1 and not arguments.no_counts and {PLAIN, "stitched"} <= raced:
            try:
                timed = collectives.measure(workload, limits, mark, place, cache, extra, say)
            except (ContestantError, ValueError, OSError) as error:
                say(f"  {workload.name}: its collectives are not timed: {error}")
    results = evaluate(outcomes, modules, coverage) if outcomes else []
    stitched = next((o for o in outcomes if o.contestant.name == "stitched" and not o.failure), None)
    return Section(
        results,
        _compared(stitched, [o for o in outcomes if o.contestant.name in (PLAIN, "xla")]),
        _compared(stitched, [o for o in outcomes if o.contestant.name == EARLIER]),
        coverage,
        failure,
        statistics.median(bandwidths) if bandwidths else None,
        stitch_traffic(stitched.summary) if stitched is not None and stitched.summary is not None else None,
        timed,
    )


def _compared(stitched: Outcome | None, rivals: Sequence[Outcome]) -> AgainstRival | None:
    """The stitched contestant compared with the best of its rivals; None if one of them has no figures."""
    rival = better_of([outcome for outcome in rivals if not outcome.failure])
    if rival is None or stitched is None:
        return None
    by_median, by_wall = beside(stitched, rival)
    return None if by_median is None or by_wall is None else AgainstRival(rival.contestant.name, by_median, by_wall)


def evaluate(outcomes: Sequence[Outcome], modules: Launches | None, coverage: Coverage | None = None) -> list[Result]:
    """The results of all contestants, compared with the first one (plain)."""
    reference = outcomes[0]
    stitched = next((o.summary for o in outcomes if o.contestant.is_stitched and o.summary is not None), None)
    results = []
    for outcome in outcomes:
        figures = None if outcome.failure or reference.failure else figures_of(outcome, reference)
        launches: Launches | None = None
        if outcome.contestant.name in (PLAIN, "plain-again", "idle"):
            launches = plain_launches(stitched) if stitched else None
            launches = of_iteration(coverage.plain) if coverage else launches
        elif outcome.contestant.is_stitched:
            launches = stitched_launches(outcome.summary) if outcome.summary else None
            launches = of_iteration(coverage.stitched) if coverage else launches
        elif outcome.contestant.name == "xla":
            launches = modules
        results.append(Result(outcome, figures, launches, _compile_seconds(outcome, figures, reference)))
        if figures is None and not outcome.failure and not reference.failure and not outcome.note:
            say(f"  {outcome.contestant.name}: no slice had enough whole steps; give longer --seconds")
    return results


def _compile_seconds(outcome: Outcome, figures: Figures | None, reference: Outcome) -> float | None:
    """Seconds of compilation. Stitched: how long the compile service was busy. XLA: by how much its start-up was slower than
    plain's."""
    if outcome.contestant.is_stitched:
        return outcome.summary["overheads"]["compile_service_busy_ms"] / 1e3 if outcome.summary else None
    plain = figures_of(reference, reference)
    if not outcome.contestant.name.startswith("xla") or figures is None or plain is None:
        return None
    return max(0.0, figures.start_up_s - plain.start_up_s)


# ---- out ---------------------------------------------------------------------------------------------------------------------


def table(sections: dict[str, Section], rounds: int, seconds: float) -> list[str]:
    """The races as lines of text."""
    lines = [
        f"{machine.cpu_name()}, {machine.cores()} cores, {machine.memory_bytes() / 2**30:.0f} GiB; "
        f"{rounds} rounds of {seconds:g} s each, interleaved",
    ]
    for name, section in sections.items():
        lines += [
            "",
            f"{name:<13}{'ms/step':>9}{'wall':>9}  {'plain/this, 95% interval':<26}{'by wall':<26}"
            f"{'launches':>9}{'written':>9}{'compile':>9}{'peak MiB':>10}{'busy':>6}",
        ]
        lines += [_row(result) for result in section.results]
        for result in section.results:
            outcome = result.outcome
            if outcome.note:
                lines.append(f"  {outcome.contestant.name}: {outcome.note}")
            if outcome.new_kernels:
                lines.append(f"  {outcome.contestant.name}: {outcome.new_kernels} kernels were new to the cache")
        lines += _notes(section)
    return lines + _means(sections)


def _notes(section: Section) -> list[str]:
    lines = []
    if launched := [result.launches for result in section.results if result.launches]:
        lines.append(f"  launches: for memory-intensive work, each iteration, beside {launched[0].products} products")
    if section.floor_ms is not None and section.traffic is not None and section.copy_bytes_per_s is not None:
        took = f"; they took {section.coverage.stitched.stitch_us / 1e3:.2f} ms" if section.coverage else ""
        lines.append(
            f"  floor: the stitch ops of a step must move {section.traffic.moved_bytes / 2**20:.1f} MiB, "
            f"{section.floor_ms:.2f} ms at the copy's {section.copy_bytes_per_s / 1e9:.1f} GB/s{took}; "
            f"their scratch holds {section.traffic.scratch_bytes / 2**20:.1f} MiB more"
        )
    if section.coverage is not None:
        lines.append(f"  coverage: {section.coverage.share:.1%} of plain's memory-intensive time lies in stitch ops")
    if section.collectives is not None:
        lines += collectives.table(section.collectives)
    if section.best is not None:
        best = section.best
        lines.append(
            f"  stitched beside the better of plain and XLA, {best.name}: {_ratio_text(best.by_median)}, "
            f"by wall {_ratio_text(best.by_wall)}"
        )
    if section.earlier is not None:
        lines.append(
            f"  stitched beside the earlier stitchfleet: {_ratio_text(section.earlier.by_median)}, "
            f"by wall {_ratio_text(section.earlier.by_wall)}"
        )
    return lines


def _means(sections: dict[str, Section]) -> list[str]:
    """Lines on the geometric means over the workloads; none for one workload."""
    found = {name: section.best for name, section in sections.items() if section.best is not None}
    if len(sections) < 2 or not found:
        return []
    by_median = geometric_mean([best.by_median for best in found.values()])
    by_wall = geometric_mean([best.by_wall for best in found.values()])
    lines = [
        "",
        f"stitched beside the better of plain and XLA, geometric mean over {len(found)} workloads: "
        f"{_ratio_text(by_median)}, by wall {_ratio_text(by_wall)}",
    ]
    missing = [name for name in sections if name not in found]
    if missing:
        lines.append(f"  without {', '.join(missing)}, for which there are no figures")
    return lines


def coverage_lines(sections: dict[str, Section]) -> list[str]:
    """The lines that --coverage prints."""
    lines: list[str] = []
    for name, section in sections.items():
        lines += coverage_table(name, section.coverage) if section.coverage else [f"{name}: {section.coverage_failure}"]
        lines.append("")
    if len(sections) > 1:
        lines += [f"{s.coverage.share:>7.1%}  {name}" for name, s in sections.items() if s.coverage]
    return lines


def _row(result: Result) -> str:
    outcome, figures = result.outcome, result.figures
    name = f"  {outcome.contestant.name:<11}"
    if figures is None:
        return f"{name} {'failed: ' + outcome.failure if outcome.failure else 'no figures'}"
    size = result.launches.written_bytes if result.launches else None
    written = "-" if size is None else f"{size / 2**20:.1f}"
    compile_s = "-" if result.compile_s is None else f"{result.compile_s:.1f}"
    launches = "-" if result.launches is None else f"{result.launches.memory}"
    return (
        f"{name}{figures.median_ms:>9.2f}{figures.wall_ms:>9.2f}  "
        f"{_ratio_text(figures.ratio_of_medians):<26}{_ratio_text(figures.ratio_of_wall):<26}"
        f"{launches:>9}{written:>9}{compile_s:>9}{outcome.peak_bytes / 2**20:>10.0f}"
        f"{figures.cores / machine.cores():>6.0%}"
    )


def _ratio_text(ratio: Ratio | None) -> str:
    return "-" if ratio is None else f"{ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"


def document(sections: dict[str, Section], arguments: argparse.Namespace) -> dict[str, Any]:
    """All results as JSON. Names of fields say the units; sizes are in bytes. Raw slices and step times are included."""
    return {
        "format": FORMAT,
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine.facts(),
        "versions": machine.versions(),
        "rounds": arguments.rounds,
        "slice_seconds": arguments.seconds,
        "arguments": arguments.arguments,
        "workloads": {
            name: [_facts(row, section.results[0].outcome) for row in section.results]
            for name, section in sections.items()
        },
        "beside_the_better_of_plain_and_xla": {
            name: dataclasses.asdict(section.best) for name, section in sections.items() if section.best
        },
        "beside_the_earlier_stitchfleet": {
            name: dataclasses.asdict(section.earlier) for name, section in sections.items() if section.earlier
        },
        "coverage": {
            name: dataclasses.asdict(section.coverage) for name, section in sections.items() if section.coverage
        },
        "collectives": {
            name: dataclasses.asdict(section.collectives) for name, section in sections.items() if section.collectives
        },
        "floors": {
            name: {
                "copy_bytes_per_s": section.copy_bytes_per_s,
                "stitch_moved_bytes": section.traffic.moved_bytes,
                "stitch_scratch_bytes": section.traffic.scratch_bytes,
                "floor_ms": section.floor_ms,
            }
            for name, section in sections.items()
            if section.traffic
        },
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
        "warm_up_step_s": outcome.warm_up_step_s,
        "peak_bytes": outcome.peak_bytes,
        "helpers_peak_bytes": outcome.helpers_peak_bytes,
        "losses_beside_plain": {"steps": common, "largest_relative_difference": difference},
        "slices": [dataclasses.asdict(window) for window in outcome.slices],
        "starts": [round(start, 6) for start in outcome.starts],
        "seconds": [round(seconds, 7) for seconds in outcome.seconds],
        "summary": outcome.summary,
    }
