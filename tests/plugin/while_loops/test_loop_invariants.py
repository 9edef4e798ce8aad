"""Loop variables that never change become constants of their frame: what is computed, how often, and when, stays as it was."""

from __future__ import annotations

import importlib
import unittest.mock
from typing import Any

import numpy as np
import pytest

from stitchfleet.plugin.while_loops.invariants import free_invariants

from ..conftest import Plugin


def values(*shape: int, seed: int = 0) -> Any:
    import tensorflow as tf

    return tf.constant(np.random.default_rng(seed).standard_normal(shape), tf.float32)


def assert_alike(expected: list[Any], actual: list[Any]) -> None:
    import tensorflow as tf

    for one, other in zip(tf.nest.flatten(expected), tf.nest.flatten(actual), strict=True):
        np.testing.assert_array_equal(other, one)


def control_flow_util() -> Any:
    return importlib.import_module("tensorflow.python.ops.control_flow_util")


@pytest.mark.parametrize("iterations", [0, 1, 5])
def test_what_a_body_captures_is_a_constant_of_its_frame(plugin: Plugin, iterations: int) -> None:
    import tensorflow as tf

    weights, bias, limit = values(4, 4), values(4, seed=1), tf.constant(iterations)

    def step() -> Any:
        scale = tf.sin(weights)  # computed in the step: captured as a tensor
        state = tf.ones([2, 4])
        for _ in tf.range(limit):
            state = tf.tanh(tf.matmul(state, scale) + bias)
        return state, scale

    expected, actual = plugin.both(step)
    assert_alike(expected, actual)
    assert plugin.freed_invariants > 0


@pytest.mark.parametrize("iterations", [0, 1, 4])
def test_an_effect_on_what_never_changes_happens_once_an_iteration(plugin: Plugin, iterations: int) -> None:
    """In the last iteration the body is dead: what reads only constants of the frame must be dead with it."""
    import tensorflow as tf

    counter, amount = tf.Variable(0.0), values()

    def step() -> Any:
        one = tf.abs(amount) * 0.0 + 1.0
        counter.assign(0.0)
        i = tf.constant(0)
        while i < iterations:
            counter.assign_add(one)
            i += 1
        return counter.read_value()

    expected, actual = plugin.both(step)
    assert_alike(expected, actual)
    assert actual == [float(iterations)] * 2
    assert plugin.freed_invariants > 0


@pytest.mark.parametrize("iterations", [0, 1, 3])
def test_what_reads_only_constants_of_the_frame_is_dead_with_the_body(iterations: int) -> None:
    """TensorFlow 1's loops have no control edge to such an operator: were it alive in the last iteration, it would fail here."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        given, limit = v1.placeholder(tf.float32, [3, 3]), v1.placeholder(tf.int32, [])

        def body(i: Any, same: Any, total: Any) -> Any:
            checked = tf.cond(i < limit, lambda: same, lambda: same * 0.0)
            return i + 1, same, total + tf.linalg.inv(same) + checked

        with unittest.mock.patch.object(control_flow_util(), "ENABLE_CONTROL_FLOW_V2", new=False):
            _, same, total = v1.while_loop(
                lambda i, same, total: i < limit, body, (tf.constant(0), given, tf.zeros([3, 3]))
            )
        results = [tf.identity(same, "same").name, tf.identity(total, "total").name]
    definition = graph.as_graph_def()
    freed = type(definition).FromString(definition.SerializeToString())
    assert free_invariants(freed) == 1
    assert any(node.name.endswith("stitchfleet_pivot") for node in freed.node)
    value = np.eye(3, dtype=np.float32) * 2 if iterations else np.ones((3, 3), np.float32)  # the second has no inverse
    found = []
    for one in (definition, freed):
        with tf.Graph().as_default() as again, v1.Session(graph=again) as session:
            tf.import_graph_def(one, name="")
            found.append(session.run(results, {given.name: value, limit.name: iterations}))
    assert_alike(*found)


@pytest.mark.parametrize("iterations", [0, 1, 3])
def test_loops_of_loops_and_branches_on_what_never_changes(plugin: Plugin, iterations: int) -> None:
    import tensorflow as tf

    given, flag = values(3), tf.constant(True)

    def step() -> Any:
        outer, chosen = tf.cos(given), tf.logical_and(flag, True)
        total = tf.zeros([3])
        for i in tf.range(iterations):
            kept = outer * tf.cast(i, tf.float32)  # never changes in the inner loop
            for j in tf.range(i + 1):
                total += kept * outer + tf.cast(j, tf.float32)
            total += tf.sin(outer) if chosen else outer * 3.0
            if i % 2 == 0:
                total -= outer
        return total, outer

    expected, actual = plugin.both(step)
    assert_alike(expected, actual)
    assert plugin.freed_invariants > 0


def test_a_loop_variable_handed_on_is_read_after_the_loop(plugin: Plugin) -> None:
    import tensorflow as tf

    given = values(2, 3)

    def step() -> Any:
        same, count, total = tf.while_loop(
            lambda same, count, total: tf.reduce_sum(same * same) * 0.0 + tf.cast(count, tf.float32) < 4.0,
            lambda same, count, total: (same, count + 1, total + same),
            (tf.exp(given), tf.constant(0), tf.zeros([2, 3])),
        )
        return same + 1.0, count, total

    expected, actual = plugin.both(step)
    assert_alike(expected, actual)
    assert plugin.freed_invariants > 0


def test_variables_that_change_places_stay_variables(plugin: Plugin) -> None:
    import tensorflow as tf

    def step() -> Any:
        one, other = tf.sin(values(3)), tf.cos(values(3, seed=1))
        for _ in tf.range(3):
            one, other = other, one
        return one, other

    expected, actual = plugin.both(step)
    assert_alike(expected, actual)


def test_a_loop_in_a_branch_that_is_not_taken_is_dead_with_it(plugin: Plugin) -> None:
    import tensorflow as tf

    given = values(3)

    def step(flag: Any) -> Any:
        outer = tf.cos(given)
        total = tf.zeros([3])
        if flag:
            same = outer * 2.0
            for _ in tf.range(3):
                total += same * outer
            total += same
        else:
            total -= outer
        return total

    for taken in (True, False):
        flag = tf.Variable(taken)
        expected, actual = plugin.both(lambda flag=flag: step(flag.read_value()))
        assert_alike(expected, actual)
        assert plugin.freed_invariants > 0


def test_gradients_through_loops(plugin: Plugin) -> None:
    import tensorflow as tf

    weights = tf.Variable(values(4, 4))

    def step() -> Any:
        with tf.GradientTape() as tape:
            state, mask = tf.ones([2, 4]), tf.abs(weights[0]) > 0.3
            for _ in tf.range(4):
                state = tf.where(mask, tf.tanh(tf.matmul(state, weights)), state)
            loss = tf.reduce_sum(state)
        return loss, tape.gradient(loss, weights)

    expected, actual = plugin.both(step)
    assert_alike(expected, actual)
    assert plugin.freed_invariants > 0


@pytest.mark.parametrize("cell", ["GRU", "LSTM"])
def test_kerass_recurrent_layers(plugin: Plugin, cell: str) -> None:
    """With a mask, which keeps a state where a sequence has ended."""
    import tensorflow as tf

    layer = getattr(tf.keras.layers, cell)(8, return_sequences=True)
    x, lengths = values(3, 6, 5), tf.constant([6, 3, 0])
    layer(x)

    def step() -> Any:
        return layer(x, mask=tf.sequence_mask(lengths, 6))

    expected, actual = plugin.both(step)
    for one, other in zip(expected, actual, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-6, atol=1e-7)
