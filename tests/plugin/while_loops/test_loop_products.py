"""A recurrent layer's product with its input leaves the loop: the same numbers but for rounding, and which products stay."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from stitchfleet.plugin.while_loops.products import ROWS_PRODUCT_OP

from ...marks import slow
from ..conftest import Plugin
from .test_loop_invariants import assert_alike, values

ROUNDING = 2e-6
"""Relative to the largest number: sums of some tens of products, rounded in another order, through some iterations."""


def close(plugin: Plugin, step: Any, hoisted: int) -> list[Any]:
    """Runs it plain and stitched; asserts equality but for rounding, and how many products left their loops."""
    import tensorflow as tf

    expected, actual = plugin.both(step, times=4)
    if not operators_taken_off(plugin):
        assert_alike(expected[:2], actual[:2])  # the first calls are verified: TensorFlow's values flow on
    for one, other in zip(tf.nest.flatten(expected), tf.nest.flatten(actual), strict=True):
        assert one.shape == other.shape
        scale = np.max(np.abs(one), initial=1.0)
        np.testing.assert_allclose(other, one, rtol=0, atol=ROUNDING * scale)
    assert plugin.hoisted_products == (hoisted if isinstance(hoisted, int) else hoisted())
    return actual


@pytest.mark.parametrize(
    ("layer", "batch"),
    [
        ("SimpleRNN", 1),
        ("GRU", 5),
        ("Bidirectional", 5),
        *(slow(layer, 1) for layer in ("LSTM", "GRU", "Bidirectional")),
        *(slow(layer, 5) for layer in ("SimpleRNN", "LSTM")),
    ],
)
def test_recurrent_layers(plugin: Plugin, layer: str, batch: int) -> None:
    import tensorflow as tf

    tf.keras.utils.set_random_seed(1)
    cell = tf.keras.layers.LSTM(8, return_sequences=True)
    model = tf.keras.layers.Bidirectional(cell) if layer == "Bidirectional" else getattr(tf.keras.layers, layer)(8)
    x = values(batch, 6, 12)
    model(x)
    close(plugin, lambda: model(x), hoisted=2 if layer == "Bidirectional" else 1)


@pytest.mark.parametrize("layer", ["LSTM", slow("GRU")])
def test_gradients_of_recurrent_layers(plugin: Plugin, layer: str) -> None:
    import tensorflow as tf

    tf.keras.utils.set_random_seed(1)
    model = getattr(tf.keras.layers, layer)(8)
    x = values(3, 6, 5)
    mask = tf.sequence_mask([6, 2, 4], 6)
    model(x)

    def step() -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(tf.square(model(x, mask=mask)))
        return total, tape.gradient(total, [x, *model.trainable_variables])

    close(plugin, step, hoisted=1)


def operators_taken_off(plugin: Plugin) -> list[str]:
    """The operators that TensorFlow had fused onto products, and that stay in the loop without them. oneDNN fuses the sum with the
    state's product onto SimpleRNN's, and from 2.21 at the latest TensorFlow fuses it onto LSTM's in batches of one."""
    assert plugin.graph is not None
    after = {node.name for node in plugin.graph.nodes if "/stitchfleet_inside_" in node.name}
    return sorted(
        node.op for node in plugin.graph.nodes if node.inputs and plugin.graph.nodes[node.inputs[0].node].name in after
    )


def loop_over(x: Any, w: Any, body: Any, times: Any = None) -> Any:
    """A loop over the first axis of x; body(state, x[t] W, t)."""
    import tensorflow as tf

    rows = tf.TensorArray(tf.float32, tf.shape(x)[0]).unstack(x)
    state = tf.zeros([x.shape[1], w.shape[1]])
    for t in tf.range(tf.shape(x)[0] if times is None else times):
        state = body(state, tf.matmul(rows.read(t), w), t)
    return state


@pytest.mark.parametrize("times", [0, 1, 9])
def test_so_many_points_in_time(plugin: Plugin, times: int) -> None:
    import tensorflow as tf

    x, w = tf.Variable(values(times, 4, 6), shape=[None, 4, 6]), values(6, 5)
    close(plugin, lambda: loop_over(x.read_value(), w, lambda s, p, t: tf.tanh(s * 0.5 + p)), hoisted=1)


def test_a_product_that_differs_by_more_than_rounding_stays_one_by_one(
    plugin: Plugin, capfd: pytest.CaptureFixture[str]
) -> None:
    """The op is given a product that is wrong as soon as it has the rows of several points in time."""
    import tensorflow as tf
    from tensorflow.core.framework import attr_value_pb2, node_def_pb2
    from tensorflow.python.ops import script_ops

    sizes: list[int] = []

    def product(rows: Any, w: Any) -> Any:
        sizes.append(len(rows))
        return rows @ w + np.float32(len(rows) > 4)

    node = node_def_pb2.NodeDef(name="product", op="PyFunc", device="/job:localhost/replica:0/task:0/device:CPU:0")
    node.attr["token"].s = script_ops._py_funcs.insert(product).encode()
    node.attr["Tin"].list.type.extend([tf.float32.as_datatype_enum] * 2)
    node.attr["Tout"].list.type.append(tf.float32.as_datatype_enum)
    attributes = {
        "T": attr_value_pb2.AttrValue(type=tf.float32.as_datatype_enum),
        "count": attr_value_pb2.AttrValue(i=1),
        "product": attr_value_pb2.AttrValue(s=node.SerializeToString()),
    }
    x, w = values(7, 4, 6).numpy(), values(6, 5).numpy()
    with tf.Graph().as_default() as graph:
        operands = [tf.compat.v1.placeholder(tf.float32, array.shape) for array in (x, w)]
        op = graph.create_op(ROWS_PRODUCT_OP, operands, [tf.float32], name="hoisted", attrs=attributes)
        with tf.compat.v1.Session() as session:
            results = [session.run(op.outputs[0], dict(zip(operands, (x, w), strict=True))) for _ in range(3)]
    for result in results:
        np.testing.assert_allclose(result, x @ w, rtol=1e-6)
    once = [4] * 7
    assert sizes == [28, *once, *once, *once]
    assert capfd.readouterr().err.count("hoisted of all points in time at once is") == 1


def test_a_loop_that_ends_early_and_reads_backwards(plugin: Plugin) -> None:
    import tensorflow as tf

    x, w = values(8, 3, 6), values(6, 5)

    def step() -> Any:
        rows = tf.TensorArray(tf.float32, 8).unstack(x)
        state, t = tf.zeros([3, 5]), tf.constant(7)
        while tf.reduce_sum(tf.abs(state)) < 8.0 and t >= 0:
            state = tf.sin(state + tf.matmul(rows.read(t), w) * 0.2 + 1.0)
            t -= 1
        return state, t

    assert close(plugin, step, hoisted=1)[0][1] > 0


def test_a_product_in_a_branch_stays(plugin: Plugin) -> None:
    import tensorflow as tf

    x, w = values(6, 3, 6), values(6, 5)

    def step() -> Any:
        rows = tf.TensorArray(tf.float32, 6).unstack(x)
        state = tf.zeros([3, 5])
        for t in tf.range(6):
            if t % 2 == 0:
                state = tf.tanh(state + tf.matmul(rows.read(t), w) * 0.5)
        return state

    close(plugin, step, hoisted=0)


def test_a_product_of_what_the_loop_makes_stays(plugin: Plugin) -> None:
    import tensorflow as tf

    x, w = values(6, 3, 6), values(6, 6)

    def step() -> Any:
        rows = tf.TensorArray(tf.float32, 6).unstack(x)
        state, weights = tf.zeros([3, 6]), w
        for t in tf.range(6):
            state = tf.tanh(tf.matmul(state, w) + tf.matmul(rows.read(t), weights) * 0.5)
            weights = weights * 0.9 + 0.01
        return state

    close(plugin, step, hoisted=0)


def test_a_list_that_the_loop_writes_stays(plugin: Plugin) -> None:
    import tensorflow as tf

    x, w = values(6, 3, 6), values(6, 6)

    def step() -> Any:
        rows = tf.TensorArray(tf.float32, 6, clear_after_read=False).unstack(x)
        state = tf.zeros([3, 6])
        for t in tf.range(5):
            state = tf.tanh(state + tf.matmul(rows.read(t), w) * 0.5)
            rows = rows.write(t + 1, state * 2.0)
        return state

    close(plugin, step, hoisted=0)


def test_rows_that_do_not_fit_give_the_jobs_error(plugin: Plugin) -> None:
    import tensorflow as tf

    x = tf.Variable(values(4, 3, 6), shape=[None, None, None])
    w = tf.Variable(values(7, 5), shape=[None, None])

    def step() -> Any:
        rows = tf.TensorArray(tf.float32, 4, infer_shape=False).unstack(x.read_value())
        state = tf.zeros([3, 5])
        for t in tf.range(4):
            tf.autograph.experimental.set_loop_options(shape_invariants=[(state, tf.TensorShape(None))])
            state = tf.tanh(state + tf.matmul(rows.read(t), w) * 0.5)
        return state

    plugin.active, plugin.hoisted_products = True, 0
    try:
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"[Mm]atrix size-incompatible"):
            tf.function(step)()
    finally:
        plugin.active = False
    assert plugin.hoisted_products == 1


def test_a_loop_in_a_loop(plugin: Plugin) -> None:
    import tensorflow as tf

    x, w = values(6, 3, 6), values(6, 5)

    def step() -> Any:
        total = tf.zeros([3, 5])
        for k in tf.range(3):
            rows = x * tf.cast(k + 1, tf.float32)
            total += loop_over(rows, w, lambda s, p, t: tf.tanh(s * 0.5 + p))
        return total

    close(plugin, step, hoisted=1)


@pytest.mark.parametrize("rounds", [1, 3])
def test_operands_that_the_loop_only_rearranges_and_converts(plugin: Plugin, rounds: int) -> None:
    """As in Keras 3's GRU, and in mixed precision; with a loop around it if there are several rounds."""
    import tensorflow as tf

    x, w, b = values(6, 3, 6), tf.Variable(tf.cast(values(6, 5), tf.float64)), tf.Variable(values(2, 5))

    def one_round(x: Any) -> Any:
        rows = tf.TensorArray(tf.float32, 6).unstack(x)
        state = tf.zeros([3, 5])
        for t in tf.range(6):
            first, second = tf.unstack(b.read_value())
            product = tf.nn.bias_add(tf.matmul(rows.read(t), tf.cast(w.read_value(), tf.float32)), first)
            state = tf.tanh(product + state * 0.5) + second
        return state

    def step() -> Any:
        if rounds == 1:
            return one_round(x)
        total = tf.zeros([3, 5])
        for k in tf.range(rounds):
            total += one_round(x * tf.cast(k + 1, tf.float32))
        return total

    close(plugin, step, hoisted=1)


@pytest.mark.parametrize("relu", [True, False])
def test_operators_fused_onto_a_product_stay_in_the_loop_from_the_first_that_needs_the_state(
    plugin: Plugin, relu: bool
) -> None:
    """Without oneDNN TensorFlow fuses a bias and a relu onto a product. The bias is the state here."""
    import tensorflow as tf

    x, w = values(6, 1, 6), values(6, 5)

    def step() -> Any:
        rows = tf.TensorArray(tf.float32, 6).unstack(x)
        state = tf.ones([5])
        for t in tf.range(6):
            total = tf.nn.bias_add(tf.matmul(rows.read(t), w), state)
            state = tf.reshape(tf.nn.relu(total) if relu else total, [5]) * 0.5
        return state

    close(plugin, step, hoisted=1)
    assert operators_taken_off(plugin) == (["BiasAdd", "Relu"] if relu else ["BiasAdd"])


@slow
def test_sums_that_onednn_has_fused_onto_products(cache: pathlib.Path) -> None:
    """TensorFlow decides on oneDNN when it is imported: on if the processor has AVX512-VNNI or AMX, which few have that run this."""
    names = "test_recurrent_layers[SimpleRNN-1] test_operands_that_the_loop_only_rearranges_and_converts".split()
    environment = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": "1", "STITCHFLEET_TEST_CACHE": str(cache)}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        *(f"{__file__}::{name}" for name in names),
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert "3 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("taken", [True, False])
def test_a_loop_in_a_branch(plugin: Plugin, taken: bool) -> None:
    import tensorflow as tf

    x, w, chosen = values(6, 3, 6), values(6, 5), tf.constant(taken)

    def step() -> Any:
        return tf.cond(
            chosen, lambda: loop_over(tf.sin(x), w, lambda s, p, t: tf.tanh(s * 0.5 + p)), lambda: tf.zeros([3, 5])
        )

    close(plugin, step, hoisted=1)
    assert len(plugin.loops) == 1, plugin.staying_loops


def test_a_product_that_tensorflow_would_not_make_stays(plugin: Plugin) -> None:
    x, w = values(6, 3, 6), values(6, 5)
    plugin.library.refusal_of_operator = lambda node: "no" if b"StitchfleetRowsProduct" in node else ""
    try:
        close(plugin, lambda: loop_over(x, w, lambda s, p, t: s * 0.5 + p * 2.0), hoisted=0)
    finally:
        del plugin.library.refusal_of_operator
