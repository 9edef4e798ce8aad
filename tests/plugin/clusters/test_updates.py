"""The optimizer's update as stitch ops that write variables in place: the clusters, both of their bodies, and the kernels in a job.

The property test draws programs of reads, assigns and arithmetic, lets the plugin cluster them, and compares every variable with what
TensorFlow alone makes of it, bit for bit: once by the fallback body inside a real session, once by the pure body on values.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from stitchfleet.plugin.graph import to_hlo
from stitchfleet.plugin.graph.apply_ops import APPLY

from ...marks import examples
from ..conftest import Finished, Plugin, RunJob
from ..job.test_faults import COLD, QUICK, main_program

VARIABLES = 3
# ("read", k) ("unary", op, e) ("binary", op, e, f) or a constant; exact operators only: TensorFlow itself rounds tanh by where in a
# vector register an element happens to lie.
expressions = st.recursive(
    st.one_of(st.tuples(st.just("read"), st.integers(0, VARIABLES - 1)), st.sampled_from([0.5, -2.0])),
    lambda inner: st.one_of(
        st.tuples(st.just("unary"), st.sampled_from(["square", "negative", "abs"]), inner),
        st.tuples(st.just("binary"), st.sampled_from(["add", "multiply", "maximum"]), inner, inner),
    ),
    max_leaves=4,
)
statements = st.tuples(
    st.sampled_from(["assign", "assign_add", "assign_sub"]), st.integers(0, VARIABLES - 1), expressions
)
programs = st.lists(statements, min_size=1, max_size=7)
Program = list[tuple[str, int, Any]]


def build(expression: Any, variables: list[Any]) -> Any:
    import tensorflow as tf

    if isinstance(expression, float):
        return tf.constant(expression, shape=[5])
    kind, what, *parts = expression
    if kind == "read":
        return variables[what].read_value()
    return getattr(tf.math, what)(*(build(part, variables) for part in parts))


def start_values() -> list[np.ndarray[Any, Any]]:
    return [np.linspace(-1 - k, 1 + k, 5, dtype=np.float32) for k in range(VARIABLES)]


def run(program: Program, plugin: Plugin, active: bool, times: int) -> list[Any]:
    """The variables' values after so many runs of the program, each statement after the one before it."""
    import tensorflow as tf
    from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig

    v1 = tf.compat.v1
    with tf.Graph().as_default():
        variables = [
            v1.get_variable(f"v{k}", initializer=value, use_resource=True) for k, value in enumerate(start_values())
        ]
        last: list[Any] = []
        for method, target, expression in program:
            with tf.control_dependencies(last):
                last = [getattr(variables[target], method)(build(expression, variables), read_value=False)]
        config = v1.ConfigProto()
        # TensorFlow's optimizer would reassociate sums; what is stitched after its first round escapes the second
        config.graph_options.rewrite_options.arithmetic_optimization = RewriterConfig.OFF
        with v1.Session(config=config) as session:
            session.run(v1.global_variables_initializer())
            plugin.active = active
            for _ in range(times):
                session.run(last[0])
            plugin.active = False
            return list(session.run(variables))


@settings(
    max_examples=examples(20, 60),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(programs)
@example(
    [
        *[("assign", 0, ("read", 0))] * 2,
        ("assign", 0, ("unary", "square", ("read", 0))),
        ("assign", 1, ("binary", "add", ("read", 0), ("binary", "add", ("read", 1), ("read", 1)))),
        ("assign", 0, ("unary", "square", ("read", 1))),
    ]
)
def test_random_updates_leave_tensorflows_values(plugin: Plugin, program: Program) -> None:
    import tensorflow as tf

    expected = run(program, plugin, active=False, times=3)
    plugin.clusters = []
    for value, other in zip(run(program, plugin, active=True, times=3), expected):
        np.testing.assert_array_equal(value, other)
    updates = [cluster for cluster in plugin.clusters if cluster.written]
    if len(updates) != 1 or plugin.graph is None:
        return
    (cluster,) = updates
    names = [plugin.graph.nodes[port.node].name for port in cluster.arguments]
    if not all(name.startswith("v") and name[1:].isdigit() for name in names):
        return
    if sum(cluster.op_counts.get(op, 0) for op in cluster.op_counts if op.startswith("Assign")) != len(program):
        return  # an assign that nothing else of the program needs runs outside
    values = dict(zip((f"v{k}" for k in range(VARIABLES)), start_values()))
    # TensorFlow's optimizer would reassociate sums of the pure body that assigns keep apart in the graph
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    function = tf.function(to_hlo.body_function(cluster.body), autograph=False)
    for _ in range(3):
        results = function(*(tf.constant(values[name]) for name in names))
        for position, argument in enumerate(cluster.written, len(cluster.results)):
            values[names[argument]] = np.asarray(results[position])
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})
    for k, other in enumerate(expected):
        np.testing.assert_array_equal(values[f"v{k}"], other)


def run_in_loop(program: Program, plugin: Plugin, active: bool) -> list[Any]:
    """The variables' values after three iterations of a loop, whose body is the program, in each of two calls."""
    import tensorflow as tf

    variables = [tf.Variable(value) for value in start_values()]

    def step(times: Any) -> None:
        for _ in tf.range(times):
            for method, target, expression in program:
                getattr(variables[target], method)(build(expression, variables), read_value=False)

    tf.config.optimizer.set_experimental_options({"arithmetic_optimization": False})
    plugin.active = active
    try:
        traced = tf.function(step)
        for _ in range(2):
            traced(tf.constant(3))
    finally:
        plugin.active = False
        tf.config.optimizer.set_experimental_options({"arithmetic_optimization": True})
    return [variable.numpy() for variable in variables]


@settings(
    max_examples=examples(15, 60),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(programs)
def test_random_updates_in_a_loop_leave_tensorflows_values(plugin: Plugin, program: Program) -> None:
    expected = run_in_loop(program, plugin, active=False)
    for value, other in zip(run_in_loop(program, plugin, active=True), expected, strict=True):
        np.testing.assert_array_equal(value, other)


def test_an_update_in_a_loop_is_one_cluster(plugin: Plugin) -> None:
    """As in a training loop inside a function, or in Keras' fit with several steps per execution."""
    program: Program = [
        ("assign", 0, ("binary", "add", ("read", 0), ("unary", "square", ("read", 1)))),
        ("assign_sub", 1, ("binary", "multiply", ("read", 0), ("read", 2))),
        ("assign_add", 2, ("unary", "abs", ("read", 0))),
    ]
    plugin.clusters = []
    run_in_loop(program, plugin, active=True)
    (update,) = [cluster for cluster in plugin.clusters if cluster.written]
    assert len(update.written) == 3


def test_a_whole_program_becomes_one_cluster_with_two_bodies(plugin: Plugin) -> None:
    program: Program = [
        ("assign_add", 0, ("unary", "square", ("read", 1))),
        ("assign", 1, ("binary", "add", ("read", 0), ("read", 2))),
        ("assign_sub", 2, ("binary", "multiply", ("read", 1), 0.5)),
    ]
    run(program, plugin, active=True, times=1)
    (cluster,) = plugin.clusters
    assert len(cluster.written) == 3
    assert cluster.fallback != cluster.body
    assert not cluster.results
    # the target that the session asked for is still there, as a name without work
    assert sum(node.name.startswith("Assign") for node in plugin.rewritten.node) == 1


def raw_apply(op: str, seed: int) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, bool]]:
    """Operands for a fused Apply operator, by their names."""
    import tensorflow as tf
    from tensorflow.python.framework import op_def_registry

    del tf
    random = np.random.default_rng(seed)
    definition: Any = op_def_registry.get(op)
    scalars = {"lr": 0.01, "alpha": 0.01, "beta1": 0.9, "beta2": 0.99, "beta1_power": 0.8, "beta2_power": 0.9}
    scalars |= {"epsilon": 1e-6, "rho": 0.9, "momentum": 0.7}
    operands = {}
    for argument in definition.input_arg:
        name = str(argument.name)
        if name in scalars:
            operands[name] = np.float32(scalars[name])
        elif name in ("grad", "delta", "m", "mom", "accum_var") or name == "var":
            operands[name] = random.standard_normal(37).astype(np.float32)
        elif name == "mg":
            operands[name] = (0.1 * random.standard_normal(37)).astype(np.float32)
        else:  # squares and their sums
            operands[name] = random.uniform(0.5, 2.0, 37).astype(np.float32)
    return operands, {attr.name: True for attr in definition.attr if attr.name in ("use_nesterov", "update_slots")}


@pytest.mark.parametrize(
    ("op", "flag"),
    [(op, flag) for op, rule in sorted(APPLY.items()) for flag in ([False, True] if rule.flags else [False])],
)
def test_fused_apply_operators_are_decomposed_into_what_they_do(plugin: Plugin, op: str, flag: bool) -> None:
    import tensorflow as tf

    operands, flags = raw_apply(op, seed=3)
    assert set(flags) == set(APPLY[op].flags)
    rule, v1 = APPLY[op], tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        variables = {
            name: v1.get_variable(name, initializer=operands[name], use_resource=True) for name in rule.variables
        }
        given = {name: v1.placeholder(tf.float32, value.shape, name=name) for name, value in operands.items()}
        words = {name: variables[name].handle if name in variables else given[name] for name in operands}
        applied = getattr(tf.raw_ops, op)(**words, **dict.fromkeys(flags, flag))
        session.run(v1.global_variables_initializer())
        plugin.active, plugin.clusters = True, []
        session.run(applied, {given[name]: operands[name] for name in operands if name not in variables})
        plugin.active = False
        expected = session.run(variables)
    (cluster,) = plugin.clusters
    assert plugin.graph is not None
    names = [plugin.graph.nodes[port.node].name for port in cluster.arguments]
    results = tf.function(to_hlo.body_function(cluster.body), autograph=False)(
        *(tf.constant(operands[name]) for name in names)
    )
    for argument, result in zip(cluster.written, results, strict=True):
        np.testing.assert_allclose(result, expected[names[argument]], rtol=3e-6, atol=1e-7)


def sums_differ_by(job: Finished, plain: Finished) -> float:
    pairs = zip(job.result["sums"], plain.result["sums"], strict=True)
    return max(abs(a - b) / max(abs(b), 1e-3) for a, b in pairs)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["Adam", "SGD", "Adagrad", "Ftrl", "legacy.Adam", "legacy.SGD"])
def test_optimizers_are_stitched_in_place_and_train_alike(run_job: RunJob, run_plain: RunJob, optimizer: str) -> None:
    job = run_job("optimizers.py", "120", optimizer, COLD, environment=QUICK)
    assert job.code == 0, job.err
    assert main_program(job)["phase"] == "stitched", job.err
    found = [cluster for cluster in job.summary["clusters"] if cluster["name"].startswith("optimizer")]
    assert sum(entry["calls"]["stitched"] for cluster in found for entry in cluster["executables"]) > 20, job.err
    plain = run_plain("optimizers.py", "120", optimizer)
    assert job.result["iterations"] == plain.result["iterations"] == 120
    assert sums_differ_by(job, plain) < 1e-4
    assert job.result["losses"][-1] == pytest.approx(plain.result["losses"][-1], rel=1e-3)


@pytest.mark.slow
def test_sparse_gradients_stay_sparse_and_the_rest_of_the_update_is_stitched(
    run_job: RunJob, run_plain: RunJob
) -> None:
    job = run_job("optimizers.py", "120", "Adam", COLD, "1", environment=QUICK)
    assert job.code == 0, job.err
    assert main_program(job)["phase"] == "stitched", job.err
    stayed = json.dumps(job.summary["stayed_out"])
    assert "ResourceScatterAdd" in stayed
    assert any(
        cluster["name"].startswith("optimizer") and cluster["state"] == "stitched"
        for cluster in job.summary["clusters"]
    )
    assert sums_differ_by(job, run_plain("optimizers.py", "120", "Adam", "0", "1")) < 1e-4


def test_a_step_that_raises_leaves_all_variables_of_an_update_as_they_were(plugin: Plugin) -> None:
    """TensorFlow leaves open which of its separate assigns have run by then; a stitch op waits for all of its operands."""
    import tensorflow as tf

    first, second = tf.Variable(tf.zeros([8])), tf.Variable(tf.zeros([8]))

    def step(x: Any) -> Any:
        first.assign_add(tf.tanh(x) * 2.0)
        with tf.control_dependencies([tf.debugging.assert_less(tf.reduce_max(x), 5.0)]):
            checked = tf.identity(x)
        second.assign_add(tf.exp(checked) * 2.0)
        return tf.reduce_sum(checked)

    plugin.active, plugin.clusters = True, []
    try:
        traced = tf.function(step)
        traced(tf.ones([8]))
        before = [first.numpy(), second.numpy()]
        with pytest.raises(tf.errors.InvalidArgumentError):
            traced(tf.fill([8], 9.0))
    finally:
        plugin.active = False
    assert [len(cluster.written) for cluster in plugin.clusters if cluster.written] == [2]
    np.testing.assert_array_equal([first.numpy(), second.numpy()], before)


def test_an_optimizers_iterations_are_the_steps_that_did_not_raise(plugin: Plugin) -> None:
    """Of Keras' optimizer: nothing orders its counter and the check, so TensorFlow alone may count a step that raised."""
    import tensorflow as tf

    weights = tf.Variable(tf.ones([8, 8]))
    optimizer = tf.keras.optimizers.Adam(0.01)
    optimizer.build([weights])

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            with tf.control_dependencies([tf.debugging.assert_less(tf.reduce_max(x), 5.0)]):
                checked = tf.identity(x)
            loss = tf.reduce_mean(tf.nn.gelu(checked @ weights))
        optimizer.apply_gradients([(tape.gradient(loss, weights), weights)])
        return loss

    plugin.active, plugin.clusters = True, []
    try:
        traced = tf.function(step)
        raised = 0
        for number in range(30):
            before = [weights.numpy(), *(variable.numpy() for variable in optimizer.variables)]
            try:
                traced(tf.fill([8, 8], 9.0 if number % 10 == 9 else 0.1 * number))
            except tf.errors.InvalidArgumentError:
                raised += 1
                after = [weights.numpy(), *(variable.numpy() for variable in optimizer.variables)]
                for one, other in zip(after, before, strict=True):
                    np.testing.assert_array_equal(one, other)
    finally:
        plugin.active = False
    assert any(len(cluster.written) == 3 for cluster in plugin.clusters), "two moments and the counter are one update"
    assert raised == 3
    assert int(optimizer.iterations) == 27


def test_an_update_with_more_operands_than_an_op_may_have_becomes_several(
    plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tensorflow as tf

    from stitchfleet.plugin.clusters import clusters

    monkeypatch.setattr(clusters, "MAX_UPDATE_ARGUMENTS", 9)
    pairs = [(tf.Variable(tf.fill([3], float(k))), tf.Variable(tf.ones([3]))) for k in range(8)]
    given = tf.Variable(tf.fill([3], 0.5))

    def step() -> Any:
        for weight, moment in pairs:
            moment.assign(moment * 0.5 + given.read_value() * weight)
            weight.assign_sub(moment * 0.25)
        return [each.read_value() for pair in pairs for each in pair]

    start = [(weight.numpy(), moment.numpy()) for weight, moment in pairs]
    plain = [each.numpy() for each in tf.function(step)()]
    for (weight, moment), (w, m) in zip(pairs, start, strict=True):
        weight.assign(w)
        moment.assign(m)
    plugin.clusters, plugin.active = [], True
    try:
        found = [each.numpy() for each in tf.function(step)()]
    finally:
        plugin.active = False
    updates = [cluster for cluster in plugin.clusters if cluster.written]
    assert len(updates) > 1
    assert sum(len(cluster.written) for cluster in updates) == 2 * len(pairs)
    assert all(len(cluster.arguments) <= 9 for cluster in updates)
    assert len(updates) < len(pairs), "variables are together as far as they fit"
    for one, other in zip(plain, found, strict=True):
        np.testing.assert_array_equal(one, other)
