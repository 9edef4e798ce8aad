"""The race of one workload: warms up each contestant alone, runs all in turn, slice by slice, and reads their logs at the end."""

from __future__ import annotations

import json
import pathlib
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from stitchfleet.compiler.kernel.cache import METADATA
from stitchfleet.plugin.arms.schedule import Schedule
from stitchfleet.plugin.base.settings import read_settings

from .. import horovod_build
from ..zoo import environments
from . import processes
from .contestants import (
    Contestant,
    Files,
    Installed,
    Workload,
    command_line,
    environment,
    interpreter_of,
    kernels_of,
)

_POLL_S = 0.2
_PROGRESS_S = 15.0
_END_S = 120.0
_REPEAT_SIGNAL_S = 20.0
"""Interval of repeated SIGINTs, since one can be lost in a callback of the interpreter. It is sent again only if the script is seen
to train on, not if it may be writing its log, which has taken as long on a busy disk."""
_GRACE_S = 20.0
"""Time in which another function may still become stitched after one was reported to run plain."""

_STEPS_OF_A_SLICE = 5
"""figures.MIN_STEPS, the first one, which is not counted, and the one that the stop interrupts."""
_MOST_OPENINGS = 2
_MUCH_SLOWER = 3.0
_LONGEST_SLICE_S = 60.0
"""Longest slice of a job whose steps are long: a user who watches the progress still sees rounds pass."""
_LEAST_WATCHED_S = 2.0
"""Shortest time of step reports in a warm-up from which the time of a step is estimated."""

_RANK = r"^(?:\[0\]<std(?:out|err)>:)?"
"""What horovodrun puts before each line of rank 0."""
_STEP = re.compile(_RANK + r"step\s+(\d+)\b.*$", re.MULTILINE)
_ERROR = re.compile(r"[\w.]*(Error|Exception|Interrupt)\b(: |$)")
"""The last line that Python prints of an uncaught exception."""
_GRAPH_ERROR = "Graph execution error:"
_PLACE = re.compile(r'File "|Detected at node|The op is created at')
"""What TensorFlow prints of where a node was made."""
_STITCHED = re.compile(_RANK + r"stitchfleet: (.*?): .*(?:stitched|verified kernels) from step (\d+) on", re.MULTILINE)
"""A function's name, and the step."""
_MEASURED = re.compile(_RANK + r"stitchfleet: (.*?): a step took .* pairs of blocks", re.MULTILINE)
"""What a function's first pairs of blocks say."""
_PLAIN = re.compile(_RANK + r"stitchfleet: (.*(?:runs? plain|goes back to plain|switched off).*)$", re.MULTILINE)

UNCOUNTED_ROUND = -1
"""Number of the round before the first one, which is not counted: the memory of a contestant that was stopped for the minutes of the
others' warm-up has been reclaimed."""

Say = Callable[[str], None]


class ContestantError(Exception):
    """A contestant cannot go on. The text is one line that says why."""


@dataclass(frozen=True)
class Limits:
    """The limits of a race. rounds: slices of each contestant. slice_s: length of a slice. warm_up_steps: steps of the warm-up of a
    contestant that is not stitched. warm_up_s: longest warm-up. Times in seconds."""

    rounds: int
    slice_s: float
    warm_up_steps: int = 20
    warm_up_s: float = 900.0


@dataclass(frozen=True)
class Slice:
    """A slice: one contestant alone on the machine. begin, end: time.monotonic() in seconds. cpu_s: processor time of its
    processes."""

    round: int
    begin: float
    end: float
    cpu_s: float


@dataclass
class Outcome:
    """The outcome of a contestant's race; if it failed, `failure` is the reason, and the other fields hold what there was until then.

    losses, starts, seconds: per step, from its log. helpers_peak_bytes: the sum of its other processes' peaks. new_kernels: kernels
    that it added to the cache. summary: that of `stitchfleet run`.
    """

    contestant: Contestant
    slices: list[Slice] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    warm_up_s: float = 0.0
    warm_up_step_s: float | None = None
    """Wall time of a step in the warm-up, without the first report; a rough estimate from the reports of steps."""
    peak_bytes: int = 0
    helpers_peak_bytes: int = 0
    new_kernels: int = 0
    summary: dict[str, Any] | None = None
    note: str = ""
    failure: str = ""


def last_words(output: str) -> str:
    """The error that a job ended with, or the last line that it printed, except lines of steps. Of an error of a graph TensorFlow
    says the reason below the places at which the node was made: the reason is added."""
    lines = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith("step ")]
    at = max((number for number, line in enumerate(lines) if _ERROR.match(line)), default=None)
    if at is None:
        return (lines or ["it printed nothing"])[-1][:300]
    reasons = [line for line in lines[at + 1 :] if not _PLACE.match(line)] if lines[at].endswith(_GRAPH_ERROR) else []
    return " ".join([lines[at], *reasons[:1]])[:300]


class Runner:
    """One contestant's job. Every method that waits raises ContestantError if the job ends or does not react."""

    def __init__(self, contestant: Contestant, workload: Workload, mark: str, folder: pathlib.Path) -> None:
        self.outcome = Outcome(contestant)
        self.contestant, self.workload = contestant, contestant.instead or workload
        self.mark = f"{mark}{contestant.name}"
        self.files = Files(folder / contestant.name)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, extra: tuple[str, ...], cache: pathlib.Path) -> None:
        """Starts the job. extra: further arguments of the script. cache: the kernel cache; a contestant of another checkout
        uses that checkout's."""
        self.files.folder.mkdir(parents=True)
        if (checkout := self.contestant.checkout) is not None:
            found, cache = Installed(str(interpreter_of(checkout))), kernels_of(checkout)
        else:
            found = installed(self.workload, lambda line: None)
        command = command_line(self.contestant, self.workload, extra, self.files, cache, found)
        variables = environment(self.contestant, self.files, found)
        self._process = processes.start(command, self.mark, variables, self.files.output)

    # ---- what it says of itself

    @property
    def output(self) -> str:
        """All that the job has printed so far."""
        return self.files.output.read_text(errors="replace")

    @property
    def last_step(self) -> int:
        """The last step that the job has reported; -1 before the first."""
        found = _STEP.findall(self.output)
        return int(found[-1]) if found else -1

    def check_alive(self) -> None:
        """Raises ContestantError if the job has ended."""
        assert self._process is not None
        code = self._process.poll()
        if code is not None:
            raise ContestantError(f"ended with exit code {code}: {last_words(self.output)}")

    # ---- the stages of a race

    def warm_up(self, limits: Limits, say: Say) -> None:
        """Lets the job run until it is in its steady state, then stops it (SIGSTOP)."""
        start = time.monotonic()
        told = start
        plain_since: float | None = None
        first_seen: tuple[float, int] | None = None
        while True:
            time.sleep(_POLL_S)
            self.check_alive()
            now = time.monotonic()
            if (step := self.last_step) >= 0:
                first_seen = first_seen or (now, step)
                if step > first_seen[1] and now - first_seen[0] > _LEAST_WATCHED_S:
                    self.outcome.warm_up_step_s = (now - first_seen[0]) / (step - first_seen[1])
            if self._is_warm(limits):
                break
            if self.contestant.is_stitched and (found := _PLAIN.findall(self.output)):
                plain_since = plain_since or now
                if now - plain_since > _GRACE_S and not _STITCHED.search(self.output):
                    self.outcome.note = f"not stitched: {found[0]}"
                    break
            if now - start > limits.warm_up_s:
                raise ContestantError(f"was not warm after {limits.warm_up_s:.0f} s (last step seen: {self.last_step})")
            if now - told > _PROGRESS_S:
                told = now
                say(f"  {self.contestant.name}: {now - start:4.0f} s, {self.state()}")
        self.outcome.warm_up_s = time.monotonic() - start
        self.freeze()

    def wait(self, limit_s: float) -> None:
        """Waits until the job ends by itself. Raises ContestantError if its exit code is not 0, or after `limit_s` seconds."""
        assert self._process is not None
        try:
            code = self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise ContestantError(f"had not ended after {limit_s:.0f} s (last step seen: {self.last_step})") from None
        if code != 0:
            self.check_alive()

    def _is_warm(self, limits: Limits) -> bool:
        if not self.contestant.is_stitched:
            return self.last_step >= limits.warm_up_steps
        return is_in_steady_state(self.output, self.last_step, opening_steps(self.contestant.environment))

    def state(self) -> str:
        """How far the job is, in words."""
        steps = _STEP.findall(self.output)
        state = f"step {steps[-1]}" if steps else "no step yet"
        if not self.contestant.is_stitched:
            return state
        found = _STITCHED.findall(self.output)
        return f"{state}, stitched from step {found[-1][1]}" if found else f"{state}, not stitched yet"

    def slice(self, number: int, seconds: float) -> None:
        """Lets the job run for `seconds`, and adds the slice to the outcome unless the round is not counted."""
        processes.thaw(self.mark)
        begin, cpu = time.monotonic(), processes.cpu_seconds(self.mark)
        while (left := begin + seconds - time.monotonic()) > 0:
            time.sleep(min(left, 1.0))
            self.check_alive()
        cpu, end = processes.cpu_seconds(self.mark) - cpu, time.monotonic()
        self.freeze()
        if number != UNCOUNTED_ROUND:
            self.outcome.slices.append(Slice(number, begin, end, cpu))

    def thaw(self) -> None:
        """Continues the job's processes (SIGCONT)."""
        processes.thaw(self.mark)

    def freeze(self) -> None:
        """Stops the job's processes (SIGSTOP). Raises ContestantError if one of them does not stop."""
        try:
            processes.freeze(self.mark)
        except TimeoutError as error:
            raise ContestantError(str(error)) from None

    def end(self) -> None:
        """Ends the job as Ctrl-C at its terminal would, and reads its log and summary."""
        assert self._process is not None
        processes.thaw(self.mark)
        trainer = self.trainer()
        self.outcome.peak_bytes = processes.peak_bytes(trainer)
        self.outcome.helpers_peak_bytes = sum(
            processes.peak_bytes(pid) for pid in processes.members(self.mark) if pid != trainer
        )
        began = sent = time.monotonic()
        step_then = self.last_step
        processes.send(trainer, signal.SIGINT)
        while self._process.poll() is None:
            now = time.monotonic()
            if now - began > _END_S:
                raise ContestantError(f"did not end within {_END_S:.0f} s of SIGINT")
            if now - sent > _REPEAT_SIGNAL_S and self.last_step > step_then:
                sent, step_then = now, self.last_step
                processes.send(trainer, signal.SIGINT)
            time.sleep(0.05)
        self._read_log()
        # that of another checkout may have other fields
        if self.contestant.stitchfleet is not None and self.contestant.checkout is None:
            self.outcome.summary = self.read_summary()

    def trainer(self) -> int:
        """The id of the process that runs the workload's script: the job itself, the child of `stitchfleet run`, or rank 0."""
        assert self._process is not None
        for pid in sorted(processes.members(self.mark)):
            if processes.arguments_of(pid)[1:2] != [str(self.workload.script)]:
                continue
            if not self.workload.ranks or processes.variable_of(pid, "HOROVOD_RANK") == "0":
                return pid
        return self._process.pid

    def _read_log(self) -> None:
        try:
            log = json.loads(self.files.log.read_text())
            losses, starts, seconds = ([float(x) for x in log[name]] for name in ("losses", "starts", "seconds"))
        except (OSError, ValueError, TypeError, KeyError) as error:
            assert self._process is not None
            raise ContestantError(
                f"left no log with losses, starts and seconds ({type(error).__name__}: {error}); "
                f"exit code {self._process.returncode}"
            ) from None
        self.outcome.losses, self.outcome.starts, self.outcome.seconds = losses, starts, seconds

    def read_summary(self) -> dict[str, Any] | None:
        """The summary that `stitchfleet run` has written. None, with a note in the outcome, if there is none."""
        try:
            summary: dict[str, Any] = json.loads(self.files.summary.read_text())
        except (OSError, ValueError) as error:
            self.outcome.note = self.outcome.note or f"no summary: {error}"
            return None
        main = next((p for p in summary["programs"] if p["name"] == summary["main"]), None)
        if self.contestant.is_stitched and main is not None and main["phase"] != "stitched":
            self.outcome.note = f"ended in phase {main['phase']}: {main['reason']}"
        return summary


def installed(workload: Workload, say: Say) -> Installed:
    """What a workload runs with; it is installed if it is not there, which takes minutes. Raises horovod_build.BuildError and
    ZooError."""
    if workload.environment is not None:
        python = str(environments.python_of(workload.environment, say))
        return Installed(python, stitchfleet=environments.unpacked())
    return Installed(horovod=horovod_build.install(horovod_build.kept_in(), say) if workload.ranks else None)


def is_in_steady_state(output: str, last_step: int, opening: int) -> bool:
    """Whether a job is past the pairs of plain and stitched blocks that open the stitched phase: each function that is stitched has
    said what they measured, or has gone back to plain. Pairs that were disturbed come again. A job that does not say it (an earlier
    checkout's, one with a function that runs rarely) is taken to be past them after twice their steps.

    output: what it has printed. opening: number of the pairs' steps.
    """
    began = {found[1]: found for found in _STITCHED.finditer(output)}
    ended = {found[1]: found.start() for found in _MEASURED.finditer(output)}
    for found in _PLAIN.finditer(output):
        ended.update({name: found.start() for name in began if found[1].startswith((f"{name} runs ", f"{name} goes "))})
    return bool(began) and (
        all(ended.get(name, -1) > found.start() for name, found in began.items())
        or last_step >= max(int(found[2]) for found in began.values()) + _MOST_OPENINGS * opening
    )


def opening_steps(environment: Mapping[str, str] = MappingProxyType({})) -> int:
    """Number of steps in the paired blocks that open a job's stitched phase. environment: its settings."""
    settings = read_settings(environment, lambda line: None)
    schedule = Schedule("", settings.block_steps, settings.pairs, settings.plain_share)
    return schedule.opening_pairs * schedule.pair_steps


def order_of(round_number: int, count: int) -> list[int]:
    """The order of `count` contestants in a round: rotated by one every two rounds, and reversed in every second round, so that no
    contestant always follows the same one."""
    order = [(k + round_number // 2) % count for k in range(count)]
    return order[::-1] if round_number % 2 else order


def run_race(
    workload: Workload,
    contestants: Sequence[Contestant],
    limits: Limits,
    mark: str,
    folder: pathlib.Path,
    cache: pathlib.Path,
    extra: tuple[str, ...],
    say: Say,
    stands_still: Callable[[], None] = lambda: None,
) -> list[Outcome]:
    """Runs the race of one workload. A contestant that fails drops out with its reason; if the first one (plain) fails, the race
    ends.

    mark: prefix of the contestants' marks, with a slash at its end; the caller ends the processes that are left
    (`processes.watched`). stands_still: called after each round, while no contestant runs.
    """
    runners = [Runner(contestant, workload, mark, folder) for contestant in contestants]
    racing: list[Runner] = []

    def drop(runner: Runner, error: ContestantError) -> None:
        runner.outcome.failure = str(error)
        say(f"  {workload.name}/{runner.contestant.name} failed: {error}")
        processes.kill_all(runner.mark)
        if runner in racing:
            racing.remove(runner)

    def plain_is_gone() -> bool:
        return bool(runners[0].outcome.failure)

    for runner in runners:
        say(f"{workload.name}: warming up {runner.contestant.name}")
        kernels = _kernels(cache)
        try:
            runner.start(extra, cache)
            runner.warm_up(limits, say)
        except ContestantError as error:
            drop(runner, error)
            if plain_is_gone():
                break
            continue
        runner.outcome.new_kernels = len(_kernels(cache) - kernels) if runner.contestant.is_stitched else 0
        if slow := too_slow(runner, runners[0], limits):
            runner.outcome.note = slow
            say(f"  {runner.contestant.name}: {slow}")
            processes.kill_all(runner.mark)
            continue
        racing.append(runner)
        say(f"  {runner.contestant.name}: warm after {runner.outcome.warm_up_s:.0f} s, {runner.state()}")
    step_s = runners[0].outcome.warm_up_step_s
    slice_s = slice_seconds(step_s, limits.slice_s)
    if racing and slice_s > limits.slice_s:
        say(f"{workload.name}: slices of {slice_s:.0f} s, since a step of plain takes {step_s:.1f} s")
    for number in range(UNCOUNTED_ROUND, limits.rounds):
        if plain_is_gone():
            break
        turn = [racing[k] for k in order_of(max(number, 0), len(racing))]
        title = "a round that does not count" if number == UNCOUNTED_ROUND else f"round {number + 1} of {limits.rounds}"
        say(f"{workload.name}: {title}: {', '.join(r.contestant.name for r in turn)}")
        for runner in turn:
            try:
                runner.slice(number, slice_s)
            except ContestantError as error:
                drop(runner, error)
        stands_still()
    for runner in tuple(racing):  # a failed one leaves it
        try:
            runner.end()
        except ContestantError as error:
            drop(runner, error)
    return [runner.outcome for runner in runners]


def slice_seconds(step_s: float | None, asked_s: float) -> float:
    """The length of a slice in seconds: `asked_s` or, if the job's steps are long (`step_s` seconds in the warm-up), enough for
    twice the steps that a slice needs, since the estimate is rough and another contestant may be slower."""
    enough = 2 * _STEPS_OF_A_SLICE * (step_s or 0.0)
    return max(asked_s, min(enough, _LONGEST_SLICE_S))


def too_slow(runner: Runner, plain: Runner, limits: Limits) -> str:
    """The reason why a contestant does not race, "" if it does: it is much slower than plain, and a slice would have too few
    steps."""
    step_s, plain_s = runner.outcome.warm_up_step_s, plain.outcome.warm_up_step_s
    if runner is plain or step_s is None or plain_s is None or step_s * _STEPS_OF_A_SLICE <= limits.slice_s:
        return ""
    if step_s < _MUCH_SLOWER * plain_s:
        return ""
    return f"not raced: a step took {step_s * 1e3:.0f} ms in the warm-up, {step_s / plain_s:.0f} times plain's"


def _kernels(cache: pathlib.Path) -> set[str]:
    """The keys of the entries in the kernel cache (compiler/kernel/cache.py: one folder each)."""
    return {path.parent.name for path in (cache / "kernels").rglob(METADATA)}
