"""Which functions are the job's training: by their graphs, by their time, and as a real job records them."""

from __future__ import annotations

import json
import pathlib
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from stitchfleet.plugin.arms.switch import Arm
from stitchfleet.plugin.base.settings import Settings
from stitchfleet.plugin.graph.trains import trains
from stitchfleet.plugin.job.program import Program, ProgramPhase
from stitchfleet.plugin.job.trace_budget import FIRST_GUESS, PATIENCE, SHARE, TraceBudget
from stitchfleet.plugin.job.training import SEEN, TrainingFunctions
from stitchfleet.plugin.reporting.summary_text import describe

from ..conftest import Plugin, RunJob
from .test_faults import COLD


def graph_of(plugin: Plugin, function: Callable[[], Any]) -> Any:
    """The graph that TensorFlow offers for optimization."""
    import tensorflow as tf
    from tensorflow.core.framework import graph_pb2

    offered: list[bytes] = []
    plugin.library.set_rewrite(lambda data, preserve: offered.append(data))
    try:
        tf.function(function)()
    finally:
        plugin.library.set_rewrite(plugin.offered)
    return graph_pb2.GraphDef.FromString(offered[0])


def test_a_gradient_trains_and_so_does_an_average_but_not_a_metric(plugin: Plugin) -> None:
    import tensorflow as tf

    x = tf.Variable(tf.ones([4, 4]))
    target = tf.Variable(tf.zeros([4, 4]))
    rate = tf.Variable(0.5)
    mean, curve = tf.keras.metrics.Mean(), tf.keras.metrics.AUC()

    def train() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.exp(x))
        x.assign_sub(0.1 * tape.gradient(loss, x))
        return loss

    def evaluate() -> Any:
        mean.update_state(tf.reduce_sum(tf.exp(x)))
        curve.update_state(tf.ones([4]), tf.sigmoid(x[0]))
        return mean.result()

    assert trains(graph_of(plugin, train))
    assert trains(graph_of(plugin, lambda: target.assign(0.9 * target + 0.1 * x)))
    assert trains(graph_of(plugin, lambda: target.assign(target + 0.1 * (x - target))))
    assert not trains(graph_of(plugin, evaluate))
    assert not trains(graph_of(plugin, lambda: target.assign(target + x - tf.exp(x))))
    assert not trains(graph_of(plugin, lambda: rate.assign(rate * 0.5)))
    assert not trains(graph_of(plugin, lambda: tf.reduce_sum(tf.exp(x))))
    assert not trains(graph_of(plugin, lambda: x.assign(tf.random.normal([4, 4]) * 0.1)))
    assert trains(graph_of(plugin, lambda: x.assign_sub(tf.random.normal([4, 4]) * 0.1)))
    assert trains(graph_of(plugin, lambda: x.assign(tf.random.normal([4, 4]) * tf.exp(x))))


@pytest.mark.parametrize("between", [(), ("Identity",)])
def test_a_broadcast_of_the_weights_does_not_train(between: tuple[str, ...]) -> None:
    """A rank that joins an elastic job takes them from rank 0, so this runs more than once."""
    from tensorflow.core.framework import graph_pb2

    def graph_of_write(source: str) -> Any:
        graph = graph_pb2.GraphDef()
        graph.node.add(name="weights", op="_Arg")
        graph.node.add(name="read", op="ReadVariableOp", input=["weights"])
        graph.node.add(name="source", op=source, input=["read"])
        last = "source"
        for op in between:
            graph.node.add(name=op, op=op, input=[last])
            last = op
        graph.node.add(name="write", op="AssignVariableOp", input=["weights", f"{last}:0", "^read"])
        return graph

    assert not trains(graph_of_write("HorovodBroadcast"))
    assert trains(graph_of_write("Mul"))


def program(name: str, *, trains: bool = False, steps: int = 5, total_ns: int = 100) -> Program:
    made = Program(name, "function", Settings())
    made.trains, made.steps, made.total_ns = trains, steps, total_ns
    return made


def told(functions: TrainingFunctions, program: Program, steps: int) -> int:
    """How many of so many steps are handed over."""
    handed = 0
    for number in range(steps):
        if functions.number(program) is not None:
            handed += 1
        else:
            handed += len(functions.wait(program, (number, 0, 10)) or ())
    return handed


def test_every_function_that_trains_counts_with_all_its_steps_and_no_other_does() -> None:
    functions = TrainingFunctions()
    evaluation, critic, generator = (
        program("evaluate", total_ns=10**9),
        program("critic", trains=True),
        program("g", trains=True),
    )
    assert told(functions, evaluation, 10) == 0
    assert told(functions, critic, 10) == 10
    assert told(functions, generator, 3) == 3
    assert told(functions, evaluation, 2 * SEEN) == 0
    assert functions.at_the_end() == []
    assert [functions.number(each) for each in (critic, generator, evaluation)] == [0, 1, None]


def test_a_function_that_has_run_once_is_a_set_up() -> None:
    functions = TrainingFunctions()
    once = program("init", trains=True, steps=1)
    assert told(functions, once, 1) == 0
    once.steps = 2
    assert functions.wait(once, (1, 0, 10)) == [(0, 0, 10), (1, 0, 10)]


def test_where_nothing_trains_those_with_a_tenth_of_the_time_count() -> None:
    functions = TrainingFunctions()
    large, small = program("predict", total_ns=SEEN * 10), program("tiny", total_ns=1)
    assert told(functions, small, 4) == 0
    assert told(functions, large, SEEN) == SEEN
    assert told(functions, small, 20) == 0
    short = TrainingFunctions()
    assert told(short, large, 5) == 0
    assert told(short, small, 5) == 0
    assert [(each.name, len(steps)) for each, steps in short.at_the_end()] == [("predict", 5)]


def steps_in_blocks(folder: pathlib.Path) -> dict[str, int]:
    """Function -> the number of its steps in the job's database."""
    with sqlite3.connect(folder / "records.db") as database:
        return dict(
            database.execute(
                "SELECT f.name, sum(b.plain_count + b.stitched_count + b.uncounted_count) FROM iteration_blocks AS b "
                "JOIN functions AS f ON f.process_id = b.process_id AND f.function = b.function GROUP BY f.name"
            ).fetchall()
        )


@pytest.mark.slow
def test_a_gans_saving_is_that_of_both_of_its_functions_in_a_job_of_300_rounds(run_job: RunJob, tmp_path: Any) -> None:
    """The opening pairs of one function fall into the other one's verification, and are taken again."""
    job = run_job("gan.py", "300", COLD)
    assert job.code == 0, job.err
    assert job.summary["training_functions"] == ["train_critic", "train_generator"]
    of = {program["name"]: program for program in job.summary["programs"]}
    assert [of[name]["phase"] for name in job.summary["training_functions"]] == ["stitched"] * 2, job.err
    assert all(of[name]["saving"]["pairs"] >= 6 for name in job.summary["training_functions"])
    whole = job.summary["saving"]
    assert whole["pairs"] == sum(of[name]["saving"]["pairs"] for name in job.summary["training_functions"])
    saved = sum(
        of[name]["phases"]["stitched"]["steps"] * (of[name]["saving"]["plain_ms"] - of[name]["saving"]["stitched_ms"])
        for name in job.summary["training_functions"]
    )
    steps = sum(of[name]["phases"]["stitched"]["steps"] for name in job.summary["training_functions"])
    assert whole["plain_ms"] - whole["stitched_ms"] == pytest.approx(saved / steps)
    assert steps_in_blocks(tmp_path) == {"train_critic": 300, "train_generator": 300}
    (other,) = [line for line in describe(job.summary) if "not counted, since it does not train" in line]
    assert "evaluate" in other
    command = [sys.executable, "-m", "stitchfleet.plugin.command", "jobs", "--json", "--database", "records.db"]
    (listed,) = json.loads(subprocess.run(command, cwd=tmp_path, capture_output=True, check=True).stdout)
    assert [listed[name] for name in ("pairs", "plain_ms", "stitched_ms", "saving", "saving_low", "saving_high")] == [
        pytest.approx(whole[name]) for name in ("pairs", "plain_ms", "stitched_ms", "relative", "low", "high")
    ]
    assert listed["iterations"] == 600


@pytest.mark.costly
def test_two_fetch_sets_of_a_session_are_measured_each(run_job: RunJob, tmp_path: Any) -> None:
    job = run_job("two_fetches.py", "300", COLD, quiet=False)
    assert job.code == 0, job.err
    names = job.summary["training_functions"]
    of = {program["name"]: program for program in job.summary["programs"]}
    assert len(names) == 2, job.summary["programs"]
    assert [(of[name]["kind"], of[name]["phase"], of[name]["steps"]) for name in names] == [
        ("session", "stitched", 300)
    ] * 2, job.err
    assert all(of[name]["saving"]["pairs"] >= 6 for name in names)
    # each says what it saves when its opening pairs are complete
    assert [job.err.count(f"stitchfleet: {name}: a step took ") for name in names] == [1, 1], job.err
    assert job.summary["saving"]["pairs"] == sum(of[name]["saving"]["pairs"] for name in names)
    assert steps_in_blocks(tmp_path) == dict.fromkeys(names, 300)


@pytest.mark.slow
def test_functions_that_are_called_a_few_times_cost_no_second_graph_and_leave_nothing_behind(run_job: RunJob) -> None:
    job = run_job("short_lived.py", environment={"STITCHFLEET_COMPILE_NICE": "19"})
    assert job.code == 0, job.err
    programs = {program["name"]: program for program in job.summary["programs"]}
    short = [program for name, program in programs.items() if name != "long_lived"]
    assert [program["steps_stitched"] for program in short] == [1] * Settings().free_traces
    assert job.summary["forgotten_functions"] == 40 - Settings().free_traces
    assert programs["long_lived"]["phase"] != "warm-up"
    assert programs["long_lived"]["steps_stitched"] >= 1


def lasting(name: str, first_ns: int, later_ns: int) -> Program:
    made = program(name, total_ns=first_ns + later_ns)
    made.first_duration_ns = first_ns
    return made


def test_a_function_beyond_the_first_is_traced_when_it_has_lasted() -> None:
    budget = TraceBudget(free=2)
    assert all(budget.may_trace(lasting(f"early {k}", 100, 0), 0.0) for k in range(2))
    short, long_lived = lasting("short", 1000, 100), lasting("long", 1000, round(PATIENCE * FIRST_GUESS * 1000))
    assert not budget.may_trace(short, 1e9)
    assert budget.may_trace(long_lived, 1e9)
    assert budget.may_trace(long_lived, 1e9)
    other = lasting("early", 1000, 0)
    budget.traced(other, 3000)  # a trace takes three times as long as a first step here
    assert not budget.may_trace(lasting("next", 1000, round(PATIENCE * FIRST_GUESS * 1000)), 1e9)
    assert budget.may_trace(lasting("next", 1000, round(PATIENCE * 3000)), 1e9)


def test_traces_that_did_not_come_to_anything_are_bounded_and_those_that_did_are_paid_back() -> None:
    budget = TraceBudget(free=0)
    elapsed = 10 * FIRST_GUESS * 1000 / SHARE
    programs = [lasting(str(k), 1000, 10**6) for k in range(12)]
    assert [budget.may_trace(each, elapsed) for each in programs] == [True] * 10 + [False] * 2
    for each in programs[:2]:
        budget.paid_back(each)
        budget.paid_back(each)
    assert [budget.may_trace(each, elapsed) for each in programs] == [True] * 12


def measured(durations: Callable[[int, Arm], int], pairs: int) -> Program:
    """A program that has run so many complete or repeated pairs. durations: nanoseconds of a step, by its number and arm."""
    made = Program("train", "function", Settings(block_steps=10))
    made.trains = True
    made.enter(ProgramPhase.STITCHED)
    step = 0
    while made.pairs_completed + made.pairs_interrupted < pairs:
        ticket = made.begin(quiet=True)
        made.end(ticket, ticket.start_ns + durations(step, ticket.arm), quiet=True)
        step += 1
    return made


@pytest.mark.parametrize("stopped", [15, 40])
def test_a_pair_in_which_the_process_was_stopped_is_measured_again(stopped: int) -> None:
    """Whichever arm it falls on, and whether it is the first pair."""
    made = measured(lambda step, arm: 10**9 if step == stopped else 1000 if arm is Arm.PLAIN else 600, pairs=6)
    assert (made.pairs_completed, made.pairs_interrupted) == (5, 1)
    assert {max(block.durations_ns) for pair in made.pairs for block in pair} == {600, 1000}
    assert [plain.pair for plain, _ in made.pairs] == list(range(5)), "it was repeated, not left out"


def test_steps_that_are_long_in_every_pair_are_the_job_s_own() -> None:
    made = measured(lambda step, arm: 50_000 if step % 10 == 0 else 1000 if arm is Arm.PLAIN else 600, pairs=40)
    assert made.pairs_completed >= 20


def test_a_slow_arm_decides_no_pair_by_itself() -> None:
    made = measured(lambda step, arm: 100_000 if arm is Arm.PLAIN else 1, pairs=10)
    assert (made.pairs_completed, made.pairs_interrupted) == (10, 0)
