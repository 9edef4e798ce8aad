"""Numpy references of the ops: the `numpy` column of the op table.

A reference takes the node, its operands' nodes and their values, and returns the result's value in the node's shape.
Floats are computed in one working precision that the interpreter chooses (float32 for f16, bf16 and f32; float64 for
f64, and for every float if the interpreter acts as the oracle); the interpreter rounds the result to the node's dtype.
Integers wrap, and booleans are numpy's.

The semantics are HLO's (openxla.org/xla/operation_semantics). If that text leaves a result open, the reference follows XLA's
CPU code, and its docstring says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ..ir.graph import Array, DType, GatherDimensions, Literal, Node, Shape, WindowDimension
from ..support.sequences import zip_strict
from .attributes import gather_numbers, integers, window_of

if TYPE_CHECKING:
    from typing import TypeAlias

NumpyRule: TypeAlias = Callable[[Node, Sequence[Node], Sequence[Array]], Array]
_AnyArray: TypeAlias = npt.NDArray[Any]


def direct(function: Callable[..., _AnyArray]) -> NumpyRule:
    """A rule that depends on the operands' values only: `function(*values)`."""

    def reference(node: Node, sources: Sequence[Node], values: Sequence[Array]) -> Array:
        del node, sources
        return np.asarray(function(*values))

    return reference


# ---- element-wise --------------------------------------------------------------------------------------------------


_erf: Final = np.vectorize(math.erf, otypes=[np.float64])


def erf(x: _AnyArray) -> _AnyArray:
    """The error function, computed in double by math.erf."""
    return np.asarray(_erf(x)) if x.size else x


def logistic(x: _AnyArray) -> _AnyArray:
    """1 / (1 + exp(-x))."""
    return np.asarray(1 / (1 + np.exp(-x)))


def rsqrt(x: _AnyArray) -> _AnyArray:
    """1 / sqrt(x)."""
    return np.asarray(1 / np.sqrt(x))


def round_away(x: _AnyArray) -> _AnyArray:
    """Rounds to the nearest integer, halves away from zero. As with C's round, -0.3 gives -0.0."""
    whole = np.trunc(x)
    away = np.where(np.abs(x - whole) >= 0.5, np.copysign(1, x), 0)
    return np.asarray(np.where(np.isfinite(x), np.copysign(whole + away, x), x))


def popcount(x: _AnyArray) -> _AnyArray:
    """Number of one bits of each integer, in its dtype."""
    bytes_ = np.asarray(x, order="C").reshape(*x.shape, 1).view(np.uint8)
    return np.asarray(np.unpackbits(bytes_, axis=-1).sum(axis=-1)).astype(x.dtype)


def count_leading_zeros(x: _AnyArray) -> _AnyArray:
    """Number of zero bits above the highest one bit of each integer; the dtype's width for 0."""
    width = x.dtype.itemsize * 8
    big_endian = np.asarray(x, order="C").astype(x.dtype.newbyteorder(">")).reshape(*x.shape, 1).view(np.uint8)
    bits = np.unpackbits(big_endian, axis=-1)
    return np.asarray(np.where(bits.any(axis=-1), bits.argmax(axis=-1), width)).astype(x.dtype)


_PHILOX_ROUNDS: Final = 10
_PHILOX_MULTIPLIERS: Final = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_PHILOX_WEYL: Final = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))


def philox(key: _AnyArray, low: _AnyArray, high: _AnyArray, index: _AnyArray) -> _AnyArray:
    """Word `index` (u32) of the Philox 4x32-10 stream of `key` that starts at the 128-bit counter (low, high). All operands are u64.

    J. K. Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3". Constants and the order of words are those of
    TensorFlow's philox_random.h and of HLO's rng-bit-generator: block i of the stream has counter + i and words 4i to 4i + 3.
    """
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    counter = low + (index >> np.uint64(2))
    above = high + (counter < low)
    a, b, c, d = counter & mask, counter >> half, above & mask, above >> half
    k0, k1 = key & mask, key >> half
    for _ in range(_PHILOX_ROUNDS):
        first, second = _PHILOX_MULTIPLIERS[0] * a, _PHILOX_MULTIPLIERS[1] * c
        a, b, c, d = second >> half ^ b ^ k0, second & mask, first >> half ^ d ^ k1, first & mask
        k0, k1 = k0 + _PHILOX_WEYL[0] & mask, k1 + _PHILOX_WEYL[1] & mask
    lane = index & np.uint64(3)
    return np.asarray(np.where(lane < 2, np.where(lane == 0, a, b), np.where(lane == 2, c, d))).astype(np.uint32)


def divide(a: _AnyArray, b: _AnyArray) -> _AnyArray:
    """`a / b`. Floats divide as in IEEE 754. Integers round towards zero; division by zero gives -1 (all bits one); the smallest
    integer divided by -1 gives itself (as XLA's EmitIntegerDivide)."""
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    minus_one = np.array(-1).astype(a.dtype)
    negating = (b == minus_one) if a.dtype.kind == "i" else np.zeros(b.shape, bool)
    safe = np.where((b == 0) | negating, np.ones_like(b), b)
    quotient = a // safe
    rest = a - quotient * safe
    quotient = quotient + ((rest != 0) & ((a < 0) != (safe < 0))).astype(a.dtype)  # numpy rounds down
    quotient = np.where(negating, (0 * a - a).astype(a.dtype), quotient)
    return np.asarray(np.where(b == 0, minus_one, quotient))


def remainder(a: _AnyArray, b: _AnyArray) -> _AnyArray:
    """The remainder of `a / b` with the dividend's sign. For integers, remainder by zero is the dividend, and by -1 it is zero."""
    if a.dtype.kind == "f":
        return np.asarray(np.fmod(a, b))
    trivial = b == 0
    if a.dtype.kind == "i":
        trivial = trivial | (b == -1)
    rest = np.fmod(a, np.where(trivial, np.ones_like(b), b))
    return np.asarray(np.where(b == 0, a, rest))


def power(a: _AnyArray, b: _AnyArray) -> _AnyArray:
    """Floats as C's pow. Integers wrap; a negative exponent gives 1 for base 1, +-1 for base -1, and 0 for any other base (as XLA's
    EmitIntegerPow)."""
    if a.dtype.kind == "f":
        return np.asarray(np.power(a, b))
    result, factor, rest = np.ones_like(a), a.copy(), np.where(b < 0, np.zeros_like(b), b)
    one = np.ones_like(rest)  # not a Python 1, which would make numpy turn a u64 scalar into a float
    while rest.any():
        result = np.where((rest & one).astype(bool), result * factor, result)
        factor, rest = factor * factor, rest >> one
    if a.dtype.kind == "i":
        odd = (b & 1).astype(bool)
        below = np.where(a == 1, 1, np.where(a == -1, np.where(odd, -1, 1), 0)).astype(a.dtype)
        result = np.where(b < 0, below, result)
    return np.asarray(result)


def _amount(b: _AnyArray) -> tuple[_AnyArray, _AnyArray]:
    """The shift amount, 0 where it is not below the width, and a mask of those places (negative amounts count as huge)."""
    unsigned = b.view(np.dtype(f"u{b.dtype.itemsize}"))
    outside = unsigned >= b.dtype.itemsize * 8
    return np.where(outside, 0, unsigned).astype(unsigned.dtype), outside


def shift_left(a: _AnyArray, b: _AnyArray) -> _AnyArray:
    """`a << b`, bit by bit; amounts that are negative or not below the dtype's width in bits give 0."""
    amount, outside = _amount(b)
    shifted = (a.view(amount.dtype) << amount).view(a.dtype)
    return np.where(outside, np.zeros_like(a), shifted)


def shift_right_logical(a: _AnyArray, b: _AnyArray) -> _AnyArray:
    """`a >> b` with zeros shifted in; amounts that are negative or not below the dtype's width in bits give 0."""
    amount, outside = _amount(b)
    shifted = (a.view(amount.dtype) >> amount).view(a.dtype)
    return np.where(outside, np.zeros_like(a), shifted)


def shift_right_arithmetic(a: _AnyArray, b: _AnyArray) -> _AnyArray:
    """`a >> b` with the sign bit repeated, also for unsigned operands, which are treated as signed. Amounts that are negative or not
    below the width count as the width minus one."""
    amount, outside = _amount(b)
    signed = np.dtype(f"i{a.dtype.itemsize}")
    amount = np.where(outside, a.dtype.itemsize * 8 - 1, amount).astype(signed)
    return np.asarray(a.view(signed) >> amount).view(a.dtype)


def total_order(x: _AnyArray) -> _AnyArray:
    """Integers that are ordered as IEEE 754's total order orders the floats `x`."""
    bits = np.asarray(x, order="C").view(np.dtype(f"i{x.dtype.itemsize}"))
    largest = np.iinfo(bits.dtype).max
    return np.asarray(np.where(bits < 0, bits ^ largest, bits))


_COMPARE: Final[dict[str, Callable[..., _AnyArray]]] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


def compare(node: Node, sources: Sequence[Node], values: Sequence[Array]) -> Array:
    """`a direction b`; floats by their values or, with `total_order`, in IEEE 754's total order."""
    del sources
    a, b = map(total_order, values) if node.attributes.get("total_order") else values
    return np.asarray(_COMPARE[str(node.attributes["direction"])](a, b))


def clamp(low: _AnyArray, x: _AnyArray, high: _AnyArray) -> _AnyArray:
    """The smaller of `high` and the larger of `low` and `x`; NaN if one of them is."""
    return np.asarray(np.minimum(np.maximum(low, x), high))


def convert(node: Node, sources: Sequence[Node], values: Sequence[Array]) -> Array:
    """To integer: towards zero; a value out of range gives the nearest end of the range, NaN gives 0. To float: unchanged, the
    interpreter rounds. To pred: whether it is not zero."""
    del sources
    x: _AnyArray = values[0]
    if node.dtype is DType.PRED:
        return np.asarray(x != 0)
    if node.dtype.is_float or x.dtype.kind != "f":
        return x if node.dtype.is_float else x.astype(node.dtype.numpy)
    limits = np.iinfo(str(node.dtype.numpy))
    above, below = float(limits.max) + 1.0 if node.dtype.size_bytes < 8 else float(limits.max), float(limits.min)
    inside = (x > below) & (x < above)
    result = np.where(inside, x, 0).astype(node.dtype.numpy)
    result = np.where(x >= above, limits.max, result)
    return np.asarray(np.where(x <= below, limits.min, result)).astype(node.dtype.numpy)


def bitcast_convert(node: Node, sources: Sequence[Node], values: Sequence[Array]) -> Array:
    """The bits of each element, in the operand's dtype, read as the result's dtype."""
    return np.asarray(values[0].astype(sources[0].dtype.numpy), order="C").view(node.dtype.numpy)


def reduce_precision(node: Node, sources: Sequence[Node], values: Sequence[Array]) -> Array:
    """Rounds to a float format with `exponent_bits` and `mantissa_bits`, as XLA's EmitReducePrecisionIR does, on the bits of the
    working precision."""
    del sources
    x: _AnyArray = np.asarray(values[0], order="C")
    wide_exponent, wide_mantissa = (8, 23) if x.dtype.itemsize == 4 else (11, 52)
    exponent, mantissa = int(node.attributes["exponent_bits"]), int(node.attributes["mantissa_bits"])  # type: ignore[arg-type]
    unsigned = np.dtype(f"u{x.dtype.itemsize}").type
    source = x.view(unsigned)
    bits = source
    if mantissa < wide_mantissa:
        last = unsigned(1 << (wide_mantissa - mantissa))
        bias = np.where(bits & last, unsigned(1), unsigned(0)) + unsigned((int(last) >> 1) - 1)
        bits = (bits + bias) & ~unsigned(int(last) - 1)
    if exponent < wide_exponent:
        field_mask = unsigned(((1 << wide_exponent) - 1) << wide_mantissa)
        sign = source & unsigned(1 << (wide_exponent + wide_mantissa))
        wide_bias, bias_of = (1 << (wide_exponent - 1)) - 1, (1 << (exponent - 1)) - 1
        field = bits & field_mask
        bits = np.where(field > unsigned((wide_bias + bias_of) << wide_mantissa), sign | field_mask, bits)
        bits = np.where(field <= unsigned((wide_bias - bias_of) << wide_mantissa), sign, bits)
    return np.asarray(np.where(np.isnan(x), x, bits.astype(unsigned).view(x.dtype)))


# ---- leaves and movement -------------------------------------------------------------------------------------------


def constant(node: Node, sources: Sequence[Node], values: Sequence[Array]) -> Array:
    """The literal's value."""
    del sources, values
    literal = node.attributes["literal"]
    assert isinstance(literal, Literal)
    return literal.value


def iota(node: Node, sources: Sequence[Node], values: Sequence[Array]) -> Array:
    """Each element is its index in `dimension`."""
    del sources, values
    dimension = int(node.attributes["dimension"])  # type: ignore[arg-type]
    along = [1] * len(node.shape)
    along[dimension] = node.shape[dimension]
    kind = np.float64 if node.dtype.is_float else node.dtype.numpy
    return np.broadcast_to(np.arange(node.shape[dimension]).astype(kind).reshape(along), node.shape)


def broadcast(node: Node, sources: Sequence[Node], values: Sequence[Array]) -> Array:
    """The operand, repeated along the dimensions that it does not have."""
    along = [1] * len(node.shape)
    for to, extent in zip_strict(integers(node, "dimensions"), sources[0].shape):
        along[to] = extent
    return np.broadcast_to(values[0].reshape(along), node.shape)


def reshape(node: Node, sources: Sequence[Node], values: Sequence[Array]) -> Array:
    """The same elements in row-major order."""
    del sources
    return values[0].reshape(node.shape)


def transpose(node: Node, sources: Sequence[Node], values: Sequence[Array]) -> Array:
    """Dimension i of the result is `permutation[i]` of the operand."""
    del sources
    return values[0].transpose(integers(node, "permutation"))


def slice_(node: Node, sources: Sequence[Node], values: Sequence[Array]) -> Array:
    """In each dimension the elements from `start` to `limit` (exclusive), each `strides`-th."""
    del sources
    ranges = zip_strict(integers(node, "start"), integers(node, "limit"), integers(node, "strides"))
    return values[0][tuple(slice(start, limit, stride) for start, limit, stride in ranges)]


def pad_array(x: _AnyArray, value: object, low: Sequence[int], interior: Sequence[int], shape: Shape) -> _AnyArray:
    """`x` with `interior` elements of `value` between its elements, placed at `low` (which may be negative) in an array of `shape`
    filled with `value`."""
    result = np.full(shape, value, dtype=x.dtype)
    to, from_ = [], []
    for extent, start, gap, limit in zip_strict(x.shape, low, interior, shape):
        positions = start + np.arange(extent) * (gap + 1)
        kept = (positions >= 0) & (positions < limit)
        to.append(positions[kept])
        from_.append(np.flatnonzero(kept))
    result[np.ix_(*to)] = x[np.ix_(*from_)]
    return result


def pad(node: Node, sources: Sequence[Node], values: Sequence[Array]) -> Array:
    """The operand with the second operand's value around and, by `interior`, between its elements."""
    del sources
    return pad_array(values[0], values[1], integers(node, "low"), integers(node, "interior"), node.shape)


def concatenate(node: Node, sources: Sequence[Node], values: Sequence[Array]) -> Array:
    """The operands one after the other along `dimension`."""
    del sources
    return np.concatenate(values, axis=int(node.attributes["dimension"]))  # type: ignore[arg-type]


def reverse(node: Node, sources: Sequence[Node], values: Sequence[Array]) -> Array:
    """The elements in reverse order along each of `dimensions`."""
    del sources
    return np.flip(values[0], integers(node, "dimensions"))


# ---- reductions ----------------------------------------------------------------------------------------------------


def reduce_identity(kind: str, dtype: DType) -> Array:
    """The result of a reduction of `kind` (graph.REDUCE_KINDS) over no elements, as an array of shape () and `dtype`."""
    if kind in ("sum", "or"):
        return np.zeros((), dtype.numpy)
    if kind == "product" or dtype is DType.PRED:  # pred: true for min and `and`, false for max
        return np.array(kind != "max").astype(dtype.numpy)
    if kind == "and":
        return np.array(-1).astype(dtype.numpy)
    if dtype.is_float:
        return np.array(math.inf if kind == "min" else -math.inf).astype(dtype.numpy)
    limits = np.iinfo(str(dtype.numpy))
    return np.array(limits.max if kind == "min" else limits.min, dtype.numpy)


_UFUNC: Final[dict[str, np.ufunc]] = {
    "sum": np.add,
    "product": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


def reduce_ufunc(kind: str, dtype: np.dtype[Any]) -> np.ufunc:
    """The numpy ufunc that combines two elements of `dtype` in a reduction of `kind`."""
    if kind in ("and", "or"):
        logical = dtype.kind == "b"
        if kind == "and":
            return np.logical_and if logical else np.bitwise_and
        return np.logical_or if logical else np.bitwise_or
    return _UFUNC[kind]


def reduce_axes(x: _AnyArray, kind: str, dtype: DType, axes: tuple[int, ...]) -> _AnyArray:
    """`x` reduced over `axes` in its own precision, starting from the identity of `kind` in `dtype`."""
    identity = reduce_identity(kind, dtype).astype(x.dtype)
    return np.asarray(reduce_ufunc(kind, x.dtype).reduce(x, axis=axes, dtype=x.dtype, initial=identity[()]))


def reduce(node: Node, sources: Sequence[Node], values: Sequence[Array]) -> Array:
    """`kind` of all elements along `dimensions`, in numpy's order; `reduce_identity` if there are none."""
    del sources
    return reduce_axes(values[0], str(node.attributes["kind"]), node.dtype, integers(node, "dimensions"))


def dot(node: Node, sources: Sequence[Node], values: Sequence[Array]) -> Array:
    """The matrix products, in the operands' own precision and numpy's order."""
    del node, sources
    return np.asarray(np.matmul(values[0], values[1]))


def windows(x: _AnyArray, window: Sequence[WindowDimension], fill: object, shape: Shape) -> _AnyArray:
    """A view of `x` (padded and dilated with `fill`) of shape (*shape, *window sizes): for each result, the elements of its
    window."""
    low = [item.padding_low for item in window]
    gaps = [item.base_dilation - 1 for item in window]
    padded_shape = [
        (max(extent - 1, 0) * item.base_dilation + min(extent, 1)) + item.padding_low + item.padding_high
        for extent, item in zip_strict(x.shape, window)
    ]
    padded = pad_array(x, fill, low, gaps, tuple(max(extent, 0) for extent in padded_shape))
    strides = [stride * item.stride for stride, item in zip_strict(padded.strides, window)]
    strides += [stride * item.window_dilation for stride, item in zip_strict(padded.strides, window)]
    sizes = tuple(item.size for item in window)
    return np.lib.stride_tricks.as_strided(padded, (*shape, *sizes), strides, writeable=False)


def patches(node: Node, sources: Sequence[Node], values: Sequence[Array]) -> Array:
    """A view of the operand."""
    del sources
    x, dimensions = values[0], integers(node, "dimensions")
    last = dimensions[-1] + 1
    steps = [x.strides[d] * dilation for d, dilation in zip_strict(dimensions, integers(node, "dilations"))]
    strides = list(x.strides)
    for dimension, stride in zip_strict(dimensions, integers(node, "strides")):
        strides[dimension] *= stride
    return np.lib.stride_tricks.as_strided(x, node.shape, (*strides[:last], *steps, *strides[last:]), writeable=False)


class Prefix(NamedTuple):
    """Windows along `dimension` that all begin at its first element. The first window has `first` elements (below 1: it holds padding
    only), and each later one has one more. With `reverse` they all end at the last element, and it is the last window that has
    `first` elements, each earlier one has one more."""

    dimension: int
    reverse: bool
    first: int


def prefix_of(source: Shape, window: Sequence[WindowDimension], shape: Shape) -> Prefix | None:
    """The scan that a reduce_window is; None if it is not a scan. `source`, `shape`: the shapes of its operand and its result."""
    wide = [axis for axis, item in enumerate(window) if item != WindowDimension(1)]
    if len(wide) != 1:
        return None
    (axis,) = wide
    item, results = window[axis], shape[axis]
    if item != WindowDimension(item.size, 1, item.padding_low, item.padding_high) or not results or item.size == 1:
        return None
    for reverse, padding in ((False, item.padding_low), (True, item.padding_high)):
        first = item.size - padding
        if padding >= results - 1 and results - 1 + first <= source[axis]:
            return Prefix(axis, reverse, first)
    return None


def scan_terms(x: _AnyArray, start: object, prefix: Prefix) -> _AnyArray:
    """What a scan combines, along the first dimension: `start`, then the elements in the scan's direction."""
    moved = np.moveaxis(x, prefix.dimension, 0)
    first = np.broadcast_to(np.asarray(start).astype(x.dtype, copy=False), moved.shape[1:])
    return np.concatenate([first[np.newaxis], moved[::-1] if prefix.reverse else moved])


def scanned(function: np.ufunc, terms: _AnyArray, prefix: Prefix, results: int) -> _AnyArray:
    """The result of each of `results` windows, in order: `function` applied to the window's terms (`scan_terms`)."""
    counts = np.maximum(np.arange(results) + prefix.first, 0)
    found = function.accumulate(terms, axis=0)[counts]
    return np.moveaxis(found[::-1] if prefix.reverse else found, 0, prefix.dimension)


def prefix_of_window(node: Node, source: Shape, init: _AnyArray) -> Prefix | None:
    """The scan that a reduce_window is, if combining its initial value any number of times changes nothing (each element of padding
    holds it too); else None."""
    kind = str(node.attributes["kind"])
    if kind in ("sum", "product") and init != reduce_identity(kind, node.dtype):
        return None
    return prefix_of(source, window_of(node), node.shape)


def reduce_window(node: Node, sources: Sequence[Node], values: Sequence[Array]) -> Array:
    """Padding and dilation holes hold the initial value, which each window's reduction also starts from."""
    del sources
    x, init = values
    kind, rank = str(node.attributes["kind"]), len(node.shape)
    prefix = prefix_of_window(node, x.shape, init)
    if prefix is not None:
        found = scanned(reduce_ufunc(kind, x.dtype), scan_terms(x, init, prefix), prefix, node.shape[prefix.dimension])
        return np.ascontiguousarray(found)
    view = windows(x, window_of(node), init, node.shape)
    reduced = reduce_axes(view, kind, node.dtype, tuple(range(rank, 2 * rank)))
    return np.asarray(reduce_ufunc(kind, x.dtype)(reduced, init))


def prefix_of_scan(node: Node) -> Prefix:
    """The windows that the scan `node` reduces, as a Prefix."""
    dimension, reverse, exclusive = (node.attributes[key] for key in ("dimension", "reverse", "exclusive"))
    assert isinstance(dimension, int)
    return Prefix(dimension, bool(reverse), 0 if exclusive else 1)


def scan(node: Node, sources: Sequence[Node], values: Sequence[Array]) -> Array:
    """Element i along `dimension` is the start combined, in order, with the elements up to i (`exclusive`: before i; `reverse`: from
    the other end)."""
    del sources
    x, start = values
    prefix, function = prefix_of_scan(node), reduce_ufunc(str(node.attributes["kind"]), x.dtype)
    found = scanned(function, scan_terms(x, start, prefix), prefix, x.shape[prefix.dimension])
    return np.ascontiguousarray(found)


# ---- indexed -------------------------------------------------------------------------------------------------------


def _start_vectors(indices: _AnyArray, numbers: GatherDimensions, rank: int) -> list[_AnyArray]:
    """For each operand dimension, the start index of every slice, in the indices' batch shape (zeros for a dimension that is not
    indexed)."""
    if numbers.index_vector_dim == indices.ndim:
        indices = indices[..., np.newaxis]
    vectors = np.moveaxis(indices, numbers.index_vector_dim, -1)
    if vectors.dtype.kind == "u":
        # A u64 beyond s64 is out of range in any case; it must not become negative.
        vectors = np.minimum(vectors, np.array(np.iinfo(np.int64).max).astype(np.uint64)).astype(np.int64)
    starts = [np.zeros(vectors.shape[:-1], np.int64)] * rank
    for position, dimension in enumerate(numbers.start_index_map):
        starts[dimension] = vectors[..., position].astype(np.int64)
    return starts


def _element_indices(starts: Sequence[_AnyArray], sizes: Sequence[int]) -> tuple[_AnyArray, ...]:
    """Index arrays over (*batch, *sizes), one per operand dimension."""
    rank = len(sizes)
    found = []
    for dimension, (start, size) in enumerate(zip_strict(starts, sizes)):
        along = [1] * rank
        along[dimension] = size
        found.append(start.reshape(start.shape + (1,) * rank) + np.arange(size).reshape(along))
    return tuple(found)


def gather(node: Node, sources: Sequence[Node], values: Sequence[Array]) -> Array:
    """HLO's gather; starts are clamped so that each slice is inside the operand."""
    del sources
    x, indices = values
    numbers = gather_numbers(node)
    starts = [
        np.clip(start, 0, extent - size)
        for start, extent, size in zip_strict(_start_vectors(indices, numbers, x.ndim), x.shape, numbers.slice_sizes)
    ]
    slices = x[_element_indices(starts, numbers.slice_sizes)] if x.ndim else np.broadcast_to(x, node.shape)
    offsets = [size for i, size in enumerate(numbers.slice_sizes) if i not in numbers.collapsed_slice_dims]
    batch_rank = len(node.shape) - len(offsets)
    slices = slices.reshape((*slices.shape[:batch_rank], *offsets))
    batch_dims = [i for i in range(len(node.shape)) if i not in numbers.offset_dims]
    return np.moveaxis(slices, range(slices.ndim), (*batch_dims, *numbers.offset_dims))


def scatter_plan(
    node: Node, sources: Sequence[Node], indices: _AnyArray
) -> tuple[tuple[_AnyArray, ...], _AnyArray, tuple[int, ...], Shape]:
    """Where a scatter writes. Returns index arrays over (*kept slices, *window sizes with inserted ones); a mask of the slices that
    are kept (those that are inside the operand as a whole); and a permutation and then a shape that bring the updates to that
    form."""
    numbers = gather_numbers(node)
    updates = sources[2]
    rank = len(node.shape)
    windows_left = [updates.shape[i] for i in numbers.offset_dims]
    sizes = [1 if i in numbers.collapsed_slice_dims else windows_left.pop(0) for i in range(rank)]
    starts = _start_vectors(indices, numbers, rank)
    batch = tuple(extent for i, extent in enumerate(updates.shape) if i not in numbers.offset_dims)
    kept = np.ones(batch, bool)
    for start, size, extent in zip_strict(starts, sizes, node.shape):
        kept &= (start >= 0) & (start <= extent - size)
    at = _element_indices([start[kept] for start in starts], sizes)
    permutation = tuple(i for i in range(len(updates.shape)) if i not in numbers.offset_dims) + numbers.offset_dims
    return at, kept, permutation, tuple(sizes)


def scatter(node: Node, sources: Sequence[Node], values: Sequence[Array]) -> Array:
    """Applies the updates in the order of the indices. A slice that is not inside the operand as a whole is dropped."""
    x, indices, updates = values
    at, kept, permutation, sizes = scatter_plan(node, sources, indices)
    moved = updates.transpose(permutation)[kept].reshape((-1, *sizes))
    result = np.array(x)
    kind = str(node.attributes["kind"])
    if not at:
        for update in moved:  # a scalar operand: the updates one by one
            result = np.array(update) if kind == "replace" else reduce_ufunc(kind, x.dtype)(result, update)
    elif kind == "replace":
        for position in range(moved.shape[0]):  # numpy does not define the order of repeated indices
            result[tuple(index[position] for index in at)] = moved[position]
    else:
        reduce_ufunc(kind, x.dtype).at(result, at, moved)
    return np.asarray(result)


def _clamped_starts(starts: Sequence[_AnyArray], shape: Shape, sizes: Sequence[int]) -> list[int]:
    return [min(max(int(start), 0), extent - size) for start, extent, size in zip_strict(starts, shape, sizes)]


def dynamic_slice(node: Node, sources: Sequence[Node], values: Sequence[Array]) -> Array:
    """The slice of the result's shape that begins at the starts, which are clamped so that it lies inside the operand."""
    starts = _clamped_starts(values[1:], sources[0].shape, node.shape)
    return values[0][tuple(slice(start, start + size) for start, size in zip_strict(starts, node.shape))]


def dynamic_update_slice(node: Node, sources: Sequence[Node], values: Sequence[Array]) -> Array:
    """The first operand with the update in place of the slice that begins at the starts, clamped as in `dynamic_slice`."""
    del sources
    x, update = values[0], values[1]
    starts = _clamped_starts(values[2:], node.shape, update.shape)
    result = np.array(x)
    result[tuple(slice(start, start + size) for start, size in zip_strict(starts, update.shape))] = update
    return result
