"""Graphs that the backend's tests are about, built by hand: what a training step is made of, and what is awkward to
map."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from stitchfleet.compiler.hlo.selections import select_and_scatter
from stitchfleet.compiler.ir.graph import (
    Attribute,
    DType,
    GatherDimensions,
    Graph,
    GraphBuilder,
    Literal,
    Shape,
    WindowDimension,
)
from stitchfleet.compiler.ops import table as ops
from stitchfleet.compiler.ops.reference import reduce_identity


class Maker:
    """Builds a graph: parameters are numbered as they come, element-wise ops are called by name."""

    def __init__(self, name: str) -> None:
        self.builder = GraphBuilder(name)
        self.count = 0

    def parameter(self, *shape: int, dtype: DType = DType.F32) -> int:
        self.count += 1
        return ops.build(self.builder, "parameter", shape=shape, dtype=dtype, number=self.count - 1)

    def op(self, name: str, *operands: int, **attributes: Attribute) -> int:
        return ops.build(self.builder, name, operands, **attributes)  # type: ignore[arg-type]

    def shape(self, node: int) -> Shape:
        return self.builder.nodes[node].shape

    def constant(self, value: object, shape: Shape = (), dtype: DType = DType.F32) -> int:
        """A scalar constant, broadcast to `shape`; or an array constant."""
        node = self.op("constant", literal=Literal(np.array(value, dtype.numpy)))
        return self.spread(node, shape) if shape else node

    def spread(self, node: int, shape: Shape, *dimensions: int) -> int:
        """A broadcast."""
        return ops.build(self.builder, "broadcast", [node], shape=shape, dimensions=dimensions)

    def reshape(self, node: int, *shape: int) -> int:
        return ops.build(self.builder, "reshape", [node], shape=shape)

    def convert(self, node: int, dtype: DType) -> int:
        return ops.build(self.builder, "convert", [node], dtype=dtype)

    def iota(self, dimension: int, shape: Shape, dtype: DType = DType.S32) -> int:
        return ops.build(self.builder, "iota", shape=shape, dtype=dtype, dimension=dimension)

    def reduce(self, node: int, *dimensions: int, kind: str = "sum") -> int:
        return self.op("reduce", node, dimensions=dimensions, kind=kind)

    def scaled(self, node: int, factor: float) -> int:
        return self.op("multiply", node, self.constant(factor, self.shape(node)))

    def shifted(self, node: int, amount: float) -> int:
        return self.op("add", node, self.constant(amount, self.shape(node)))

    def done(self, *outputs: int) -> Graph:
        return self.builder.finish(outputs)


def many_tensors() -> Graph:
    """Two families, tensors of all sizes, and a component that is like no other."""
    m = Maker("many_tensors")
    rate, outputs = m.parameter(), []
    for shape in ((64, 64), (100,), (3, 5, 7)):
        weight, slot, gradient = (m.parameter(*shape) for _ in range(3))
        fresh = m.op("add", m.scaled(slot, 0.9), gradient)
        outputs += [m.op("subtract", weight, m.op("multiply", fresh, m.spread(rate, shape))), fresh]
    for size in (300, 20):
        outputs.append(m.op("multiply", m.parameter(size), m.spread(m.parameter(), (size,))))
    outputs.append(m.op("negate", m.parameter(33)))
    return m.done(*outputs)


def softmax(rows: int, length: int, dtype: DType = DType.F32) -> Graph:
    m = Maker("softmax")
    x = m.parameter(rows, length, dtype=dtype)
    top = m.spread(m.reduce(x, 1, kind="max"), (rows, length), 0)
    e = m.op("exp", m.op("subtract", x, top))
    return m.done(m.op("divide", e, m.spread(m.reduce(e, 1), (rows, length), 0)))


def biased_softmax(rows: int, length: int, dtype: DType) -> Graph:
    """With a bias in float32, as a layer of Keras' mixed precision has it."""
    m, shape = Maker("biased_softmax"), (rows, length)
    x, bias = m.parameter(*shape, dtype=dtype), m.parameter(length)
    biased = m.op("add", x, m.spread(m.convert(bias, dtype), shape, 1))
    top = m.spread(m.reduce(biased, 1, kind="max"), shape, 0)
    e = m.op("exp", m.op("subtract", biased, top))
    return m.done(m.op("divide", e, m.spread(m.reduce(e, 1), shape, 0)))


def random_bits(m: Maker, state: int, shape: Shape) -> int:
    """What HLO's rng-bit-generator (Philox) makes of a state u64[3], as the importer writes it."""
    scalars = []
    for i in range(3):
        part = m.op("slice", state, start=(i,), limit=(i + 1,), strides=(1,))
        scalars.append(m.spread(m.reshape(part), shape))
    place = m.iota(0, (int(np.prod(shape)),), DType.U64)
    return m.op("philox", *scalars, m.reshape(place, *shape))


def drawn_dropout(rows: int, length: int, rate: float = 0.1) -> Graph:
    """A bias, dropout that draws its own numbers as TensorFlow's stateless ones, and the residual; the mask is a result too."""
    m, shape = Maker("drawn_dropout"), (rows, length)
    state, x, bias, residual = (
        m.parameter(3, dtype=DType.U64),
        m.parameter(*shape),
        m.parameter(length),
        m.parameter(*shape),
    )
    low = m.op("and", random_bits(m, state, shape), m.constant(0x7FFFFF, shape, DType.U32))
    uniform = m.scaled(m.convert(low, DType.F32), 2.0**-23)
    mask = m.op("compare", uniform, m.constant(rate, shape), direction="GE", total_order=False)
    kept = m.scaled(m.op("add", x, m.spread(bias, shape, 1)), 1 / (1 - rate))
    return m.done(m.op("add", m.op("select", mask, kept, m.constant(0.0, shape)), residual), mask)


def layer_norm(rows: int, length: int) -> Graph:
    """Outputs: the normalised tensor, mean and reciprocal deviation of each row."""
    m, shape = Maker("layer_norm"), (rows, length)
    x, gamma, beta = m.parameter(*shape), m.parameter(length), m.parameter(length)
    mean = m.scaled(m.reduce(x, 1), 1 / length)
    centred = m.op("subtract", x, m.spread(mean, shape, 0))
    variance = m.scaled(m.reduce(m.op("multiply", centred, centred), 1), 1 / length)
    scale = m.op("rsqrt", m.shifted(variance, 1e-3))
    normal = m.op("multiply", centred, m.spread(scale, shape, 0))
    y = m.op("add", m.op("multiply", normal, m.spread(gamma, shape, 1)), m.spread(beta, shape, 1))
    return m.done(y, mean, scale)


def middle_norm(outer: int, length: int, inner: int) -> Graph:
    """Normalized along the middle dimension, as an image over its positions: each row has a vector of means and one of scales."""
    m = Maker("middle_norm")
    x = m.parameter(outer, length, inner)
    shape = m.shape(x)
    mean = m.scaled(m.reduce(x, 1), 1 / length)
    centred = m.op("subtract", x, m.spread(mean, shape, 0, 2))
    variance = m.scaled(m.reduce(m.op("multiply", centred, centred), 1), 1 / length)
    scale = m.op("rsqrt", m.shifted(variance, 1e-5))
    return m.done(m.op("multiply", centred, m.spread(scale, shape, 0, 2)))


def layer_norm_gradient(rows: int, length: int) -> Graph:
    """Outputs: gradients of x, gamma and beta: row reduces and column reduces of the same tensors."""
    m, shape = Maker("layer_norm_gradient"), (rows, length)
    x, dy, gamma = m.parameter(*shape), m.parameter(*shape), m.parameter(length)
    mean, scale = m.parameter(rows), m.parameter(rows)
    wide_scale = m.spread(scale, shape, 0)
    normal = m.op("multiply", m.op("subtract", x, m.spread(mean, shape, 0)), wide_scale)
    d_gamma, d_beta = m.reduce(m.op("multiply", dy, normal), 0), m.reduce(dy, 0)
    d_normal = m.op("multiply", dy, m.spread(gamma, shape, 1))
    first = m.spread(m.scaled(m.reduce(d_normal, 1), 1 / length), shape, 0)
    second = m.spread(m.scaled(m.reduce(m.op("multiply", d_normal, normal), 1), 1 / length), shape, 0)
    inner = m.op("subtract", m.op("subtract", d_normal, first), m.op("multiply", normal, second))
    return m.done(m.op("multiply", inner, wide_scale), d_gamma, d_beta)


def gelu(*shape: int) -> Graph:
    m = Maker("gelu")
    x = m.parameter(*shape)
    cube = m.op("multiply", m.op("multiply", x, x), x)
    t = m.op("tanh", m.scaled(m.op("add", x, m.scaled(cube, 0.044715)), 0.79788456))
    return m.done(m.op("multiply", m.scaled(x, 0.5), m.shifted(t, 1.0)))


def bias_residual(rows: int, length: int) -> Graph:
    m = Maker("bias_residual")
    x, bias, residual = m.parameter(rows, length), m.parameter(length), m.parameter(rows, length)
    return m.done(m.op("add", m.op("add", x, m.spread(bias, (rows, length), 1)), residual))


def dropout(rows: int, length: int) -> Graph:
    m, shape = Maker("dropout"), (rows, length)
    x, mask = m.parameter(*shape), m.parameter(*shape, dtype=DType.PRED)
    return m.done(m.op("select", mask, m.scaled(x, 1 / 0.9), m.constant(0.0, shape)))


def cross_entropy(rows: int, classes: int) -> Graph:
    """Softmax cross-entropy with integer labels; outputs: the mean loss (a full reduce), the loss of each row, the
    gradient."""
    m, shape = Maker("cross_entropy"), (rows, classes)
    x, labels = m.parameter(*shape), m.parameter(rows, dtype=DType.S32)
    centred = m.op("subtract", x, m.spread(m.reduce(x, 1, kind="max"), shape, 0))
    total = m.op("log", m.reduce(m.op("exp", centred), 1))
    logarithm = m.op("subtract", centred, m.spread(total, shape, 0))
    wide = m.spread(labels, shape, 0)
    hot = m.op("compare", wide, m.iota(1, shape), direction="EQ", total_order=False)
    loss = m.op("negate", m.reduce(m.op("select", hot, logarithm, m.constant(0.0, shape)), 1))
    one, zero = m.constant(1.0, shape), m.constant(0.0, shape)
    gradient = m.op("subtract", m.op("exp", logarithm), m.op("select", hot, one, zero))
    return m.done(m.scaled(m.reduce(loss, 0), 1 / rows), loss, gradient)


def adam(shapes: Sequence[Shape]) -> Graph:
    """Parameters: the learning rate, then weight, both slots and gradient of each tensor. Outputs: weight and slots of
    each."""
    m, outputs = Maker("adam"), []
    rate = m.parameter()
    for shape in shapes:
        weight, mean, square, gradient = (m.parameter(*shape) for _ in range(4))
        new_mean = m.op("add", mean, m.scaled(m.op("subtract", gradient, mean), 0.1))
        squared = m.op("multiply", gradient, gradient)
        new_square = m.op("add", square, m.scaled(m.op("subtract", squared, square), 0.001))
        step = m.op("multiply", new_mean, m.spread(rate, shape))
        # The slots of a job are not negative; random inputs are.
        root = m.shifted(m.op("sqrt", m.op("abs", new_square)), 1e-3)
        outputs += [m.op("subtract", weight, m.op("divide", step, root)), new_mean, new_square]
    return m.done(*outputs)


def clip_by_global_norm(shapes: Sequence[Shape]) -> Graph:
    """Full reduces of several tensors, added up, then all tensors scaled: two phases."""
    m = Maker("clip_by_global_norm")
    tensors = [m.parameter(*shape) for shape in shapes]
    squares = [m.reduce(m.op("multiply", x, x), *range(len(m.shape(x)))) for x in tensors]
    total = squares[0]
    for square in squares[1:]:
        total = m.op("add", total, square)
    factor = m.op("minimum", m.op("rsqrt", m.op("add", total, m.constant(1.0))), m.constant(1.0))
    return m.done(*(m.op("multiply", x, m.spread(factor, m.shape(x))) for x in tensors))


def batch_norm(batch: int, height: int, width: int, channels: int) -> Graph:
    """Training: reduces all but the last dimension, then normalises: a column reduce with a consumer."""
    m, shape = Maker("batch_norm"), (batch, height, width, channels)
    count = batch * height * width
    x, gamma = m.parameter(*shape), m.parameter(channels)
    mean = m.scaled(m.reduce(x, 0, 1, 2), 1 / count)
    centred = m.op("subtract", x, m.spread(mean, shape, 3))
    variance = m.scaled(m.reduce(m.op("multiply", centred, centred), 0, 1, 2), 1 / count)
    scale = m.op("multiply", m.op("rsqrt", m.shifted(variance, 1e-3)), gamma)
    return m.done(m.op("multiply", centred, m.spread(scale, shape, 3)), mean, variance)


def attention_heads(batch: int, length: int, heads: int, size: int) -> Graph:
    """Bias, then heads to the front: a transpose that keeps the innermost dimension."""
    m, flat = Maker("attention_heads"), (batch * length, heads * size)
    x, bias = m.parameter(*flat), m.parameter(heads * size)
    y = m.op("add", x, m.spread(bias, flat, 1))
    return m.done(m.op("transpose", m.reshape(y, batch, length, heads, size), permutation=(0, 2, 1, 3)))


def masked_softmax(batch: int, heads: int, length: int) -> Graph:
    m, shape = Maker("masked_softmax"), (batch, heads, length, length)
    x, mask = m.parameter(*shape), m.parameter(batch, length)
    scores = m.op("add", m.scaled(x, 0.125), m.spread(mask, shape, 0, 3))
    top = m.spread(m.reduce(scores, 3, kind="max"), shape, 0, 1, 2)
    e = m.op("exp", m.op("subtract", scores, top))
    return m.done(m.op("divide", e, m.spread(m.reduce(e, 3), shape, 0, 1, 2)))


def lstm_cell(batch: int, size: int) -> Graph:
    """Four gates cut out of one tensor."""
    m = Maker("lstm_cell")
    z, bias, cell = m.parameter(batch, 4 * size), m.parameter(4 * size), m.parameter(batch, size)
    gates = m.op("add", z, m.spread(bias, (batch, 4 * size), 1))
    i, j, f, o = (
        m.op("slice", gates, start=(0, k * size), limit=(batch, (k + 1) * size), strides=(1, 1)) for k in range(4)
    )
    kept = m.op("multiply", m.op("logistic", f), cell)
    new = m.op("add", kept, m.op("multiply", m.op("logistic", i), m.op("tanh", j)))
    return m.done(new, m.op("multiply", m.op("logistic", o), m.op("tanh", new)))


def figure_nine() -> Graph:
    """The worked example of AStitch's Figure 9: Pr1 A1 Pr2 B1 R1 D1 Pw1 | Pr3 B2 D2 R2 B3
    M1."""
    m, rows, length = Maker("figure_nine"), 64, 128
    pr1, pr2, pr3 = m.parameter(rows, length), m.parameter(rows), m.parameter(rows, length)
    b1 = m.spread(pr2, (rows, length), 0)
    a1 = m.op("add", pr1, b1)
    r1 = m.reduce(a1, 1)
    d1 = m.op("divide", r1, pr2)
    pw1 = m.op("power", d1, m.constant(2.0, (rows,)))
    b2 = m.spread(pw1, (rows, length), 0)
    d2 = m.op("divide", pr3, b2)
    r2 = m.reduce(d2, 1)
    b3 = m.spread(r2, (rows, length), 0)
    return m.done(m.op("multiply", b2, b3))


def matrix_transpose(rows: int, columns: int) -> Graph:
    """A transpose of the innermost dimension, with a vector added on either side of it."""
    m = Maker("matrix_transpose")
    x, before, after = m.parameter(rows, columns), m.parameter(columns), m.parameter(rows)
    y = m.op("transpose", m.op("add", x, m.spread(before, (rows, columns), 1)), permutation=(1, 0))
    return m.done(m.op("multiply", y, m.spread(after, (columns, rows), 1)))


def attention_pool(batch: int, steps: int, size: int) -> Graph:
    """DIEN's: a masked softmax over time weighs the rows that are added up; outputs: the sum and the weights."""
    m, flat, shape = Maker("attention_pool"), (batch, steps), (batch, steps, size)
    x, score, mask = m.parameter(*shape), m.parameter(*flat), m.parameter(*flat, dtype=DType.PRED)
    masked = m.op("select", mask, score, m.constant(-1e9, flat))
    e = m.op("exp", m.op("subtract", masked, m.spread(m.reduce(masked, 1, kind="max"), flat, 0)))
    weights = m.op("divide", e, m.spread(m.reduce(e, 1), flat, 0))
    return m.done(m.reduce(m.op("multiply", x, m.spread(weights, shape, 0, 1)), 1), weights)


def crossed_rows() -> Graph:
    """Rows of the first result are the innermost dimension of the second: the second cannot be made row by row."""
    m = Maker("crossed_rows")
    x = m.parameter(11, 5)
    low = m.reduce(m.op("exp", x), 1, kind="min")
    wide = m.spread(low, (2, 3, 11), 2)
    return m.done(low, m.reduce(m.op("log", wide), 0), m.op("log1p", wide))


def cut_two_ways() -> Graph:
    """Reductions that share a row of 48: of 6 times 8 elements, and of 8 times 6. No loops over the row end where both do."""
    m = Maker("cut_two_ways")
    x = m.parameter(8, 6, 8)
    least = m.reduce(m.op("tanh", x), 0, 2, kind="min")
    turned = m.op("transpose", x, permutation=(0, 2, 1))
    powers = m.op("exp", m.op("subtract", turned, m.spread(m.reduce(turned, 2, kind="max"), (8, 8, 6), 0, 1)))
    shares = m.op("divide", powers, m.spread(m.reduce(powers, 2), (8, 8, 6), 0, 1))
    return m.done(least, m.reduce(shares, 0, 1, 2))


def argmax_body() -> Graph:
    m = Maker("argmax_body")
    best, where, value, index = m.parameter(), m.parameter(dtype=DType.S32), m.parameter(), m.parameter(dtype=DType.S32)
    greater = m.op("compare", best, value, direction="GT", total_order=False)
    keep = m.op("or", greater, m.op("compare", best, best, direction="NE", total_order=False))  # NaN wins and stays
    tie = m.op("compare", best, value, direction="EQ", total_order=False)
    chosen = m.op("select", keep, where, index)
    return m.done(m.op("select", keep, best, value), m.op("select", tie, m.op("minimum", where, index), chosen))


def argmax(rows: int, length: int, dimension: int, below_zero: bool = False) -> Graph:
    """A variadic reduction: greatest value and where it is. below_zero: of values that are."""
    m, shape = Maker("argmax"), (rows, length)
    x = m.parameter(*shape)
    if below_zero:
        x = m.op("negate", m.op("abs", x))
    index = m.iota(dimension, shape)
    low, zero = m.constant(-np.inf), m.constant(0, dtype=DType.S32)
    both = [
        m.op("reduce_general", x, index, low, zero, dimensions=(dimension,), body=argmax_body(), result=result)
        for result in (0, 1)
    ]
    return m.done(*both)


def cumulative(
    shape: Sequence[int],
    dimension: int,
    kind: str = "sum",
    dtype: DType = DType.F32,
    reverse: bool = False,
    exclusive: bool = False,
    sliced: bool = True,
) -> Graph:
    """A cumulative reduction as TensorFlow's lowering writes it. exclusive: one element of padding more, and the last result cut off
    (unless not `sliced`)."""
    m = Maker(
        f"{kind}_{dtype.value}_{'x'.join(map(str, shape))}_{dimension}{'_reverse' * reverse}{'_exclusive' * exclusive}"
    )
    x = m.parameter(*shape, dtype=dtype)
    extent = shape[dimension]
    low, high = extent - 1 + exclusive, 0
    if reverse:
        low, high = high, low
    items = [WindowDimension(1)] * len(shape)
    items[dimension] = WindowDimension(extent, padding_low=low, padding_high=high)
    init = m.constant(reduce_identity(kind, dtype), dtype=dtype)
    y = m.op("reduce_window", x, init, window=tuple(items), kind=kind)
    if exclusive and sliced:
        start, limit = [0] * len(shape), list(shape)
        if reverse:
            start[dimension], limit[dimension] = 1, extent + 1
        y = m.op("slice", y, start=tuple(start), limit=tuple(limit), strides=(1,) * len(shape))
    return m.done(y)


def max_pool(batch: int, size: int, channels: int) -> Graph:
    m = Maker("max_pool")
    x = m.parameter(batch, size, size, channels)
    step = WindowDimension(3, 2, 1, 1)
    window = (WindowDimension(1), step, step, WindowDimension(1))
    return m.done(m.op("reduce_window", x, m.constant(-np.inf), window=window, kind="max"))


def max_pool_gradient(batch: int, size: int, channels: int) -> Graph:
    m = Maker("max_pool_gradient")
    x, step = m.parameter(batch, size, size, channels), WindowDimension(3, 2, 1, 1)
    pooled = (size - 1) // 2 + 1
    gradient = m.parameter(batch, pooled, pooled, channels)
    window = (WindowDimension(1), step, step, WindowDimension(1))
    return m.done(select_and_scatter(m.builder, x, gradient, window, "GE"))


def padded_rows(dtype: DType, rows: int, columns: int) -> Graph:
    """Rows before and after a tensor, and after what is computed from it."""
    m = Maker(f"padded_rows_{dtype.value}")
    x, value = m.parameter(rows, columns, dtype=dtype), m.constant(1, dtype=dtype)
    twice = m.op("xor", x, x) if dtype is DType.PRED else m.op("add", x, x)
    padded = [
        m.op("pad", source, value, low=(low, 0), high=(3 - low, 0), interior=(0, 0))
        for source, low in ((x, 2), (twice, 1))
    ]
    return m.done(
        m.op("xor" if dtype is DType.PRED else "add", *padded),
        m.op("pad", x, value, low=(0, 3), high=(1, 0), interior=(1, 0)),
    )


def cumsum_of_columns(rows: int, columns: int) -> Graph:
    """As TensorFlow's Cumsum is lowered: a window as long as the dimension, padded on one side."""
    m = Maker("cumsum_of_columns")
    window = (WindowDimension(rows, 1, rows - 1, 0), WindowDimension(1))
    return m.done(m.op("reduce_window", m.parameter(rows, columns), m.constant(0.0), window=window, kind="sum"))


def embedding_gradient(rows: int, size: int, vocabulary: int) -> Graph:
    """Rows scattered into a table by index, several to the same row."""
    m = Maker("embedding_gradient")
    indices, updates = m.parameter(rows, dtype=DType.S32), m.parameter(rows, size)
    numbers = GatherDimensions((1,), (0,), (0,), 1)
    table = m.constant(0.0, (vocabulary, size))
    return m.done(m.op("scatter", table, indices, m.scaled(updates, 0.5), scatter=numbers, kind="sum"))


def embedding(rows: int, size: int, vocabulary: int) -> Graph:
    """Rows of a table by index, with a position added."""
    m = Maker("embedding")
    table, indices, position = (
        m.parameter(vocabulary, size),
        m.parameter(rows, dtype=DType.S32),
        m.parameter(rows, size),
    )
    numbers = GatherDimensions((1,), (0,), (0,), 1, (1, size))
    return m.done(m.op("add", m.op("gather", table, indices, gather=numbers), position))


def heads_apart(edges: int, nodes: int, heads: int) -> Graph:
    """Attention over a graph's edges as some libraries write it: the heads one after the other along the first dimension, their
    edges' numbers too, with an edge from each node to itself; the scores' maximum for each node of each head."""
    m, count = Maker("heads_apart"), edges + nodes
    scores, ends = m.parameter(nodes, heads), m.parameter(edges, dtype=DType.S32)
    targets = m.op("concatenate", ends, m.iota(0, (nodes,)), dimension=0)
    rows = GatherDimensions((1,), (0,), (0,), 1, (1, 1))
    parts, places = [], []
    for head in range(heads):
        column = m.op("slice", scores, start=(0, head), limit=(nodes, head + 1), strides=(1, 1))
        parts.append(m.op("gather", column, targets, gather=rows))
        places.append(m.op("add", targets, m.constant(head * nodes, (count,), DType.S32)))
    all_scores = m.reshape(m.op("concatenate", *parts, dimension=0), heads * count)
    all_places = m.op("concatenate", *places, dimension=0)
    table = m.constant(-np.inf, (heads * nodes,))
    largest = m.op("scatter", table, all_places, all_scores, scatter=GatherDimensions((), (0,), (0,), 1), kind="max")
    inside = m.op(
        "compare", all_places, m.constant(heads * nodes, (heads * count,), DType.S32), direction="LT", total_order=False
    )
    beside = m.op("concatenate", *parts, dimension=1)
    return m.done(
        largest, m.scaled(all_scores, 2.0), all_places, m.reduce(inside, 0, kind="and"), m.scaled(beside, 3.0)
    )


def column_sum(rows: int, columns: int) -> Graph:
    m = Maker("column_sum")
    return m.done(m.reduce(m.parameter(rows, columns), 0))


def turned_and_summed(pictures: int, channels: int, height: int, width: int) -> Graph:
    """Rows that cross the memory they are read from, and in the same pass a sum over them."""
    m = Maker("turned_and_summed")
    x = m.op("transpose", m.parameter(pictures, channels, height, width), permutation=(0, 3, 1, 2))
    rows = m.reshape(x, pictures * width, channels * height)
    return m.done(m.op("multiply", rows, rows), m.reduce(m.op("negate", x), 0, 1, 3))


def full_sum(count: int) -> Graph:
    m = Maker("full_sum")
    x = m.parameter(count)
    return m.done(m.reduce(m.op("multiply", x, x), 0))


def which_hold(rows: int, length: int) -> Graph:
    """Of each row whether all of its numbers, and whether any, lie above zero: what demands on operands come to."""
    m = Maker("which_hold")
    x = m.parameter(rows, length)
    above = m.op("compare", x, m.constant(0.0, (rows, length)), direction="GT", total_order=False)
    return m.done(m.reduce(above, 1, kind="and"), m.reduce(above, 1, kind="or"))


def running_sum(length: int, steps: int) -> Graph:
    """x plus itself shifted by 1, 2, 4 ...: inlining would double the work with each step."""
    m = Maker("running_sum")
    x, zero = m.parameter(length), m.constant(0.0)
    for step in range(steps):
        shifted = m.op("pad", x, zero, low=(1 << step,), high=(-(1 << step),), interior=(0,))
        x = m.op("add", x, shifted)
    return m.done(x)


def expensive_column(rows: int, columns: int) -> Graph:
    """exp of a vector, broadcast to every row of a matrix: to be computed once, not once per row."""
    m, shape = Maker("expensive_column"), (rows, columns)
    x, v = m.parameter(*shape), m.parameter(columns)
    return m.done(m.op("multiply", x, m.spread(m.op("exp", v), shape, 1)))


def gated_rows(rows: int, columns: int) -> Graph:
    """Rows whose gate, a function of a number of the row, is stored and applied before they are added up, and whose largest element,
    times another such function, is taken from them."""
    m, shape = Maker("gated_rows"), (rows, columns)
    x, gates, scales = m.parameter(*shape), m.parameter(rows), m.parameter(rows)
    gate = m.op("multiply", m.op("logistic", gates), m.op("tanh", scales))
    total = m.reduce(m.op("multiply", x, m.spread(gate, shape, 0)), 0)
    largest = m.op("multiply", m.reduce(x, 1, kind="max"), m.op("exp", scales))
    return m.done(gate, total, m.op("subtract", x, m.spread(largest, shape, 0)))


def row_times_matrix(terms: int, columns: int) -> Graph:
    """The state of one example, activated, times a matrix, and a softmax of the product."""
    m = Maker("row_times_matrix")
    state, matrix, bias = m.parameter(1, terms), m.parameter(terms, columns), m.parameter(1, columns)
    scores = m.op("add", m.op("dot", m.op("tanh", state), matrix), bias)
    powers = m.op("exp", m.op("subtract", scores, m.spread(m.reduce(scores, 1, kind="max"), (1, columns), 0)))
    return m.done(m.op("divide", powers, m.spread(m.reduce(powers, 1), (1, columns), 0)))


def joined_row_times_matrix(first: int, second: int, columns: int) -> Graph:
    """Two vectors, the first a row of a table, joined, times a matrix: the factor of each row of the matrix is read under a guard."""
    m, terms = Maker("joined_row_times_matrix"), first + second
    table, row = m.parameter(9, first), m.parameter(1, dtype=DType.S32)
    numbers = GatherDimensions((1,), (0,), (0,), 1, (1, first))
    found = m.reshape(m.op("gather", table, row, gather=numbers), first)
    joined = m.op("concatenate", found, m.parameter(second), dimension=0)
    factors = m.spread(joined, (terms, columns), 0)
    return m.done(m.reduce(m.op("multiply", factors, m.parameter(terms, columns)), 0))


def gru_cell(batch: int, size: int) -> Graph:
    """Two products of a joined row, the second of which needs the first: a gated recurrent unit."""
    m = Maker("gru_cell")
    x, h = m.parameter(batch, size), m.parameter(batch, size)
    gates, candidate, bias = m.parameter(2 * size, 2 * size), m.parameter(2 * size, size), m.parameter(2 * size)
    shape = (batch, 2 * size)
    gate = m.op("dot", m.op("concatenate", x, h, dimension=1), gates)
    gate = m.op("logistic", m.op("add", gate, m.spread(bias, shape, 1)))
    reset, update = (
        m.op("slice", gate, start=(0, i * size), limit=(batch, (i + 1) * size), strides=(1, 1)) for i in (0, 1)
    )
    new = m.op("tanh", m.op("dot", m.op("concatenate", x, m.op("multiply", reset, h), dimension=1), candidate))
    kept = m.op("multiply", update, h)
    return m.done(m.op("add", kept, m.op("multiply", m.shifted(m.op("negate", update), 1.0), new)))


def product_softmax(rows: int, terms: int, columns: int, dtype: DType = DType.F32) -> Graph:
    """A product whose left factor is computed and whose row is reduced."""
    m, shape = Maker("product_softmax"), (rows, columns)
    logits = m.op("dot", m.op("sin", m.parameter(rows, terms, dtype=dtype)), m.parameter(terms, columns, dtype=dtype))
    weights = m.op("exp", m.op("subtract", logits, m.spread(m.reduce(logits, 1, kind="max"), shape, 0)))
    return m.done(m.op("divide", weights, m.spread(m.reduce(weights, 1), shape, 0)), logits)


def normalized_product(rows: int, size: int) -> Graph:
    """A row's numbers, its length and its place in a table, that are read both before and after a product of the row."""
    m, shape = Maker("normalized_product"), (rows, size)
    table, ids, w = m.parameter(50, size), m.parameter(rows, dtype=DType.S32), m.parameter(size, size)
    numbers = GatherDimensions((1,), (0,), (0,), 1, (1, size))
    x = m.op("gather", table, ids, gather=numbers)
    length = m.op("sqrt", m.shifted(m.reduce(m.op("multiply", x, x), 1), 1e-3))
    product = m.op("dot", m.op("divide", x, m.spread(length, shape, 0)), w)
    return m.done(m.op("add", m.op("multiply", m.op("tanh", product), m.spread(length, shape, 0)), x))


def turned_products(rows: int, terms: int, columns: int) -> Graph:
    """A product and its two gradients: both factors are read the other way round too."""
    m = Maker("turned_products")
    x, w, dy = m.parameter(rows, terms), m.parameter(terms, columns), m.parameter(rows, columns)
    dx = m.op("dot", dy, m.op("transpose", w, permutation=(1, 0)))
    dw = m.op("dot", m.op("transpose", x, permutation=(1, 0)), m.op("tanh", dy))
    return m.done(m.op("dot", x, w), dx, dw)


def batch_of_products(batch: int, rows: int, terms: int, columns: int) -> Graph:
    """Attention: scores, their softmax, and the values that they weigh."""
    m, shape = Maker("batch_of_products"), (batch, rows, columns)
    q, k, v = m.parameter(batch, rows, terms), m.parameter(batch, columns, terms), m.parameter(batch, columns, terms)
    scores = m.op("dot", q, m.op("transpose", k, permutation=(0, 2, 1)))
    weights = m.op("exp", m.op("subtract", scores, m.spread(m.reduce(scores, 2, kind="max"), shape, 0, 1)))
    return m.done(m.op("dot", m.op("divide", weights, m.spread(m.reduce(weights, 2), shape, 0, 1)), v))


LIBRARY: Mapping[str, Callable[[], Graph]] = {
    "middle_norm": lambda: middle_norm(9, 33, 130),
    "softmax": lambda: softmax(65, 128),
    "softmax_odd": lambda: softmax(37, 45),
    "turned_and_summed": lambda: turned_and_summed(2, 5, 11, 17),
    "softmax_tiny_rows": lambda: softmax(1000, 4),
    "softmax_one_row": lambda: softmax(1, 5000),
    "which_hold": lambda: which_hold(33, 40),
    "which_hold_short": lambda: which_hold(33, 12),
    "which_hold_long": lambda: which_hold(5, 1000),
    "softmax_half": lambda: softmax(33, 70, DType.F16),
    "softmax_bfloat": lambda: softmax(33, 70, DType.BF16),
    "biased_softmax_bfloat": lambda: biased_softmax(33, 70, DType.BF16),
    "layer_norm": lambda: layer_norm(512, 256),
    "layer_norm_gradient": lambda: layer_norm_gradient(520, 96),
    "gelu": lambda: gelu(300, 123),
    "bias_residual": lambda: bias_residual(700, 130),
    "bias_tiny_rows": lambda: bias_residual(3000, 18),
    "dropout": lambda: dropout(100, 77),
    "cross_entropy": lambda: cross_entropy(64, 500),
    "adam": lambda: adam([(64, 64), (1000,), (3, 5, 7), (1,), (64, 64)]),
    "clip_by_global_norm": lambda: clip_by_global_norm([(64, 64), (1000,), (333,)]),
    "batch_norm": lambda: batch_norm(4, 9, 8, 16),
    "attention_heads": lambda: attention_heads(4, 32, 4, 16),
    "masked_softmax": lambda: masked_softmax(2, 3, 40),
    "lstm_cell": lambda: lstm_cell(5, 64),
    "matrix_transpose": lambda: matrix_transpose(130, 96),
    "matrix_transpose_odd": lambda: matrix_transpose(67, 53),
    "gru_cell": lambda: gru_cell(33, 20),
    "gru_cell_tiny": lambda: gru_cell(9, 2),
    "product_softmax": lambda: product_softmax(20, 17, 40),
    "product_softmax_narrow": lambda: product_softmax(50, 30, 5),
    "product_softmax_wide": lambda: product_softmax(9, 7, 250),
    "product_softmax_half": lambda: product_softmax(9, 30, 20, DType.F16),
    "product_softmax_double": lambda: product_softmax(9, 30, 21, DType.F64),
    "product_of_very_many_columns": lambda: product_softmax(3, 5, 6000),
    "normalized_product": lambda: normalized_product(29, 24),
    "turned_products": lambda: turned_products(20, 36, 50),
    "batch_of_products": lambda: batch_of_products(5, 12, 16, 20),
    "attention_pool": lambda: attention_pool(20, 50, 36),
    "crossed_rows": crossed_rows,
    "cut_two_ways": cut_two_ways,
    "figure_nine": figure_nine,
    "argmax_rows": lambda: argmax(50, 33, 1),
    "argmax_columns": lambda: argmax(50, 33, 0),
    "cumulative_sum": lambda: cumulative((3, 70), 1),
    "cumulative_sum_of_columns": lambda: cumulative((40, 20), 0, exclusive=True),
    "max_pool": lambda: max_pool(2, 9, 5),
    "max_pool_channels": lambda: max_pool(2, 9, 40),
    "max_pool_gradient": lambda: max_pool_gradient(2, 9, 40),
    "max_pool_gradient_few_channels": lambda: max_pool_gradient(2, 8, 3),
    **{f"padded_rows_{dtype.value}": partial(padded_rows, dtype, 7, 40) for dtype in DType},
    "cumsum_of_columns": lambda: cumsum_of_columns(30, 24),
    "embedding_gradient": lambda: embedding_gradient(40, 96, 30),
    "embedding": lambda: embedding(40, 96, 30),
    "column_sum": lambda: column_sum(2000, 96),
    "column_sum_wide": lambda: column_sum(12, 30000),
    "full_sum": lambda: full_sum(100_003),
    "running_sum": lambda: running_sum(300, 8),
    "expensive_column": lambda: expensive_column(400, 100),
    "gated_rows": lambda: gated_rows(130, 72),
    "row_times_matrix": lambda: row_times_matrix(40, 70),
    "row_times_large_matrix": lambda: row_times_matrix(130, 520),
    "joined_row_times_matrix": lambda: joined_row_times_matrix(24, 40, 96),
}
