"""The overhead of recording in a job (`scripts/bench --telemetry --recording`): of the call, and of a whole step while the shipper
sends.

First the call is timed alone, a thousand times per second, while its records are sealed every few seconds and the shipper posts them
to a `stitchfleet ingest` with PostgreSQL on the same machine.

Then in a TensorFlow job that records each of its steps: the call, which finds the caches as the step has left them, and the processor
time of the recorder's thread and of the shipper.

The overhead of a whole step cannot be measured with two processes, which drift apart by more than 0.2%. So the job goes on in pairs
of steps, one with recording on and one with it off, in random order. Off means that nothing is recorded, the recorder's thread sleeps
and the shipper is stopped (SIGSTOP). A process that only sleeps is stopped and continued in the shipper's place, since that costs
more than the shipper's work and extends into the next step. On is slightly more than in a job: the thread writes in as many of these
steps, but timers go on while their process is stopped, so the shipper looks for segments, and segments are sealed, twice as often.
The estimate is the trimmed mean log ratio of the pairs with Student's interval (idle.compare), with the plain mean
(figures.paired_ratio).
"""

from __future__ import annotations

import json
import math
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import sqlalchemy as sa

from stitchfleet.telemetry.database import access
from stitchfleet.telemetry.pod import recording
from stitchfleet.telemetry.pod.recording import STITCHED, JobIdentity, Recorder

from . import idle
from .figures import paired_ratio

CALLS = 60_000
CALL_SECONDS = 0.001
"""Pause between two calls: the caches are then as after a step, and a rare stall affects one call, not a thousand."""
CALL_SEAL_SECONDS = 5.0
STEP_MS = 50.0
MINUTES = 15.0
"""Duration of the pairs of steps. Before them the job records without pairs, for a quarter of that."""
START_SECONDS = 5.0
"""Time for the shipper's imports, which happen once per job."""
MEAN_LIMIT_US, RARE_LIMIT_US, STEP_LIMIT = 5.0, 50.0, 0.002
"""Limits on the overhead: the call's mean and 99.9th percentile, and the share of a step of STEP_MS."""
SLEEPER = "import os, time; os.nice(19)\nwhile True: time.sleep(2)"
_ASLEEP = 1e6


@dataclass(frozen=True)
class Calls:
    """Statistics of the duration of `Recorder.iteration` in microseconds, including that of the clock."""

    count: int
    mean_us: float
    median_us: float
    p99_us: float
    p999_us: float
    longest_us: float

    @classmethod
    def of(cls, nanoseconds: Sequence[int]) -> Calls:
        ordered = sorted(nanoseconds)
        quantiles = (ordered[math.ceil(share * len(ordered)) - 1] / 1e3 for share in (0.5, 0.99, 0.999, 1.0))
        return cls(len(ordered), statistics.fmean(ordered) / 1e3, *quantiles)


@dataclass
class Steps:
    """The steps of one arm, in the order of their pairs: wall and processor seconds of the training process."""

    wall_s: list[float] = field(default_factory=list)
    processor_s: list[float] = field(default_factory=list)


# ---- the process that is measured ------------------------------------------------------------------------------------------


class Recorded:
    """A recorder with its shipper."""

    def __init__(self, folder: pathlib.Path, ingest: str, run_id: str, seal_seconds: float) -> None:
        identity = JobIdentity.from_environment(run_id, framework="tensorflow", device_kind="cpu", device_count=1)
        self.recorder = Recorder(folder / run_id, identity, seal_seconds=seal_seconds)
        command = [
            sys.executable,
            "-m",
            "stitchfleet.telemetry.shipping.shipper",
            str(folder / run_id),
            "--ingest",
            ingest,
        ]
        self.shipper = subprocess.Popen([*command, "--follow", str(os.getpid())])
        self.steps = 0
        self.calls: list[int] = []

    def step(self, duration_ns: int) -> None:
        began = time.perf_counter_ns()
        self.recorder.iteration(self.steps, STITCHED, duration_ns)
        self.calls.append(time.perf_counter_ns() - began)
        self.steps += 1

    def thread_seconds(self) -> float:
        """Processor time of the recorder's thread so far."""
        thread = self.recorder._thread
        assert thread is not None
        assert thread.ident is not None
        return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))

    def shipper_seconds(self) -> float:
        """Processor time of the shipper so far, to the nanosecond."""
        return int(pathlib.Path(f"/proc/{self.shipper.pid}/schedstat").read_text().split()[0]) / 1e9

    def end(self) -> dict[str, int]:
        """Closes the recorder. The shipper empties the spool after this process has ended."""
        self.shipper.send_signal(signal.SIGCONT)
        self.recorder.close(60)
        return {"recorded": self.steps, "lost": self.recorder.lost}


def measure_calls(recorded: Recorded, count: int) -> dict[str, Any]:
    """The statistics (Calls) of `count` calls without a training step."""
    for _ in range(count):
        recorded.step(1_000_000)
        time.sleep(CALL_SECONDS)
    return asdict(Calls.of(recorded.calls))


def measure_job(recorded: Recorded, minutes: float, train: Callable[[], None]) -> dict[str, Any]:
    """A job that records its steps: the statistics of the call and of the clock, and the processor time of recording in seconds."""
    time.sleep(START_SECONDS)
    thread, shipper = recorded.thread_seconds(), recorded.shipper_seconds()
    clock: list[int] = []
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        began = time.perf_counter_ns()
        train()
        duration_ns = time.perf_counter_ns() - began
        if recorded.steps % 2:
            began = time.perf_counter_ns()
            clock.append(time.perf_counter_ns() - began)
        recorded.step(duration_ns)
    # the other calls came right after the clock was timed
    return {
        "calls": asdict(Calls.of(recorded.calls[::2])), "clock": asdict(Calls.of(clock)), "steps": recorded.steps,
        "thread_s": recorded.thread_seconds() - thread, "shipper_s": recorded.shipper_seconds() - shipper,
        "shipper_start_s": shipper,
    }  # fmt: skip


def measure_pairs(recorded: Recorded, minutes: float, train: Callable[[], None]) -> dict[str, Any]:
    """The times of the job's steps (Steps) in each arm, "on" and "off": for `minutes`, pairs of steps with recording on and off."""
    order = random.Random(0)
    steps_in_write = round(1e3 * recording.WRITE_SECONDS / STEP_MS)
    recording.WRITE_SECONDS = _ASLEEP
    recorded.recorder.flush(60)
    beside = {True: recorded.shipper, False: subprocess.Popen([sys.executable, "-c", SLEEPER])}
    for process in beside.values():
        process.send_signal(signal.SIGSTOP)
    arms = {True: Steps(), False: Steps()}
    try:
        end = time.monotonic() + 60 * minutes
        while time.monotonic() < end:
            for on in order.sample((True, False), 2):
                beside[on].send_signal(signal.SIGCONT)
                if on and recorded.steps % steps_in_write == 0:
                    recorded.recorder._wake.set()
                wall, processor = time.perf_counter_ns(), time.process_time_ns()
                train()
                if on:
                    recorded.step(time.perf_counter_ns() - wall)
                arms[on].wall_s.append((time.perf_counter_ns() - wall) / 1e9)
                arms[on].processor_s.append((time.process_time_ns() - processor) / 1e9)
                beside[on].send_signal(signal.SIGSTOP)
    finally:
        beside[False].kill()
        beside[False].wait()
    return {"on": asdict(arms[True]), "off": asdict(arms[False])}


def training_step() -> Callable[[], None]:
    """A TensorFlow training step of two dense layers that takes about STEP_MS here."""
    import tensorflow as tf

    width, batch = 512, 256
    weights = [tf.Variable(tf.random.normal([width, width], stddev=0.02, seed=k)) for k in range(2)]

    def compiled(batch: int) -> Callable[[], None]:
        given = tf.random.normal([batch, width], seed=2)

        def train_step(x: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(tf.matmul(tf.nn.gelu(tf.matmul(x, weights[0])), weights[1])))
            for weight, gradient in zip(weights, tape.gradient(loss, weights)):
                weight.assign_sub(1e-3 * gradient)
            return loss

        traced: Any = tf.function(train_step)
        return lambda: traced(given).numpy()

    for _ in range(4):
        step = compiled(batch)
        times = []
        for _ in range(30):
            began = time.perf_counter()
            step()
            times.append(time.perf_counter() - began)
        # the 10% quantile, which other processes disturb least
        batch = max(1, round(batch * STEP_MS / (1e3 * sorted(times)[len(times) // 10])))
    return compiled(batch)


def job(words: Sequence[str]) -> None:
    """The main function of the measured process. words: folder, URL of the ingest server, number of calls, minutes. Prints JSON."""
    folder, ingest, calls, minutes = pathlib.Path(words[0]), words[1], int(words[2]), float(words[3])
    recorded = Recorded(folder, ingest, "calls", CALL_SEAL_SECONDS)
    found: dict[str, Any] = {"calls": measure_calls(recorded, calls), "ends": {"calls": recorded.end()}}
    step = training_step()
    for _ in range(40):
        step()
    recorded = Recorded(folder, ingest, "steps", 30.0)
    found["job"] = measure_job(recorded, minutes / 4, step)
    found["pairs"] = measure_pairs(recorded, minutes, step)
    found["ends"]["steps"] = recorded.end()
    print(json.dumps(found))


# ---- the benchmark ---------------------------------------------------------------------------------------------------------


def step_figures(pairs: dict[str, Any]) -> dict[str, Any]:
    """The overhead of a step with recording, as shares of a step without, each with the bounds of its interval."""
    found: dict[str, Any] = {
        "pairs": len(pairs["on"]["wall_s"]),
        "step_ms": 1e3 * statistics.median(pairs["off"]["wall_s"]),
    }
    for clock in ("wall", "processor"):
        on, off = pairs["on"][f"{clock}_s"], pairs["off"][f"{clock}_s"]
        mean = paired_ratio(dict(enumerate(on)), dict(enumerate(off)))
        assert mean is not None
        found[clock] = list(idle.compare(on, off))
        found[f"{clock}_untrimmed"] = [bound - 1 for bound in (mean.value, mean.low, mean.high)]
    return found


def processor_figures(job: dict[str, Any], step_ms: float) -> dict[str, float]:
    """The processor time of recording per step in microseconds, and as a share of a step on one core."""
    found = {
        "call_us": job["calls"]["mean_us"],
        "thread_us": 1e6 * job["thread_s"] / job["steps"],
        "shipper_us": 1e6 * job["shipper_s"] / job["steps"],
    }
    return {**found, "share": sum(found.values()) / 1e3 / step_ms, "shipper_start_ms": 1e3 * job["shipper_start_s"]}


def run(url: str, ingest: str, token: str, folder: pathlib.Path, minutes: float, calls: int = CALLS) -> dict[str, Any]:
    """Runs the benchmark against a running ingest server, and prints the result. ingest: its URL. url: its database. token: one that
    it accepts."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "STITCHFLEET_INGEST_TOKEN": token}
    command = [sys.executable, "-m", __name__, str(folder), ingest, str(calls), str(minutes)]
    root = pathlib.Path(__file__).resolve().parents[2]
    shown = subprocess.run(command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    measured = json.loads(shown.stdout.splitlines()[-1])
    step = step_figures(measured["pairs"])
    found = {
        "call": measured["calls"],
        "call_in_job": measured["job"]["calls"],
        "clock_in_job": measured["job"]["clock"],
        "step": step,
        "processor_time": processor_figures(measured["job"], step["step_ms"]),
        "arrived": {
            part: {**said, "stored": _arrived(url, part, said["recorded"] - said["lost"])}
            for part, said in measured["ends"].items()
        },
    }
    for line in lines(found):
        print(line, flush=True)
    return found


def lines(found: dict[str, Any]) -> list[str]:
    """The figures in words, with their limits."""
    said = []
    clock = found["clock_in_job"]["mean_us"]
    for name, where in (("call", "by itself"), ("call_in_job", f"in a job (the clock alone {clock:.2f} us)")):
        calls = found[name]
        said.append(
            f"the call {where}: mean {calls['mean_us']:.2f} us (at most {MEAN_LIMIT_US:g}), half within {calls['median_us']:.2f}, "
            f"99% within {calls['p99_us']:.1f}, 99.9% within {calls['p999_us']:.1f} us (at most {RARE_LIMIT_US:g}), longest "
            f"{calls['longest_us']:.0f} us, {calls['count']} calls"
        )
    took, step = found["processor_time"], found["step"]
    wall, mean, processor = (
        "{:+.3%} ({:+.3%} to {:+.3%})".format(*step[name]) for name in ("wall", "wall_untrimmed", "processor")
    )
    said += [
        f"processor time a step: the call {took['call_us']:.1f} us, the recorder's thread {took['thread_us']:.1f} us, the shipper "
        f"{took['shipper_us']:.1f} us: {took['share']:.3%} of the step on one core; the shipper's start, once a job, "
        f"{took['shipper_start_ms']:.0f} ms",
        f"a step of {step['step_ms']:.1f} ms with recording beside one without, {step['pairs']} pairs: wall time {wall} (at most "
        f"{STEP_LIMIT:+.1%}), of all pairs {mean}; processor time of the process {processor}",
    ]
    for part, ends in found["arrived"].items():
        said.append(
            f"{part}: {ends['stored']} of {ends['recorded']} iterations are in the database, {ends['lost']} lost"
        )
    return said


def _arrived(url: str, run_id: str, wanted: int) -> int:
    """The number of a run's iterations in the database, when all `wanted` have arrived or a minute is over."""
    engine = access.open_engine(url)
    counts = sa.text(
        "SELECT sum(stitched_count) FROM iteration_blocks b JOIN jobs j ON j.process_id = b.process_id WHERE j.run_id = :run"
    )
    try:
        for _ in range(120):
            with engine.connect() as connection:
                found = int(connection.scalar(counts, {"run": run_id}) or 0)
            if found >= wanted:
                break
            time.sleep(0.5)
    finally:
        engine.dispose()
    return found


if __name__ == "__main__":
    job(sys.argv[1:])
