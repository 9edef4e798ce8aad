"""Reads of variables in loops: hoisted where nothing in a loop writes the variable, and nowhere else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ..conftest import Plugin


def table() -> Any:
    import tensorflow as tf

    return tf.Variable(np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3))


def test_a_read_of_a_table_that_is_also_looked_up_leaves_the_loop(plugin: Plugin) -> None:
    import tensorflow as tf

    rows = table()

    def decode() -> Any:
        state = tf.ones([2, 3])
        for _ in tf.range(4):
            scores = tf.matmul(state, rows, transpose_b=True)
            state = tf.tanh(tf.gather(rows, tf.argmax(scores, axis=1))) + state
        return state

    expected, actual = plugin.both(decode)
    np.testing.assert_array_equal(actual, expected)
    assert plugin.hoisted_reads > 0


def test_a_variable_that_the_loop_writes_is_read_in_the_loop(plugin: Plugin) -> None:
    import tensorflow as tf

    rows = table()
    start = rows.numpy()

    def grow() -> Any:
        rows.assign(start)
        total = tf.zeros([4, 3])
        for _ in tf.range(4):
            rows.assign_add(tf.ones([4, 3]))
            total += rows * 2.0
        return total

    expected, actual = plugin.both(grow)
    np.testing.assert_array_equal(actual, expected)
    assert plugin.hoisted_reads == 0


def test_writes_before_and_after_the_loop_keep_their_order(plugin: Plugin) -> None:
    import tensorflow as tf

    rows = table()
    start = rows.numpy()

    def around() -> Any:
        rows.assign(start * 2.0)
        total = tf.zeros([4, 3])
        for _ in tf.range(3):
            total += tf.tanh(rows) * 2.0
        rows.assign(start * 3.0)
        return total, rows.read_value()

    expected, actual = plugin.both(around)
    for one, other in zip(expected, actual, strict=True):
        np.testing.assert_array_equal(other[0], one[0])
        np.testing.assert_array_equal(other[1], one[1])
    assert plugin.hoisted_reads > 0


@pytest.mark.parametrize("iterations", [0, 1, 3])
def test_reads_in_loops_of_loops_and_in_branches(plugin: Plugin, iterations: int) -> None:
    import tensorflow as tf

    rows, other = table(), table()

    def nested() -> Any:
        total = tf.zeros([4, 3])
        for i in tf.range(iterations):
            for _ in tf.range(2):
                total = tf.tanh(total) + rows
            if i % 2 == 0:
                total += tf.sin(other) * 2.0
            else:
                total -= rows * 0.5
        return total

    expected, actual = plugin.both(nested)
    np.testing.assert_array_equal(actual, expected)
    assert plugin.hoisted_reads > 0
