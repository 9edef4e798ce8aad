"""Lists of a loop that is one operator: rows of a tensor without a copy, elements that the Loop op hands on, stacks; the same bits
and the same errors as TensorFlow's kernels. And what nobody reads is not computed.
"""

from __future__ import annotations

import collections
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from scripts.benchmark.trace import node_times
from stitchfleet.plugin.clusters.rewrite import LOOP_OP

from ..conftest import Plugin
from .test_loop_invariants import values
from .test_loops import stitched_alike

DONE_BY_THE_LOOP = {
    "TensorListFromTensor",
    "TensorListGetItem",
    "TensorListSetItem",
    "TensorListStack",
    "Less",
}


def operators(plugin: Plugin) -> tuple[collections.Counter[str], collections.Counter[str]]:
    """How often the last rewritten graph has which operator: outside of its loops' programs, and in them."""
    from tensorflow.core.framework import graph_pb2

    programs: list[Any] = [
        graph_pb2.GraphDef.FromString(node.attr["program"].s) for node in plugin.rewritten.node if node.op == LOOP_OP
    ]
    return (
        collections.Counter(node.op for node in plugin.rewritten.node),
        collections.Counter(node.op for program in programs for node in program.node),
    )


def row_by_row(x: Any, function: Callable[[Any], Any]) -> Callable[[], Any]:
    """A step that applies a function to each row, read from a list and written to one."""
    import tensorflow as tf

    def step() -> Any:
        rows = tf.TensorArray(x.dtype, x.shape[0]).unstack(x)
        results = tf.TensorArray(x.dtype, x.shape[0])
        for i in tf.range(x.shape[0]):
            results = results.write(i, function(rows.read(i)))
        return results.stack()

    return step


@pytest.mark.parametrize("shape", [(7, 16), (7, 5), (3, 4, 4), (9,), (5, 1)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_rows_of_a_tensor_and_their_stack_are_the_loops(plugin: Plugin, shape: tuple[int, ...], dtype: str) -> None:
    """Rows of 64 bytes lie on boundaries, others are copied to some."""
    import tensorflow as tf

    x = tf.cast(values(*shape) * 10.0, dtype)
    stitched_alike(plugin, row_by_row(x, lambda row: tf.cast(tf.cast(row, tf.float32) * 2.0 + 1.0, x.dtype)))
    outside, inside = operators(plugin)
    assert not [op for op in outside if op in DONE_BY_THE_LOOP]
    assert inside["TensorListFromTensor"] == inside["TensorListStack"] == inside["TensorListGetItem"] == 1


def test_kernels_of_lists_and_counters_are_not_called(plugin: Plugin, tmp_path: pathlib.Path) -> None:
    """TensorFlow's profiler sees each kernel that is called."""
    import tensorflow as tf

    x = values(50, 32)
    step = row_by_row(x, lambda row: tf.sin(row) * 2.0)
    stitched_alike(plugin, step)
    plugin.active = True
    traced = tf.function(step)
    traced()
    plugin.active = False
    with tf.profiler.experimental.Profile(str(tmp_path), tf.profiler.experimental.ProfilerOptions(host_tracer_level=3)):
        traced()
    (file,) = tmp_path.rglob("*.xplane.pb")
    called = {node.op for node in node_times(file.read_bytes())[0]}
    assert "StitchfleetStitch" in called
    assert not called & DONE_BY_THE_LOOP, called


def test_no_operator_works_in_place_on_a_row(plugin: Plugin) -> None:
    """A row is read by an operator that would take its operand's buffer for its result, again and again."""
    import tensorflow as tf

    x = tf.abs(values(4, 16)) + 0.5

    def step() -> Any:
        rows = tf.TensorArray(tf.float32, 4).unstack(x * 1.0)
        total = tf.zeros(16)
        for i in tf.range(12):
            total = tf.tanh(total + tf.math.lgamma(rows.read(i % 4)))
        return total

    stitched_alike(plugin, step)


def test_a_list_that_an_iteration_changes_for_itself_is_whole_in_the_next(plugin: Plugin) -> None:
    import tensorflow as tf

    x = values(4, 16)

    def step() -> Any:
        rows = tf.TensorArray(tf.float32, 4).unstack(x)
        total = tf.zeros(16)
        for i in tf.range(4):
            changed = rows.write(i, total)
            total = tf.sin(total + changed.read(i)) + rows.read(i) * 0.5
        return total

    stitched_alike(plugin, step)
    assert operators(plugin)[1]["TensorListFromTensor"] == 1


def test_elements_that_nobody_has_set_are_zeros(plugin: Plugin) -> None:
    import tensorflow as tf

    x = values(4, 8)

    def step() -> Any:
        results = tf.TensorArray(tf.float32, 6, element_shape=[8])
        for i in tf.range(4):
            results = results.write(i, tf.sin(x[i]) * 2.0 + 1.0)
        return results.stack()

    assert not np.any(stitched_alike(plugin, step)[0][4:])
    assert operators(plugin)[1]["TensorListStack"] == 1


@pytest.mark.parametrize("iterations", [0, 3])
def test_a_list_that_is_stacked_and_read_as_well(plugin: Plugin, iterations: int) -> None:
    import tensorflow as tf

    x, limit = values(4, 8), tf.constant(iterations)

    def step() -> Any:
        results = tf.TensorArray(tf.float32, 4, element_shape=[8], clear_after_read=False)
        for i in tf.range(limit):
            results = results.write(i, tf.sin(x[i]) * 2.0 + 1.0)
        return results.stack(), results.read(0), results.stack()

    stitched_alike(plugin, step)


def test_a_stack_too_large_for_one_thread_is_tensorflows(plugin: Plugin) -> None:
    import tensorflow as tf

    stitched_alike(plugin, row_by_row(values(5, 300_000), lambda row: tf.sin(row) * 2.0))


def test_lists_that_grow_and_shrink(plugin: Plugin) -> None:
    """What a gradient needs of its loop is pushed in the forward loop, and popped in the backward one."""
    import tensorflow as tf

    x, w = values(4, 8), values(8, 8, seed=1)

    def step() -> Any:
        with tf.GradientTape() as tape:
            tape.watch(w)
            state = x
            for _ in tf.range(5):
                state = tf.tanh(tf.matmul(state, w) * 0.5 + 0.1)
        return state, tape.gradient(state, w)

    stitched_alike(plugin, step, loops=2)


def unstacked(x: Any, count: int) -> Any:
    import tensorflow as tf

    def step() -> Any:
        rows = tf.TensorArray(tf.float32, 4).unstack(x)
        total = tf.zeros(16)
        for i in tf.range(count):
            total = tf.sin(total + rows.read(i)) * 2.0
        return total

    return step


def differing(x: Any) -> Any:
    import tensorflow as tf

    def step() -> Any:
        results = tf.TensorArray(tf.float32, 4, infer_shape=False, element_shape=tf.TensorShape(None))
        for i in tf.range(4):
            results = results.write(i, tf.sin(x[i, : i + 1]) * 2.0 + 1.0)
        return results.stack()

    return step


def misfitting(x: Any) -> Any:
    import tensorflow as tf

    def step() -> Any:
        results = tf.raw_ops.TensorListReserve(element_shape=[3], num_elements=4, element_dtype=tf.float32)
        i = tf.constant(0)
        while i < 4:
            results = tf.raw_ops.TensorListSetItem(input_handle=results, index=i, item=tf.sin(x[i, : i + 1]) * 2.0)
            i += 1
        return tf.raw_ops.TensorListStack(input_handle=results, element_shape=[3], element_dtype=tf.float32)

    return step


@pytest.mark.parametrize(
    "make",
    [lambda x: unstacked(x, 5), differing, misfitting],
    ids=["beyond its end", "shapes that differ", "a shape amiss"],
)
def test_errors_are_tensorflows(plugin: Plugin, make: Callable[[Any], Callable[[], Any]]) -> None:
    import tensorflow as tf

    step = make(values(4, 16))
    messages = []
    plugin.loops = []
    for active in (False, True):
        plugin.active = active
        try:
            with pytest.raises(tf.errors.InvalidArgumentError) as caught:
                tf.function(step)()
        finally:
            plugin.active = False
        messages.append(caught.value.message.split("{{node")[0].split("\n")[0])
    assert len(plugin.loops) == 1, plugin.staying_loops
    assert messages[0] == messages[1]


def test_what_nobody_reads_is_not_computed(plugin: Plugin) -> None:
    """A counter of its own, a list of which only the elements' product was wanted, a value that does not leave the loop."""
    import tensorflow as tf

    x, w = values(6, 600), values(300, 300, seed=1)  # too large for a kernel

    def step() -> Any:
        rows = tf.TensorArray(tf.float32, 6).unstack(x)
        state, unread, counter = tf.zeros([2, 300]), tf.zeros([2, 300]), tf.constant(0)
        for i in tf.range(6):
            state = tf.tanh(state + tf.matmul(tf.reshape(rows.read(i), [2, 300]), w))
            unread = tf.matmul(unread + state, w)
            counter += 2
        return state

    stitched_alike(plugin, step)
    assert operators(plugin)[1]["MatMul"] == 1


def test_what_nobody_reads_but_has_an_effect_is_done(plugin: Plugin) -> None:
    import tensorflow as tf

    counted = tf.Variable(0.0)
    x = values(4, 8)

    def step() -> Any:
        counted.assign(0.0)
        state = x
        for _ in tf.range(5):
            state = tf.sin(state) * 2.0 + 1.0
            counted.assign_add(tf.reduce_sum(state))
        return counted.read_value()

    assert stitched_alike(plugin, step)[0] != 0.0
