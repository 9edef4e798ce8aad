"""Hypothesis strategies that draw valid graphs.

`graphs(max_ops)` grows a graph op by op: it draws an op, picks operands among the nodes that fit it (or makes them
fit by a broadcast, reshape or convert), and lets the op table infer the result. So each graph is legal by
construction, and the property tests say what else must hold: that it verifies, that a kernel agrees with the oracle.

Extents are small and odd on purpose: 1, primes, now and then 0, and some just above a vector's length.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np
from hypothesis import strategies as st

from stitchfleet.compiler.ir.graph import (
    REDUCE_KINDS,
    DType,
    GatherDimensions,
    Graph,
    GraphBuilder,
    Literal,
    Node,
    Shape,
    WindowDimension,
)
from stitchfleet.compiler.ops.table import build
from stitchfleet.compiler.ops.verify import verify

Draw: TypeAlias = Callable[[st.SearchStrategy], object]

LARGEST_NODE: Final = 4096  # elements; larger ones make the tests slow and show nothing new
EXTENTS: Final = (1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 17, 31, 33)
FLOATS: Final = (DType.F32, DType.F32, DType.F32, DType.F32, DType.F64, DType.F16, DType.BF16)
INTEGERS: Final = (DType.S32, DType.S32, DType.S64, DType.S8, DType.S16, DType.U8, DType.U16, DType.U32, DType.U64)
ALL: Final = (*FLOATS, *INTEGERS, DType.PRED)

FLOAT_UNARY: Final = (
    *("exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "cbrt", "sin", "cos", "tan", "tanh", "logistic", "erf"),
    *("floor", "ceil", "round_nearest_even", "round_nearest_afz", "abs", "negate", "sign", "copy"),
)
FLOAT_BINARY: Final = (
    *("add", "subtract", "multiply", "divide", "maximum", "minimum", "add", "subtract", "multiply"),
    *("remainder", "power", "atan2"),
)
INTEGER_UNARY: Final = ("abs", "negate", "sign", "not", "popcnt", "clz", "copy")
INTEGER_BINARY: Final = (
    *("add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "power", "and", "or", "xor"),
    *("shift_left", "shift_right_arithmetic", "shift_right_logical"),
)


class _Grower:
    """One graph in the making: what has been drawn so far and how to draw the next op."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.builder = GraphBuilder("random")
        self.parameter_count = 0

    # -- choosing --

    def choose(self, options: Sequence[object]) -> object:
        return self.draw(st.sampled_from(options))

    def integer(self, low: int, high: int) -> int:
        value = self.draw(st.integers(low, high))
        assert isinstance(value, int)
        return value

    def chance(self, one_in: int) -> bool:
        return self.integer(1, one_in) == one_in

    def shape(self) -> Shape:
        rank = self.integer(0, 4)
        shape: list[int] = []
        count = 1
        for _ in range(rank):
            extent = 0 if self.chance(60) else self.choose(EXTENTS)
            assert isinstance(extent, int)
            if count * extent > LARGEST_NODE:
                extent = 1
            shape.append(extent)
            count *= max(extent, 1)
        return tuple(shape)

    def node(self, index: int) -> Node:
        return self.builder.nodes[index]

    def pick(self, fits: Callable[[Node], bool] = lambda node: True) -> int | None:
        """A node that `fits`, later ones more often (they make graphs deep); None where there is none."""
        found = [i for i, node in enumerate(self.builder.nodes) if fits(node)]
        if not found:
            return None
        return found[-1 - min(self.integer(0, len(found) - 1), self.integer(0, len(found) - 1))]

    # -- making operands fit --

    def parameter(self, shape: Shape, dtype: DType) -> int:
        self.parameter_count += 1
        return build(self.builder, "parameter", (), number=self.parameter_count - 1, shape=shape, dtype=dtype)

    def constant(self, shape: Shape, dtype: DType) -> int:
        """Small random values; a seed is drawn, not the elements, which keeps examples small."""
        rng = np.random.default_rng(self.integer(0, 2**16))
        values = rng.standard_normal(shape) * 3 if dtype.is_float else rng.integers(0, 5, shape)
        return build(self.builder, "constant", (), literal=Literal(np.asarray(values).astype(dtype.numpy)))

    def partner(self, shape: Shape, dtype: DType) -> int:
        """Something of this very shape and dtype: a node that is there, a broadcast of a smaller one, a conversion,
        or new."""
        same = self.pick(lambda node: node.shape == shape and node.dtype is dtype)
        if same is not None and not self.chance(4):
            return same

        def spreads(node: Node) -> bool:
            return node.dtype is dtype and self.embedding(node.shape, shape) is not None

        small = self.pick(spreads)
        if small is not None and not self.chance(3):
            dimensions = self.embedding(self.node(small).shape, shape)
            assert dimensions is not None
            return build(self.builder, "broadcast", (small,), shape=shape, dimensions=dimensions)
        other = self.pick(lambda node: node.shape == shape)
        if other is not None and self.chance(2):
            return build(self.builder, "convert", (other,), dtype=dtype)
        scalar = self.constant((), dtype) if self.chance(2) else self.parameter((), dtype)
        if self.chance(2):
            return build(self.builder, "broadcast", (scalar,), shape=shape, dimensions=())
        return self.parameter(shape, dtype)

    def embedding(self, small: Shape, large: Shape) -> tuple[int, ...] | None:
        """Increasing dimensions of `large` with the extents of `small`, from the right; None where there are none."""
        if len(small) >= len(large):
            return None
        found: list[int] = []
        at = len(large) - 1
        for extent in reversed(small):
            while at >= 0 and large[at] != extent:
                at -= 1
            if at < 0:
                return None
            found.append(at)
            at -= 1
        return tuple(reversed(found))

    # -- one op of each family; False where nothing fits --

    def elementwise(self) -> bool:
        x = self.pick()
        assert x is not None
        node = self.node(x)
        shape, dtype = node.shape, node.dtype
        if dtype.is_float:
            choice = self.integer(0, 6)
            if choice <= 1:
                build(self.builder, str(self.choose(FLOAT_UNARY)), (x,))
            elif choice <= 4:
                build(self.builder, str(self.choose(FLOAT_BINARY)), (x, self.partner(shape, dtype)))
            elif choice == 5:
                build(self.builder, "clamp", (self.partner(shape, dtype), x, self.partner(shape, dtype)))
            elif self.chance(3):
                build(self.builder, "is_finite", (x,))
            else:
                build(self.builder, "reduce_precision", (x,), exponent_bits=8, mantissa_bits=self.integer(5, 20))
            return True
        if dtype is DType.PRED:
            if self.chance(3):
                build(self.builder, "not", (x,))
            else:
                build(self.builder, str(self.choose(("and", "or", "xor"))), (x, self.partner(shape, dtype)))
            return True
        if self.chance(3):
            build(self.builder, str(self.choose(INTEGER_UNARY)), (x,))
        else:
            build(self.builder, str(self.choose(INTEGER_BINARY)), (x, self.partner(shape, dtype)))
        return True

    def comparison(self) -> bool:
        x = self.pick()
        assert x is not None
        node = self.node(x)
        direction = str(self.choose(("EQ", "NE", "LT", "LE", "GT", "GE")))
        build(
            self.builder, "compare", (x, self.partner(node.shape, node.dtype)), direction=direction, total_order=False
        )
        return True

    def selection(self) -> bool:
        predicate = self.pick(lambda node: node.dtype is DType.PRED)
        if predicate is None:
            return self.comparison()
        shape = self.node(predicate).shape
        dtype = self.choose(ALL)
        assert isinstance(dtype, DType)
        build(self.builder, "select", (predicate, self.partner(shape, dtype), self.partner(shape, dtype)))
        return True

    def conversion(self) -> bool:
        x = self.pick()
        dtype = self.choose(ALL)
        assert x is not None
        assert isinstance(dtype, DType)
        twins = {
            DType.F32: (DType.S32, DType.U32),
            DType.F64: (DType.S64,),
            DType.F16: (DType.U16,),
            DType.BF16: (DType.S16, DType.U16),
        }
        source = self.node(x).dtype
        if source in twins and self.chance(4):
            build(self.builder, "bitcast_convert", (x,), dtype=self.choose(twins[source]))  # type: ignore[arg-type]
        else:
            build(self.builder, "convert", (x,), dtype=dtype)
        return True

    def broadcast(self) -> bool:
        x = self.pick(lambda node: len(node.shape) < 4 and node.element_count * 2 <= LARGEST_NODE)
        if x is None:
            return False
        source = self.node(x)
        shape: list[int] = []
        dimensions: list[int] = []
        count = source.element_count
        left = list(source.shape)
        while left or (len(shape) < 4 and self.chance(2)):
            extent = self.choose(EXTENTS)
            assert isinstance(extent, int)
            room = count * extent <= LARGEST_NODE and len(shape) + len(left) < 4
            if left and (not room or self.chance(2)):
                dimensions.append(len(shape))
                shape.append(left.pop(0))
            elif room:
                shape.append(extent)
                count *= extent
            else:
                break
        build(self.builder, "broadcast", (x,), shape=tuple(shape), dimensions=tuple(dimensions))
        return True

    def reshape(self) -> bool:
        x = self.pick()
        assert x is not None
        shape = [extent for extent in self.node(x).shape if extent != 1]
        if 0 not in shape:
            if len(shape) >= 2 and self.chance(2):
                at = self.integer(0, len(shape) - 2)
                shape[at : at + 2] = [shape[at] * shape[at + 1]]
            elif shape and self.chance(2):
                at = self.integer(0, len(shape) - 1)
                factor = next((f for f in (2, 3, 5, 7, 11) if shape[at] % f == 0), 1)
                shape[at : at + 1] = [factor, shape[at] // factor]
        if self.chance(3):
            shape.insert(self.integer(0, len(shape)), 1)
        build(self.builder, "reshape", (x,), shape=tuple(shape))
        return True

    def transpose(self) -> bool:
        x = self.pick(lambda node: len(node.shape) >= 2)
        if x is None:
            return False
        permutation = self.draw(st.permutations(range(len(self.node(x).shape))))
        build(self.builder, "transpose", (x,), permutation=tuple(permutation))  # type: ignore[arg-type]
        return True

    def slice(self) -> bool:
        x = self.pick(lambda node: len(node.shape) >= 1)
        if x is None:
            return False
        starts, limits, strides = [], [], []
        for extent in self.node(x).shape:
            start = self.integer(0, min(extent, 3)) if self.chance(2) else 0
            limit = self.integer(start, extent) if self.chance(3) else extent
            starts.append(start)
            limits.append(limit)
            strides.append(self.integer(1, 3) if self.chance(3) else 1)
        build(self.builder, "slice", (x,), start=tuple(starts), limit=tuple(limits), strides=tuple(strides))
        return True

    def pad(self) -> bool:
        x = self.pick(lambda node: len(node.shape) >= 1 and node.element_count <= LARGEST_NODE // 8)
        if x is None:
            return False
        node = self.node(x)
        low, high, interior, count = [], [], [], 1
        for extent in node.shape:
            below = self.integer(-1, 2) if extent > 1 else self.integer(0, 2)
            above = self.integer(-1, 2) if extent > 2 else self.integer(0, 2)
            between = 1 if self.chance(4) else 0
            padded = extent + below + above + max(extent - 1, 0) * between
            if padded < 0 or count * padded > LARGEST_NODE:
                below = above = between = 0
                padded = extent
            count *= max(padded, 1)
            low.append(below)
            high.append(above)
            interior.append(between)
        value = self.constant((), node.dtype)
        build(self.builder, "pad", (x, value), low=tuple(low), high=tuple(high), interior=tuple(interior))
        return True

    def concatenate(self) -> bool:
        x = self.pick(lambda node: len(node.shape) >= 1 and node.element_count <= LARGEST_NODE // 3)
        if x is None:
            return False
        node = self.node(x)
        dimension = self.integer(0, len(node.shape) - 1)
        operands = [x]
        for _ in range(self.integer(0, 2)):

            def alike(other: Node) -> bool:
                return (
                    other.dtype is node.dtype
                    and len(other.shape) == len(node.shape)
                    and other.element_count <= LARGEST_NODE // 3
                    and all(
                        a == b for i, (a, b) in enumerate(zip(other.shape, node.shape, strict=True)) if i != dimension
                    )
                )

            found = self.pick(alike)
            operands.append(x if found is None else found)
        build(self.builder, "concatenate", operands, dimension=dimension)
        return True

    def some_dimensions(self, rank: int) -> tuple[int, ...]:
        chosen = self.draw(st.sets(st.integers(0, rank - 1), min_size=1)) if rank else set()
        return tuple(sorted(chosen))  # type: ignore[call-overload]

    def reverse(self) -> bool:
        x = self.pick(lambda node: len(node.shape) >= 1)
        if x is None:
            return False
        build(self.builder, "reverse", (x,), dimensions=self.some_dimensions(len(self.node(x).shape)))
        return True

    def iota(self) -> bool:
        shape = self.shape()
        if not shape:
            return False
        dtype = self.choose((DType.S32, DType.F32, DType.S64, DType.U32, DType.F64))
        assert isinstance(dtype, DType)
        build(self.builder, "iota", (), shape=shape, dtype=dtype, dimension=self.integer(0, len(shape) - 1))
        return True

    def reduce(self) -> bool:
        x = self.pick(lambda node: len(node.shape) >= 1)
        if x is None:
            return False
        node = self.node(x)
        if node.dtype is DType.PRED:
            kinds: tuple[str, ...] = ("and", "or", "max", "min")
        elif node.dtype.is_float:
            kinds = ("sum", "sum", "sum", "max", "max", "min", "product")
        else:
            kinds = REDUCE_KINDS
        dimensions = self.some_dimensions(len(node.shape))
        build(self.builder, "reduce", (x,), kind=str(self.choose(kinds)), dimensions=dimensions)
        return True

    def dot(self) -> bool:
        x = self.pick(
            lambda node: len(node.shape) >= 2 and node.dtype.is_float and node.element_count <= LARGEST_NODE // 4
        )
        if x is None:
            return False
        *batch, rows, terms = self.node(x).shape
        columns = self.choose(EXTENTS)
        assert isinstance(columns, int)
        if math.prod(batch) * max(terms, rows) * columns > LARGEST_NODE:
            columns = 1
        build(self.builder, "dot", (x, self.partner((*batch, terms, columns), self.node(x).dtype)))
        return True

    def argmax(self) -> bool:
        """A variadic reduce: the largest (or smallest) value and where it is; both results are nodes of the graph."""
        x = self.pick(lambda node: len(node.shape) >= 1 and node.dtype is not DType.PRED)
        if x is None:
            return False
        node = self.node(x)
        dimension = self.integer(0, len(node.shape) - 1)
        index_dtype = DType.S32
        largest = self.chance(2)
        body = argmax_body(node.dtype, index_dtype, largest)
        positions = build(self.builder, "iota", (), shape=node.shape, dtype=index_dtype, dimension=dimension)
        if node.dtype.is_float:
            first = np.array(-np.inf if largest else np.inf)
        else:
            limits = np.iinfo(str(node.dtype.numpy))
            first = np.array(limits.min if largest else limits.max)
        init = build(self.builder, "constant", (), literal=Literal(first.astype(node.dtype.numpy)))
        zero = build(self.builder, "constant", (), literal=Literal(np.zeros((), np.int32)))
        for result in (0, 1):
            operands = (x, positions, init, zero)
            build(self.builder, "reduce_general", operands, dimensions=(dimension,), body=body, result=result)
        return True

    def reduce_window(self) -> bool:
        x = self.pick(lambda node: len(node.shape) >= 1 and 0 < node.element_count <= LARGEST_NODE // 2)
        if x is None:
            return False
        node = self.node(x)
        kind = "max" if node.dtype is DType.PRED or self.chance(2) else "sum"
        window, count = [], 1
        for extent in node.shape:
            item = WindowDimension(
                self.integer(1, min(extent, 4)),
                self.integer(1, 2),
                self.integer(0, 2),
                self.integer(0, 2),
                2 if self.chance(6) else 1,
                2 if self.chance(8) else 1,
            )
            padded = (extent - 1) * item.base_dilation + 1 + item.padding_low + item.padding_high
            if count * padded > LARGEST_NODE:
                item, padded = WindowDimension(1), extent
            count *= padded
            window.append(item)
        init = self.constant((), node.dtype)
        build(self.builder, "reduce_window", (x, init), window=tuple(window), kind=kind)
        return True

    def patches(self) -> bool:
        x = self.pick(lambda node: len(node.shape) >= 1 and 0 < node.element_count <= LARGEST_NODE // 4)
        if x is None:
            return False
        shape = self.node(x).shape
        dimensions = self.some_dimensions(len(shape))
        sizes = tuple(self.integer(1, min(shape[d], 3 if i == 0 else 2)) for i, d in enumerate(dimensions[:2]))
        dimensions = dimensions[:2]
        dilations = tuple(
            2 if (size - 1) * 2 < shape[d] and self.chance(3) else 1 for d, size in zip(dimensions, sizes, strict=True)
        )
        strides = tuple(self.integer(1, 2) for _ in dimensions)
        build(self.builder, "patches", (x,), dimensions=dimensions, sizes=sizes, strides=strides, dilations=dilations)
        return True

    def index_parameter(self, shape: Shape) -> int:
        return self.parameter(shape, DType.S64 if self.chance(3) else DType.S32)

    def gather(self) -> bool:
        x = self.pick(lambda node: len(node.shape) >= 1 and 0 < node.element_count <= LARGEST_NODE // 4)
        if x is None:
            return False
        node = self.node(x)
        rank = len(node.shape)
        if self.chance(2):
            # Rows of a table, as an embedding looks them up.
            count = self.integer(1, max(1, min(9, LARGEST_NODE // max(1, node.element_count // node.shape[0]))))
            numbers = GatherDimensions(tuple(range(1, rank)), (0,), (0,), 1, (1, *node.shape[1:]))
            indices = self.index_parameter((count,))
        else:
            # Windows that start at an index vector.
            mapped = self.some_dimensions(rank)
            sizes = tuple(self.integer(1, extent) if i in mapped else extent for i, extent in enumerate(node.shape))
            collapsed = tuple(i for i in mapped if sizes[i] == 1 and self.chance(2))
            kept = rank - len(collapsed)
            # The index vectors come first or last in the indices, the batch dimension first or last in the result.
            last = self.chance(2)
            offset = tuple(range(1, kept + 1)) if self.chance(2) else tuple(range(kept))
            numbers = GatherDimensions(offset, collapsed, mapped, 1 if last else 0, sizes)
            indices = self.index_parameter((3, len(mapped)) if last else (len(mapped), 3))
        build(self.builder, "gather", (x, indices), gather=numbers)
        return True

    def scatter(self) -> bool:
        x = self.pick(lambda node: len(node.shape) >= 1 and 0 < node.element_count <= LARGEST_NODE)
        if x is None:
            return False
        node = self.node(x)
        rank, count = len(node.shape), self.integer(1, 6)
        numbers = GatherDimensions(tuple(range(1, rank)), (0,), (0,), 1)
        indices = self.index_parameter((count,))
        updates = self.partner((count, *node.shape[1:]), node.dtype)
        kinds = ("or", "and", "max") if node.dtype is DType.PRED else ("sum", "sum", "max", "min")
        build(self.builder, "scatter", (x, indices, updates), scatter=numbers, kind=str(self.choose(kinds)))
        return True

    def dynamic_slice(self) -> bool:
        x = self.pick(lambda node: len(node.shape) in (1, 2) and node.element_count > 0)
        if x is None:
            return False
        node = self.node(x)
        sizes = tuple(self.integer(1, extent) for extent in node.shape)
        starts = [self.index_parameter(()) for _ in node.shape]
        if self.chance(2):
            build(self.builder, "dynamic_slice", (x, *starts), sizes=sizes)
        else:
            build(self.builder, "dynamic_update_slice", (x, self.partner(sizes, node.dtype), *starts))
        return True

    def grow(self) -> None:
        """Adds one op of a drawn family (and what its operands need)."""
        families = (
            *(self.elementwise,) * 12,
            *(self.broadcast, self.reduce) * 3,
            *(self.comparison, self.selection, self.conversion, self.reshape, self.transpose) * 2,
            *(self.slice, self.pad, self.concatenate, self.reverse, self.iota, self.argmax),
            *(self.patches, self.reduce_window, self.gather, self.scatter, self.dynamic_slice, self.dot),
        )
        family = self.choose(families)
        assert callable(family)
        if not family():
            self.elementwise()


def argmax_body(value: DType, index: DType, largest: bool) -> Graph:
    """The region XLA makes for argmax: the larger value, on a tie the smaller index; NaN wins."""
    builder = GraphBuilder("argmax" if largest else "argmin")
    left, left_at, right, right_at = (
        build(builder, "parameter", (), number=number, shape=(), dtype=dtype)
        for number, dtype in enumerate((value, index, value, index))
    )
    wins = build(builder, "compare", (left, right), direction="GE" if largest else "LE", total_order=False)
    if value.is_float:
        is_nan = build(builder, "compare", (left, left), direction="NE", total_order=False)
        wins = build(builder, "or", (wins, is_nan))
    best = build(builder, "select", (wins, left, right))
    equal = build(builder, "compare", (left, right), direction="EQ", total_order=False)
    first = build(builder, "minimum", (left_at, right_at))
    where = build(builder, "select", (wins, left_at, right_at))
    return builder.finish((best, build(builder, "select", (equal, first, where))))


@st.composite
def graphs(draw: Draw, max_ops: int = 60) -> Graph:
    """A valid graph of up to about `max_ops` ops (an op may bring a few more for its operands; never more than twice
    as many), one to four outputs, every parameter numbered."""
    grower = _Grower(draw)
    for _ in range(grower.integer(1, 3)):
        dtype = grower.choose(ALL)
        assert isinstance(dtype, DType)
        grower.parameter(grower.shape(), dtype)
    wanted = grower.integer(1, max_ops)
    while len(grower.builder.nodes) < wanted:
        grower.grow()
    nodes = grower.builder.nodes
    used = {operand for node in nodes for operand in node.operands}
    ends = [i for i, node in enumerate(nodes) if i not in used and node.op not in ("parameter", "constant")]
    outputs = ends[-3:] or [len(nodes) - 1]
    if grower.chance(3):
        extra = grower.pick()
        assert extra is not None
        outputs.append(extra)
    graph = grower.builder.finish(outputs)
    verify(graph)
    return graph
