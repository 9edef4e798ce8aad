"""How soon a job is stitched on a machine whose processors have other work (`scripts/bench --busy`).

A workload runs under `stitchfleet run` with an empty kernel cache: alone, beside as many busy processes as there are processors, and
beside eight. The time is that from its first step to its first stitched step. The overhead charged to the job is the time by which
the steps disturbed by stitching were longer than as many plain ones. Both are from its summary.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORKLOAD = "session_v1"
MOST = 8
LIMIT_S = 420.0
LAST_WORDS_S = 60.0
"""How long a job may take to end: it writes its summary."""
STITCHED = "stitched from step"


@dataclass(frozen=True)
class Arrival:
    """The result of one job. busy: number of busy processes. stitched_after_s: None if it was not stitched within the limit.
    kernel_after_s: when the first checked kernel was there, to half a second; None if the job was not stitched. Both count from the
    job's first step. phase: at the end. load: the machine's load before.

    charged_s: time by which the disturbed steps were longer than plain ones. compiling_s: how long the compile service was busy.
    """

    busy: int
    limit_s: float
    stitched_after_s: float | None
    kernel_after_s: float | None
    step: int | None
    phase: str
    load: float
    charged_s: float
    compiling_s: float


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """A context with `count` processes that only compute, at the job's priority."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def _in_front() -> None:
    """Makes a child like a job started at a terminal: its own process group, with SIGINT not ignored, even if we run in the
    background."""
    os.setpgrp()
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def _stopped(job: subprocess.Popen[bytes]) -> Iterator[None]:
    """A context after which the job has ended, with its process group. It is stopped as a terminal does it, and killed if it has not
    ended after LAST_WORDS_S."""
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGINT)
        try:
            job.wait(LAST_WORDS_S)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
            job.wait()


def arrival(workload: str, busy: int, patience_s: float, limit_s: float, native: pathlib.Path) -> Arrival:
    """Runs the job beside `busy` processes until it is stitched, for at most `limit_s` seconds. patience_s: the job's
    STITCHFLEET_COMPILE_PATIENCE. native: the folder of the built op, which is used again."""
    with tempfile.TemporaryDirectory(prefix="stitchfleet-busy-") as name:
        folder = pathlib.Path(name)
        (folder / "cache").mkdir()
        (folder / "cache" / "native").symlink_to(native)
        command = [
            *(sys.executable, "-m", "stitchfleet.plugin.command", "run", "--cache", str(folder / "cache")),
            *("--summary", str(folder / "summary.json"), "--database", f"sqlite:///{folder}/records.db"),
            *("--", sys.executable, str(ROOT / "scripts" / "workloads" / f"{workload}.py"), "--steps", "1000000000"),
        ]
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "STITCHFLEET_COMPILE_PATIENCE": str(patience_s)}
        load = os.getloadavg()[0]
        with busy_processes(busy), (folder / "out").open("w") as out:
            job = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=out, stderr=subprocess.STDOUT, preexec_fn=_in_front
            )
            kernel = stitched = math.nan
            with _stopped(job):
                end = time.monotonic() + limit_s
                while job.poll() is None and time.monotonic() < end:
                    if math.isnan(kernel) and any((folder / "cache" / "kernels").glob("*/*/kernel.*")):
                        kernel = time.monotonic()
                    if STITCHED in (folder / "out").read_text():
                        stitched = time.monotonic()
                        break
                    time.sleep(0.5)
        summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    main = next(program for program in summary["programs"] if program["name"] == summary["main"])
    costs = summary["overheads"]
    after: float | None = main["stitched_after_seconds"]
    waited = stitched - kernel
    return Arrival(
        *(busy, limit_s, after, None if after is None or math.isnan(waited) else max(0.0, after - waited)),
        *(main["stitched_from_step"], str(main["phase"]), load),
        charged_s=costs["steps_disturbed_ms"] / 1e3,
        compiling_s=costs["compile_service_busy_ms"] / 1e3,
    )


def main(words: Sequence[str] = ()) -> int:
    """The command. Returns exit code 0, or 2 for a mistake on the command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench --busy", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--workload", default=WORKLOAD, help=f"script in scripts/workloads (default {WORKLOAD})")
    parser.add_argument(
        "--patience", type=float, default=60.0, metavar="S", help="STITCHFLEET_COMPILE_PATIENCE (60); 0: never"
    )
    parser.add_argument(
        "--limit", type=float, default=LIMIT_S, metavar="S", help=f"seconds for each job ({LIMIT_S:.0f})"
    )
    parser.add_argument(
        "--threads", default="", metavar="N,N", help="numbers of busy processes (default: 0, one per processor, 8)"
    )
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the figures to FILE")
    arguments = parser.parse_args(list(words))
    from stitchfleet.plugin.native.library import build_library, find_tensorflow

    cores = len(os.sched_getaffinity(0))
    counts = [int(word) for word in arguments.threads.split(",") if word] or sorted({0, cores, MOST})
    native = build_library(ROOT / ".cache" / "stitchfleet", find_tensorflow(), print).parents[1]
    print(f"{arguments.workload}, all kernels new, {cores} processors, patience {arguments.patience:.0f} s")
    print(
        f"{'busy processes':>14} {'first kernel':>13} {'first step to stitched':>24} {'from step':>10} "
        f"{'charged':>9} {'compiling':>10}   load before"
    )
    found = []
    for busy in counts:
        one = arrival(arguments.workload, busy, arguments.patience, arguments.limit, native)
        after = one.stitched_after_s
        shown = f"{after:.0f} s" if after is not None else f"not in {one.limit_s:.0f} s ({one.phase})"
        step, costs = "-" if one.step is None else one.step, f"{one.charged_s:>7.1f} s {one.compiling_s:>8.0f} s"
        kernel = "-" if one.kernel_after_s is None else f"{one.kernel_after_s:.0f} s"
        print(f"{busy:>14} {kernel:>13} {shown:>24} {step:>10} {costs}   {one.load:.1f}", flush=True)
        found.append(asdict(one))
    if arguments.json is not None:
        arguments.json.write_text(
            json.dumps({"workload": arguments.workload, "patience_s": arguments.patience, "figures": found}, indent=2)
            + "\n"
        )
    return 0
