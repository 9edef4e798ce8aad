"""HLO's composite ops, written out in primitives: batch normalisation in training, in inference, and its gradient; and
memory-bound matrix products (outer products, and products of a matrix with a vector).

Formulas: Ioffe and Szegedy, Batch Normalization (2015), with the variance taken in two passes (sum of squared
deviations). XLA's own expander takes E[x^2] - E[x]^2, which loses all digits if the mean is large compared with the
deviation; TensorFlow's CPU kernel, which the guard compares with, uses two passes too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..ir.graph import DType, GraphBuilder, Literal, Shape
from ..ops.table import build
from ..support.sequences import zip_strict
from .module import DotDimensions
from .small_products import is_small


@dataclass(frozen=True)
class _Frame:
    """What the three expansions share: the builder, the operand's shape, the feature dimension, and the dtype in which they
    compute."""

    builder: GraphBuilder
    shape: Shape
    feature: int
    dtype: DType

    @property
    def others(self) -> tuple[int, ...]:
        return tuple(i for i in range(len(self.shape)) if i != self.feature)

    @property
    def count(self) -> int:
        return int(np.prod([self.shape[i] for i in self.others], dtype=np.int64))

    def op(self, op: str, *operands: int) -> int:
        return build(self.builder, op, operands)

    def spread(self, per_feature: int) -> int:
        return build(self.builder, "broadcast", (per_feature,), shape=self.shape, dimensions=(self.feature,))

    def total(self, x: int) -> int:
        return build(self.builder, "reduce", (x,), dimensions=self.others, kind="sum")

    def scalar(self, value: float, shape: Shape) -> int:
        return constant(self.builder, value, self.dtype, shape)

    def mean(self, x: int) -> int:
        return self.op("divide", self.total(x), self.scalar(float(self.count), (self.shape[self.feature],)))

    def inverse_deviation(self, variance: int, epsilon: float) -> int:
        return self.op("rsqrt", self.op("add", variance, self.scalar(epsilon, (self.shape[self.feature],))))


def constant(builder: GraphBuilder, value: float, dtype: DType, shape: Shape) -> int:
    """Adds a tensor of equal elements to `builder`. Returns its node index."""
    index = build(builder, "constant", (), literal=Literal(np.array(value).astype(dtype.numpy)))
    return index if shape == () else build(builder, "broadcast", (index,), shape=shape, dimensions=())


def _frame(builder: GraphBuilder, operand: int, scale: int, feature: int) -> tuple[_Frame, int, DType]:
    """The frame, the operand in the scale's dtype (mixed precision: a bf16 operand with f32 scales), and the operand's own
    dtype."""
    node, dtype = builder.nodes[operand], builder.nodes[scale].dtype
    wide = operand if node.dtype is dtype else build(builder, "convert", (operand,), dtype=dtype)
    return _Frame(builder, node.shape, feature, dtype), wide, node.dtype


def _narrow(builder: GraphBuilder, x: int, dtype: DType) -> int:
    return x if builder.nodes[x].dtype is dtype else build(builder, "convert", (x,), dtype=dtype)


def _normalise(frame: _Frame, centred: int, variance: int, scale: int, offset: int, epsilon: float) -> int:
    factor = frame.op("multiply", frame.inverse_deviation(variance, epsilon), scale)
    return frame.op("add", frame.op("multiply", centred, frame.spread(factor)), frame.spread(offset))


def batch_norm_training(
    builder: GraphBuilder, operand: int, scale: int, offset: int, epsilon: float, feature: int
) -> tuple[int, int, int]:
    """Adds the nodes of HLO's batch-norm-training to `builder`. Operands are node indices: `scale` and `offset` have shape
    [features]; `feature` is the feature dimension of `operand`. Returns the node indices of (normalised, mean, variance), of the
    operand's shape, [features] and [features]. The variance is the biased one, as in HLO."""
    frame, x, dtype = _frame(builder, operand, scale, feature)
    mean = frame.mean(x)
    centred = frame.op("subtract", x, frame.spread(mean))
    variance = frame.mean(frame.op("multiply", centred, centred))
    result = _normalise(frame, centred, variance, scale, offset, epsilon)
    return _narrow(builder, result, dtype), mean, variance


def batch_norm_inference(
    builder: GraphBuilder, operand: int, scale: int, offset: int, mean: int, variance: int, epsilon: float, feature: int
) -> int:
    """Adds the nodes of HLO's batch-norm-inference to `builder`: `operand` normalised by the given mean and variance (all operands
    but `operand` have shape [features]). Returns the index of the result, which has the operand's shape."""
    frame, x, dtype = _frame(builder, operand, scale, feature)
    centred = frame.op("subtract", x, frame.spread(mean))
    return _narrow(builder, _normalise(frame, centred, variance, scale, offset, epsilon), dtype)


def batch_norm_gradient(
    builder: GraphBuilder,
    operand: int,
    scale: int,
    mean: int,
    variance: int,
    gradient: int,
    epsilon: float,
    feature: int,
) -> tuple[int, int, int]:
    """Adds the nodes of HLO's batch-norm-grad to `builder`; `gradient` (dy) has the operand's shape. Returns the node indices of
    (gradient of operand, of scale, of offset). With n elements per feature, r = rsqrt(variance + epsilon) and c = x - mean:

    d offset = sum dy;  d scale = r sum(dy c);  dx = scale r / n (n dy - sum dy - c r^2 sum(dy c)).
    """
    frame, x, dtype = _frame(builder, operand, scale, feature)
    dy = _narrow(builder, gradient, frame.dtype)
    inverse = frame.inverse_deviation(variance, epsilon)
    centred = frame.op("subtract", x, frame.spread(mean))
    total = frame.total(dy)
    along = frame.total(frame.op("multiply", dy, centred))
    grad_scale = frame.op("multiply", along, inverse)
    count = frame.scalar(float(frame.count), (frame.shape[frame.feature],))
    mean_dy = frame.op("divide", total, count)
    slope = frame.op("divide", frame.op("multiply", frame.op("multiply", inverse, inverse), along), count)
    removed = frame.op("multiply", centred, frame.spread(slope))
    inner = frame.op("subtract", frame.op("subtract", dy, frame.spread(mean_dy)), removed)
    grad = frame.op("multiply", inner, frame.spread(frame.op("multiply", scale, inverse)))
    return _narrow(builder, grad, dtype), grad_scale, total


def _extents(lhs: Shape, rhs: Shape, numbers: DotDimensions) -> tuple[int, int, int]:
    """The rows, terms and columns of each product of a batch."""
    rows, columns = (
        math.prod(shape[i] for i in numbers.own(side, len(shape))) for side, shape in enumerate((lhs, rhs))
    )
    return rows, math.prod(lhs[i] for i in numbers.summed[0]), columns


def is_memory_bound(lhs: Shape, rhs: Shape, numbers: DotDimensions) -> bool:
    """Whether a dot of operands of these shapes is memory-bound: an outer product (the summed dimensions have one element), or
    products of a matrix with a vector (the own dimensions of one operand have one element)."""
    return 1 in _extents(lhs, rhs, numbers)


def is_compiled(lhs: Shape, rhs: Shape, numbers: DotDimensions) -> bool:
    """Whether a dot of operands of these shapes is worth compiling (small_products.py). Of a batch, each product has to be."""
    rows, terms, columns = _extents(lhs, rhs, numbers)
    return is_small(rows * math.prod(lhs[i] for i in numbers.batch[0]), terms, columns)


def product(builder: GraphBuilder, lhs: int, rhs: int, numbers: DotDimensions) -> int:
    """Adds a dot to `builder`, its operands moved to [batch, own, summed] and [batch, summed, own]. Returns the node index of the
    result, of shape (batch, own of lhs, own of rhs). Operands are node indices of one float dtype."""
    shapes = [builder.nodes[operand].shape for operand in (lhs, rhs)]
    own = [numbers.own(side, len(shape)) for side, shape in enumerate(shapes)]
    orders = [
        (*numbers.batch[0], *own[0], *numbers.summed[0]),
        (*numbers.batch[1], *numbers.summed[1], *own[1]),
    ]
    batch, summed, rows, columns = (
        tuple(shapes[side][i] for i in dimensions)
        for side, dimensions in ((0, numbers.batch[0]), (0, numbers.summed[0]), (0, own[0]), (1, own[1]))
    )
    extents = [math.prod(rows), math.prod(summed), math.prod(columns)]
    factors = []
    for operand, order, matrix in ((lhs, orders[0], extents[:2]), (rhs, orders[1], extents[1:])):
        moved = build(builder, "transpose", (operand,), permutation=order)
        factors.append(build(builder, "reshape", (moved,), shape=(*batch, *matrix)))
    return build(builder, "reshape", (build(builder, "dot", factors),), shape=(*batch, *rows, *columns))


def dot(builder: GraphBuilder, lhs: int, rhs: int, numbers: DotDimensions) -> int:
    """Adds the nodes of a memory-bound dot (`is_memory_bound`) to `builder`: a product if one row is multiplied by a matrix that
    lies as it is read, so that its sums stay in registers; else operands multiplied element by element, and summed, whose
    terms a kernel must not store in memory. Returns the node index of the result, of shape (batch, own of lhs, own of rhs).
    Operands are node indices of one float dtype."""
    shapes = [builder.nodes[operand].shape for operand in (lhs, rhs)]
    if _is_row_times_matrix(shapes[0], shapes[1], numbers):
        return product(builder, lhs, rhs, numbers)
    own = [numbers.own(side, len(shape)) for side, shape in enumerate(shapes)]
    result = (*(shapes[0][i] for i in numbers.batch[0]), *(shapes[side][i] for side in (0, 1) for i in own[side]))
    if math.prod(shapes[0][i] for i in numbers.summed[0]) == 1:
        return _outer_product(builder, (lhs, rhs), numbers, result)
    return _matrix_times_vector(builder, (lhs, rhs), numbers, result)


def _is_row_times_matrix(lhs: Shape, rhs: Shape, numbers: DotDimensions) -> bool:
    rows, terms, columns = _extents(lhs, rhs, numbers)
    is_as_it_lies = (*numbers.batch[1], *numbers.summed[1], *numbers.own(1, len(rhs))) == tuple(range(len(rhs)))
    return rows == 1 and min(terms, columns) > 1 and is_as_it_lies and is_small(rows, terms, columns)


def _outer_product(builder: GraphBuilder, operands: tuple[int, int], numbers: DotDimensions, result: Shape) -> int:
    terms, first = [], len(numbers.batch[0])
    for side, operand in enumerate(operands):
        shape = builder.nodes[operand].shape
        own = numbers.own(side, len(shape))
        moved = build(builder, "transpose", (operand,), permutation=(*numbers.batch[side], *own, *numbers.summed[side]))
        kept = build(builder, "reshape", (moved,), shape=tuple(shape[i] for i in (*numbers.batch[side], *own)))
        places = (*range(len(numbers.batch[0])), *range(first, first + len(own)))
        terms.append(build(builder, "broadcast", (kept,), shape=result, dimensions=places))
        first += len(own)
    # Every library adds to a sum that begins as 0: of a single product of -0 it makes 0.
    begun = constant(builder, 0.0, builder.nodes[terms[0]].dtype, result)
    return build(builder, "add", (build(builder, "multiply", terms), begun))


def _matrix_times_vector(
    builder: GraphBuilder, operands: tuple[int, int], numbers: DotDimensions, result: Shape
) -> int:
    """The products have the matrix's own order of dimensions behind those of the batch, so that a sum over columns is planned as one:
    with the summed dimensions last, each result would read its column across memory."""
    shapes = [builder.nodes[operand].shape for operand in operands]
    matrix = 0 if math.prod(shapes[1][i] for i in numbers.own(1, len(shapes[1]))) == 1 else 1
    vector, batch = 1 - matrix, len(numbers.batch[0])
    order = [i for i in range(len(shapes[matrix])) if i not in numbers.batch[matrix]]
    moved = build(builder, "transpose", (operands[matrix],), permutation=(*numbers.batch[matrix], *order))
    whole = builder.nodes[moved].shape
    # A broadcast keeps the order of its operand's dimensions, so the vector's summed dimensions are put in the matrix's order.
    pairs = sorted(zip_strict(numbers.summed[matrix], numbers.summed[vector]), key=lambda pair: order.index(pair[0]))
    places = tuple(batch + order.index(i) for i, _ in pairs)
    row = (*numbers.batch[vector], *(i for _, i in pairs))
    ones = numbers.own(vector, len(shapes[vector]))
    factor = build(builder, "transpose", (operands[vector],), permutation=(*row, *ones))
    factor = build(builder, "reshape", (factor,), shape=tuple(shapes[vector][i] for i in row))
    factor = build(builder, "broadcast", (factor,), shape=whole, dimensions=(*range(batch), *places))
    terms = (moved, factor) if matrix == 0 else (factor, moved)
    total = build(builder, "reduce", (build(builder, "multiply", terms),), dimensions=places, kind="sum")
    return build(builder, "reshape", (total,), shape=result)
