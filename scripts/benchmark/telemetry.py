"""The resources of the fleet's telemetry (`scripts/bench --telemetry`): ingest, storage, a week of 70,000 jobs.

The client, the ingest server and PostgreSQL share this machine's cores; PostgreSQL has its default configuration, with flushes to the
disk. Segments are made before the clock starts; it stops when the last batch is answered, which is after its commit.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from stitchfleet.telemetry.database import access
from stitchfleet.telemetry.database.weeks import Week
from stitchfleet.telemetry.pod.recording import DAY_NS, MAX_BLOCK, PLAIN, STITCHED, JobIdentity
from stitchfleet.telemetry.pod.spool import MAGIC, Iterations, Kind, Record, encode
from stitchfleet.telemetry.shipping.sender import Sender
from stitchfleet.telemetry.totals import freezing

from . import machine, recording
from .postgres import postgres_server

TOKEN = "benchmark"
SEAL_SECONDS = 30
SENDERS = 4
SEGMENTS_IN_POST = 8
SEGMENT_BYTES = 1 << 20
"""Size at which a spool's segment is sealed."""
REPORTS = 5
STEP_MS = (10, 50, 300)
"""Step lengths for the size of a stored iteration: 3,000, 600 and 100 iterations in the block of 30 s."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--iterations", type=int, default=40_000_000, metavar="N", help="iterations to ingest")
    parser.add_argument("--jobs", type=int, default=70_000, metavar="N", help="jobs in the week; 0: leave it out")
    parser.add_argument(
        "--recording",
        action="store_true",
        help="measure only the overhead of recording in a job: of the call, and of a step with the shipper",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=recording.MINUTES,
        metavar="N",
        help="duration of the steps (default %(default)g)",
    )


def segment(number: int, first_sequence: int, records: Sequence[tuple[int, bytes]], started_ns: int) -> bytes:
    """A segment of job `number`, in the format of its spool."""
    identity = JobIdentity(
        "bench", f"{number:032x}", f"uid-{number}", 0, f"team-{number % 40}", f"model-{number % 300}-{number}", "ada",
        "registry.example/train@sha256:0123456789abcdef", "tensorflow", "2.15.1", "0.1.0", f"{number % 300:016x}",
        "NVIDIA A100" if number % 5 else "cpu", 8 if number % 5 else 1, 0, 1, {"team": f"t{number % 40}"},
    )  # fmt: skip
    about = {
        "format": 1, "process": f"{number:012x}", "pid": 1, "host": f"node-{number % 1000}", "started_ns": started_ns,
        "job": identity.to_json(),
    }  # fmt: skip
    whole = [(Kind.IDENTITY, json.dumps(about).encode()), *records]
    return MAGIC + b"".join(encode(Record(kind, first_sequence + k, body)) for k, (kind, body) in enumerate(whole))


def iterations(source: random.Random, count: int, first_step: int, mean_us: float, ended_ns: int) -> tuple[int, bytes]:
    """A record of `count` stitched iterations, whose durations are distributed around `mean_us`."""
    durations = array("f", [source.lognormvariate(0.0, 0.05) * mean_us for _ in range(count)])
    block = Iterations(
        first_step, 1, ended_ns - round(1e3 * sum(durations)), ended_ns, [(0, count, STITCHED)], durations
    )
    return Kind.ITERATIONS, block.encode()


@contextlib.contextmanager
def ingest(url: str, folder: pathlib.Path) -> Iterator[str]:
    """Runs `stitchfleet ingest` in a separate process, and yields its URL."""
    engine = access.open_engine(url)
    access.upgrade(engine)
    engine.dispose()
    (folder / "tokens").write_text(TOKEN)
    command = [sys.executable, "-m", "stitchfleet.plugin.command", "ingest", "--port", "0", "--database", url]
    process = subprocess.Popen([*command, "--tokens", str(folder / "tokens")], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        yield process.stderr.readline().rpartition(" ")[2].strip()
    finally:
        process.terminate()
        process.communicate()


def post_all(url: str, posts: Sequence[Sequence[bytes]]) -> float:
    """Sends all posts, SENDERS at a time. Returns the seconds until all are answered."""
    senders = [Sender(url, {"STITCHFLEET_INGEST_TOKEN": TOKEN}) for _ in range(SENDERS)]

    def send(sender: Sender, mine: Sequence[Sequence[bytes]]) -> None:
        for segments in mine:
            answers = sender.post(segments)
            assert all(answer.damaged_records == 0 for answer in answers), answers
        sender.close()

    began = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(SENDERS) as pool:
        for done in [pool.submit(send, sender, posts[k::SENDERS]) for k, sender in enumerate(senders)]:
            done.result()
    return time.perf_counter() - began


def rate(url: str, folder: pathlib.Path, total: int) -> dict[str, Any]:
    """The rate of ingest in iterations per second: posts about `total` iterations in full blocks. url: of the database."""
    source, now = random.Random(1), time.time_ns()
    blocks = SEGMENT_BYTES // (4 * MAX_BLOCK)
    # the durations of a block are made once: for the server each block is new by its job, numbers and steps
    bodies = [iterations(source, MAX_BLOCK, k * MAX_BLOCK, 5e3, now) for k in range(blocks)]
    in_post = blocks * MAX_BLOCK * SEGMENTS_IN_POST
    posts = [
        [segment(k, 1 + 1000 * part, bodies, now) for part in range(SEGMENTS_IN_POST)]
        for k in range(max(1, total // in_post))
    ]
    with ingest(url, folder) as server:
        post_all(server, [[segment(1 << 30, 1, bodies[:1], now)]])  # warms up the pools
        seconds = post_all(server, posts)
    found = len(posts) * in_post
    return {"iterations": found, "seconds": seconds, "iterations_per_s": found / seconds}


def stored_bytes(url: str, folder: pathlib.Path, step_ms: int) -> dict[str, Any]:
    """Bytes per iteration in the database at `url`, for steps of `step_ms` with blocks sealed every SEAL_SECONDS: whole relations
    with their indexes."""
    # some megabytes, so that the size of an empty relation does not matter
    hours, jobs = max(1, step_ms // 100), max(8, step_ms // 8)
    source, now = random.Random(step_ms), time.time_ns()
    count = SEAL_SECONDS * 1000 // step_ms
    start = (now // DAY_NS) * DAY_NS
    posts = []
    for job in range(jobs):
        parts = [
            segment(
                job, 1 + 40 * k,
                [iterations(source, count, k * count, 1e3 * step_ms, start + (k + 1) * SEAL_SECONDS * 10**9)], start,
            )
            for k in range(hours * 3600 // SEAL_SECONDS)
        ]  # fmt: skip
        posts += [[part] for part in parts]
    with ingest(url, folder) as server:
        post_all(server, posts)
    total = count * len(posts)
    engine = access.open_engine(url)
    with engine.connect() as connection:
        if connection.dialect.name == "postgresql":
            sizes = "SELECT sum(pg_total_relation_size(inhrelid)) FROM pg_inherits WHERE inhparent = 'iteration_blocks'::regclass"
        else:
            sizes = "SELECT sum(pgsize) FROM dbstat WHERE name LIKE '%iteration_blocks%'"
        try:
            size = int(connection.scalar(sa.text(sizes)) or 0)
        except sa.exc.OperationalError:
            size = 0  # this SQLite was built without dbstat
    engine.dispose()
    return {"step_ms": step_ms, "iterations_in_block": count, "bytes_per_iteration": size / total if size else None}


def fleet_week(url: str, folder: pathlib.Path, jobs: int) -> dict[str, Any]:
    """Seconds to write a week of `jobs` jobs through ingest to the database at `url`, to freeze the week, and to make its
    reports."""
    week = Week.at(time.time_ns() - 7 * DAY_NS)
    source = random.Random(7)
    posts = []
    for job in range(jobs):
        start = week.start_ns + source.randrange(5 * DAY_NS)
        records: list[tuple[int, bytes]] = []
        for pair in range(10):
            for arm, factor in ((PLAIN, 1.0), (STITCHED, 0.8)):
                durations = [round(5e7 * factor * source.lognormvariate(0.0, 0.05)) for _ in range(10)]
                facts = {"pair": pair, "arm": arm, "first_step": 20 * pair, "durations_ns": durations, "time_ns": start}
                records.append((Kind.ARM_BLOCK, json.dumps(facts).encode()))
        count = 10_000 if job % 100 == 0 else 100
        for first in range(0, count, MAX_BLOCK):
            size = min(MAX_BLOCK, count - first)
            records.append(iterations(source, size, first, 4e4, start + 10**9 * (first + 1)))
        end = {"time_ns": start + 10**12, "facts": {"overhead_ns": 10**9, "phase": "stitched"}}
        records.append((Kind.JOB_END, json.dumps(end).encode()))
        posts.append([segment(job, 1, records, start)])
    with ingest(url, folder) as server:
        written = post_all(server, posts)
    engine = access.open_engine(url)
    with access.writing(engine) as connection:
        began = time.perf_counter()
        (frozen,) = freezing.freeze(connection, week.end_day)
        rolled_up = time.perf_counter() - began
    engine.dispose()
    assert frozen.processes == jobs
    command = [sys.executable, "-m", "stitchfleet.plugin.command", "report", "--week", str(week), "--database", url]
    reports = {
        "text": timed(command),
        "page": timed([*command, "--format", "html", "--output", str(folder / "week.html")]),
    }
    return {
        "jobs": jobs,
        "write_s": written,
        "roll_up_s": rolled_up,
        **{f"report_{form}_s": statistics.median(seconds for seconds, _ in found) for form, found in reports.items()},
        "first_lines": reports["text"][0][1].splitlines()[:4],
    }


def timed(command: Sequence[str]) -> list[tuple[float, str]]:
    """(seconds including the start, output) of each of REPORTS runs of a command."""
    found = []
    for _ in range(REPORTS):
        began = time.perf_counter()
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found.append((time.perf_counter() - began, text))
    return found


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Runs the benchmark, and prints each result when it is there."""
    facts: dict[str, Any] = {"cpu": machine.cpu_name(), "cores": machine.cores()}
    with tempfile.TemporaryDirectory(prefix="stitchfleet-bench-") as name, postgres_server(durable=True) as server:
        folder = pathlib.Path(name)
        if arguments.recording:
            url = server.new_database()
            with ingest(url, folder) as at:
                facts["recording"] = recording.run(url, at, TOKEN, folder, arguments.minutes)
            return facts
        for kind in ("postgresql", "sqlite"):
            url = server.new_database() if kind == "postgresql" else f"sqlite:///{folder}/rate.db"
            facts[f"ingest_{kind}"] = rate(url, folder, arguments.iterations)
            print(f"{kind}: {facts[f'ingest_{kind}']['iterations_per_s']:,.0f} iterations/s ingested", flush=True)
        for kind in ("postgresql", "sqlite"):
            lines = []
            for step_ms in STEP_MS:
                url = server.new_database() if kind == "postgresql" else f"sqlite:///{folder}/{step_ms}.db"
                lines.append(stored_bytes(url, folder, step_ms))
                size = lines[-1]["bytes_per_iteration"]
                said = "not known" if size is None else f"{size:.2f}"
                print(f"{kind}: {said} bytes an iteration of {step_ms} ms, sealed every {SEAL_SECONDS} s", flush=True)
            facts[f"storage_{kind}"] = lines
        if arguments.jobs:
            facts["week_postgresql"] = fleet_week(server.new_database(), folder, arguments.jobs)
            print(json.dumps(facts["week_postgresql"], indent=2), flush=True)
    return facts


def main(words: Sequence[str]) -> int:
    """The command `scripts/bench --telemetry`. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="scripts/bench --telemetry", description=__doc__)
    add_arguments(parser)
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the figures to FILE")
    arguments = parser.parse_args(words)
    facts = run(arguments)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(facts, indent=2) + "\n")
    return 0
