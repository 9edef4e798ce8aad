"""Batches of matrix products by the faster one of two kernels: which have a second one, and the same numbers from both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tensorflow.core.framework import attr_value_pb2

from stitchfleet.plugin.graph import batch_products
from stitchfleet.plugin.graph.batch_products import BATCH_PRODUCT_OP, SUM_OF_PRODUCTS_OP, give_second_kernels
from stitchfleet.plugin.graph.einsums import EINSUM_OP

from ..conftest import Plugin
from .agreement import CALLS, assert_rounding_alone, values

ROUNDING = 2e-6
"""Relative to the largest number: sums of up to some hundreds of products, in another order."""


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_products, "LEAST_OPERATIONS", 0)


def replaced(plugin: Plugin) -> list[str]:
    """The ops of ours in the last rewritten graph."""
    assert plugin.rewritten is not None
    return sorted(node.op for node in plugin.rewritten.node if node.op in (BATCH_PRODUCT_OP, SUM_OF_PRODUCTS_OP))


def gradients(plugin: Plugin, x: Any, w: Any, times: int = CALLS, **named: Any) -> None:
    """A product and its gradients with respect to both operands, plain and stitched, call by call; asserts that they agree."""
    import tensorflow as tf

    def step() -> Any:
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            y = tf.linalg.matmul(tf.tanh(x) * 0.5 + x, w, **named)
            loss = tf.reduce_sum(tf.sin(y) * y)
        return [y, *tape.gradient(loss, [x, w])]

    expected, actual = plugin.both(step, times=times)
    assert len(plugin.clusters) > 0
    assert_rounding_alone(expected, actual, ROUNDING)


@pytest.mark.parametrize(
    ("x", "w", "named", "expected"),
    [
        ((4, 9, 16), (16, 24), {}, [SUM_OF_PRODUCTS_OP, BATCH_PRODUCT_OP, BATCH_PRODUCT_OP]),
        ((4, 9, 16), (24, 16), {"transpose_b": True}, [SUM_OF_PRODUCTS_OP, BATCH_PRODUCT_OP, BATCH_PRODUCT_OP]),
        ((3, 4, 9, 16), (16, 24), {}, [SUM_OF_PRODUCTS_OP, BATCH_PRODUCT_OP, BATCH_PRODUCT_OP]),
        (
            (3, 4, 9, 16),
            (1, 16, 24),
            {},
            [SUM_OF_PRODUCTS_OP, BATCH_PRODUCT_OP, BATCH_PRODUCT_OP],
        ),
        ((3, 4, 9, 16), (4, 16, 24), {}, []),  # a W for each of four
        ((4, 9, 16), (4, 16, 24), {}, []),
        ((4, 16, 9), (16, 24), {"transpose_a": True}, []),  # its rows are columns
        ((9, 16), (4, 16, 24), {}, []),
    ],
)
def test_batches_that_one_product_computes(
    plugin: Plugin,
    capfd: pytest.CaptureFixture[str],
    x: tuple[int, ...],
    w: tuple[int, ...],
    named: dict[str, bool],
    expected: list[str],
) -> None:
    gradients(plugin, values(*x), values(*w), **named)
    assert replaced(plugin) == sorted(expected)
    assert "its own" not in capfd.readouterr().err, "the second kernel was refused"


def test_a_product_that_is_added_up_and_fetched_stays(plugin: Plugin) -> None:
    import tensorflow as tf

    x, y = values(4, 9, 16), values(4, 9, 24)

    def step(fetched: bool) -> Any:
        products = tf.linalg.matmul(tf.tanh(x) * 0.5 + x, y, transpose_a=True)
        total = tf.reduce_sum(products, -3)
        return (total, products * 2.0) if fetched else (total,)

    plugin.both(lambda: step(False), times=CALLS)
    assert replaced(plugin) == [SUM_OF_PRODUCTS_OP]
    assert "BatchMatMulV2" not in {node.op for node in plugin.rewritten.node}
    plugin.both(lambda: step(True), times=CALLS)
    assert replaced(plugin) == []


@pytest.mark.parametrize(
    ("axes", "keepdims"), [((0,), False), ((0, 1), True), ((1,), False), ((0, 1, 2), False), ((1, 0), False)]
)
def test_other_sums_of_products_stay(plugin: Plugin, axes: tuple[int, ...], keepdims: bool) -> None:
    import tensorflow as tf

    x, y = values(3, 4, 9, 16), values(3, 4, 9, 24)

    def step() -> Any:
        products = tf.linalg.matmul(tf.tanh(x) * 0.5 + x, y, transpose_a=True)
        return [tf.raw_ops.Sum(input=products, axis=list(axes), keep_dims=keepdims)]

    expected, actual = plugin.both(step, times=3)
    assert replaced(plugin) == []
    np.testing.assert_allclose(actual[-1][0], expected[-1][0], rtol=1e-4, atol=1e-4)


def test_products_of_doubles(plugin: Plugin, capfd: pytest.CaptureFixture[str]) -> None:
    gradients(plugin, values(4, 9, 16, dtype="float64"), values(16, 24, dtype="float64"))
    assert len(replaced(plugin)) == 3
    assert "its own" not in capfd.readouterr().err, "the second kernel was refused"


def test_products_of_bf16(plugin: Plugin, capfd: pytest.CaptureFixture[str]) -> None:
    """With oneDNN both kernels add up in float32, and agree to the rounding of the parts. Without it, the own kernel stays."""
    import tensorflow as tf

    x, w = (tf.cast(values(*shape), tf.bfloat16) for shape in ((4, 9, 160), (160, 24)))

    def step() -> Any:
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            y = tf.linalg.matmul(tf.tanh(x) * 0.5 + x, w)
            loss = tf.reduce_sum(tf.cast(y, tf.float32) * 2.0)
        return [tf.cast(each, tf.float32) for each in (y, *tape.gradient(loss, [x, w]))]

    expected, actual = plugin.both(step, times=CALLS)
    assert len(replaced(plugin)) == 3
    assert_rounding_alone(expected, actual, 2.0**-6)
    assert "its own" not in capfd.readouterr().err, "the second kernel was refused"


@pytest.mark.parametrize("change", ["none", "half", "memory-bound", "on a GPU", "unknown rank", "small", "refused"])
def test_other_products_stay(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorflow.core.framework import graph_pb2

    monkeypatch.setattr(batch_products, "LEAST_OPERATIONS", 4 * 9 * 16 * 24)
    graph: Any = graph_pb2.GraphDef()
    for name in ("x", "w"):
        graph.node.add(name=name, op="Placeholder")
    node = graph.node.add(name="y", op="BatchMatMulV2", input=["x", "w"])
    node.device = f"/device:{'GPU' if change == 'on a GPU' else 'CPU'}:0"
    node.attr["T"].type = 19 if change == "half" else 1
    node.attr["adj_x"].b = node.attr["adj_y"].b = False
    if change == "memory-bound":
        node.attr["_stitchfleet_memory_bound"].b = True
    before = node.SerializeToString(deterministic=True)
    first = None if change == "unknown rank" else (3 if change == "small" else 4, 9, 16)
    reason = "no" if change == "refused" else ""
    count = give_second_kernels(graph, lambda node: reason, lambda names: {"y": [first, (16, 24)]}, ())
    assert count == (change == "none")
    assert (graph.node[2].SerializeToString(deterministic=True) == before) == (change != "none")


def test_sequences_of_any_number_and_length(plugin: Plugin) -> None:
    import tensorflow as tf

    x, w = tf.Variable(values(4, 16, 6), shape=[None, None, 6]), values(6, 20)

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            h = tf.tanh(x.read_value())
            tape.watch([h, w])
            y = tf.linalg.matmul(h, w)
            loss = tf.reduce_sum(tf.sin(y) * y)
        return tape.gradient(loss, [h, w])

    found: list[list[Any]] = []
    for plugin.active in (False, True):
        found.append([])
        for examples, length in (
            (4, 16),
            (0, 16),
            (3, 0),
            *((n % 7 + 1, n) for n in range(1, 40)),
        ):  # more than the op keeps
            x.assign(values(examples, length, 6))
            found[-1] += [each.numpy() for each in step()]
        step = tf.function(step.python_function)
    plugin.active = False
    assert BATCH_PRODUCT_OP in replaced(plugin)
    for own, mine in zip(*found, strict=True):
        np.testing.assert_allclose(mine, own, rtol=0, atol=ROUNDING * np.max(np.abs(own), initial=1))


def test_the_same_error_for_tensors_that_do_not_fit(plugin: Plugin) -> None:
    import tensorflow as tf

    x, w = tf.Variable(values(4, 9, 16), shape=[None, 9, None]), values(16, 24)

    def step() -> Any:
        return tf.linalg.matmul(tf.tanh(x.read_value()) * 0.5, w)

    plugin.both(step)
    assert replaced(plugin) == [BATCH_PRODUCT_OP]
    x.assign(values(4, 9, 15))
    messages = []
    for active in (False, True):
        plugin.active = active
        with pytest.raises(tf.errors.OpError) as caught:
            tf.function(step)()
        messages.append(caught.value.message.partition("[[")[0])
    plugin.active = False
    assert messages[0] == messages[1]


@pytest.mark.parametrize("op", [BATCH_PRODUCT_OP, SUM_OF_PRODUCTS_OP, EINSUM_OP])
def test_a_kernel_that_differs_by_more_than_rounding_is_not_taken(
    plugin: Plugin, capfd: pytest.CaptureFixture[str], op: str
) -> None:
    """The op is told another own operator than the one that its second kernel computes."""
    import tensorflow as tf
    from tensorflow.core.framework import node_def_pb2

    def own(kind: str, **attributes: Any) -> Any:
        node = node_def_pb2.NodeDef(name="own", op=kind)
        node.attr["T"].type = 1
        for key, value in attributes.items():
            node.attr[key].CopyFrom(value if isinstance(value, attr_value_pb2.AttrValue) else attribute(value))
        return attribute(node.SerializeToString())

    x, y, square = values(4, 9, 16), values(4, 9, 16) * 0.5, values(16, 16)
    if op == BATCH_PRODUCT_OP:
        operands, expected = [x, square], tf.linalg.matmul(x, square, transpose_b=True)
        attributes = {"adj_x": False, "adj_y": False, "product": own("BatchMatMulV2", adj_x=False, adj_y=True)}
    elif op == SUM_OF_PRODUCTS_OP:
        operands = [x, y, tf.constant([0])]
        expected = tf.reduce_mean(tf.linalg.matmul(x, y, transpose_a=True), 0)
        mean = own("Mean", Tidx=attr_value_pb2.AttrValue(type=3), keep_dims=False)
        attributes = {"product": own("BatchMatMulV2", adj_x=True, adj_y=False), "sum": mean}
    else:
        operands, expected = [x, y, x * 2.0, y], tf.einsum("btk,bsk->bts", x, y)
        einsum = own("Einsum", equation=b"btk,bsk->bts", N=2)
        attributes = {"adj_x": False, "adj_y": True, "einsum": einsum, "permutation": [0, 1, 2]}

    @tf.function
    def step() -> Any:
        defs = {
            key: value if not isinstance(value, (bool, list)) else attribute(value) for key, value in attributes.items()
        }
        defs["T"] = attr_value_pb2.AttrValue(type=1)
        graph = tf.compat.v1.get_default_graph()
        inputs = [tf.convert_to_tensor(operand) for operand in operands]
        return graph.create_op(op, inputs, [tf.float32], name="another", attrs=defs).outputs[0]

    for _ in range(CALLS):
        np.testing.assert_allclose(step(), expected, rtol=0, atol=ROUNDING * np.max(np.abs(expected)))
    assert capfd.readouterr().err.count("by another kernel") == 1


def attribute(value: Any) -> Any:
    """An attribute's value, of a flag, a number, bytes or numbers."""
    if isinstance(value, bool):
        return attr_value_pb2.AttrValue(b=value)
    if isinstance(value, int):
        return attr_value_pb2.AttrValue(i=value)
    if isinstance(value, bytes):
        return attr_value_pb2.AttrValue(s=value)
    made = attr_value_pb2.AttrValue()
    made.list.i.extend(value)
    return made
