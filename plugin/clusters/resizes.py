"""Resizes of images in a compiled body: their result is one position or four of the image, which depend on the extents alone.

TensorFlow's CPU kernels of these operators run on one thread, element by element; XLA has dense products with nine weights each, and
none of the gradient of ResizeNearestNeighbor. The body does one axis after the other:

    ResizeNearestNeighbor      the positions, gathered
    ResizeBilinear             the two positions beside each and where it lies between them, gathered and interpolated
    their gradients            for each position of the image the positions of the result that were made from it, gathered, weighted
                               and summed. An image's position has fewer than others at the borders: what it lacks is 0. The sum
                               of one axis is there before the other's weights: of gradients near the largest float it overflows
                               sooner than TensorFlow's

Where each position of an axis is repeated equally often, as in all whole factors, the gather is a broadcast to a new axis and its
gradient a sum over it.

Positions and weights are those of TensorFlow's kernels (resize_axes.py). So the extents of height and width must be known; mark()
writes them to the operator. Layout: [batch, height, width, channels], as in TensorFlow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from ..base.dtypes import DT_FLOAT, DT_INT32
from ..graph.apply_ops import Expressions
from ..graph.memory_bound import OperandShapes, PartialShape
from ..graph.placed_graph import NodeDef, PlacedGraph, device_type, small_constant
from ..graph.tf_ops import RESIZE_EXTENTS, RESIZES

if TYPE_CHECKING:
    from .resize_axes import Axis, Floats, Integers

NEAREST, NEAREST_GRADIENT, BILINEAR, BILINEAR_GRADIENT = RESIZES
MOST_TAPS: Final = 64
"""The most positions that a position's gradient is summed from, along one axis. With more the image is nearly constant."""
_HEIGHT: Final = 1


def mark(graph: Any, operand_shapes: OperandShapes) -> int:
    """Writes the extents of image and result to the resizes of a placed GraphDef that a body can have, in place. Returns their
    number. operand_shapes: what is known of the shapes in the graph."""
    found = [
        node for node in graph.node if node.op in RESIZES and device_type(node.device) == "CPU" and _is_valid(node)
    ]
    if not found:
        return 0
    placed = PlacedGraph(graph)
    shapes = operand_shapes([node.name for node in found])
    count = 0
    for node in found:
        extents = _extents(placed, node, shapes.get(node.name, ()))
        if extents is not None and min(extents) > 0 and _has_few_taps(node, extents):
            node.attr[RESIZE_EXTENTS].list.i.extend(extents)
            count += 1
    return count


def _is_valid(node: NodeDef) -> bool:
    """Whether TensorFlow does not refuse its attributes."""
    return not (_has(node, "align_corners") and _has(node, "half_pixel_centers"))


def _has(node: NodeDef, flag: str) -> bool:
    return flag in node.attr and bool(node.attr[flag].b)


def _has_few_taps(node: NodeDef, extents: Sequence[int]) -> bool:
    return node.op in (NEAREST, BILINEAR) or max(axis.most_taps for axis in _axes(node, extents)) <= MOST_TAPS


def _extents(graph: PlacedGraph, node: NodeDef, operands: Sequence[PartialShape | None]) -> tuple[int, ...] | None:
    """Height and width of the image, then of the result. None if they are not known, negative if one is not."""
    if not operands or operands[0] is None or len(operands[0]) != 4:
        return None
    given = operands[0][1:3]
    if node.op == BILINEAR_GRADIENT:
        image = operands[1]
        return None if image is None or len(image) != 4 else (*image[1:3], *given)
    size = small_constant(graph, graph.by_name[node.name], 1)
    if size is None or size.shape != (2,):
        return None
    other = (int(size[0]), int(size[1]))
    return (*other, *given) if node.op == NEAREST_GRADIENT else (*given, *other)


def is_marked(node: NodeDef) -> bool:
    """Whether a body can have the operator, as mark() found."""
    return RESIZE_EXTENTS in node.attr


def _axes(node: NodeDef, extents: Sequence[int]) -> list[Axis]:
    """Height and width."""
    from .resize_axes import axis_of  # the launcher loads no array library

    modes = _has(node, "align_corners"), _has(node, "half_pixel_centers")
    return [axis_of(extents[k], extents[k + 2], node.op in (NEAREST, NEAREST_GRADIENT), *modes) for k in range(2)]


def spell_out(function: Any, name: str, node: NodeDef, operands: list[str]) -> str:
    """Appends the nodes of a marked operator to a FunctionDef. name: beginning of their names. operands: names of its operands.
    Returns the name of the result, of TensorFlow's dtype."""
    height, width = _axes(node, node.attr[RESIZE_EXTENTS].list.i)
    dtype = int(node.attr["T"].type)
    value = operands[0]
    if node.op == BILINEAR and dtype != DT_FLOAT:
        value = Expressions(function, f"{name}_wide", DT_FLOAT).cast(value, dtype, DT_FLOAT)
    body = _Body(Expressions(function, f"{name}_resized", DT_FLOAT if node.op == BILINEAR else dtype))
    if node.op == NEAREST:
        return body.repeated(body.repeated(value, _HEIGHT, height), _HEIGHT + 1, width)
    if node.op == BILINEAR:
        rows = [body.gathered(value, places, _HEIGHT) for places in (height.lower, height.upper)]
        above, below = (body.between(row, _HEIGHT + 1, width) for row in rows)
        return body.interpolated(above, below, height.part, _HEIGHT)
    return body.summed(body.summed(value, _HEIGHT, height), _HEIGHT + 1, width)


class _Body:
    """Appends nodes on images of one dtype to a FunctionDef; each method returns the name of its result."""

    def __init__(self, images: Expressions) -> None:
        self._images = images
        self._integers = images.of(DT_INT32)

    def repeated(self, value: str, axis: int, where: Axis) -> str:
        """The positions `where.lower` of an axis."""
        times = where.repeats
        if times is None:
            return self.gathered(value, where.lower, axis)
        if times == 1:
            return value
        shape = self._images.shape(value)
        before, after = self._part(shape, 0, axis), self._part(shape, axis + 1, 4)
        split = self._reshape(value, before, [where.extent, 1], after)
        spread = self._images.bare("BroadcastTo", split, self._joined(before, [where.extent, times], after))
        spread.attr["T"].type, spread.attr["Tidx"].type = self._images.dtype, DT_INT32
        return self._reshape(f"{spread.name}:output:0", before, [where.extent * times], after)

    def between(self, value: str, axis: int, where: Axis) -> str:
        """The interpolated positions of an axis."""
        left, right = (self.gathered(value, places, axis) for places in (where.lower, where.upper))
        return self.interpolated(left, right, where.part, axis)

    def interpolated(self, first: str, second: str, part: Floats, axis: int) -> str:
        """first + (second - first) * part, as in TensorFlow's kernel."""
        weights = self._reshaped(self._images.constant(part.tolist()), self._images.dtype, [-1] + [1] * (3 - axis))
        step = self._images.node("Mul", "z", self._images.node("Sub", "z", second, first), weights)
        return self._images.node("AddV2", "z", first, step)

    def summed(self, gradient: str, axis: int, where: Axis) -> str:
        """For each position of the image, the weighted sum of a gradient's positions that were made from it."""
        times = where.repeats
        if times == 1:
            return gradient
        if times is not None:
            shape = self._images.shape(gradient)
            after = self._part(shape, axis + 1, 4)
            return self._sum(
                self._reshape(gradient, self._part(shape, 0, axis), [where.extent, times], after), axis + 1
            )
        positions, weights = where.taps()
        taps = self.gathered(gradient, positions.clip(0), axis)
        extents = [*positions.shape, *[1] * (3 - axis)]
        if where.upper is not None:
            factors = self._reshaped(self._images.constant(weights.ravel().tolist()), self._images.dtype, extents)
            taps = self._images.node("Mul", "z", taps, factors)
        if (positions < 0).any():
            there = self._reshaped(self._integers.constant(positions.ravel().tolist()), DT_INT32, extents)
            is_there = self._integers.node("GreaterEqual", "z", there, self._integers.constant(0))
            taps = self._images.node("SelectV2", "output", is_there, taps, self._images.constant(0.0))
        return self._sum(taps, axis + 1)

    def gathered(self, value: str, places: Integers | None, axis: int) -> str:
        """The given positions of an axis; the axes of `places`, one or two, are in its place."""
        assert places is not None
        indices = self._integers.constant(places.ravel().tolist())
        if places.ndim > 1:
            indices = self._reshaped(indices, DT_INT32, list(places.shape))
        node = self._images.bare("GatherV2", value, indices, self._integers.constant(axis))
        node.attr["Tparams"].type, node.attr["Tindices"].type, node.attr["Taxis"].type = (
            self._images.dtype,
            DT_INT32,
            DT_INT32,
        )
        return f"{node.name}:output:0"

    def _sum(self, value: str, axis: int) -> str:
        node = self._images.bare("Sum", value, self._integers.constant([axis]))
        node.attr["T"].type, node.attr["Tidx"].type = self._images.dtype, DT_INT32
        return f"{node.name}:output:0"

    def _part(self, shape: str, begin: int, end: int) -> str:
        """Elements of a shape."""
        bounds = self._integers.constant([begin]), self._integers.constant([end - begin])
        node = self._integers.bare("Slice", shape, *bounds)
        node.attr["T"].type = node.attr["Index"].type = DT_INT32
        return f"{node.name}:output:0"

    def _joined(self, before: str, extents: list[int], after: str) -> str:
        """A shape of three parts."""
        node = self._integers.bare(
            "ConcatV2", before, self._integers.constant(extents), after, self._integers.constant(0)
        )
        node.attr["T"].type, node.attr["Tidx"].type, node.attr["N"].i = DT_INT32, DT_INT32, 3
        return f"{node.name}:output:0"

    def _reshape(self, value: str, before: str, extents: list[int], after: str) -> str:
        return self._images.reshape(value, self._joined(before, extents, after))

    def _reshaped(self, value: str, dtype: int, extents: list[int]) -> str:
        """A tensor of any dtype with the given extents."""
        return self._integers.of(dtype).reshape(value, self._integers.constant(extents))
