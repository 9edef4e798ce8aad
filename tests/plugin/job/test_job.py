"""What the plugin's own thread does beside a job."""

from __future__ import annotations

import gc
import pathlib
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stitchfleet.plugin.arms.switch import Arm
from stitchfleet.plugin.base.containment import HEALTH
from stitchfleet.plugin.base.settings import Settings
from stitchfleet.plugin.job import job as module
from stitchfleet.plugin.job.job import KEPT_GONE, Job
from stitchfleet.plugin.job.program import Program, ProgramPhase
from stitchfleet.plugin.job.records import Records


def test_requests_without_end_do_not_hold_up_the_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job whose shapes change asks for kernels all the time: comparisons that failed are looked at all the same."""
    monkeypatch.setattr(module, "TICK_MS", 20)
    done: list[str] = []
    job: Any = object.__new__(Job)
    job._ticked, job.programs, job.settings = 0.0, [], types.SimpleNamespace(mode="auto")
    job.kernels = types.SimpleNamespace(
        forward=lambda request: done.append("request"), look_at_mismatches=lambda: done.append("guard")
    )
    for name in ("_retire_gone", "_move_kernels", "_watch_shapes", "_read_control_file", "_watch_memory"):
        setattr(job, name, lambda: None)
    end = time.monotonic() + 0.2
    while time.monotonic() < end:
        job._tick({"signature": 1})
    assert done.count("guard") >= 2
    assert done.count("request") > done.count("guard")


def verdict(monkeypatch: pytest.MonkeyPatch, pairs: list[tuple[list[int], list[int]]]) -> str:
    """Why a stitched program with these blocks (plain, stitched; nanoseconds a step) goes back to plain; "" where it does not."""
    monkeypatch.setattr(module, "say", lambda text: None)
    job: Any = object.__new__(Job)
    job.settings = types.SimpleNamespace(only_switches=False, pairs=7, quiet=False)
    job.records = object.__new__(Records)
    job.records.event = lambda *words, **more: None
    reasons: list[str] = []
    blocks = [tuple(types.SimpleNamespace(durations_ns=block) for block in pair) for pair in pairs]
    program = types.SimpleNamespace(
        phase=ProgramPhase.STITCHED,
        pairs=blocks,
        name="train",
        reason="",
        enter=lambda phase, reason: reasons.append(reason),
    )
    job._give_up_if_it_does_not_pay(program)
    return "".join(reasons)


def blocks(
    random: np.random.Generator, count: int, plain_ns: float, stitched_ns: float
) -> list[tuple[list[int], list[int]]]:
    def block(mean: float) -> list[int]:
        return [int(ns) for ns in random.lognormal(np.log(mean), 0.03, 10)]

    return [(block(plain_ns), block(stitched_ns)) for _ in range(count)]


@pytest.mark.parametrize("seed", range(5))
def test_a_job_that_was_stopped_for_a_while_is_not_judged_by_that_block(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    random = np.random.default_rng(seed)
    for count in (8, 24):
        pairs = blocks(random, count, 8e6, 6e6)
        assert verdict(monkeypatch, pairs) == ""
        pairs[int(random.integers(count))][1][3] += 12_000_000_000  # twelve seconds
        assert verdict(monkeypatch, pairs) == ""


@pytest.mark.parametrize("seed", range(5))
def test_a_job_that_stitching_makes_slower_goes_back_to_plain(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    random = np.random.default_rng(seed)
    pairs = blocks(random, 8, 6e6, 8e6)
    assert "slower" in verdict(monkeypatch, pairs)
    stalls = blocks(random, 8, 8e6, 6e6)
    for _, stitched in stalls:  # most steps are faster, and in each block one stalls
        stitched[3] += 50_000_000
    assert "slower" in verdict(monkeypatch, stalls)
    half = blocks(random, 12, 8e6, 8e6)
    assert "the saving lies between" in verdict(monkeypatch, [*half, *((stitched, plain) for plain, stitched in half)])


@given(st.lists(st.sampled_from(["f", "f_2", "f_3", "f_2_2", "f_02", "_2", "g", "f_-1"]), max_size=40))
def test_no_name_is_given_out_twice(names: list[str]) -> None:
    """Users' functions may be called as ours number them. What is kept is what functions are called, not what they were given."""
    job: Any = object.__new__(Job)
    job._names = {}
    given_out = [job._unique(name) for name in names]
    assert len(set(given_out)) == len(names)
    assert set(job._names) == set(names)
    assert all(unique.startswith(name) for unique, name in zip(given_out, names, strict=True))


class Made:
    """What a program is of: a function or a graph."""


def test_of_functions_and_graphs_that_are_gone_a_job_keeps_no_more_the_more_there_were(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HEALTH, "on_failure", [])
    job = Job(Settings(cache=tmp_path, data=tmp_path / "records"), None, "no library here")
    kept = Made()
    job.program_of(kept, "kept")
    live = []
    for number in range(400):
        function, graph = Made(), Made()
        programs = [
            job.program_of(function, f"step{number}"),
            job.program_of_fetches((number, ("loss",)), f"loss{number}", graph),
        ]
        for program in programs:
            program.steps += 4
            program.durations[ProgramPhase.PLAIN].add(1000)
            program._in_preparation.add(2000)
            program.steps_by_arm[Arm.STITCHED] += number % 2
            job.records.functions.wait(program, (0, 0, 10))
        del function, graph, program, programs
        if number % 100 == 99:
            job._retire_gone()
            gc.collect()
            objects = gc.get_objects()
            live.append((sum(type(one) is Program for one in objects), len(job._names), len(job._session_programs)))
            del objects
    assert live == [live[0]] * 4
    assert live[0][0] == len(job.programs) == 1 + KEPT_GONE
    assert job.forgotten_programs == 800 - KEPT_GONE
    assert job.records.forgotten_overhead_ns == 1000 * (800 - KEPT_GONE), "what they cost is still charged"
    assert job.program_of(Made(), "kept").name == "kept_2"
    assert job.program_of(Made(), "step0").name == "step0"
    assert job.records.recorder is not None
    job.records.recorder.close(2.0)


PLAIN_STEPS = [1000, 1000, 1200]
"""Durations in nanoseconds, of which the median is what a step costs without us."""


@pytest.mark.parametrize(
    ("phase", "charged"),
    [
        (ProgramPhase.WARM_UP, 0),  # TensorFlow's own start
        (ProgramPhase.COMPILE, 4000 + 800 + 400),  # its own kernels: each of its steps
        (ProgramPhase.BASELINE, 800 + 400),
        (ProgramPhase.STITCHED, 800 + 400),
        (ProgramPhase.PLAIN, 800 + 400),
    ],
)
def test_what_a_step_loses_beside_the_compiler_is_charged_in_any_phase(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, phase: ProgramPhase, charged: int
) -> None:
    """Kernels of another function are made while this one is stitched, or plain for good."""
    monkeypatch.setattr(HEALTH, "on_failure", [])
    job = Job(Settings(cache=tmp_path, data=tmp_path / "records"), None, "no library here")
    kept = Made()
    program = job.program_of(kept, "train")
    for duration in PLAIN_STEPS:
        program.plain_blocks.add(duration)
    program.enter(phase)
    for quiet, duration in ((True, 5000), (False, 1800), (False, 1400)):
        if program.steady:
            program.book_steady(duration, quiet)
        else:
            ticket = program.begin(quiet)
            program.end(ticket, ticket.start_ns + duration, quiet)
    assert program.overhead_ns == charged
    ticket = program.begin(True)
    program.end(ticket, ticket.start_ns + 1700, False)  # the compiler began within the step
    assert program.overhead_ns == (charged + 700 if charged else 0)
    # Stitched steps beside the compiler that are faster than plain ones pay for nothing that was charged before.
    program._in_preparation.add(1500)
    for _ in range(20):
        program._beside.add(700)
    assert program.overhead_ns == (charged + 700 if phase is ProgramPhase.COMPILE else 0) + 500
    assert job.records.recorder is not None
    job.records.recorder.close(2.0)


class Compared:
    """A job whose program's stitched steps compare a kernel again in the steps `compares`, counted from its stitched phase on."""

    def __init__(self, tmp_path: pathlib.Path, compares: Callable[[int], bool]) -> None:
        self.job: Any = Job(
            Settings(cache=tmp_path, data=tmp_path / "records", block_steps=4, pairs=3), None, "no library here"
        )
        self.job.native = types.SimpleNamespace(unverified_calls=7)
        self.moves = 0
        self.job._move_kernels = self._move
        self.job._unverified_calls = 7
        self.program = Program("train", "function", self.job.settings)
        self.program.enter(ProgramPhase.STITCHED)
        self.compares = compares

    def _move(self) -> None:
        self.moves += 1

    def step(self) -> bool:
        """Runs a step: 1000 ns plain, 500 stitched, 2000 with a comparison. Returns whether it compared."""
        ticket = self.program.begin(quiet=True)
        compared = ticket.arm is Arm.STITCHED and self.compares(self.program.phase_steps)
        self.job.native.unverified_calls += compared
        self.job._watch_unverified(self.program, ticket)
        duration = 2000 if compared else 1000 if ticket.arm is Arm.PLAIN else 500
        self.program.end(ticket, ticket.start_ns + duration, quiet=True)
        return compared


@given(st.sets(st.integers(0, 40)))
def test_no_pair_holds_a_step_in_which_a_kernel_was_compared_again(
    tmp_path_factory: pytest.TempPathFactory, compared: set[int]
) -> None:
    """With the first steps as they come, stitching seemed slower, and a small job went back to plain."""
    made = Compared(tmp_path_factory.mktemp("job"), compared.__contains__)
    count = sum(made.step() for _ in range(400))
    assert made.moves == count, "the kernels' states move in each such step"
    assert made.program.pairs_completed >= 3
    for plain, stitched in made.program.pairs:
        assert set(plain.durations_ns) == {1000}
        assert set(stitched.durations_ns) == {500}
    assert made.job.records.recorder is not None
    made.job.records.recorder.close(2.0)


def test_a_job_that_never_stops_comparing_is_judged_with_its_comparisons(tmp_path: pathlib.Path) -> None:
    made = Compared(tmp_path, lambda step: True)
    for _ in range(module.YOUNG_STEPS):
        made.step()
    assert made.program.pairs_completed == 0
    for _ in range(100):
        made.step()
    assert made.program.pairs_completed >= 3
    assert all(set(stitched.durations_ns) == {2000} for _, stitched in made.program.pairs)
    assert made.job.records.recorder is not None
    made.job.records.recorder.close(2.0)


@pytest.fixture
def job_of(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """job_of(**settings): a job without a native library, so that none of its programs has a kernel."""
    monkeypatch.setattr(HEALTH, "on_failure", [])
    made: list[Any] = []

    def make(**settings: Any) -> Any:
        job: Any = Job(Settings(cache=tmp_path, data=tmp_path / "records", **settings), None, "no library here")
        job.kernels = types.SimpleNamespace(
            of=lambda clusters: [], state_of=lambda executable: "requested", look_at_mismatches=lambda: None
        )
        made.append(job)
        return job

    yield make
    for job in made:
        job.records.recorder.close(2.0)


def step_of(job: Any, program: Program) -> None:
    job.end(program.begin(quiet=True))


def test_a_function_that_waits_for_its_trace_says_so_until_it_has_it(job_of: Callable[..., Any]) -> None:
    """One of many functions was said, after 500 steps, to have been in its first steps when the job ended."""
    job = job_of(free_traces=0)
    program = Program("later", "function", job.settings)
    for _ in range(2):
        step_of(job, program)
    program.first_duration_ns = 1 << 40
    step_of(job, program)
    assert (program.phase, program.reason) == (ProgramPhase.WARM_UP, module.UNTRIED)
    program.first_duration_ns = 0
    step_of(job, program)
    assert (program.phase, program.reason) == (ProgramPhase.TRACE, "")


def test_the_steps_of_a_daemon_thread_after_the_jobs_end_decide_nothing(
    job_of: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Its requests had been dropped, and it was said to have asked for no kernel."""
    job = job_of()
    program = Program("train", "function", job.settings)
    program.enter(ProgramPhase.COMPILE)
    job.close()
    step_of(job, program)
    assert program.phase is ProgramPhase.COMPILE
    assert capsys.readouterr().err == ""


REQUESTED = types.SimpleNamespace(signature=1, cluster="norm", is_failed=False, failure="")
FAILED = types.SimpleNamespace(signature=1, cluster="norm", is_failed=True, failure="no compiler")


@pytest.mark.parametrize(
    ("executables", "why", "is_failure"),
    [([], module.NONE_RAN, False), ([REQUESTED], module.LATE, False), ([FAILED], "no compiler", True)],
)
@pytest.mark.parametrize("quiet", [False, True])
def test_a_function_without_kernels_says_why_and_a_quiet_job_only_what_failed(
    job_of: Callable[..., Any],
    capsys: pytest.CaptureFixture[str],
    executables: list[Any],
    why: str,
    is_failure: bool,
    quiet: bool,
) -> None:
    job = job_of(quiet=quiet)
    job.kernels.of = lambda clusters: executables
    program = Program("train", "function", job.settings)
    program.enter(ProgramPhase.COMPILE)
    step_of(job, program)
    assert program.phase is ProgramPhase.PLAIN
    assert program.reason.endswith(why)
    said = capsys.readouterr().err
    assert said == ("" if quiet and not is_failure else f"stitchfleet: train runs plain: {program.reason}\n")


def test_a_quiet_job_hears_of_the_service_only_what_failed(
    job_of: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    client = job_of(quiet=True).client
    client._note("3 kernels are still being made")
    client._tell("the compile service ended")
    assert capsys.readouterr().err == "stitchfleet: the compile service ended\n"
