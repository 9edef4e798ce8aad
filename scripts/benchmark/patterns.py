"""The generated kernels that `scripts/bench --floors` measures, each with TensorFlow's operators that compute the same.

patterns    sums, maxima, broadcasts, transposes and running sums of tensors of three dimensions, over every choice of them
composites  what models make of these: normalizations, softmax and their gradients along each dimension, also of a transposed tensor
            and with a transposed result; sums of tensors in several orders; positions of maxima
rows        the same kinds along a last dimension of few elements, as many as a processor's vectors hold or not
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from stitchfleet.compiler.ir.graph import DType, Graph, GraphBuilder, Literal, WindowDimension
from stitchfleet.compiler.ops import table as ops

SHAPES: Final = ((64, 128, 128), (8, 16, 8192), (8192, 16, 8), (63, 65, 67), (16, 64, 64))
"""Shapes of the patterns: 4 MiB in three proportions, 1.1 MiB with odd extents, 256 KiB."""

COMPOSITE_SHAPES: Final = ((32, 128, 256), (16, 24, 24, 64), (63, 65, 67))
ROW_LENGTHS: Final = (3, 5, 8, 10, 12, 16, 21, 26, 31, 32, 40, 49, 50, 63, 64, 77, 96, 100, 128, 197)
ROW_ELEMENTS: Final = 1 << 18


@dataclass(frozen=True)
class Item:
    """A kernel to measure. uses: the number of stitch ops in the step that have it. tensorflow: a function of the inputs that
    computes the same by TensorFlow's operators, or None."""

    group: str
    name: str
    graph: Graph
    uses: int = 1
    tensorflow: Callable[..., Any] | None = None


def patterns() -> list[Item]:
    """The generated patterns: every kind of kernel on each of SHAPES."""
    kinds = (_reduces, _broadcasts, _transposes, _scans)
    return [item for shape in SHAPES for kind in kinds for item in kind(shape)]


def _text(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def _subsets(count: int) -> Iterator[tuple[int, ...]]:
    for size in range(1, count + 1):
        yield from itertools.combinations(range(count), size)


def _reduces(shape: tuple[int, ...]) -> Iterator[Item]:
    for axes in _subsets(len(shape)):
        for kind in ("sum", "max"):
            builder = GraphBuilder("reduce")
            x = ops.build(builder, "parameter", shape=shape, dtype=DType.F32, number=0)
            graph = builder.finish((ops.build(builder, "reduce", (x,), dimensions=axes, kind=kind),))
            yield Item("patterns", f"{kind} {_text(shape)} over {_axes(axes)}", graph, 1, _tf_reduce(kind, axes))


def _axes(axes: Sequence[int]) -> str:
    return ",".join(map(str, axes))


def _tf_reduce(kind: str, axes: tuple[int, ...]) -> Callable[..., Any]:
    def function(x: Any) -> Any:
        import tensorflow as tf

        return (tf.reduce_sum if kind == "sum" else tf.reduce_max)(x, axes)

    return function


def _broadcasts(shape: tuple[int, ...]) -> Iterator[Item]:
    """Kernels that broadcast a tensor along the dimensions `axes`, which it does not have, and add it to one that has all, like a
    bias."""
    for axes in _subsets(len(shape)):
        kept = tuple(i for i in range(len(shape)) if i not in axes)
        builder = GraphBuilder("broadcast")
        small_shape = tuple(shape[i] for i in kept)
        small = ops.build(builder, "parameter", shape=small_shape, dtype=DType.F32, number=0)
        large = ops.build(builder, "parameter", shape=shape, dtype=DType.F32, number=1)
        spread = ops.build(builder, "broadcast", (small,), shape=shape, dimensions=kept)
        graph = builder.finish((ops.build(builder, "add", (spread, large)),))
        ones = tuple(shape[i] if i in kept else 1 for i in range(len(shape)))
        yield Item("patterns", f"broadcast {_text(shape)} along {_axes(axes)}", graph, 1, _tf_broadcast(ones))


def _tf_broadcast(ones: tuple[int, ...]) -> Callable[..., Any]:
    def function(small: Any, large: Any) -> Any:
        import tensorflow as tf

        return tf.reshape(small, ones) + large

    return function


def _transposes(shape: tuple[int, ...]) -> Iterator[Item]:
    for permutation in itertools.permutations(range(len(shape))):
        if permutation == tuple(range(len(shape))):
            continue
        builder = GraphBuilder("transpose")
        x = ops.build(builder, "parameter", shape=shape, dtype=DType.F32, number=0)
        graph = builder.finish((ops.build(builder, "transpose", (x,), permutation=permutation),))
        yield Item(
            "patterns", f"transpose {_text(shape)} to {_axes(permutation)}", graph, 1, _tf_transpose(permutation)
        )


def _tf_transpose(permutation: tuple[int, ...]) -> Callable[..., Any]:
    def function(x: Any) -> Any:
        import tensorflow as tf

        return tf.transpose(x, permutation)

    return function


def _scans(shape: tuple[int, ...]) -> Iterator[Item]:
    """Kernels of running sums, in XLA's form: reduce-windows."""
    for axis in range(len(shape)):
        builder = GraphBuilder("scan")
        x = ops.build(builder, "parameter", shape=shape, dtype=DType.F32, number=0)
        zero = ops.build(builder, "constant", literal=Literal(np.zeros((), np.float32)))
        window = [WindowDimension(1)] * len(shape)
        window[axis] = WindowDimension(shape[axis], padding_low=shape[axis] - 1)
        total = ops.build(builder, "reduce_window", (x, zero), window=tuple(window), kind="sum")
        yield Item("patterns", f"cumsum {_text(shape)} along {axis}", builder.finish((total,)), 1, _tf_cumsum(axis))


def _tf_cumsum(axis: int) -> Callable[..., Any]:
    def function(x: Any) -> Any:
        import tensorflow as tf

        return tf.cumsum(x, axis)

    return function


# ---- what models make of them ------------------------------------------------------------------------------------------


def composites() -> list[Item]:
    """Each kind of COMPOSITES along each dimension of COMPOSITE_SHAPES, also with its tensor transposed before and after, and sums of
    tensors in different orders."""
    found = []
    for shape in COMPOSITE_SHAPES:
        here, turned = tuple(range(len(shape))), tuple(reversed(range(len(shape))))
        for axis in range(len(shape)):
            for kind in COMPOSITES:
                found.append(_composite("composites", kind, shape, axis))
                found.append(_composite("composites", kind, shape, axis, before=turned))
                found.append(_composite("composites", kind, shape, axis, after=turned))
        found += [_sum_of_orders(shape, order) for order in itertools.permutations(here) if order != here]
    return found


def short_rows() -> list[Item]:
    """Each kind of COMPOSITES along rows of ROW_LENGTHS elements, ROW_ELEMENTS in all; also with the sum of the result over rows, as
    the gradient of a bias has it."""
    return [
        _composite("rows", kind, (ROW_ELEMENTS // length, length), 1, summed=summed)
        for length in ROW_LENGTHS
        for kind in COMPOSITES
        for summed in (False, True)
    ]


class _InGraph:
    """The operators of a composite as ops of a graph. axis: the dimension that it runs over."""

    def __init__(self, builder: GraphBuilder, shape: tuple[int, ...], axis: int) -> None:
        self._builder, self._shape, self._axis = builder, shape, axis

    def op(self, name: str, *operands: int) -> int:
        return ops.build(self._builder, name, operands)

    def over(self, kind: str, x: int) -> int:
        """The sum or the maximum of each row, for each of its elements."""
        found = ops.build(self._builder, "reduce", (x,), dimensions=(self._axis,), kind=kind)
        kept = tuple(i for i in range(len(self._shape)) if i != self._axis)
        return ops.build(self._builder, "broadcast", (found,), shape=self._shape, dimensions=kept)

    def number(self, value: float) -> int:
        scalar = ops.build(self._builder, "constant", literal=Literal(np.array(value, np.float32)))
        return ops.build(self._builder, "broadcast", (scalar,), shape=self._shape, dimensions=())


class _InTensorFlow:
    """The same as TensorFlow's operators, as a job would have them."""

    def __init__(self, axis: int) -> None:
        self._axis = axis

    def op(self, name: str, *operands: Any) -> Any:
        import tensorflow as tf

        return getattr(tf.math, name)(*operands)

    def over(self, kind: str, x: Any) -> Any:
        import tensorflow as tf

        return getattr(tf, f"reduce_{kind}")(x, self._axis, keepdims=True)

    def number(self, value: float) -> float:
        return value


def _softmax(m: Any, x: Any) -> Any:
    weights = m.op("exp", m.op("subtract", x, m.over("max", x)))
    return m.op("divide", weights, m.over("sum", weights))


def _softmax_gradient(m: Any, y: Any, above: Any) -> Any:
    return m.op("multiply", y, m.op("subtract", above, m.over("sum", m.op("multiply", y, above))))


def _mean(m: Any, x: Any, length: int) -> Any:
    return m.op("multiply", m.over("sum", x), m.number(1.0 / length))


def _norm(m: Any, x: Any, length: int) -> tuple[Any, Any]:
    """(x normalized, one over the standard deviation)."""
    centered = m.op("subtract", x, _mean(m, x, length))
    variance = _mean(m, m.op("multiply", centered, centered), length)
    scale = m.op("rsqrt", m.op("add", variance, m.number(1e-5)))
    return m.op("multiply", centered, scale), scale


def _normalization(m: Any, x: Any, length: int) -> Any:
    return _norm(m, x, length)[0]


def _normalization_gradient(m: Any, x: Any, above: Any, length: int) -> Any:
    normalized, scale = _norm(m, x, length)
    along = m.op("multiply", normalized, _mean(m, m.op("multiply", above, normalized), length))
    return m.op("multiply", scale, m.op("subtract", m.op("subtract", above, _mean(m, above, length)), along))


COMPOSITES: Final[dict[str, tuple[int, Callable[..., Any]]]] = {
    "softmax": (1, lambda m, x, length: _softmax(m, x)),
    "softmax gradient": (2, lambda m, y, above, length: _softmax_gradient(m, y, above)),
    "normalization": (1, _normalization),
    "normalization gradient": (2, _normalization_gradient),
}
"""Kind -> (number of tensors, function of an _InGraph or an _InTensorFlow, the tensors and the length of a row)."""


def _composite(
    group: str,
    kind: str,
    shape: tuple[int, ...],
    axis: int,
    before: tuple[int, ...] = (),
    after: tuple[int, ...] = (),
    summed: bool = False,
) -> Item:
    """before, after: permutations of the dimensions of the tensors and of the result, so that they lie in memory in another order.
    summed: a second result is the sum of the first over its first dimension."""
    count, function = COMPOSITES[kind]
    stored = tuple(shape[before.index(i)] for i in range(len(shape))) if before else shape
    builder = GraphBuilder("composite")
    tensors = [ops.build(builder, "parameter", shape=stored, dtype=DType.F32, number=k) for k in range(count)]
    if before:
        tensors = [ops.build(builder, "transpose", (tensor,), permutation=before) for tensor in tensors]
    result = function(_InGraph(builder, shape, axis), *tensors, shape[axis])
    if after:
        result = ops.build(builder, "transpose", (result,), permutation=after)
    total = [ops.build(builder, "reduce", (result,), dimensions=(0,), kind="sum")] if summed else []

    def in_tensorflow(*given: Any) -> Any:
        import tensorflow as tf

        turned = [tf.transpose(tensor, before) for tensor in given] if before else given
        found = function(_InTensorFlow(axis), *turned, shape[axis])
        found = tf.transpose(found, after) if after else found
        return (found, tf.reduce_sum(found, 0)) if summed else found

    variants = {"transposed": before, "transposed after": after, "and its sum": summed}
    name = ", ".join([f"{kind} {_text(shape)} along {axis}", *(text for text, is_so in variants.items() if is_so)])
    return Item(group, name, builder.finish((result, *total)), 1, in_tensorflow)


def _sum_of_orders(shape: tuple[int, ...], order: tuple[int, ...]) -> Item:
    """The sum of a tensor and of one whose dimensions lie in memory in another order."""
    builder = GraphBuilder("orders")
    stored = tuple(shape[order.index(i)] for i in range(len(shape)))
    x = ops.build(builder, "parameter", shape=shape, dtype=DType.F32, number=0)
    y = ops.build(builder, "parameter", shape=stored, dtype=DType.F32, number=1)
    turned = ops.build(builder, "transpose", (y,), permutation=order)

    def in_tensorflow(x: Any, y: Any) -> Any:
        import tensorflow as tf

        return x + tf.transpose(y, order)

    graph = builder.finish((ops.build(builder, "add", (x, turned)),))
    return Item("composites", f"sum of {_text(shape)} and one in the order {_axes(order)}", graph, 1, in_tensorflow)


GROUPS: Final[dict[str, Callable[[], list[Item]]]] = {
    "patterns": patterns,
    "composites": composites,
    "rows": short_rows,
}
"""What `--only` can name besides the workloads."""
