"""Depthwise convolutions and their gradients, written out in the compiler's ops, because they are memory-bound.

    depthwise convolution        y[b, p, g m]  = sum over t        of  x[b, p s + t, g]    w[t, g m]
    gradient of its input        x'[b, p, g]   = sum over t, m     of  y'[b, p + t, g m]   w[t, g m]     (w turned, y' dilated by s)
    gradient of its filter       w'[t, g m]    = sum over b, p     of  x[b, p s + t, g]    y'[b, p, g m]

p: a pixel, t: a tap of the filter, g: a feature, m: one of the output features that are computed from it. x is padded. Each is

    reduce(multiply(patches(x), broadcast(w)))

HLO has one op for all three (XLA's operation semantics, "ConvWithGeneralPadding"): the first two have feature groups, and the third
has batch groups, with the batch as feature, an image as window, and the filter as result.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from ..ir.graph import GraphBuilder, Shape, WindowDimension
from ..ops.table import build
from ..support.sequences import zip_strict
from .composites import constant
from .module import ConvolutionDimensions

BATCH, GROUP, EACH, SEVERAL = "batch", "group", "input feature", "output feature"
"""Axes of the terms that are summed; EACH and SEVERAL are the features of a group. The others are pixels and taps, numbered."""


def is_depthwise(lhs: Shape, rhs: Shape, numbers: ConvolutionDimensions) -> bool:
    """Whether a convolution is of one of the three kinds above. lhs, rhs: the operands' shapes."""
    batch, feature, _ = numbers.lhs
    of_input, of_output, _ = numbers.rhs
    if 0 in (*lhs, *rhs):
        return False
    if numbers.batch_groups > 1:
        groups = numbers.batch_groups
        return (
            numbers.feature_groups == 1
            and lhs[batch] == groups
            and rhs[of_input] == lhs[feature]
            and rhs[of_output] % groups == 0
        )
    groups = numbers.feature_groups
    fits = lhs[feature] == groups * rhs[of_input] and rhs[of_output] % groups == 0
    return (
        fits and 1 in (rhs[of_input], rhs[of_output] // groups) and (groups > 1 or lhs[feature] == rhs[of_output] == 1)
    )


def depthwise(
    builder: GraphBuilder,
    lhs: int,
    rhs: int,
    numbers: ConvolutionDimensions,
    window: Sequence[WindowDimension],
    result: Shape,
) -> int:
    """Adds the nodes of a convolution for which `is_depthwise` holds to `builder`. Operands are node indices of one float
    dtype; `result` is the convolution's shape. Returns the node index of the result."""
    by_batch = numbers.batch_groups > 1
    pixels, taps = ([f"{kind} {i}" for i in range(len(window))] for kind in ("pixel", "tap"))
    sizes = [result[i] for i in numbers.result[2]] if by_batch else [item.size for item in window]
    left = _patches(builder, _padded(builder, lhs, numbers, window), numbers, window, sizes)

    # The axes that each dimension of an operand, of the patches and of the result stands for.
    batch, feature, spatial = numbers.lhs
    of_lhs = (
        _by_dimension((batch, (GROUP,)), (feature, (BATCH,)), (spatial, pixels))
        if by_batch
        else _by_dimension((batch, (BATCH,)), (feature, (GROUP, EACH)), (spatial, pixels))
    )
    last = max(spatial) + 1
    slid = [(tap,) for _, tap in sorted(zip_strict(spatial, taps))]
    of_patches = [*of_lhs[:last], *slid, *of_lhs[last:]]
    of_input, of_output, of_taps = numbers.rhs
    of_rhs = _by_dimension(
        (of_input, (BATCH if by_batch else EACH,)),
        (of_output, (GROUP, SEVERAL)),
        (of_taps, pixels if by_batch else taps),
    )
    of_result = _by_dimension(
        (numbers.result[0], () if by_batch else (BATCH,)),
        (numbers.result[1], (GROUP, SEVERAL)),
        (numbers.result[2], taps if by_batch else pixels),
    )
    groups = numbers.batch_groups if by_batch else numbers.feature_groups
    filter_shape = builder.nodes[rhs].shape
    extents = {
        GROUP: groups,
        SEVERAL: filter_shape[of_output] // groups,
        EACH: 1 if by_batch else filter_shape[of_input],
    }
    for axes, extent in zip_strict(of_patches, builder.nodes[left].shape):
        if len(axes) == 1:
            extents.setdefault(axes[0], extent)

    def flat(dimensions: Iterable[Sequence[str]]) -> list[str]:
        """The axes in order, without those of groups that have but one feature."""
        return [axis for axes in dimensions for axis in axes if extents[axis] > 1 or axis not in (EACH, SEVERAL)]

    space = flat([*of_patches, (SEVERAL,)])
    factors = (
        _spread(builder, left, flat(of_patches), space, extents),
        _spread(builder, rhs, flat(of_rhs), space, extents),
    )
    total = build(builder, "multiply", factors)
    wanted = flat(of_result)
    # Over each image first: the terms of all images may be more than a check of the kernel has memory for.
    summed = [axis for axis in space if axis not in wanted]
    for part in ([axis for axis in summed if axis != BATCH], [axis for axis in summed if axis == BATCH]):
        if part:
            total = build(builder, "reduce", (total,), dimensions=tuple(space.index(axis) for axis in part), kind="sum")
            space = [axis for axis in space if axis not in part]
    total = build(builder, "transpose", (total,), permutation=tuple(space.index(axis) for axis in wanted))
    return build(
        builder, "reshape", (total,), shape=tuple(math.prod(extents[axis] for axis in axes) for axes in of_result)
    )


def _by_dimension(
    first: tuple[int, Sequence[str]], second: tuple[int, Sequence[str]], others: tuple[Sequence[int], Sequence[str]]
) -> list[Sequence[str]]:
    """The axes of each dimension: of two dimensions, and one axis for each of the others."""
    found: dict[int, Sequence[str]] = dict((first, second))
    found |= {dimension: (axis,) for dimension, axis in zip_strict(*others)}
    return [found[i] for i in range(len(found))]


def _patches(
    builder: GraphBuilder,
    padded: int,
    numbers: ConvolutionDimensions,
    window: Sequence[WindowDimension],
    sizes: Sequence[int],
) -> int:
    """The left operand's patches of `sizes` taps. With batch groups HLO's window is an image, and its strides are between taps."""
    steps = [(item.stride, item.window_dilation) for item in window]
    if numbers.batch_groups > 1:
        steps = [(between_pixels, between_taps) for between_taps, between_pixels in steps]
    slides = sorted(zip_strict(numbers.lhs[2], sizes, steps))  # dimensions must increase
    return build(
        *(builder, "patches", (padded,)),
        dimensions=tuple(dimension for dimension, _, _ in slides),
        sizes=tuple(size for _, size, _ in slides),
        strides=tuple(stride for _, _, (stride, _) in slides),
        dilations=tuple(dilation for _, _, (_, dilation) in slides),
    )


def _padded(builder: GraphBuilder, lhs: int, numbers: ConvolutionDimensions, window: Sequence[WindowDimension]) -> int:
    """The left operand, padded and dilated with zeros as the window says, without what no window reaches."""
    node = builder.nodes[lhs]
    low, high, interior = ([0] * len(node.shape) for _ in range(3))
    for dimension, item in zip_strict(numbers.lhs[2], window):
        low[dimension], high[dimension] = item.padding_low, item.padding_high
        interior[dimension] = item.base_dilation - 1
        extent = (node.shape[dimension] - 1) * item.base_dilation + 1 + item.padding_low + item.padding_high
        high[dimension] -= (extent - (item.size - 1) * item.window_dilation - 1) % item.stride
    zero = constant(builder, 0.0, node.dtype, ())
    return build(builder, "pad", (lhs, zero), low=tuple(low), high=tuple(high), interior=tuple(interior))


def _spread(
    builder: GraphBuilder, operand: int, axes: Sequence[str], space: Sequence[str], extents: Mapping[str, int]
) -> int:
    """The operand, whose dimensions are `axes` if reshaped, broadcast to `space`."""
    apart = build(builder, "reshape", (operand,), shape=tuple(extents[axis] for axis in axes))
    order = tuple(sorted(range(len(axes)), key=lambda i: space.index(axes[i])))
    moved = build(builder, "transpose", (apart,), permutation=order)
    places = tuple(space.index(axes[i]) for i in order)
    return build(builder, "broadcast", (moved,), shape=tuple(extents[axis] for axis in space), dimensions=places)
