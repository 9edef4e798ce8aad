"""While loops as one operator: the same values bit for bit, the same effects as often, the same errors; and which loops stay."""

from __future__ import annotations

import json
import pathlib
import unittest.mock
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stitchfleet.plugin.clusters.rewrite import LOOP_OP
from stitchfleet.plugin.reporting.explain_job import explain_job
from stitchfleet.plugin.reporting.summary_text import describe
from stitchfleet.plugin.while_loops.fold import stitch_loops

from ...marks import examples, slow
from ..conftest import Plugin, RunJob
from ..job.test_faults import COLD, QUICK, main_program
from .test_loop_invariants import assert_alike, control_flow_util, values


def stitched_alike(plugin: Plugin, step: Any, loops: int = 1) -> list[Any]:
    """Runs it plain and stitched; asserts that the results are the same bits and that so many loops became one operator each."""
    expected, actual = plugin.both(step)
    assert_alike(expected, actual)
    assert len(plugin.loops) == loops, plugin.staying_loops
    return actual


@pytest.mark.parametrize("iterations", [0, 1, 7])
def test_a_loop_of_so_many_iterations(plugin: Plugin, iterations: int) -> None:
    import tensorflow as tf

    x, w, limit = values(4, 8), values(8, 8, seed=1), tf.constant(iterations)

    def step() -> Any:
        state, i = x, tf.constant(0)
        while i < limit:
            state = tf.tanh(tf.matmul(state, w) * 0.5 + tf.cast(i, tf.float32))
            i += 1
        return state, i

    assert stitched_alike(plugin, step)[0][1] == iterations


@pytest.mark.parametrize(
    ("layer", "masked"),
    [
        ("GRU", True),
        *(slow(layer, masked) for layer in ("SimpleRNN", "LSTM") for masked in (False, True)),
        slow("GRU", False),
        *(slow("Bidirectional", masked) for masked in (False, True)),
    ],
)
def test_kerass_recurrent_layers_and_their_gradients(plugin: Plugin, layer: str, masked: bool) -> None:
    import tensorflow as tf

    tf.keras.utils.set_random_seed(1)
    cell = tf.keras.layers.LSTM(8, return_sequences=True)
    model = tf.keras.layers.Bidirectional(cell) if layer == "Bidirectional" else getattr(tf.keras.layers, layer)(8)
    x = values(3, 6, 5)
    mask = tf.sequence_mask([6, 2, 4], 6) if masked else None
    model(x)

    def step() -> Any:
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(tf.square(model(x, mask=mask)))
        return total, tape.gradient(total, model.trainable_variables)

    expected, actual = plugin.both(step)
    assert_alike(expected, actual)


def test_a_list_is_written_in_place_and_read_after_the_loop(plugin: Plugin) -> None:
    import tensorflow as tf

    x = values(16, 4)

    def step() -> Any:
        written = tf.TensorArray(tf.float32, 16)
        kept = written.write(0, x[0])
        for i in tf.range(16):
            written = written.write(i, tf.sin(x[i]) * 2.0 + 1.0)
        return written.stack(), kept.read(0)

    stitched_alike(plugin, step)


def test_a_value_with_several_readers_is_overwritten_by_none(plugin: Plugin) -> None:
    """Each operator here would work in place if it were its operand's last reader."""
    import tensorflow as tf

    x, w = values(64, 64), values(64, 64, seed=1)

    def step() -> Any:
        a, b, c = x, x, tf.abs(x)
        for _ in tf.range(3):
            product = tf.matmul(a, w) * 0.1
            root = tf.matmul(product, w)
            low = tf.math.lgamma(
                root
            )  # none of these is stitched, each takes its operand's buffer for its result where it may
            high = tf.math.lgamma(root + 1.0)
            # One operand two times: it would be written from back to front while it is read.
            once = tf.matmul(root, w)
            added = tf.raw_ops.TensorStridedSliceUpdate(input=once, begin=[63], end=[-65], strides=[-1], value=once)
            a, b, c = tf.tanh(low + b), tf.tanh(high + added), tf.tanh(c + a)
        return a, b, c

    stitched_alike(plugin, step)


def test_variables_change_places_and_share_a_value(plugin: Plugin) -> None:
    import tensorflow as tf

    def step() -> Any:
        a, b, c, d = values(3, 3), values(3, 3, seed=1), values(3, 3, seed=2), values(3, 3, seed=3)
        for _ in tf.range(5):
            moved = tf.tanh(tf.matmul(a, b) + 1.0)
            a, b, c, d = b, a, moved, moved
        return a, b, c, d

    stitched_alike(plugin, step)


def test_effects_happen_as_often_and_in_their_order(plugin: Plugin) -> None:
    import tensorflow as tf

    counter, trace, x = tf.Variable(0.0), tf.Variable(tf.zeros([8])), values(8)

    def step() -> Any:
        counter.assign(0.0)
        trace.assign(tf.zeros([8]))
        for i in tf.range(4):
            counter.assign_add(tf.cast(i, tf.float32))
            before = counter.read_value()
            trace.assign(tf.sin(trace * 0.5 + x * before))
            counter.assign(counter * 2.0)
        return counter.read_value(), trace.read_value()

    counters = [found[0] for found in stitched_alike(plugin, step)]
    assert counters == [22.0, 22.0]  # ((0 + 1) * 2 + 2) * 2 + 3) * 2


@pytest.mark.parametrize("outer", [0, 2])
def test_loops_of_loops_with_branches(plugin: Plugin, outer: int) -> None:
    import tensorflow as tf

    x, w, limit = values(4, 4), values(4, 4, seed=1), tf.constant(outer)

    def step() -> Any:
        state = x
        for i in tf.range(limit):
            for j in tf.range(i + 1):
                if tf.reduce_sum(state) > 0.0:
                    state = tf.tanh(tf.matmul(state, w) + tf.cast(j, tf.float32))
                else:
                    state = tf.sin(state) * 2.0 - 1.0
            if i > 0:
                state = tf.exp(-tf.abs(state)) - 0.5
        return state

    stitched_alike(plugin, step, loops=2)


def test_a_branch_that_is_not_taken_has_no_effect(plugin: Plugin) -> None:
    import tensorflow as tf

    hits, x = tf.Variable(0.0), values(5)

    def step() -> Any:
        hits.assign(0.0)
        state = x
        for i in tf.range(6):
            state = tf.sin(state) + 0.1
            if i % 3 == 1:
                hits.assign_add(tf.reduce_sum(state * 0.0 + 1.0))
        return state, hits.read_value()

    assert [found[1] for found in stitched_alike(plugin, step)] == [10.0, 10.0]


def test_an_error_in_a_loop_names_the_operator(plugin: Plugin) -> None:
    import tensorflow as tf

    x = values(4)

    def step() -> Any:
        state = x
        for i in tf.range(5):
            tf.debugging.assert_less(i, 3, message="three is too many", name="my_check")
            state = tf.sin(state) * 2.0 + 1.0
        return state

    plugin.loops = []
    plugin.active = True
    try:
        with pytest.raises(tf.errors.InvalidArgumentError, match="three is too many") as caught:
            tf.function(step)()
    finally:
        plugin.active = False
    assert len(plugin.loops) == 1
    assert "my_check" in str(caught.value)


def test_a_cancelled_session_ends_an_endless_loop(plugin: Plugin) -> None:
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default():
        given = v1.placeholder(tf.float32, [8])
        _, result = tf.while_loop(
            lambda i, state: i < 2_000_000_000, lambda i, state: (i + 1, tf.sin(state) + 0.1), [tf.constant(0), given]
        )
        plugin.loops = []
        plugin.active = True
        try:
            with v1.Session() as session, pytest.raises(tf.errors.DeadlineExceededError):
                session.run(result, {given: np.ones(8)}, options=v1.RunOptions(timeout_in_ms=2_000))
        finally:
            plugin.active = False
    assert len(plugin.loops) == 1


def test_a_session_fetches_what_leaves_the_loop_by_its_name(plugin: Plugin) -> None:
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        given = v1.placeholder(tf.float32, [4, 4])
        with unittest.mock.patch.object(control_flow_util(), "ENABLE_CONTROL_FLOW_V2", new=False):
            tf.while_loop(
                lambda i, state: i < 3,
                lambda i, state: (i + 1, tf.tanh(tf.matmul(state, state) + 1.0)),
                [tf.constant(0), given],
            )
        exits = [operation.outputs[0] for operation in graph.get_operations() if operation.type == "Exit"]
        results = []
        assert len(exits) == 2
        plugin.loops = []
        for active in (False, True):
            plugin.active = active
            with v1.Session() as session:
                results.append(session.run(exits, {given: np.eye(4) * 0.3}))
        plugin.active = False
    assert_alike(results[0], results[1])
    assert len(plugin.loops) == 1, plugin.staying_loops


def test_a_loop_with_a_python_function_stays(plugin: Plugin) -> None:
    import tensorflow as tf

    x = values(4)

    def step() -> Any:
        state = x
        for _ in tf.range(3):
            state = tf.sin(tf.numpy_function(lambda value: value + np.float32(1.0), [state], tf.float32)) * 2.0
            state = tf.ensure_shape(state, [4])
        return state

    expected, actual = plugin.both(step)
    assert_alike(expected, actual)
    assert not plugin.loops
    assert ["PyFunc" in reason for reason in plugin.staying_loops.values()] == [True]


def test_a_loop_that_waits_for_a_queue_stays(plugin: Plugin) -> None:
    import tensorflow as tf

    queue = tf.queue.FIFOQueue(100, [tf.float32], [[4]])
    x = values(4)

    def step() -> Any:
        state = x
        for _ in tf.range(3):
            queue.enqueue([state])
            state = tf.sin(queue.dequeue()) * 2.0 + 1.0
        return state

    expected, actual = plugin.both(step)
    assert_alike(expected, actual)
    assert not plugin.loops
    assert len(plugin.staying_loops) == 1


def test_a_loop_that_tensorflow_would_not_make_stays(plugin: Plugin) -> None:
    """An operator that cannot be made would be the job's error: it is tried before."""
    import tensorflow as tf
    from tensorflow.core.framework import graph_pb2, node_def_pb2

    x = values(4)

    def step() -> Any:
        state = x
        for _ in tf.range(3):
            state = tf.sin(state) * 2.0 + 1.0
        return state

    offered: list[Any] = []

    def keep(node: bytes) -> str:
        offered.append(node_def_pb2.NodeDef.FromString(node))
        return "no such kernel"

    refusal, plugin.library.refusal_of_operator = plugin.library.refusal_of_operator, keep
    try:
        expected, actual = plugin.both(step)
    finally:
        del plugin.library.refusal_of_operator
    assert plugin.library.refusal_of_operator == refusal
    assert_alike(expected, actual)
    assert not plugin.loops
    assert list(plugin.staying_loops.values()) == ["no such kernel"]

    (node,) = offered
    assert node.op == LOOP_OP
    assert refusal(node.SerializeToString()) == ""
    program = graph_pb2.GraphDef.FromString(node.attr["program"].s)
    next(n for n in program.node if n.op.startswith("Stitchfleet")).op = "NoSuchOperator"
    node.attr["program"].s = program.SerializeToString()
    assert "NoSuchOperator" in refusal(node.SerializeToString())
    node.attr["program"].s = b"\xff\xff"
    assert "readable" in refusal(node.SerializeToString())
    assert refusal(b"\xff\xff") != ""


@pytest.mark.slow
def test_a_job_says_what_became_of_its_loops(run_job: RunJob, tmp_path: pathlib.Path) -> None:
    job = run_job("recurrent.py", "100", COLD, environment=QUICK)
    assert main_program(job)["phase"] == "stitched", job.err
    assert job.summary["loops"]
    assert all(0 < loop["left"] < loop["nodes"] / 2 for loop in job.summary["loops"])
    assert not job.summary["loops_that_stay"]
    line = next(line for line in describe(job.summary) if "run as one operator each" in line)
    file = tmp_path / "summary.json"
    file.write_text(json.dumps(job.summary))
    told = explain_job(file)
    assert line.strip() in told
    assert "NextIteration" not in told  # the loop op does that itself: it has not stayed in TensorFlow

    off = run_job("recurrent.py", "100", COLD, environment={**QUICK, "STITCHFLEET_DISABLE_CLUSTERS": "loop_"})
    assert main_program(off)["phase"] == "stitched", off.err
    assert not off.summary["loops"]
    assert set(off.summary["loops_that_stay"].values()) == {"switched off by name"}
    assert any("switched off by name" in line for line in describe(off.summary))


def test_a_graph_without_loops_is_handed_back(plugin: Plugin) -> None:
    from tensorflow.core.framework import graph_pb2

    graph = graph_pb2.GraphDef()
    assert stitch_loops(graph, plugin.definitions, plugin.library.refusal_of_operator).graph is graph


# A random body: statements over numbered values, of which the first are the loop's variables and two constants of the frame.
VARIABLES, CONSTANTS = 3, 2
statements = st.tuples(
    st.sampled_from(["matmul", "add", "multiply", "sin", "lgamma", "scatter", "list", "branch", "reverse"]),
    st.integers(0, 30),
    st.integers(0, 30),
)
bodies = st.tuples(
    st.lists(statements, min_size=2, max_size=9),
    st.lists(st.integers(0, 30), min_size=VARIABLES, max_size=VARIABLES),
    st.integers(0, 4),
)


def run_body(program: list[tuple[str, int, int]], given: list[Any], i: Any, items: Any) -> tuple[list[Any], Any]:
    import tensorflow as tf

    made = list(given)
    for what, left, right in program:
        a, b = made[-1 - left % len(made)], made[-1 - right % len(made)]
        if what == "matmul":
            made.append(tf.matmul(a, b) * 0.1)
        elif what == "add":
            made.append(a + b)
        elif what == "multiply":
            made.append(tf.clip_by_value(a * b, -2.0, 2.0))
        elif what == "sin":
            made.append(tf.sin(a))
        elif what == "lgamma":
            made.append(tf.math.lgamma(a))
        elif what == "scatter":
            made.append(tf.tensor_scatter_nd_add(a, [[1], [2], [3], [4], [5], [0]], b))
        elif what == "reverse":
            made.append(tf.reverse(a, [left % 2]))
        elif what == "list":
            items = items.write(i, a)
            made.append(b)
        else:
            made.append(tf.cond(tf.reduce_sum(a) > 0.0, lambda b=b: tf.sin(b) * 0.5, lambda a=a: a - 1.0))
    return made, items


@settings(
    max_examples=examples(10, 30),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(bodies)
def test_random_bodies(plugin: Plugin, body: tuple[list[tuple[str, int, int]], list[int], int]) -> None:
    import tensorflow as tf

    program, following, iterations = body
    constants = [values(6, 6, seed=8), values(6, 6, seed=9)]

    def step() -> Any:
        state = [values(6, 6, seed=k) for k in range(VARIABLES)]
        items = tf.TensorArray(tf.float32, 5, element_shape=[6, 6])
        for i in tf.range(5):
            items = items.write(i, tf.zeros([6, 6]))

        def one(i: Any, items: Any, *variables: Any) -> Any:
            made, items = run_body(program, [*variables, *constants], i, items)
            return (i + 1, items, *(made[k % len(made)] for k in following))

        _, items, *state = tf.while_loop(
            lambda i, *_: i < tf.constant(iterations), one, (tf.constant(0), items, *state)
        )
        return items.stack(), state

    # TensorFlow's optimizer would reassociate sums; what is stitched after its first round escapes the second
    tf.config.optimizer.set_experimental_options({"arithmetic_optimization": False})
    try:
        expected, actual = plugin.both(step)
    finally:
        tf.config.optimizer.set_experimental_options({"arithmetic_optimization": True})
    assert_alike(expected, actual)
    if plugin.clusters and not any("nothing in it is stitched" in reason for reason in plugin.staying_loops.values()):
        assert plugin.loops, plugin.staying_loops
