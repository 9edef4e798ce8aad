"""On NaN, zeros of both signs, infinities, numbers beyond an integer's range and shifts beyond its width the compiled body is
TensorFlow's operator."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from stitchfleet.compiler.hlo.importer import import_hlo_proto
from stitchfleet.compiler.ops.interpreter import evaluate
from stitchfleet.plugin.graph import to_hlo
from stitchfleet.plugin.graph.to_hlo import Argument

from ..conftest import Plugin

NAN, INF = float("nan"), float("inf")
LARGEST = float(np.finfo(np.float32).max)
ROWS = np.array(
    [
        [1, 2, NAN, 4, NAN, 3, 0, -1],
        [NAN] * 8,
        [1, 5, 2, 5, 1, 0, -0.0, 5],
        [-INF] * 8,
        [INF] * 8,
        [NAN, -INF, NAN, -LARGEST, -INF, NAN, NAN, NAN],
        [NAN, INF, NAN, LARGEST, INF, NAN, NAN, NAN],
        [0.0, -0.0, 0.0, -0.0, NAN, 0.0, 0.0, -0.0],
    ],
    np.float32,
)
GRADIENTS = np.array([1, -2, 0, -0.0, NAN, INF, -INF, 3], np.float32)
VALUES = np.array([0, -0.0, NAN, 1, -1, INF, 6, 7], np.float32)
PAIRS = [np.ascontiguousarray(x, np.float32) for x in np.meshgrid(GRADIENTS, VALUES)]
SUMS = np.array(
    [
        [3e38, 3e38, -3e38, -3e38, 1, 2, 3, 4],  # infinite on the way, and in order that is the result
        [1, NAN, 2, 3, -1, INF, 2, 1],
        [INF, 1, -INF, 2, 3, 4, -0.0, 0.0],
        [-0.0, -0.0, 1e-30, 1e-30, 1e30, 1e30, 1e30, 1],
    ],
    np.float32,
)
MAGNITUDES = [
    0.0,
    1e-38,
    1e-30,
    1e-8,
    1e-4,
    0.1,
    0.5,
    0.9,
    1.0,
    1.1,
    2.0,
    3.0,
    3.7,
    3.9,
    4.5,
    5.5,
    9.0,
    10.0,
    15.0,
    16.0,
    17.0,
    40.0,
    86.0,
]
MAGNITUDES += [88.0, 90.0, 104.0, 1e4, 1e10, 1e20, 1e30, 1e38, INF]
WIDE = np.array(
    [*MAGNITUDES, *(-x for x in MAGNITUDES), NAN, LARGEST, -LARGEST, 1e-45, -1e-45, 6.0], np.float32
).reshape(10, 7)
BEYOND = np.array(
    [[NAN, 1e20, -1e20, INF, -INF, 3e9, -3e9, -1.5], [2147483520, -2147483648, 0.5, -0.5, 7.9, NAN, -0.0, 9e18]]
)


def raw(op: str, **fixed: Any) -> Callable[..., Any]:
    """A raw operator as a function of its tensors, by the names that it has for them."""
    import tensorflow as tf

    return partial(getattr(tf.raw_ops, op), **fixed)


def gradient_of(op: str, first: str, second: str) -> Callable[[Any, Any], Any]:
    """Of the incoming gradient and the features, outputs or roots."""
    return lambda gradients, values: raw(op)(**{first: gradients, second: values})


CHANNELS = np.repeat(np.where(np.abs(ROWS) == LARGEST, 9, ROWS).reshape(1, 8, 8, 1), 16, axis=3)
WHOLE = np.tile([-1, 1], 512).reshape(1, 16, 64).swapaxes(1, 2).reshape(1, 8, 8, 16)
MISSING = np.where(np.arange(16) % 3 == 0, np.nan, WHOLE).astype(np.float32)


def normalized(x: Any, is_training: bool = False) -> Any:
    """TensorFlow, if oneDNN is on, has a kernel for this and a Relu of it, which hides NaN if the channels fill vectors."""
    import tensorflow as tf

    given, zeros = np.linspace(0.5, 2.0, x.shape[-1], dtype=np.float32), np.zeros(x.shape[-1], np.float32)
    moments = {} if is_training else {"mean": zeros, "variance": given}
    return tf.compat.v1.nn.fused_batch_norm(x, given, zeros, **moments, is_training=is_training)[0]


def pooled(x: Any) -> Any:
    import tensorflow as tf

    return tf.nn.max_pool2d(tf.nn.relu(x), (1, 2), (1, 2), "VALID")


def pooling_gradient(x: Any, gradients: Any, size: int, stride: int) -> Any:
    import tensorflow as tf

    y = tf.nn.max_pool2d(x, size, stride, "VALID")
    window = {"ksize": [1, size, size, 1], "strides": [1, stride, stride, 1], "padding": "VALID"}
    return tf.raw_ops.MaxPoolGrad(orig_input=x, orig_output=y, grad=gradients, **window)


def gradient_of_first_largest(
    x: np.ndarray[Any, Any], gradients: np.ndarray[Any, Any], size: int, stride: int
) -> np.ndarray[Any, Any]:
    """The gradient of a pooling whose windows do not leave the image: to the first of a window's largest elements."""
    result = np.zeros_like(x)
    known = np.where(x > np.finfo(x.dtype).min, x, np.finfo(x.dtype).min)  # a NaN is never the largest
    for b, i, j, c in np.ndindex(gradients.shape):
        window = known[b, stride * i : stride * i + size, stride * j : stride * j + size, c]
        at = np.unravel_index(np.argmax(window), window.shape)
        result[b, stride * i + at[0], stride * j + at[1], c] += gradients[b, i, j, c]
    return result


def cases() -> dict[str, tuple[Callable[..., Any], list[np.ndarray[Any, Any]]]]:
    import tensorflow as tf

    return {
        "ReluGrad": (gradient_of("ReluGrad", "gradients", "features"), PAIRS),
        "Relu6Grad": (gradient_of("Relu6Grad", "gradients", "features"), PAIRS),
        "EluGrad": (gradient_of("EluGrad", "gradients", "outputs"), PAIRS),
        "SeluGrad": (gradient_of("SeluGrad", "gradients", "outputs"), PAIRS),
        "SqrtGrad": (gradient_of("SqrtGrad", "dy", "y"), PAIRS),
        "RsqrtGrad": (gradient_of("RsqrtGrad", "dy", "y"), PAIRS),
        "ReciprocalGrad": (gradient_of("ReciprocalGrad", "dy", "y"), PAIRS),
        "ArgMax of a row": (lambda x: tf.argmax(x, 1), [ROWS]),
        "ArgMin of a row": (lambda x: tf.argmin(x, 1), [ROWS]),
        "ArgMax of a column": (lambda x: tf.argmax(x, 0), [ROWS]),
        "Cast to int32": (lambda x: tf.cast(x, tf.int32), [BEYOND.astype(np.float32)]),
        "Cast to int64": (lambda x: tf.cast(x, tf.int64), [BEYOND.astype(np.float32)]),
        "Cast of float64": (lambda x: tf.cast(x, tf.int32), [BEYOND]),
        "Cast of what was clipped": (
            lambda x: tf.cast(tf.clip_by_value(x, -5.0, 5.0), tf.int32),
            [BEYOND.astype(np.float32)],
        ),
        "Sign": (tf.sign, [ROWS]),
        "Maximum": (tf.maximum, PAIRS),
        "Minimum": (tf.minimum, PAIRS),
        "Softmax": (tf.nn.softmax, [ROWS]),
        "Erf": (tf.math.erf, [WIDE]),
        "Erfc": (tf.math.erfc, [WIDE]),
        "Gelu": (lambda x: tf.nn.gelu(x, approximate=False), [WIDE]),
        "Gelu by tanh": (lambda x: tf.nn.gelu(x, approximate=True), [WIDE]),
        "Softplus": (tf.math.softplus, [WIDE]),
        "MaxPool": (lambda x: tf.nn.max_pool2d(x, 2, 2, "VALID"), [ROWS.reshape(1, 8, 8, 1)]),
        "MaxPool of windows that overlap": (
            lambda x: tf.nn.max_pool2d(x, 3, 1, "SAME"),
            [np.repeat(ROWS.T.reshape(1, 8, 8, 1), 16, axis=3)],
        ),
        "MaxPool of float64": (
            lambda x: tf.nn.max_pool2d(x, 3, 1, "SAME"),
            [ROWS.astype(np.float64).reshape(2, 4, 8, 1)],
        ),
        "Relu of a normalization": (lambda x: tf.nn.relu(normalized(x)), [CHANNELS]),
        "MaxPool of a normalization's Relu": (lambda x: pooled(normalized(x)), [CHANNELS]),
        "of 12 channels": (lambda x: pooled(normalized(x)), [CHANNELS[..., :12]]),
        "in training": (lambda x: pooled(normalized(x, is_training=True)), [MISSING]),
        "in training, of 12 channels": (lambda x: pooled(normalized(x, is_training=True)), [MISSING[..., :12]]),
        "MaxPoolGrad": (
            partial(pooling_gradient, size=2, stride=2),
            [CHANNELS, np.arange(256, dtype=np.float32).reshape(1, 4, 4, 16)],
        ),
        "MaxPoolGrad of windows that overlap": (
            partial(pooling_gradient, size=3, stride=2),
            [CHANNELS, np.arange(144, dtype=np.float32).reshape(1, 3, 3, 16)],
        ),
        "UnsortedSegmentSum": (lambda x: tf.math.unsorted_segment_sum(x, [0, 2, 2, 0, 4, 4, 0, 2], 5), [ROWS]),
        "Cumsum": (lambda x: tf.cumsum(x, 1), [SUMS]),
        "Cumsum from the end": (lambda x: tf.cumsum(x, 0, reverse=True, exclusive=True), [SUMS]),
        "Cumprod": (lambda x: tf.math.cumprod(x, 1), [SUMS]),
    }


POOLED_NORMALIZATIONS = (
    *("MaxPool of a normalization's Relu", "of 12 channels", "in training", "in training, of 12 channels"),
)
NAMES = (
    *("ReluGrad", "Relu6Grad", "EluGrad", "SeluGrad", "SqrtGrad", "RsqrtGrad", "ReciprocalGrad", "ArgMax of a row"),
    *("ArgMin of a row", "ArgMax of a column", "Cast to int32"),
    *("Cast to int64", "Cast of float64", "Cast of what was clipped", "Sign"),
    *("Maximum", "Minimum", "Softmax", "Erf", "Erfc", "Gelu", "Gelu by tanh", "Softplus"),
    *("Cumsum", "Cumsum from the end", "Cumprod"),
    *("MaxPool", "MaxPool of windows that overlap", "MaxPool of float64", "UnsortedSegmentSum"),
    *("Relu of a normalization", *POOLED_NORMALIZATIONS, "MaxPoolGrad", "MaxPoolGrad of windows that overlap"),
)


def softmax(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    powers = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    return (powers / powers.sum(axis=1, keepdims=True)).astype(np.float32)


DOCUMENTED: dict[str, Callable[..., np.ndarray[Any, Any]]] = {
    "Softmax": softmax,
    "MaxPoolGrad": partial(gradient_of_first_largest, size=2, stride=2),
    "MaxPoolGrad of windows that overlap": partial(gradient_of_first_largest, size=3, stride=2),
    "RsqrtGrad": lambda gradients, y: np.where(gradients == 0, 0, gradients * np.float32(-0.5) * y**3),
}
"""Rows on which the CPU kernel's result depends on an element's position (NaN in a row, the sign of a gradient at y = 0; without
oneDNN, a NaN at a window's beginning).
The documented formula holds (rare_data.py)."""
EITHER_ZERO = (
    *("MaxPool", "MaxPool of windows that overlap", "MaxPool of float64"),
    *("Relu of a normalization", *POOLED_NORMALIZATIONS),
)
"""Of a window's two zeros TensorFlow takes another one from size to size."""
RELATIVE = {"Erfc": 6e-7}
"""Relative error: 1 - erf(x) cancels up to x = 1, and in the tail erfc is an exponential times a polynomial."""
SATURATED = 6.0
"""From here on 1 + erf(x / sqrt 2), and tanh's form of it, is 0 or 2 exactly. Before, it is rounded at 1, not at its own size."""
ROUNDED_AT_ONE = ("Gelu", "Gelu by tanh")


def flushed(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Without subnormals, as TensorFlow's threads compute, whose operator or kernel it may be; the interpreter keeps them."""
    if x.dtype.kind != "f":
        return x
    return np.where(np.abs(x) < np.finfo(x.dtype).tiny, np.copysign(np.zeros((), x.dtype), x), x)


def bodys_result(plugin: Plugin, compute: Callable[..., Any], operands: list[np.ndarray[Any, Any]]) -> Any:
    """What the compiled body of `compute`'s stitch op makes of the operands: its HLO, interpreted."""
    import tensorflow as tf

    def step(*given: Any) -> Any:
        other = tf.tanh(given[0]) * 2.0 if given[0].dtype.is_floating else given[0] * given[0] - 7
        return compute(*given), other  # with a second operator it is worth a cluster

    while plugin.library.next_request(0) is not None:
        pass  # of the tests before
    plugin.active, plugin.clusters = True, []
    try:
        tf.function(step, autograph=False)(*map(tf.constant, operands))
    finally:
        plugin.active = False
    request: Any = plugin.library.next_request(0)
    (cluster,) = [cluster for cluster in plugin.clusters if cluster.name == request["cluster"]]
    arguments = [Argument.from_json(described) for described in request["inputs"]]
    graph = import_hlo_proto(to_hlo.lower(cluster.body, arguments)).graph
    given: list[np.ndarray[Any, Any]] = []
    for parameter in graph.parameters:  # arguments come in the graph's own order
        node = graph.nodes[parameter]
        fitting = [x for x in operands if x.shape == node.shape and x.dtype == node.dtype.numpy]
        given.append(fitting[len(given) if len(fitting) > 1 else 0])
    with np.errstate(all="ignore"):
        found = [
            evaluate(graph, order)
            for order in ((given, given[::-1]) if given[0].shape == given[-1].shape else (given,))
        ]
    expected = tf.function(compute, autograph=False)(*map(tf.constant, operands)).numpy()
    alike = [r for results in found for r in results if r.shape == expected.shape and r.dtype == expected.dtype]
    # Which output it is, and which operand is which argument, the body alone knows: the one that fits best.
    return expected, min(alike, key=lambda r: np.sum((r != expected) & ~((r != r) & (expected != expected))))


@pytest.mark.parametrize("name", NAMES)
def test_the_body_is_tensorflows_operator(name: str, plugin: Plugin) -> None:
    compute, operands = cases()[name]
    expected, result = bodys_result(plugin, compute, operands)
    if name in DOCUMENTED:
        with np.errstate(all="ignore"):
            expected = DOCUMENTED[name](*operands)
    expected, result = flushed(expected), flushed(result)
    relative = RELATIVE.get(name, 3e-7)
    if name in ROUNDED_AT_ONE:
        x = operands[0]
        before = np.abs(x) < SATURATED
        assert np.all(np.abs(result[before] - expected[before]) <= 2.0**-22 * np.abs(x[before]))
        expected, result = expected[~before], result[~before]
    np.testing.assert_allclose(result, expected, rtol=relative, atol=0)  # and NaN at the same places
    if expected.dtype.kind == "f" and name not in EITHER_ZERO:
        zero = expected == 0
        np.testing.assert_array_equal(np.signbit(result[zero]), np.signbit(expected[zero]))


def integers_of(x: np.ndarray[Any, Any], info: Any) -> np.ndarray[Any, Any]:
    """The table's casts of float64 to integers of 8 or 16 bits or without a sign."""
    if info.bits > 16:
        inside = (x > -(2.0 ** (info.bits - 1))) & (x < 2.0**info.bits)
        found = [int(number) % 2**info.bits if fits else 2 ** (info.bits - 1) for number, fits in zip(x, inside)]
        return np.array(found, np.uint64)
    return np.clip(np.where(np.abs(x) < 2.0**31, x, -(2.0**31)), info.min, info.max).astype(np.int64)


@pytest.mark.parametrize("source", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("target", ["int8", "uint8", "int16", "uint16", "uint32", "uint64"])
def test_a_cast_is_tensorflows_where_that_is_defined_and_else_the_tables(
    target: str, source: str, plugin: Plugin
) -> None:
    """Where TensorFlow's result does not depend on the position, it is that."""
    import tensorflow as tf

    info = np.iinfo(target)
    edges = [end + step for end in (info.min, info.max) for step in (-1.0, -0.5, 0.0, 0.5, 1.0)]
    numbers = np.array([*BEYOND.flat, *edges, 300.7, -300.7, 5e9, -5e9, 1.8e19])
    with np.errstate(all="ignore"):
        x = np.tile(numbers[:, np.newaxis], 79).astype(tf.as_dtype(source).as_numpy_dtype)  # a vector and more
    expected, result = bodys_result(plugin, lambda x: tf.cast(x, target), [x])
    everywhere = np.array([tf.cast(row, target).numpy() for row in x])
    is_one = np.all(everywhere == everywhere[:, :1], axis=1)
    wide = x[:, 0].astype(np.float64)
    np.testing.assert_array_equal(result, np.tile(integers_of(wide, info).astype(target)[:, np.newaxis], 79))
    np.testing.assert_array_equal(result[is_one], expected[is_one])
    with np.errstate(all="ignore"):
        assert is_one[(np.trunc(wide) >= info.min) & (np.trunc(wide) <= info.max)].all()


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_a_shift_by_a_tensor_of_amounts_is_tensorflows(dtype: str, plugin: Plugin) -> None:
    import tensorflow as tf

    info = np.iinfo(dtype)
    negative = (-1, -info.bits, info.min) if info.min else ()
    amounts = np.array([0, 1, info.bits - 1, info.bits, info.max, *negative], dtype)
    numbers = np.array([info.min, info.max, 3, info.max // 3, info.min // 3], dtype)
    operands = [np.ascontiguousarray(x) for x in np.meshgrid(numbers, amounts)]
    for shift in (tf.bitwise.left_shift, tf.bitwise.right_shift):
        expected, result = bodys_result(plugin, shift, operands)
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("op", ["max", "min"])
def test_a_segment_with_a_nan_is_nan_in_whatever_order_its_rows_come(op: str, plugin: Plugin) -> None:
    """TensorFlow's kernel begins anew after each NaN: its own result depends on the order."""
    import tensorflow as tf

    segments = tf.math.unsorted_segment_max if op == "max" else tf.math.unsorted_segment_min
    extreme = np.max if op == "max" else np.min
    for ids in ([0, 1, 1, 0, 2, 1, 0, 3], [3, 0, 1, 2, 0, 1, 1, 0]):
        _, result = bodys_result(plugin, lambda x, ids=ids: segments(x, ids, 4), [ROWS])
        for segment in range(4):
            expected = extreme(ROWS[np.array(ids) == segment], axis=0)
            np.testing.assert_array_equal(np.isnan(result[segment]), np.isnan(expected))


def test_running_sums_are_part_of_a_cluster(plugin: Plugin) -> None:
    import tensorflow as tf

    for x in (tf.constant(SUMS), tf.constant(np.arange(24, dtype=np.int32).reshape(4, 6))):
        plain, stitched = plugin.both(lambda x=x: tf.cumsum(x * 2, 1) * 2 + x)
        np.testing.assert_array_equal(plain[0], stitched[0])
        assert plugin.graph is not None
        members = {i for cluster in plugin.clusters for i in cluster.members}
        assert [node.op for node in plugin.graph.nodes if node.op == "Cumsum" and node.index in members]
