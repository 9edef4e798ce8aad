"""Shape and dtype rules: one function per family of ops. They build nodes (`table.build`) and verify them
(`verify.verify`).

A rule takes a NewNode and returns the node's (shape, dtype), or raises GraphError, which says what was given and what
was expected. Most rules derive the result from the operands alone. The few ops whose operands do not determine the
result (`parameter`, `iota`, `broadcast`, `reshape`, `convert`, `bitcast_convert`) read `shape` or `dtype` of the
NewNode, check them and return them.

The rules are those of the HLO operation semantics (openxla.org/xla/operation_semantics) with two restrictions: operands
are never broadcast implicitly (the importer adds `broadcast` nodes), and `bitcast_convert` keeps the element's width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from ..ir.graph import (
    REDUCE_KINDS,
    Attribute,
    DType,
    GatherDimensions,
    Graph,
    Literal,
    Node,
    Shape,
    WindowDimension,
)
from ..support.sequences import zip_strict

if TYPE_CHECKING:
    from typing import TypeAlias

ShapeAndType: TypeAlias = tuple[Shape, DType]
COMPARE_DIRECTIONS: Final = ("EQ", "NE", "LT", "LE", "GT", "GE")

_T = TypeVar("_T")


class GraphError(ValueError):
    """A graph, a node or a NewNode breaks the op table's rules. The text names the op, what was given and what was
    expected."""


@dataclass(frozen=True)
class NewNode:
    """The input of a rule: the op, its operands' nodes, its attributes, and the requested shape and dtype (None: infer
    them)."""

    op: str
    operands: tuple[Node, ...]
    attributes: Mapping[str, Attribute]
    shape: Shape | None = None
    dtype: DType | None = None

    def fail(self, given: object, expected: object) -> GraphError:
        """A GraphError for the caller to raise; its text names the op, the operands' types, `given` and `expected`."""
        types = ", ".join(node.type_text for node in self.operands)
        return GraphError(f"{self.op}({types}): given {given}, expected {expected}")

    def attribute(self, key: str, kind: type[_T]) -> _T:
        """The attribute `key`. Raises GraphError if it is missing or not of type `kind`."""
        value = self.attributes.get(key)
        # isinstance counts a bool as an int, but a bool is never a dimension number.
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.fail(f"attribute {key}={value!r}", f"a value of type {kind.__name__}")
        return value

    def integers(self, key: str, length: int | None = None) -> tuple[int, ...]:
        """The attribute `key` as a tuple of integers. Raises GraphError if it is not one, or not of the given length."""
        value = self.attribute(key, tuple)
        if not all(isinstance(item, int) and not isinstance(item, bool) for item in value):
            raise self.fail(f"{key}={value!r}", "a tuple of integers")
        if length is not None and len(value) != length:
            raise self.fail(f"{key}={value!r}", f"{length} integers")
        return value

    def dimension_numbers(self, key: str, rank: int) -> tuple[int, ...]:
        """The attribute `key` as distinct dimension numbers in [0, rank). Raises GraphError if it is anything else."""
        value = self.integers(key)
        if len(set(value)) != len(value) or not all(0 <= item < rank for item in value):
            raise self.fail(f"{key}={value!r}", f"distinct dimensions in [0, {rank})")
        return value

    def wanted_shape(self) -> Shape:
        """The requested shape. Raises GraphError if there is none, or if an extent is negative."""
        if self.shape is None or not all(extent >= 0 for extent in self.shape):
            raise self.fail(f"shape {self.shape}", "a result shape with extents of at least 0")
        return self.shape

    def wanted_dtype(self) -> DType:
        """The requested dtype. Raises GraphError if there is none."""
        if self.dtype is None:
            raise self.fail("no dtype", "a result dtype")
        return self.dtype


Rule: TypeAlias = Callable[[NewNode], ShapeAndType]


def _same_shapes(request: NewNode, nodes: Sequence[Node]) -> Shape:
    shape = nodes[0].shape
    if any(node.shape != shape for node in nodes):
        raise request.fail([node.shape for node in nodes], f"equal shapes, as the first operand's {shape}")
    return shape


def elementwise(accepts: Callable[[DType], bool], expected: str, result: DType | None = None) -> Rule:
    """The rule of ops whose operands share one shape and one dtype, for which `accepts` holds. The result has that shape, and that
    dtype or `result`. `expected` names the accepted dtypes in errors."""

    def rule(request: NewNode) -> ShapeAndType:
        shape = _same_shapes(request, request.operands)
        dtype = request.operands[0].dtype
        if any(node.dtype is not dtype for node in request.operands):
            raise request.fail([node.dtype.value for node in request.operands], "equal dtypes")
        if not accepts(dtype):
            raise request.fail(dtype.value, expected)
        return shape, dtype if result is None else result

    return rule


def is_float(dtype: DType) -> bool:
    """For `elementwise`: f16, bf16, f32 and f64."""
    return dtype.is_float


def is_number(dtype: DType) -> bool:
    """For `elementwise`: all dtypes except pred."""
    return dtype is not DType.PRED


def is_integer(dtype: DType) -> bool:
    """For `elementwise`: signed and unsigned integers."""
    return dtype.is_integer


def is_u64(dtype: DType) -> bool:
    """For `elementwise`: u64."""
    return dtype is DType.U64


def is_logical(dtype: DType) -> bool:
    """For `elementwise`: integers and pred."""
    return dtype.is_integer or dtype is DType.PRED


def is_any(dtype: DType) -> bool:
    """For `elementwise`: all dtypes."""
    del dtype
    return True


def compare(request: NewNode) -> ShapeAndType:
    """Two operands of one shape and dtype give a pred of that shape. `total_order` needs floats."""
    direction = request.attribute("direction", str)
    if direction not in COMPARE_DIRECTIONS:
        raise request.fail(f"direction={direction}", f"one of {', '.join(COMPARE_DIRECTIONS)}")
    shape, dtype = elementwise(is_any, "any dtype")(request)
    if request.attributes.get("total_order", False) and not dtype.is_float:
        raise request.fail(f"total_order on {dtype.value}", "a float dtype")
    return shape, DType.PRED


def select(request: NewNode) -> ShapeAndType:
    """The second operand's shape and dtype. The operands are a pred and two operands of one dtype, all of one shape."""
    predicate, on_true, on_false = request.operands
    if predicate.dtype is not DType.PRED or on_true.dtype is not on_false.dtype:
        raise request.fail([node.dtype.value for node in request.operands], "pred and twice the same dtype")
    return _same_shapes(request, request.operands), on_true.dtype


def convert(request: NewNode) -> ShapeAndType:
    """The operand's shape with the requested dtype."""
    return request.operands[0].shape, request.wanted_dtype()


def bitcast_convert(request: NewNode) -> ShapeAndType:
    """The operand's shape with the requested dtype, whose elements must be as wide; not from or to pred."""
    source, dtype = request.operands[0], request.wanted_dtype()
    if source.dtype.size_bytes != dtype.size_bytes or DType.PRED in (source.dtype, dtype):
        raise request.fail(dtype.value, f"a dtype of {source.dtype.size_bytes} bytes per element, not pred")
    return source.shape, dtype


def reduce_precision(request: NewNode) -> ShapeAndType:
    """The operand's shape and dtype, which is a float. `exponent_bits` is at least 1, `mantissa_bits` at least 0."""
    if request.attribute("exponent_bits", int) < 1 or request.attribute("mantissa_bits", int) < 0:
        raise request.fail(dict(request.attributes), "exponent_bits >= 1 and mantissa_bits >= 0")
    return elementwise(is_float, "a float dtype")(request)


def parameter(request: NewNode) -> ShapeAndType:
    """The requested shape and dtype; `number` is at least 0."""
    if request.attribute("number", int) < 0:
        raise request.fail(request.attributes["number"], "a parameter number of at least 0")
    return request.wanted_shape(), request.wanted_dtype()


def constant(request: NewNode) -> ShapeAndType:
    """The shape and dtype of `literal`."""
    value = request.attribute("literal", Literal).value
    try:
        return value.shape, DType.of(value.dtype)
    except KeyError:
        raise request.fail(f"a literal of {value.dtype}", "a dtype of this IR") from None


def iota(request: NewNode) -> ShapeAndType:
    """The requested shape and dtype, a number; `dimension` is one of the shape's."""
    shape, dtype = request.wanted_shape(), request.wanted_dtype()
    if not 0 <= request.attribute("dimension", int) < len(shape):
        raise request.fail(f"dimension={request.attributes['dimension']}", f"a dimension of {shape}")
    if dtype is DType.PRED:
        raise request.fail("pred", "a number")
    return shape, dtype


def broadcast(request: NewNode) -> ShapeAndType:
    """The requested shape: dimension i of the operand is `dimensions[i]` of the result, in increasing order and of equal extent."""
    source, shape = request.operands[0], request.wanted_shape()
    dimensions = request.dimension_numbers("dimensions", len(shape))
    if len(dimensions) != len(source.shape) or list(dimensions) != sorted(dimensions):
        raise request.fail(f"dimensions={dimensions}", f"{len(source.shape)} increasing dimensions")
    if any(shape[to] != extent for to, extent in zip_strict(dimensions, source.shape)):
        raise request.fail(f"{source.shape} to {shape} by {dimensions}", "equal extents in the mapped dimensions")
    return shape, source.dtype


def reshape(request: NewNode) -> ShapeAndType:
    """The requested shape, which has as many elements as the operand."""
    source, shape = request.operands[0], request.wanted_shape()
    count = 1
    for extent in shape:
        count *= extent
    if count != source.element_count:
        raise request.fail(f"{shape} of {count} elements", f"a shape of {source.element_count} elements")
    return shape, source.dtype


def transpose(request: NewNode) -> ShapeAndType:
    """Dimension i of the result is `permutation[i]` of the operand."""
    source = request.operands[0]
    permutation = request.integers("permutation", len(source.shape))
    if sorted(permutation) != list(range(len(source.shape))):
        raise request.fail(f"permutation={permutation}", f"a permutation of {len(source.shape)} dimensions")
    return tuple(source.shape[i] for i in permutation), source.dtype


def slice_(request: NewNode) -> ShapeAndType:
    """In each dimension the elements from `start` to `limit` (exclusive), each `strides`-th; 0 <= start <= limit <= extent."""
    source = request.operands[0]
    rank = len(source.shape)
    starts, limits, strides = (request.integers(key, rank) for key in ("start", "limit", "strides"))
    shape = []
    for extent, start, limit, stride in zip_strict(source.shape, starts, limits, strides):
        if not (0 <= start <= limit <= extent and stride >= 1):
            raise request.fail(f"[{start}:{limit}:{stride}]", f"0 <= start <= limit <= {extent} and stride >= 1")
        shape.append(-(-(limit - start) // stride))
    return tuple(shape), source.dtype


def pad(request: NewNode) -> ShapeAndType:
    """The operand with `interior` elements between its elements, and `low` and `high` elements before and behind. Negative `low`
    and `high` cut elements off. The second operand is the scalar padding value."""
    source, value = request.operands
    rank = len(source.shape)
    lows, highs, interiors = (request.integers(key, rank) for key in ("low", "high", "interior"))
    if value.shape != () or value.dtype is not source.dtype:
        raise request.fail(value.type_text, f"a padding value {source.dtype.value}[]")
    shape = []
    for extent, low, high, interior in zip_strict(source.shape, lows, highs, interiors):
        padded = extent + low + high + max(extent - 1, 0) * interior
        if interior < 0 or padded < 0:
            raise request.fail(
                f"low {low}, high {high}, interior {interior}", f"a padding of {extent} elements to >= 0"
            )
        shape.append(padded)
    return tuple(shape), source.dtype


def patches(request: NewNode) -> ShapeAndType:
    """The windows of `sizes` elements, `dilations` apart, that begin at each `strides`-th element of `dimensions`. Each of these
    dimensions counts windows then, and the places within a window are new dimensions behind the last of them."""
    source = request.operands[0]
    dimensions = request.attribute("dimensions", tuple)
    count = len(dimensions)
    sizes, strides, dilations = (request.integers(key, count) for key in ("sizes", "strides", "dilations"))
    if (
        not dimensions
        or list(dimensions) != sorted(set(dimensions))
        or not 0 <= dimensions[0] <= dimensions[-1] < len(source.shape)
    ):
        raise request.fail(f"dimensions {dimensions}", f"increasing dimensions of {source.type_text}")
    shape = list(source.shape)
    for dimension, size, stride, dilation in zip_strict(dimensions, sizes, strides, dilations):
        reach = (size - 1) * dilation + 1
        if min(size, stride, dilation) < 1 or reach > shape[dimension]:
            raise request.fail(f"a window of {size} elements {dilation} apart", f"1 to {shape[dimension]} elements")
        shape[dimension] = (shape[dimension] - reach) // stride + 1
    last = dimensions[-1] + 1
    return (*shape[:last], *sizes, *shape[last:]), source.dtype


def concatenate(request: NewNode) -> ShapeAndType:
    """The operands one after the other along `dimension`; they agree in dtype and in all other extents."""
    if not request.operands:
        raise request.fail("no operands", "at least one")
    first = request.operands[0]
    dimension = request.attribute("dimension", int)
    if not 0 <= dimension < len(first.shape):
        raise request.fail(f"dimension={dimension}", f"a dimension of {first.shape}")
    for node in request.operands:
        alike = node.dtype is first.dtype and len(node.shape) == len(first.shape)
        if not alike or any(a != b for i, (a, b) in enumerate(zip_strict(node.shape, first.shape)) if i != dimension):
            raise request.fail(node.type_text, f"{first.type_text} but for dimension {dimension}")
    total = sum(node.shape[dimension] for node in request.operands)
    return (*first.shape[:dimension], total, *first.shape[dimension + 1 :]), first.dtype


def reverse(request: NewNode) -> ShapeAndType:
    """The operand's shape and dtype. `dimensions` are distinct dimensions of the operand."""
    source = request.operands[0]
    request.dimension_numbers("dimensions", len(source.shape))
    return source.shape, source.dtype


def _reduce_kind(request: NewNode, dtype: DType, kinds: Sequence[str] = REDUCE_KINDS) -> str:
    kind = request.attribute("kind", str)
    if kind not in kinds:
        raise request.fail(f"kind={kind}", f"one of {', '.join(kinds)}")
    if (kind in ("and", "or") and dtype.is_float) or (kind in ("sum", "product") and dtype is DType.PRED):
        raise request.fail(f"{kind} of {dtype.value}", "and, or of pred and integers; sum, product of numbers")
    return kind


def _without(shape: Shape, dimensions: Sequence[int]) -> Shape:
    return tuple(extent for i, extent in enumerate(shape) if i not in dimensions)


def reduce(request: NewNode) -> ShapeAndType:
    """The operand's shape without `dimensions`; `kind` suits the dtype."""
    source = request.operands[0]
    _reduce_kind(request, source.dtype)
    return _without(source.shape, request.dimension_numbers("dimensions", len(source.shape))), source.dtype


def dot(request: NewNode) -> ShapeAndType:
    """[*batch, m, k] and [*batch, k, n], of one float dtype, give [*batch, m, n]."""
    lhs, rhs = request.operands
    if lhs.dtype is not rhs.dtype or not lhs.dtype.is_float:
        raise request.fail(f"{lhs.type_text} and {rhs.type_text}", "two operands of one float dtype")
    if len(lhs.shape) < 2 or lhs.shape[:-2] != rhs.shape[:-2] or lhs.shape[-1:] != rhs.shape[-2:-1]:
        raise request.fail(f"{lhs.type_text} and {rhs.type_text}", "shapes [*batch, m, k] and [*batch, k, n]")
    return (*lhs.shape[:-1], rhs.shape[-1]), lhs.dtype


def reduce_general(request: NewNode) -> ShapeAndType:
    """n inputs of one shape and n scalar initial values give the inputs' shape without `dimensions`, with the dtype of input
    `result`. `body` takes 2n scalars, the accumulators and then the elements, and returns n."""
    count, odd = divmod(len(request.operands), 2)
    if odd or not count:
        raise request.fail(f"{len(request.operands)} operands", "n inputs and then n scalar initial values")
    inputs, inits = request.operands[:count], request.operands[count:]
    shape = _same_shapes(request, inputs)
    for source, init in zip_strict(inputs, inits):
        if init.shape != () or init.dtype is not source.dtype:
            raise request.fail(init.type_text, f"an initial value {source.dtype.value}[]")
    body, result = request.attribute("body", Graph), request.attribute("result", int)
    dtypes = [node.dtype for node in inputs]
    parameters = [body.nodes[i] for i in body.parameters]
    outputs = [body.nodes[i] for i in body.outputs]
    if [node.type_text for node in parameters] != [f"{dtype.value}[]" for dtype in dtypes * 2]:
        raise request.fail([node.type_text for node in parameters], f"body parameters {[d.value for d in dtypes * 2]}")
    if [node.type_text for node in outputs] != [f"{dtype.value}[]" for dtype in dtypes]:
        raise request.fail([node.type_text for node in outputs], f"body results {[d.value for d in dtypes]}")
    if not 0 <= result < count:
        raise request.fail(f"result={result}", f"a result in [0, {count})")
    return _without(shape, request.dimension_numbers("dimensions", len(shape))), dtypes[result]


def reduce_window(request: NewNode) -> ShapeAndType:
    """One element for each place of the window. The second operand is the scalar initial value."""
    source, init = request.operands
    _reduce_kind(request, source.dtype)
    if init.shape != () or init.dtype is not source.dtype:
        raise request.fail(init.type_text, f"an initial value {source.dtype.value}[]")
    window = request.attribute("window", tuple)
    if len(window) != len(source.shape) or not all(isinstance(item, WindowDimension) for item in window):
        raise request.fail(f"window={window!r}", f"{len(source.shape)} window dimensions")
    shape = []
    for extent, item in zip_strict(source.shape, window):
        if min(item.size, item.stride, item.window_dilation, item.base_dilation) < 1:
            raise request.fail(item, "size, stride and dilations of at least 1")
        padded = (extent - 1) * item.base_dilation + 1 if extent else 0
        padded += item.padding_low + item.padding_high
        reach = (item.size - 1) * item.window_dilation + 1
        shape.append((padded - reach) // item.stride + 1 if padded >= reach else 0)
    return tuple(shape), source.dtype


def scan(request: NewNode) -> ShapeAndType:
    """The first operand's shape and dtype. The second operand has the scan's start values: the first operand's shape without
    `dimension`."""
    source, start = request.operands
    _reduce_kind(request, source.dtype)
    dimension = request.attribute("dimension", int)
    if not 0 <= dimension < len(source.shape):
        raise request.fail(f"dimension={dimension}", f"one of {len(source.shape)}")
    for flag in ("reverse", "exclusive"):
        request.attribute(flag, bool)
    expected = _without(source.shape, (dimension,))
    if start.shape != expected or start.dtype is not source.dtype:
        raise request.fail(start.type_text, f"starts {source.dtype.value}{list(expected)}")
    return source.shape, source.dtype


def _index_shape(request: NewNode, indices: Node, numbers: GatherDimensions) -> Shape:
    """The batch dimensions of gather's or scatter's indices."""
    if not indices.dtype.is_integer:
        raise request.fail(indices.type_text, "integer indices")
    rank = len(indices.shape)
    if not 0 <= numbers.index_vector_dim <= rank:
        raise request.fail(f"index_vector_dim={numbers.index_vector_dim}", f"in [0, {rank}]")
    vector = indices.shape[numbers.index_vector_dim] if numbers.index_vector_dim < rank else 1
    if vector != len(numbers.start_index_map):
        raise request.fail(f"index vectors of {vector}", f"{len(numbers.start_index_map)} as start_index_map")
    return _without(indices.shape, (numbers.index_vector_dim,))


def _check_numbers(request: NewNode, numbers: GatherDimensions, rank: int) -> None:
    for label, values in (("collapsed", numbers.collapsed_slice_dims), ("index map", numbers.start_index_map)):
        if len(set(values)) != len(values) or not all(0 <= value < rank for value in values):
            raise request.fail(f"{label} {values}", f"distinct dimensions in [0, {rank})")
    if list(numbers.offset_dims) != sorted(set(numbers.offset_dims)):
        raise request.fail(f"offset_dims={numbers.offset_dims}", "increasing dimensions")
    if len(numbers.offset_dims) + len(numbers.collapsed_slice_dims) != rank:
        raise request.fail(numbers, f"offset and collapsed dimensions that make {rank}")


def gather(request: NewNode) -> ShapeAndType:
    """The batch dimensions of the indices and, at `offset_dims`, the extents of a slice without its collapsed dimensions."""
    source, indices = request.operands
    numbers = request.attribute("gather", GatherDimensions)
    _check_numbers(request, numbers, len(source.shape))
    batch = list(_index_shape(request, indices, numbers))
    sizes = numbers.slice_sizes
    if len(sizes) != len(source.shape) or any(not 0 <= size <= ext for size, ext in zip(sizes, source.shape)):
        raise request.fail(f"slice_sizes={sizes}", f"at most {source.shape}")
    if any(sizes[i] != 1 for i in numbers.collapsed_slice_dims):
        raise request.fail(f"slice_sizes={sizes}", f"1 in collapsed dimensions {numbers.collapsed_slice_dims}")
    offsets = list(_without(sizes, numbers.collapsed_slice_dims))
    rank = len(batch) + len(offsets)
    if any(not 0 <= dimension < rank for dimension in numbers.offset_dims):
        raise request.fail(f"offset_dims={numbers.offset_dims}", f"dimensions in [0, {rank})")
    shape = tuple(offsets.pop(0) if i in numbers.offset_dims else batch.pop(0) for i in range(rank))
    return shape, source.dtype


def scatter(request: NewNode) -> ShapeAndType:
    """The first operand's shape and dtype. The updates have the indices' batch dimensions and, at `offset_dims`, a window that
    fits the operand."""
    source, indices, updates = request.operands
    numbers = request.attribute("scatter", GatherDimensions)
    _reduce_kind(request, source.dtype, (*REDUCE_KINDS, "replace"))
    _check_numbers(request, numbers, len(source.shape))
    batch = list(_index_shape(request, indices, numbers))
    if updates.dtype is not source.dtype:
        raise request.fail(updates.type_text, f"updates of {source.dtype.value}")
    rank = len(batch) + len(numbers.offset_dims)
    given_batch = [extent for i, extent in enumerate(updates.shape) if i not in numbers.offset_dims]
    if len(updates.shape) != rank or given_batch != batch or any(not 0 <= i < rank for i in numbers.offset_dims):
        raise request.fail(updates.type_text, f"updates of rank {rank} with batch dimensions {batch}")
    windows = [updates.shape[i] for i in numbers.offset_dims]
    if any(size > extent for size, extent in zip_strict(windows, _without(source.shape, numbers.collapsed_slice_dims))):
        raise request.fail(f"update windows {windows}", f"at most {source.shape}")
    return source.shape, source.dtype


def _check_starts(request: NewNode, starts: Sequence[Node], rank: int) -> None:
    if len(starts) != rank or any(node.shape != () or not node.dtype.is_integer for node in starts):
        raise request.fail([node.type_text for node in starts], f"{rank} integer scalars as starts")


def dynamic_slice(request: NewNode) -> ShapeAndType:
    """The shape `sizes` and the first operand's dtype. The other operands are integer scalars, one per dimension: the slice's
    starts."""
    if not request.operands:
        raise request.fail("no operands", "an array and its starts")
    source, starts = request.operands[0], request.operands[1:]
    _check_starts(request, starts, len(source.shape))
    sizes = request.integers("sizes", len(source.shape))
    if any(not 0 <= size <= extent for size, extent in zip_strict(sizes, source.shape)):
        raise request.fail(f"sizes={sizes}", f"at most {source.shape}")
    return sizes, source.dtype


def dynamic_update_slice(request: NewNode) -> ShapeAndType:
    """The first operand's shape and dtype. The second operand, the update, is no larger in any dimension; the other operands
    are integer scalars, one per dimension: the update's starts."""
    if len(request.operands) < 2:
        raise request.fail(f"{len(request.operands)} operands", "an array, an update and its starts")
    source, update, starts = request.operands[0], request.operands[1], request.operands[2:]
    _check_starts(request, starts, len(source.shape))
    fits = len(update.shape) == len(source.shape) and update.dtype is source.dtype
    if not fits or any(size > extent for size, extent in zip_strict(update.shape, source.shape)):
        raise request.fail(update.type_text, f"an update no larger than {source.type_text}")
    return source.shape, source.dtype
