"""The gradients of convolutions by the faster one of two kernels: which have a second one, and the same numbers from both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stitchfleet.plugin.graph.convolution_gradients import give_second_kernels

from ...marks import slow
from ..conftest import Plugin
from .agreement import CALLS, assert_rounding_alone, values

INPUT, FILTER = "StitchfleetConv2DBackpropInput", "StitchfleetConv2DBackpropFilter"
ROUNDING = 1e-6
"""Relative to the largest number: sums of up to some hundreds of products, in another order."""


def replaced(plugin: Plugin) -> dict[str, str]:
    """Op -> how its second kernel computes it, of the last rewritten graph."""
    assert plugin.rewritten is not None
    return {
        node.op: node.attr["stitchfleet_by"].s.decode() for node in plugin.rewritten.node if node.op in (INPUT, FILTER)
    }


def gradients(plugin: Plugin, x: Any, w: Any, strides: Any, padding: Any, **others: Any) -> list[Any]:
    """The gradients of a convolution with respect to input and filter, plain and stitched, call by call; asserts that they agree."""
    import tensorflow as tf

    def step() -> Any:
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            y = tf.nn.conv2d(tf.tanh(x) * 0.5 + x, w, strides, padding, **others)
            loss = tf.reduce_sum(tf.sin(y) * y)
        return tape.gradient(loss, [x, w])

    expected, actual = plugin.both(step, times=CALLS)
    assert len(plugin.clusters) > 0
    assert_rounding_alone(expected, actual, ROUNDING)
    return actual


@pytest.mark.parametrize(
    ("taps", "strides", "padding", "expected"),
    [
        ((1, 1), 1, "SAME", {INPUT: "product", FILTER: "product"}),
        ((1, 1), 2, "VALID", {INPUT: "product", FILTER: "product"}),
        slow((1, 1), (3, 2), "SAME", {INPUT: "product", FILTER: "product"}),
        ((3, 3), 1, "SAME", {INPUT: "convolution"}),
        slow((2, 4), 1, "SAME", {INPUT: "convolution"}),
        slow((3, 2), 1, "VALID", {INPUT: "convolution"}),
        ((3, 4), 1, [[0, 0], [2, 0], [1, 3], [0, 0]], {INPUT: "convolution"}),
        ((3, 3), 1, [[0, 0], [3, 0], [0, 0], [0, 0]], {}),
        slow((1, 1), 1, [[0, 0], [0, 0], [0, 1], [0, 0]], {}),
        ((3, 3), 2, "SAME", {}),
    ],
)
def test_gradients_that_two_kernels_compute(
    plugin: Plugin,
    capfd: pytest.CaptureFixture[str],
    taps: tuple[int, int],
    strides: int,
    padding: Any,
    expected: dict[str, str],
) -> None:
    gradients(plugin, values(3, 7, 10, 6), values(*taps, 6, 20), strides, padding)
    assert replaced(plugin) == expected
    assert "its own" not in capfd.readouterr().err, "the second kernel was refused"


def test_gradients_of_doubles(plugin: Plugin, capfd: pytest.CaptureFixture[str]) -> None:
    gradients(plugin, values(2, 9, 9, 6, dtype="float64"), values(3, 3, 6, 20, dtype="float64"), 1, "SAME")
    assert replaced(plugin) == {INPUT: "convolution"}
    assert "its own" not in capfd.readouterr().err, "the second kernel was refused"


@pytest.mark.parametrize("change", ["none", "half", "dilated", "NCHW", "on a GPU", "unknown filter"])
def test_gradients_of_other_convolutions_stay(change: str) -> None:
    from tensorflow.core.framework import graph_pb2

    graph: Any = graph_pb2.GraphDef()
    node = graph.node.add(name="dx", op="Conv2DBackpropInput", input=["sizes", "w", "dy"])
    node.device = f"/device:{'GPU' if change == 'on a GPU' else 'CPU'}:0"
    node.attr["T"].type = 19 if change == "half" else 1
    node.attr["padding"].s = b"SAME"
    node.attr["strides"].list.i.extend((1, 1, 1, 1))
    if change == "dilated":
        node.attr["dilations"].list.i.extend((1, 2, 2, 1))
    if change == "NCHW":
        node.attr["data_format"].s = b"NCHW"
    before = node.SerializeToString(deterministic=True)
    filter_shape = (-1, 3, 6, 20) if change == "unknown filter" else (3, 3, 6, 20)
    count = give_second_kernels(graph, lambda node: "", lambda names: {"dx": [(4,), filter_shape, (2, 9, 9, 20)]})
    assert count == (change == "none")
    assert (node.SerializeToString(deterministic=True) == before) == (change != "none")


def test_gradients_of_a_convolution_over_time_of_any_number_of_examples(plugin: Plugin) -> None:
    """Keras' Conv1D is a convolution of height 1."""
    import tensorflow as tf

    x, w = tf.Variable(values(4, 16, 6), shape=[None, 16, 6]), values(3, 6, 20)

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            h = tf.tanh(x.read_value())
            tape.watch([h, w])
            y = tf.nn.conv1d(h, w, 1, "SAME")
            loss = tf.reduce_sum(tf.sin(y) * y)
        return tape.gradient(loss, [h, w])

    found: list[list[Any]] = []
    for plugin.active in (False, True):
        found.append([])
        for examples in (4, 0, 3, *range(1, 40)):  # more shapes than the op keeps
            x.assign(values(examples, 16, 6))
            found[-1] += [each.numpy() for each in step()]
        step = tf.function(step.python_function)
    plugin.active = False
    assert replaced(plugin) == {INPUT: "convolution"}
    for own, mine in zip(*found, strict=True):
        np.testing.assert_allclose(mine, own, rtol=0, atol=ROUNDING * np.max(np.abs(own), initial=1))


def test_the_gradient_of_a_bias_has_the_same_bits_for_any_number_of_examples(plugin: Plugin) -> None:
    """TensorFlow joins it with that of the filter, whose size is a constant that waits for the shape of the examples."""
    import tensorflow as tf

    w, a, v, b = (tf.Variable(values(*shape)) for shape in [(3, 3, 1, 16), (16,), (3, 3, 16, 1), (1,)])

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            h = tf.nn.bias_add(tf.nn.conv2d(x, w, 1, "SAME"), a)
            y = tf.nn.bias_add(tf.nn.conv2d(h, v, 1, "SAME"), b)
            loss = tf.reduce_mean(tf.square(x - y))
        return tape.gradient(loss, [w, a, v, b])

    found = []
    for plugin.active in (False, True):
        traced = tf.function(step, input_signature=[tf.TensorSpec([None, 16, 16, 1])])
        found.append([each.numpy() for each in traced(values(32, 16, 16, 1))])
    plugin.active = False
    assert len(plugin.clusters) > 0
    np.testing.assert_array_equal(found[0][3], found[1][3])


def test_the_same_error_for_tensors_that_do_not_fit(plugin: Plugin) -> None:
    import tensorflow as tf

    x, w, dy = values(2, 5, 5, 6), values(1, 1, 6, 20), tf.Variable(values(2, 5, 5, 20), shape=[None, None, None, 20])

    def step() -> Any:
        gradient = tf.tanh(dy.read_value()) * 0.5
        return tf.raw_ops.Conv2DBackpropInput(
            input_sizes=tf.shape(x), filter=w, out_backprop=gradient, strides=[1, 1, 1, 1], padding="SAME"
        )

    plugin.both(step)
    assert replaced(plugin) == {INPUT: "product"}
    dy.assign(values(2, 4, 5, 20))
    messages = []
    for active in (False, True):
        plugin.active = active
        with pytest.raises(tf.errors.OpError) as caught:
            tf.function(step)()
        messages.append(caught.value.message.partition("[[")[0])
    plugin.active = False
    assert messages[0] == messages[1]


def test_a_kernel_that_tensorflow_would_not_make(plugin: Plugin) -> None:
    plugin.library.refusal_of_operator = lambda node: "no" if b"StitchfleetConv2D" in node else ""
    try:
        gradients(plugin, values(3, 7, 10, 6), values(1, 1, 6, 20), 1, "SAME")
        assert replaced(plugin) == {}
    finally:
        del plugin.library.refusal_of_operator


def test_a_kernel_that_differs_by_more_than_rounding_is_not_taken(
    plugin: Plugin, capfd: pytest.CaptureFixture[str]
) -> None:
    """The op is told wrong paddings, with the right sum: the gradient is shifted."""
    import tensorflow as tf

    w, dy = values(3, 3, 6, 20), values(2, 8, 8, 20)
    attributes = {
        "T": 1,
        "strides": [1, 1, 1, 1],
        "padding": "SAME",
        "stitchfleet_by": "convolution",
        "stitchfleet_paddings": [2, 0, 1, 1],
    }

    @tf.function
    def step(name: str) -> Any:
        sizes = tf.constant([2, 8, 8, 6])
        if name == "Conv2DBackpropInput":
            return tf.raw_ops.Conv2DBackpropInput(
                input_sizes=sizes, filter=w, out_backprop=dy, strides=[1, 1, 1, 1], padding="SAME"
            )
        graph = tf.compat.v1.get_default_graph()
        operands = [tf.convert_to_tensor(operand) for operand in (sizes, w, dy)]
        defs = {key: attribute(value) for key, value in attributes.items()}
        return graph.create_op(name, operands, [tf.float32], name="shifted", attrs=defs).outputs[0]

    expected = step("Conv2DBackpropInput").numpy()
    for _ in range(CALLS):
        np.testing.assert_array_equal(step(INPUT).numpy(), expected)
    assert capfd.readouterr().err.count("by another kernel") == 1


def attribute(value: Any) -> Any:
    from tensorflow.core.framework import attr_value_pb2

    made: Any = attr_value_pb2.AttrValue()
    if isinstance(value, str):
        made.s = value.encode()
    elif isinstance(value, list):
        made.list.i.extend(value)
    else:
        made.type = value
    return made
