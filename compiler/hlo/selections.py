"""HLO's select-and-scatter, the gradient of a pooling that takes the largest (or smallest) element of each window, written out in
the compiler's ops.

Each window selects one element of x, and its element of y' is added to that element's result. XLA goes from window to window and
adds to memory (its operation semantics, "SelectAndScatter"). Here each element of the result gathers, so that rows are independent:

    selected[w]   the number of the tap that window w selects, from 1: the taps are compared in order. 0: no window
    x'[i]         sum over the windows w that reach element i  of  y'[w] where selected[w] is the tap at which w reaches i

A NaN is never better than another element. In XLA a NaN takes the selection, and the element after it takes it from the NaN.

A window that is `size` wide and moves by `stride` has ceil(size / stride) predecessors that reach the same element, itself included.
Element i, counted with the padding, is i = q stride + r; window q - j reaches it at tap r + j stride.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..ir.graph import DType, GraphBuilder, Shape, WindowDimension
from ..ops.table import build
from ..support.sequences import zip_strict
from .composites import constant

MOST_TAPS = 32
"""Windows of more elements are not written out: each tap is a comparison of its own."""


def is_written_out(window: Sequence[WindowDimension]) -> bool:
    """Whether `select_and_scatter` takes a window: no dilation, and at most MOST_TAPS elements."""
    plain = all(item.window_dilation == item.base_dilation == 1 for item in window)
    return plain and math.prod(item.size for item in window) <= MOST_TAPS


@dataclass(frozen=True)
class _Frame:
    """builder; x's shape; the windows; how many there are in each dimension (the shape of y')."""

    builder: GraphBuilder
    shape: Shape
    window: tuple[WindowDimension, ...]
    counts: Shape

    @property
    def reaches(self) -> tuple[int, ...]:
        """How many windows reach an element, in each dimension."""
        return tuple(-(-item.size // item.stride) for item in self.window)

    @property
    def steps(self) -> tuple[int, ...]:
        """By how much the number of a tap grows from one to the next in each dimension. Numbers are such that a tap beyond the
        window's end, r + j stride, has no other tap's number."""
        extents = [reach * item.stride for reach, item in zip_strict(self.reaches, self.window)]
        return tuple(math.prod(extents[i + 1 :]) for i in range(len(extents)))

    def op(self, op: str, *operands: int, **attributes: object) -> int:
        return build(self.builder, op, operands, **attributes)  # type: ignore[arg-type]

    def constant(self, value: float, dtype: DType, shape: Shape = ()) -> int:
        return constant(self.builder, value, dtype, shape)

    def pad(self, x: int, value: int, low: Sequence[int], high: Sequence[int]) -> int:
        return self.op("pad", x, value, low=tuple(low), high=tuple(high), interior=(0,) * len(low))


def select_and_scatter(
    builder: GraphBuilder, x: int, source: int, window: Sequence[WindowDimension], direction: str
) -> int:
    """Adds the nodes of a select-and-scatter of a float x to `builder`: y', `source`, has one element for each window. A window
    keeps the tap that it has selected if `selected DIRECTION next` holds, with direction "GE" (the first of the largest elements) or
    "LE". Returns the node index of the result, of x's shape, without the initial value."""
    frame = _Frame(builder, builder.nodes[x].shape, tuple(window), builder.nodes[source].shape)
    selected = _selected_taps(frame, x, direction)
    return _gather(frame, selected, source)


def _selected_taps(frame: _Frame, x: int, direction: str) -> int:
    """The number of the tap that each window selects, s32."""
    dtype = frame.builder.nodes[x].dtype
    limit, better = {"GE": (-math.inf, "GT"), "LE": (math.inf, "LT")}[direction]
    low = [item.padding_low for item in frame.window]
    needed = [(count - 1) * item.stride + item.size for count, item in zip_strict(frame.counts, frame.window)]
    high = [total - extent - before for total, extent, before in zip_strict(needed, frame.shape, low)]
    padded = frame.pad(x, frame.constant(limit, dtype), low, high)
    best, tap = frame.constant(limit, dtype, frame.counts), _first_taps(frame)
    for position in itertools.product(*(range(item.size) for item in frame.window)):
        limits = tuple(
            at + (count - 1) * item.stride + 1 for at, count, item in zip_strict(position, frame.counts, frame.window)
        )
        strides = tuple(item.stride for item in frame.window)
        element = frame.op("slice", padded, start=tuple(position), limit=limits, strides=strides)
        number = 1 + sum(at * step for at, step in zip_strict(position, frame.steps))
        takes = frame.op("compare", element, best, direction=better, total_order=False)
        here = frame.constant(number, DType.S32, frame.counts)
        tap = frame.op("select", takes, here, tap)
        best = frame.op("select", takes, element, best)
    return tap


def _first_taps(frame: _Frame) -> int:
    """The number of each window's first tap that is not in the padding: what it selects if no element is better than the worst."""

    def integers(value: int) -> int:
        return frame.constant(value, DType.S32, frame.counts)

    total, zero = integers(1), integers(0)
    outside: list[int] = []
    for dimension, (item, step) in enumerate(zip_strict(frame.window, frame.steps)):
        if item.padding_low <= 0:
            continue
        place = frame.op("iota", shape=frame.counts, dtype=DType.S32, dimension=dimension)
        start = frame.op("subtract", integers(item.padding_low), frame.op("multiply", place, integers(item.stride)))
        first = frame.op("maximum", start, zero)
        total = frame.op("add", total, frame.op("multiply", first, integers(step)))
        if item.padding_low >= item.size:
            ends = integers(item.size)
            outside.append(frame.op("compare", first, ends, direction="GE", total_order=False))
    for condition in outside:  # windows that lie in the padding
        total = frame.op("select", condition, zero, total)
    return total


def _gather(frame: _Frame, selected: int, source: int) -> int:
    """The sum, for each element of x, of the windows that selected it."""
    builder, window = frame.builder, frame.window
    rank = len(window)
    # Quotients q of elements, counted with the padding; a dimension of them is followed by one of remainders r.
    quotients = [-(-(item.padding_low + extent) // item.stride) for item, extent in zip_strict(window, frame.shape)]
    split = tuple(part for q, item in zip_strict(quotients, window) for part in (q, item.stride))
    places = tuple(range(0, 2 * rank, 2))
    dtype = builder.nodes[source].dtype
    none, zero = frame.constant(0, DType.S32), frame.constant(0.0, dtype)
    zeros = frame.constant(0.0, dtype, split)
    remainder = frame.constant(0, DType.S32, split)
    for dimension, step in enumerate(frame.steps):
        if window[dimension].stride > 1:
            place = frame.op("iota", shape=split, dtype=DType.S32, dimension=2 * dimension + 1)
            scale = frame.constant(step, DType.S32, split)
            remainder = frame.op("add", remainder, frame.op("multiply", place, scale))
    total: int | None = None
    for back in itertools.product(*(range(reach) for reach in frame.reaches)):
        high = [q - count - j for q, count, j in zip_strict(quotients, frame.counts, back)]
        tap = frame.op("broadcast", frame.pad(selected, none, back, high), shape=split, dimensions=places)
        value = frame.op("broadcast", frame.pad(source, zero, back, high), shape=split, dimensions=places)
        offset = 1 + sum(j * item.stride * step for j, item, step in zip_strict(back, window, frame.steps))
        wanted = frame.op("add", remainder, frame.constant(offset, DType.S32, split))
        here = frame.op("compare", tap, wanted, direction="EQ", total_order=False)
        term = frame.op("select", here, value, zeros)
        total = term if total is None else frame.op("add", total, term)
    assert total is not None  # each element is reached
    whole = frame.op("reshape", total, shape=tuple(q * item.stride for q, item in zip_strict(quotients, window)))
    start = tuple(max(item.padding_low, 0) for item in window)
    limit = tuple(first + extent for first, extent in zip_strict(start, frame.shape))
    return frame.op("slice", whole, start=start, limit=limit, strides=(1,) * rank)
