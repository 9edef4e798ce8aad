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

Positions and weights are those of TensorFlow's kernels (core/util/image_resizer_state.h, core/kernels/image/resize_bilinear_op.cc
and resize_nearest_neighbor_op.cc), computed in float32 as there. So the extents of height and width must be known; mark() writes them
to the operator. Layout: [batch, height, width, channels], as in TensorFlow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ..base.dtypes import DT_FLOAT, DT_INT32
from ..graph.apply_ops import Expressions
from ..graph.memory_bound import OperandShapes, PartialShape
from ..graph.placed_graph import NodeDef, PlacedGraph, device_type, small_constant
from ..graph.tf_ops import RESIZE_EXTENTS, RESIZES

NEAREST, NEAREST_GRADIENT, BILINEAR, BILINEAR_GRADIENT = RESIZES
MOST_TAPS: Final = 64
"""The most positions that a position's gradient is summed from, along one axis. With more the image is nearly constant."""
_HEIGHT: Final = 1
_Integers = np.ndarray[Any, np.dtype[np.int32]]
_Floats = np.ndarray[Any, np.dtype[np.float32]]


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
        if extents is not None and all(extent > 0 for extent in extents):
            axes = [_of_axis(node, *extents[k::2]) for k in range(2)]
            if node.op in (NEAREST, BILINEAR) or max(axis.most_taps for axis in axes) <= MOST_TAPS:
                node.attr[RESIZE_EXTENTS].list.i.extend(extents)
                count += 1
    return count


def _is_valid(node: NodeDef) -> bool:
    """Whether TensorFlow does not refuse its attributes."""
    return not (node.attr["align_corners"].b and node.attr["half_pixel_centers"].b)


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


@dataclass(frozen=True)
class _Axis:
    """Where the positions of one axis of the result lie in the image.

    extent: of the image. lower: the position before each, or the nearest. upper: that behind; None for the nearest. part: where
    between them it lies, from 0 to 1.
    """

    extent: int
    lower: _Integers
    upper: _Integers | None
    part: _Floats

    @property
    def repeats(self) -> int | None:
        """How often each position is repeated, one after the other; None if that differs or they are interpolated."""
        times, rest = divmod(len(self.lower), self.extent)
        is_equal = self.upper is None and not rest and (self.lower == np.arange(self.extent).repeat(times)).all()
        return times if is_equal else None

    @property
    def most_taps(self) -> int:
        """The most positions of the result that are made from one of the image."""
        both = self.lower if self.upper is None else np.concatenate([self.lower, self.upper])
        return int(np.bincount(both).max())

    def taps(self) -> tuple[_Integers, _Floats]:
        """For each position of the image, (the positions of the result that are made from it, their weights), both
        [extent, most_taps]. Those that it lacks are position -1."""
        order = np.arange(len(self.lower), dtype=np.int32)
        one = np.float32(1)
        made = [(self.lower, one - self.part)] if self.upper is not None else [(self.lower, np.ones_like(self.part))]
        if self.upper is not None:
            made.append((self.upper, self.part))
        positions = np.full((self.extent, self.most_taps), -1, np.int32)
        weights = np.zeros(positions.shape, np.float32)
        for source in range(self.extent):
            entries = [(int(i), float(w[i])) for where, w in made for i in order[where == source]]
            for k, (i, weight) in enumerate(sorted(entries, key=lambda entry: entry[0])):
                positions[source, k], weights[source, k] = i, weight
        return positions, weights


def _of_axis(node: NodeDef, image: int, result: int) -> _Axis:
    """image, result: extents of the axis."""
    aligned, centered = bool(node.attr["align_corners"].b), bool(node.attr["half_pixel_centers"].b)
    half, scale = np.float32(0.5), np.float32(image) / np.float32(result)
    if aligned and result > 1:
        scale = np.float32(image - 1) / np.float32(result - 1)
    is_nearest = node.op in (NEAREST, NEAREST_GRADIENT)
    at = (np.arange(result, dtype=np.float32) + half * centered) * scale
    if centered and not is_nearest:
        at -= half
    last = image - 1
    if is_nearest:
        whole = np.floor(at)
        if aligned:
            whole += at - whole >= half  # roundf
        return _Axis(image, np.minimum(whole.astype(np.int32), last), None, np.zeros_like(at))
    upper = np.minimum(np.ceil(at).astype(np.int32), last)
    lower = np.minimum(np.maximum(np.floor(at).astype(np.int32), 0), upper)
    return _Axis(image, lower, upper, at - np.floor(at))


def spell_out(function: Any, name: str, node: NodeDef, operands: list[str]) -> str:
    """Appends the nodes of a marked operator to a FunctionDef. name: beginning of their names. operands: names of its operands.
    Returns the name of the result, of TensorFlow's dtype."""
    extents = node.attr[RESIZE_EXTENTS].list.i
    height, width = (_of_axis(node, extents[k], extents[k + 2]) for k in range(2))
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

    def repeated(self, value: str, axis: int, where: _Axis) -> str:
        """The positions `where.lower` of an axis."""
        times = where.repeats
        if times is None:
            return self.gathered(value, where.lower, axis)
        if times == 1:
            return value
        shape = self._shape(value)
        before, after = self._part(shape, 0, axis), self._part(shape, axis + 1, 4)
        split = self._reshape(value, before, [where.extent, 1], after)
        spread = self._images.bare("BroadcastTo", split, self._joined(before, [where.extent, times], after))
        spread.attr["T"].type, spread.attr["Tidx"].type = self._images.dtype, DT_INT32
        return self._reshape(f"{spread.name}:output:0", before, [where.extent * times], after)

    def between(self, value: str, axis: int, where: _Axis) -> str:
        """The interpolated positions of an axis."""
        left, right = (self.gathered(value, places, axis) for places in (where.lower, where.upper))
        return self.interpolated(left, right, where.part, axis)

    def interpolated(self, first: str, second: str, part: _Floats, axis: int) -> str:
        """first + (second - first) * part, as in TensorFlow's kernel."""
        weights = self._reshaped(self._images.constant(part.tolist()), self._images.dtype, [-1] + [1] * (3 - axis))
        step = self._images.node("Mul", "z", self._images.node("Sub", "z", second, first), weights)
        return self._images.node("AddV2", "z", first, step)

    def summed(self, gradient: str, axis: int, where: _Axis) -> str:
        """For each position of the image, the weighted sum of a gradient's positions that were made from it."""
        times = where.repeats
        if times == 1:
            return gradient
        if times is not None:
            shape = self._shape(gradient)
            after = self._part(shape, axis + 1, 4)
            return self._sum(
                self._reshape(gradient, self._part(shape, 0, axis), [where.extent, times], after), axis + 1
            )
        positions, weights = where.taps()
        taps = self.gathered(gradient, np.maximum(positions, 0), axis)
        extents = [*positions.shape, *[1] * (3 - axis)]
        if where.upper is not None:
            factors = self._reshaped(self._images.constant(weights.ravel().tolist()), self._images.dtype, extents)
            taps = self._images.node("Mul", "z", taps, factors)
        if (positions < 0).any():
            there = self._reshaped(self._integers.constant(positions.ravel().tolist()), DT_INT32, extents)
            is_there = self._integers.node("GreaterEqual", "z", there, self._integers.constant(0))
            taps = self._images.node("SelectV2", "output", is_there, taps, self._images.constant(0.0))
        return self._sum(taps, axis + 1)

    def gathered(self, value: str, places: _Integers | None, axis: int) -> str:
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

    def _shape(self, value: str) -> str:
        node = self._images.bare("Shape", value)
        node.attr["T"].type, node.attr["out_type"].type = self._images.dtype, DT_INT32
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
        node = self._images.bare("Reshape", value, self._joined(before, extents, after))
        node.attr["T"].type, node.attr["Tshape"].type = self._images.dtype, DT_INT32
        return f"{node.name}:output:0"

    def _reshaped(self, value: str, dtype: int, extents: list[int]) -> str:
        """A tensor of any dtype with the given extents."""
        node = self._integers.bare("Reshape", value, self._integers.constant(extents))
        node.attr["T"].type, node.attr["Tshape"].type = dtype, DT_INT32
        return f"{node.name}:output:0"
