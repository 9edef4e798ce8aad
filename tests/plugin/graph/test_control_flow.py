"""Clusters and control flow: members of one cluster run together or not at all.

The property test draws programs of nested conds and whiles, lets the plugin stitch them (remote stitching on, which tempts most),
runs every combination of branches in a real session, and compares with TensorFlow's own results. With the predicate left out of the
key (tried while this was written) it fails within a few examples with an empty tensor.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stitchfleet.plugin.clusters import rewrite
from stitchfleet.plugin.clusters.clusters import find_clusters
from stitchfleet.plugin.graph import control_flow
from stitchfleet.plugin.graph.constants import free_constants
from stitchfleet.plugin.graph.placed_graph import PlacedGraph

from ...marks import examples
from ..conftest import Plugin

# A program is nested tuples: ("unary", op, p) ("binary", op, p, q) ("cond", k, p, q) ("while", n, p) or "x" "y".
leaves = st.sampled_from(["x", "y"])
programs = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(st.just("unary"), st.sampled_from(["tanh", "sin", "square", "reduce"]), inner),
        st.tuples(st.just("binary"), st.sampled_from(["add", "multiply", "maximum"]), inner, inner),
        st.tuples(st.just("cond"), st.integers(0, 1), inner, inner),
        st.tuples(st.just("while"), st.integers(0, 3), inner),
    ),
    max_leaves=8,
)


def build(program: Any, x: Any, y: Any, predicates: list[Any]) -> Any:
    """The program as TensorFlow operators over two float vectors."""
    import tensorflow as tf

    if program == "x":
        return x
    if program == "y":
        return y
    kind, choice, *parts = program
    if kind == "unary":
        value = build(parts[0], x, y, predicates)
        if choice == "reduce":
            return value - tf.reduce_mean(value, keepdims=True)
        return getattr(tf.math, choice)(value)
    if kind == "binary":
        return getattr(tf.math, choice)(build(parts[0], x, y, predicates), build(parts[1], x, y, predicates))
    if kind == "cond":
        return tf.cond(
            predicates[choice],
            lambda: tf.tanh(build(parts[0], x, y, predicates)) * 2.0,
            lambda: tf.sin(build(parts[1], x, y, predicates)) + 1.0,
        )
    _, result = tf.while_loop(
        lambda i, value: i < choice,
        lambda i, value: (i + 1, tf.tanh(build(parts[0], value, y, predicates)) + 0.5 * value),
        [tf.constant(0), x],
    )
    return result


def run(program: Any, plugin: Plugin, active: bool) -> list[np.ndarray[Any, Any]]:
    import tensorflow as tf

    v1 = tf.compat.v1
    plugin.active = active
    results = []
    with tf.Graph().as_default():
        x, y = v1.placeholder(tf.float32, [6]), v1.placeholder(tf.float32, [6])
        predicates = [v1.placeholder(tf.bool, []), v1.placeholder(tf.bool, [])]
        fetched = tf.identity(build(program, x, y, predicates) * 3.0, name="fetched")
        with v1.Session() as session:
            for first, second in itertools.product((False, True), repeat=2):
                feed = {
                    x: np.linspace(-1, 1, 6, dtype=np.float32),
                    y: np.linspace(2, -0.5, 6, dtype=np.float32),
                    predicates[0]: first,
                    predicates[1]: second,
                }
                results.append(session.run(fetched, feed))
    plugin.active = False
    return results


@settings(
    max_examples=examples(20, 60),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(programs)
def test_stitched_programs_of_nested_conds_and_whiles_give_tensorflows_results(plugin: Plugin, program: Any) -> None:
    for expected, actual in zip(run(program, plugin, active=False), run(program, plugin, active=True)):
        np.testing.assert_array_equal(actual, expected)


def test_an_operator_of_a_branch_and_one_outside_it_do_not_share_a_cluster(plugin: Plugin) -> None:
    program = (
        "binary",
        "add",
        ("cond", 0, ("unary", "sin", "x"), ("unary", "square", "y")),
        ("unary", "tanh", ("unary", "sin", "y")),
    )
    before = plugin.stitched
    for expected, actual in zip(run(program, plugin, active=False), run(program, plugin, active=True)):
        assert actual.shape == (6,)
        np.testing.assert_array_equal(actual, expected)
    assert plugin.stitched > before


def test_operators_inside_a_while_loop_are_stitched(plugin: Plugin) -> None:
    program = ("while", 3, ("unary", "sin", ("unary", "square", "x")))
    before = plugin.stitched
    np.testing.assert_array_equal(run(program, plugin, active=True), run(program, plugin, active=False))
    assert plugin.stitched > before


def test_stitch_ops_have_names_that_read_well_in_a_profile(plugin: Plugin) -> None:
    import tensorflow as tf

    v1 = tf.compat.v1
    plugin.active = True
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [4, 8])
        with tf.name_scope("encoder/layer_3"):
            y = tf.nn.softmax(tf.tanh(x) * 2.0)
        session.run(tf.identity(y, name="fetched"), {x: np.ones([4, 8])})
    plugin.active = False
    stitched = [name for name in (node.name for node in plugin.rewritten.node) if name.startswith("stitchfleet/")]
    assert stitched
    assert stitched[0].startswith("stitchfleet/encoder/layer_3/softmax_")


def test_a_branchs_constant_is_dead_with_its_branch(plugin: Plugin) -> None:
    """What a branch returns goes into a Merge, which takes whichever operand is alive."""
    import tensorflow as tf

    @tf.function
    def choose(first: Any, x: Any) -> Any:
        chosen = tf.cond(first, lambda: tf.constant([1.0, 2.0]), lambda: tf.constant([3.0, 4.0]))
        return chosen * tf.tanh(x) + 1.0

    plugin.active, before = True, plugin.stitched
    x = tf.constant([5.0, 6.0])
    for first, row in ((True, [1.0, 2.0]), (False, [3.0, 4.0]), (True, [1.0, 2.0])):
        np.testing.assert_allclose(
            choose(tf.constant(first), x).numpy(), np.array(row) * np.tanh([5.0, 6.0]) + 1.0, rtol=1e-6
        )
    plugin.active = False
    assert plugin.stitched > before


def test_a_member_that_others_wait_for_is_not_trimmed(plugin: Plugin) -> None:
    """A shape at the cluster's border leaves it; not so where a member waits for it: then the op would wait for its own result."""
    import tensorflow as tf

    with tf.Graph().as_default() as graph, tf.device("/CPU:0"):
        x = tf.compat.v1.placeholder(tf.float32, [None, 4])
        first = tf.tanh(x) * 3.0
        shape = tf.shape(first)
        with tf.control_dependencies([shape]):
            second = tf.sin(first) * 2.0
        tf.identity(second, name="fetched")
        tf.identity(shape, name="shape_fetched")
    definition = graph.as_graph_def()
    free_constants(definition)
    placed = PlacedGraph(definition)
    plan = find_clusters(placed, plugin.definitions, {"fetched", "shape_fetched"})
    assert plan.clusters
    control_flow.topological_order(PlacedGraph(rewrite.apply_clusters(placed, plan.clusters)))
