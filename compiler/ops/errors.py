"""Error rules: the `error` column of the op table, for running error analysis (Higham, Accuracy and Stability of
Numerical Algorithms, 2nd ed., section 3.3).

The oracle computes in float64 and carries, with each value, a bound on how far a correct implementation in the graph's
own dtypes may be from it. A rule gives the bound that the result inherits from the operands' bounds; `round_result` then
adds what the op itself may add: its rounding (`ulps` of its row), flushing of subnormals (TensorFlow's threads flush
them), and overflow.

- A bound of 0 means exact: a correct implementation gives this very value.
- A bound of infinity means *ambiguous*: nothing can be said, NaN and Inf included. It arises if an operand is within its
  bound of a discontinuity, a pole or the edge of a domain, or if a value is too close to the overflow threshold.
- Integers and booleans have bounds too: an integer with a bound of 1 may come from rounding a float near a half, for
  example; a boolean's bound is 0 or infinity.

The bound of a monotonic function comes from evaluating it at both ends of the operand's interval, which holds for operand
bounds of any size. Other functions use partial derivatives (first order), with the worst denominator of the interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from ..ir.graph import DType, Node
from ..support.sequences import zip_strict
from . import reference
from .attributes import gather_numbers, window_of

if TYPE_CHECKING:
    from typing import TypeAlias

_AnyArray: TypeAlias = npt.NDArray[Any]
ErrorBound: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ComputedNode:
    """One op as the oracle computed it: the node, its operands' nodes, values and bounds, and the result."""

    node: Node
    sources: tuple[Node, ...]
    values: tuple[_AnyArray, ...]
    bounds: tuple[ErrorBound, ...]
    result: _AnyArray


ErrorRule: TypeAlias = Callable[[ComputedNode], ErrorBound]

UNIT_ROUNDOFF: Final[Mapping[DType, float]] = {
    DType.F16: 2.0**-11,
    DType.BF16: 2.0**-8,
    DType.F32: 2.0**-24,
    DType.F64: 2.0**-53,
}
LARGEST: Final[Mapping[DType, float]] = {
    DType.F16: 65504.0,
    DType.BF16: float.fromhex("0x1.fep127"),
    DType.F32: float.fromhex("0x1.fffffep127"),
    DType.F64: float.fromhex("0x1.fffffffffffffp1023"),
}
SMALLEST_NORMAL: Final[Mapping[DType, float]] = {
    DType.F16: 2.0**-14,
    DType.BF16: 2.0**-126,
    DType.F32: 2.0**-126,
    DType.F64: 2.0**-1022,
}
OVERFLOW_MARGIN: Final = 2.0**-10
"""A value within this relative distance of the largest number may overflow or not."""
CLEAR_OVERFLOW: Final = 4.0
"""A value beyond this many times the largest number overflows in every implementation. Even if a product is fused with the sum that
follows (one rounding, no overflow between them), the addend cannot bring it back."""


def accumulator(dtype: DType) -> DType:
    """The dtype in which a correct implementation accumulates sums of `dtype`: f32 for f16 and bf16, else `dtype`."""
    return DType.F32 if dtype in (DType.F16, DType.BF16) else dtype


def summation_depth(count: int) -> float:
    """How many roundings of the running total a term of a sum of `count` terms may meet. The bound of the sum is then
    depth * u * (sum of the terms' magnitudes).

    count - 1 is the bound for any order. For long sums it is so loose that whole blocks of terms could be missing
    unnoticed, so beyond 16 terms it is 4 sqrt(count): Higham and Mary, A New Approach to Probabilistic Rounding Error
    Analysis (2019), theorem 3.1 with lambda = 4. A sum in any order stays below it with a probability of 1 - 2 exp(-8),
    even at n roundings per term.
    """
    return float(max(count - 1, 0)) if count <= 16 else 4.0 * math.sqrt(count)


def clean(bound: _AnyArray) -> ErrorBound:
    """Replaces NaN (from Inf - Inf or 0 * Inf), about which nothing can be said, by infinity."""
    unknown = np.isnan(bound)
    if not unknown.any():
        return bound.astype(np.float64, copy=False)
    return np.where(unknown, np.inf, bound).astype(np.float64, copy=False)


@lru_cache(maxsize=1024)
def no_error(shape: tuple[int, ...]) -> ErrorBound:
    """A bound of zeros of `shape`. All elements share one number in memory, so the array is read-only."""
    return np.broadcast_to(np.float64(0), shape)


def is_exact(bound: ErrorBound) -> bool:
    """Whether the bound is zero everywhere."""
    if not any(bound.strides) and bound.size:
        return not bound.flat[0]
    return not bound.any()


def largest_of(x: _AnyArray) -> float:
    """The largest element, or 0 if no element is above 0; NaN if any element is NaN."""
    return float(np.maximum.reduce(x, axis=None, initial=0.0))


def smallest_of(x: _AnyArray) -> float:
    """The smallest element, infinity if there is none; NaN if any element is NaN."""
    return float(np.minimum.reduce(x, axis=None, initial=np.inf))


def ambiguous(where: _AnyArray) -> ErrorBound:
    """The bound that is infinite where the boolean array `where` is true, and 0 elsewhere."""
    return np.where(where, np.inf, 0.0) if where.any() else no_error(where.shape)


def _any_error(step: ComputedNode) -> _AnyArray:
    shape = step.result.shape
    found = np.zeros(shape, bool)
    for bound in step.bounds:
        found = found | (bound > 0)
    return found


# ---- element-wise rules --------------------------------------------------------------------------------------------


def exact(step: ComputedNode) -> ErrorBound:
    """The rule of ops without operands: the inherited bound is 0."""
    return no_error(step.result.shape)


def inherit(step: ComputedNode) -> ErrorBound:
    """The result has the bound of the first operand."""
    return step.bounds[0]


def fragile(step: ComputedNode) -> ErrorBound:
    """If any operand may be in error, the result is ambiguous."""
    return ambiguous(_any_error(step))


def monotone(function: Callable[..., _AnyArray]) -> ErrorRule:
    """The rule of a function of one variable that is monotonic wherever it is finite: the largest distance at both ends of the
    operand's interval."""

    def rule(step: ComputedNode) -> ErrorBound:
        x, bound = step.values[0], step.bounds[0]
        if is_exact(bound):
            return no_error(step.result.shape)
        above, below = function(x + bound), function(x - bound)
        reach = np.maximum(np.abs(above - step.result), np.abs(below - step.result))
        return np.where(bound == 0, 0.0, np.where(np.isinf(bound), np.inf, clean(reach)))

    return rule


def oscillating(step: ComputedNode) -> ErrorBound:
    """sin and cos: the operand's bound, because the slope is at most 1, capped at 2, the width of the range. Ambiguous if the operand
    is: it may be infinite, and the result NaN."""
    bound = step.bounds[0]
    return np.where(np.isinf(bound), np.inf, np.minimum(bound, 2.0))


def tangent(step: ComputedNode) -> ErrorBound:
    """tan: as for a monotonic function, but ambiguous where the operand's interval may hold a pole."""
    x, bound = step.values[0], step.bounds[0]
    pole = (bound > 0) & (np.abs(np.cos(x)) <= bound)
    return np.where(pole, np.inf, monotone(np.tan)(step))


def add(step: ComputedNode) -> ErrorBound:
    """The operands' bounds add up."""
    first, second = step.bounds
    if first.shape == second.shape and (is_exact(first) or is_exact(second)):
        return second if is_exact(first) else first
    return first + second


def multiply(step: ComputedNode) -> ErrorBound:
    """First and second order terms; an exact Inf times a factor that is certainly not zero is exact."""
    (x, y), (ex, ey) = step.values, step.bounds
    if not step.node.dtype.is_float:
        x, y = x.astype(np.float64), y.astype(np.float64)
    if is_exact(ex) and is_exact(ey):
        return no_error(step.result.shape)
    size_x, size_y = np.abs(x), np.abs(y)
    simple: ErrorBound = size_y + ey
    simple *= ex
    simple += size_x * ey
    if largest_of(simple) < np.inf:
        return simple
    # Inf times an operand that is certainly not zero is certainly Inf.
    certain = (np.isinf(x) & (ex == 0) & (size_y > ey)) | (np.isinf(y) & (ey == 0) & (size_x > ex))
    reach = (
        np.where(ey == 0, 0, size_x * ey)
        + np.where(ex == 0, 0, size_y * ex)
        + np.where((ex == 0) | (ey == 0), 0, ex * ey)
    )
    return np.where(certain, 0.0, clean(reach))


def divide(step: ComputedNode) -> ErrorBound:
    """The bound for the smallest divisor (in magnitude) of the operand's interval; ambiguous if the interval holds zero, unless the
    divisor is exactly zero."""
    if not step.node.dtype.is_float:
        return fragile(step)
    (x, y), (ex, ey) = step.values, step.bounds
    if is_exact(ex) and is_exact(ey):
        return no_error(step.result.shape)
    room = np.abs(y) - ey
    reach = clean((ex + np.where(ey == 0, 0, np.abs(step.result) * ey)) / room)
    reach = np.where(room <= 0, np.inf, reach)
    # The divisor is exactly zero: Inf of certain sign, or NaN, unless the numerator may be on either side of zero.
    by_zero = (y == 0) & (ey == 0)
    reach = np.where(by_zero, ambiguous((ex > 0) & (np.abs(x) <= ex)), reach)
    return np.where((ex == 0) & (ey == 0), 0.0, reach)


def remainder(step: ComputedNode) -> ErrorBound:
    """Ambiguous if the quotient's integer part may differ; else the bounds of x - n y, n being that part."""
    if not step.node.dtype.is_float:
        return fragile(step)
    (x, y), (ex, ey) = step.values, step.bounds
    room = np.abs(y) - ey
    largest = np.trunc((np.abs(x) + ex) / room)
    smallest = np.trunc(np.maximum(np.abs(x) - ex, 0) / (np.abs(y) + ey))
    jumps = (room <= 0) | (largest != smallest)
    reach = clean(ex + np.where(ey == 0, 0, largest * ey))
    return np.where((ex == 0) & (ey == 0), 0.0, np.where(jumps, np.inf, reach))


def extreme(step: ComputedNode) -> ErrorBound:
    """maximum and minimum: the bound of the operand that certainly wins, else the larger of the two bounds."""
    if step.node.dtype is DType.PRED:
        return logical(step)
    (x, y), (ex, ey) = step.values, step.bounds
    if step.node.op == "minimum":
        x, y = (-x, -y) if step.node.dtype.is_float else (-x.astype(np.float64), -y.astype(np.float64))
    return np.where(x - ex > y + ey, ex, np.where(y - ey > x + ex, ey, np.maximum(ex, ey)))


def power(step: ComputedNode) -> ErrorBound:
    """The largest distance at the four corners of the operands' intervals; ambiguous at poles and at the edge of the domain."""
    if not step.node.dtype.is_float:
        return fragile(step)
    (x, y), (ex, ey) = step.values, step.bounds
    # For x > 0 power is monotonic in each variable: the extremes over the box are at its corners. For x < 0 the sign of
    # the result depends on y, which must then be exact.
    corners = [np.power(x + i * ex, y + j * ey) for i in (-1, 1) for j in (-1, 1)]
    reach = clean(np.maximum.reduce([np.abs(corner - step.result) for corner in corners]))
    unclear = ((x - ex <= 0) & (ey > 0)) | ((x - ex <= 0) & (x + ex >= 0) & (ex > 0) & (y <= 0))
    return np.where((ex == 0) & (ey == 0), 0.0, np.where(unclear, np.inf, reach))


def arctangent2(step: ComputedNode) -> ErrorBound:
    """By the slope at the point of the operands' box that is nearest to the origin; ambiguous at the branch cut."""
    (y, x), (ey, ex) = step.values, step.bounds
    branch_cut = (x - ex <= 0) & (np.abs(y) <= ey) & (ey > 0)
    nearest = np.hypot(np.maximum(np.abs(x) - ex, 0), np.maximum(np.abs(y) - ey, 0))
    reach = clean((ex + ey) / nearest)
    return np.where((ex == 0) & (ey == 0), 0.0, np.where(branch_cut, np.inf, reach))


def logical(step: ComputedNode) -> ErrorBound:
    """and, or (and min, max) of booleans: one certain operand can decide the result."""
    if step.node.dtype is not DType.PRED:
        return fragile(step)
    (x, y), (ex, ey) = step.values, step.bounds
    decides = step.node.op in ("or", "maximum")
    decided = ((x == decides) & (ex == 0)) | ((y == decides) & (ey == 0))
    return np.where(decided, 0.0, fragile(step))


def compare(step: ComputedNode) -> ErrorBound:
    """Ambiguous if the operands are closer than the sum of their bounds, unless both are exact."""
    (x, y), (ex, ey) = step.values, step.bounds
    if is_exact(ex) and is_exact(ey) and not step.node.attributes.get("total_order"):
        return no_error(step.result.shape)
    if x.dtype.kind in "iu":
        distance = np.abs(x.astype(np.float64) - y.astype(np.float64))
    else:
        distance = np.abs(np.subtract(x, y, dtype=np.float64))
    unclear = (ex + ey > 0) & (distance <= ex + ey)
    unclear |= np.isinf(ex) | np.isinf(ey)
    if step.node.attributes.get("total_order"):
        # Nothing is promised about the sign of a NaN or of a zero.
        unclear |= np.isnan(x) | np.isnan(y) | ((x == 0) & (y == 0))
    return ambiguous(unclear)


def select(step: ComputedNode) -> ErrorBound:
    """Where the predicate is ambiguous, the bound is the distance between the two values plus the larger of their bounds, so that a
    function that a select makes continuous (an absolute value, a relu) keeps a finite bound at the seam. For pred: ambiguous if the
    two values differ."""
    (predicate, on_true, on_false), (unclear, true_bound, false_bound) = step.values, step.bounds
    if all(map(is_exact, step.bounds)):
        return no_error(step.result.shape)
    chosen = np.where(predicate, true_bound, false_bound)
    if not unclear.any():
        return chosen
    same = on_true == on_false
    if step.node.dtype is DType.PRED:
        either = np.where(same, np.maximum(true_bound, false_bound), np.inf)
    else:
        distance = np.where(same, 0.0, np.abs(on_true.astype(np.float64) - on_false.astype(np.float64)))
        either = clean(distance + np.maximum(true_bound, false_bound))
    return np.where(unclear > 0, either, chosen)


def clamp(step: ComputedNode) -> ErrorBound:
    """The largest distance at both ends of the operands' intervals, since clamp is monotonic in each operand."""
    (low, x, high), (el, ex, eh) = (value.astype(np.float64) for value in step.values), step.bounds
    above = reference.clamp(low + el, x + ex, high + eh)
    below = reference.clamp(low - el, x - ex, high - eh)
    result = step.result.astype(np.float64)
    reach = clean(np.maximum(np.abs(above - result), np.abs(below - result)))
    unclear = np.isinf(el) | np.isinf(ex) | np.isinf(eh)
    return np.where(_any_error(step), np.where(unclear, np.inf, reach), 0.0)


def convert(step: ComputedNode) -> ErrorBound:
    """To integer: the distance at both ends of the operand's interval. To pred: ambiguous if zero is within the bound. To
    float: the operand's bound."""
    x, bound = step.values[0], step.bounds[0]
    if step.node.dtype is DType.PRED:
        return ambiguous((bound > 0) & ~(np.abs(x.astype(np.float64)) > bound))
    if step.sources[0].dtype.is_float and not step.node.dtype.is_float:
        if not bound.any():
            return bound
        ends = [
            reference.convert(step.node, step.sources, [x + sign * bound]).astype(np.float64) for sign in (-1.0, 1.0)
        ]
        result = step.result.astype(np.float64)
        reach = np.maximum(np.abs(ends[0] - result), np.abs(ends[1] - result))
        return np.where(np.isinf(bound), np.inf, reach)
    return bound


def bitcast_convert(step: ComputedNode) -> ErrorBound:
    """Ambiguous if the operand is in error, or is a NaN."""
    unclear = step.bounds[0] > 0
    if step.sources[0].dtype.is_float:
        unclear = unclear | np.isnan(step.values[0])  # nothing is promised about a NaN's payload
    return ambiguous(unclear)


def reduce_precision(step: ComputedNode) -> ErrorBound:
    """One unit of the narrower mantissa; ambiguous near the narrower overflow threshold."""
    x, bound = step.values[0], step.bounds[0]
    exponent, mantissa = (int(step.node.attributes[key]) for key in ("exponent_bits", "mantissa_bits"))  # type: ignore[arg-type]
    size = np.abs(x)
    largest = 2.0 ** (2 ** (exponent - 1)) if exponent < 11 else math.inf
    smallest = 2.0 ** (2 - 2 ** (exponent - 1)) if exponent < 11 else 0.0
    reach = bound + 2.0**-mantissa * (size + bound)
    reach = np.where(size - bound < smallest, bound + smallest, reach)
    reach = np.where((size + bound) * (1 + 2.0**-mantissa) >= largest, np.inf, reach)
    return np.where(bound == 0, 0.0, reach)


# ---- movement ------------------------------------------------------------------------------------------------------


def moved(function: reference.NumpyRule) -> ErrorRule:
    """The rule of an op that only moves elements: bounds move as the values do."""

    def rule(step: ComputedNode) -> ErrorBound:
        return np.asarray(function(step.node, step.sources, step.bounds), dtype=np.float64)

    return rule


def gather(step: ComputedNode) -> ErrorBound:
    """The bounds of the gathered elements; ambiguous if their index is in error."""
    bound = np.asarray(reference.gather(step.node, step.sources, (step.bounds[0], step.values[1])), dtype=np.float64)
    if not step.bounds[1].any():
        return bound
    numbers = gather_numbers(step.node)
    unclear = step.bounds[1] > 0
    if numbers.index_vector_dim < unclear.ndim:
        unclear = unclear.any(axis=numbers.index_vector_dim)
    along = [extent if i not in numbers.offset_dims else 1 for i, extent in enumerate(step.node.shape)]
    return np.where(unclear.reshape(along), np.inf, bound)


def dynamic_slice(step: ComputedNode) -> ErrorBound:
    """The bounds of the slice; all elements are ambiguous if a start is in error."""
    if any(bound.any() for bound in step.bounds[1:]):
        return np.full(step.node.shape, np.inf)
    return np.asarray(reference.dynamic_slice(step.node, step.sources, (step.bounds[0], *step.values[1:])))


def dynamic_update_slice(step: ComputedNode) -> ErrorBound:
    """The bounds of operand and update; all elements are ambiguous if a start is in error."""
    if any(bound.any() for bound in step.bounds[2:]):
        return np.full(step.node.shape, np.inf)
    operands = (*step.bounds[:2], *step.values[2:])
    return np.asarray(reference.dynamic_update_slice(step.node, step.sources, operands))


# ---- reductions ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Folding:
    """Which terms are combined. `of(ufunc, x)` returns an array of the results' shape: for each result, its terms in `x` combined by
    `ufunc`. Each result has at most `count` terms."""

    of: Callable[[np.ufunc, _AnyArray], _AnyArray]
    count: int


def over_axes(x: _AnyArray, axes: tuple[int, ...]) -> Folding:
    """The folding of a reduction over `axes`."""
    count = math.prod(x.shape[axis] for axis in axes)
    return Folding(lambda ufunc, terms: np.asarray(ufunc.reduce(terms, axis=axes)), count)


def sum_bound(x: _AnyArray, bound: ErrorBound, result: _AnyArray, dtype: DType, folding: Folding) -> ErrorBound:
    """The bound of a sum of terms of `dtype` in any order. `x`, `bound`: the terms and their bounds; `result`: the oracle's sum."""
    fold, count = folding.of, folding.count
    inherited = np.zeros(result.shape) if is_exact(bound) else fold(np.add, bound)
    if not dtype.is_float:
        return np.asarray(inherited)
    wide = accumulator(dtype)
    sizes = np.abs(x)
    if not np.isfinite(result).all():  # if the sums are finite, all terms are
        sizes = np.where(np.isfinite(x), sizes, 0.0)
    absolute = np.asarray(fold(np.add, sizes) + inherited)
    depth = summation_depth(count)
    rounding = depth * UNIT_ROUNDOFF[wide] * absolute + depth * SMALLEST_NORMAL[wide] * (absolute > 0)
    # Integers add up exactly if no partial sum needs more digits than the accumulator has.
    short = (absolute * UNIT_ROUNDOFF[wide] <= 0.5) & (inherited == 0)
    if short.any():
        rounding = np.where(short & fold(np.logical_and, np.rint(x) == x), 0.0, rounding)
    may_overflow = absolute >= LARGEST[wide] * (1 - OVERFLOW_MARGIN)
    total = inherited + rounding
    if may_overflow.any():
        same_sign = fold(np.logical_and, x >= 0) | fold(np.logical_and, x <= 0)
        clear = same_sign & (absolute - inherited - rounding > CLEAR_OVERFLOW * LARGEST[wide])
        total = np.where(may_overflow & ~clear, np.inf, total)
    # If a term is Inf or NaN, the sum is certain as long as the finite terms stay finite.
    special = ~np.isfinite(result) & (inherited == 0)
    return np.where(special & ~may_overflow, 0.0, clean(total))


def product_bound(x: _AnyArray, bound: ErrorBound, dtype: DType, folding: Folding) -> ErrorBound:
    """The bound of a product of terms of `dtype` in any order. `x`, `bound`: the terms and their bounds."""
    fold, wide = folding.of, accumulator(dtype)
    if not dtype.is_float:
        return ambiguous(fold(np.logical_or, bound > 0))
    size = np.abs(x)
    high = np.asarray(fold(np.multiply, size + bound))
    rounding = (max(folding.count - 1, 0)) * UNIT_ROUNDOFF[wide] * high
    reach = clean(high - fold(np.multiply, size) + rounding)
    # In some order the product may overflow, or fall below the normal numbers, on the way.
    peak = fold(np.multiply, np.maximum(size + bound, 1.0)) >= LARGEST[wide] * (1 - OVERFLOW_MARGIN)
    smallest = np.minimum(np.where(size == 0, 1.0, np.maximum(size - bound, 0)), 1.0)
    low = fold(np.multiply, smallest) < SMALLEST_NORMAL[wide]
    exact_ends = fold(np.logical_or, size == 0) | ~fold(np.logical_and, np.isfinite(size))
    unclear = peak | low | (exact_ends & fold(np.logical_or, bound > 0))
    return np.where(unclear, np.inf, np.where(exact_ends, 0.0, reach))


def reduction_bound(
    x: _AnyArray,
    bound: ErrorBound,
    result: _AnyArray,
    kind: str,
    dtype: DType,
    axes: tuple[int, ...],
    most: int | None = None,
) -> ErrorBound:
    """The bound of `x` (with `bound`) reduced by `kind` over `axes` in any order; `result` is the oracle's value. most: the largest
    number of terms of a result that are not identities, if it is known."""
    if kind != "sum" and is_exact(bound) and kind != "product":
        return no_error(result.shape)
    if not math.prod(x.shape[axis] for axis in axes):  # the result is the identity, which numpy's `min` and `max` lack
        return no_error(result.shape)
    folding = over_axes(x, axes)
    if most is not None and most < folding.count:
        folding = replace(folding, count=most)
    return folded_bound(x, bound, result, kind, dtype, folding)


def folded_bound(
    x: _AnyArray, bound: ErrorBound, result: _AnyArray, kind: str, dtype: DType, folding: Folding
) -> ErrorBound:
    """The bound of `x` combined by `kind` as `folding` says, in any order; `result` is the oracle's value."""
    fold = folding.of
    if kind == "sum":
        return sum_bound(x, bound, result, dtype, folding)
    if is_exact(bound) and kind != "product":
        return no_error(result.shape)
    if kind == "product":
        return product_bound(x, bound, dtype, folding)
    function = reference.reduce_ufunc(kind, x.dtype)
    if dtype is DType.PRED:
        return ambiguous(fold(function, x & (bound == 0)) != fold(function, x | (bound > 0)))
    if kind in ("and", "or"):
        return ambiguous(fold(np.logical_or, bound > 0))
    low = fold(function, x.astype(np.float64) - bound)
    high = fold(function, x.astype(np.float64) + bound)
    centre = result.astype(np.float64)
    reach = clean(np.maximum(np.abs(low - centre), np.abs(high - centre)))
    unknown = fold(np.logical_or, np.isinf(bound))
    return np.where(fold(np.logical_or, bound > 0), np.where(unknown, np.inf, reach), 0.0)


def reduce(step: ComputedNode) -> ErrorBound:
    """The bound of a reduction in any order."""
    dimensions = step.node.attributes["dimensions"]
    assert isinstance(dimensions, tuple)
    axes = tuple(int(axis) for axis in dimensions)  # type: ignore[arg-type]
    kind = str(step.node.attributes["kind"])
    return reduction_bound(step.values[0], step.bounds[0], step.result, kind, step.node.dtype, axes)


def dot(step: ComputedNode) -> ErrorBound:
    """The bound of sums of products, each sum in any order, with each product rounded or not (fused multiply-adds): with k terms,
    depth * u * |A| |B| (Higham, Accuracy and Stability of Numerical Algorithms, section 3.5), where depth is
    `summation_depth(k)` and one more for the product's own rounding."""
    (x, y), (ex, ey) = step.values, step.bounds
    wide, depth = accumulator(step.node.dtype), summation_depth(x.shape[-1]) + 1
    size_x, size_y = (np.where(np.isfinite(each), np.abs(each), 0.0) for each in (x, y))
    inherited: ErrorBound = np.zeros(step.result.shape)
    if not is_exact(ey):
        inherited = inherited + size_x @ ey + _infinite(~np.isfinite(x) @ (ey > 0))
    if not is_exact(ex):
        inherited = inherited + ex @ (size_y + ey) + _infinite((ex > 0) @ ~np.isfinite(y))
    absolute = size_x @ size_y + inherited
    rounding = depth * UNIT_ROUNDOFF[wide] * absolute + depth * SMALLEST_NORMAL[wide] * (absolute > 0)
    # Integers multiply and add up exactly if no partial sum needs more digits than the accumulator has.
    whole = (np.rint(x) == x).all(axis=-1)[..., :, None] & (np.rint(y) == y).all(axis=-2)[..., None, :]
    rounding = np.where(whole & (absolute * UNIT_ROUNDOFF[wide] <= 0.5) & (inherited == 0), 0.0, rounding)
    may_overflow = absolute >= LARGEST[wide] * (1 - OVERFLOW_MARGIN)
    total = np.where(may_overflow, np.inf, inherited + rounding)
    # If a term is Inf or NaN, the sum is certain as long as the finite terms stay finite.
    special = ~np.isfinite(step.result) & (inherited == 0)
    return np.where(special & ~may_overflow, 0.0, clean(total))


def _infinite(is_open: _AnyArray) -> ErrorBound:
    """An infinite bound where `is_open`: Inf or NaN times a factor in error."""
    return np.where(is_open, np.inf, 0.0)


def reduce_window(step: ComputedNode) -> ErrorBound:
    """The bound of a window's reduction in any order, with its initial value; ambiguous if that is in error."""
    (x, init), (bound, init_bound) = step.values, step.bounds
    rank, kind = len(step.node.shape), str(step.node.attributes["kind"])
    window = window_of(step.node)
    prefix = reference.prefix_of_window(step.node, x.shape, init)
    if prefix is not None:
        reach = _scan_bound(step, prefix)
    else:
        values = reference.windows(x, window, init, step.node.shape)
        bounds = reference.windows(bound, window, init_bound, step.node.shape)
        terms = math.prod(min(item.size, max(extent, 1)) for item, extent in zip_strict(window, x.shape))
        axes = tuple(range(rank, 2 * rank))
        reach = reduction_bound(values, bounds, step.result, kind, step.node.dtype, axes, terms)
    if init_bound.any():
        return np.full(step.node.shape, np.inf)
    if kind == "sum" and step.node.dtype.is_float and init != 0:
        # Adding the initial value is one more addition.
        reach = reach + UNIT_ROUNDOFF[accumulator(step.node.dtype)] * (np.abs(step.result) + reach)
    return np.asarray(reach)


def scan(step: ComputedNode) -> ErrorBound:
    """The bound of each prefix, reduced in any order."""
    return _scan_bound(step, reference.prefix_of_scan(step.node))


def _scan_bound(step: ComputedNode, prefix: reference.Prefix) -> ErrorBound:
    """Each result is a reduction, in any order, of the start and the elements so far."""
    (x, start), (bound, start_bound) = step.values, step.bounds
    results = step.node.shape[prefix.dimension]
    folding = Folding(
        lambda ufunc, terms: reference.scanned(ufunc, terms, prefix, results), x.shape[prefix.dimension] + 1
    )
    terms, bounds = reference.scan_terms(x, start, prefix), reference.scan_terms(bound, start_bound, prefix)
    return folded_bound(terms, bounds, step.result, str(step.node.attributes["kind"]), step.node.dtype, folding)


def scatter(step: ComputedNode) -> ErrorBound:
    """The bound of all updates of a place, applied in any order; ambiguous if an index is in error."""
    (x, indices, updates), (bound, index_bound, update_bound) = step.values, step.bounds
    dtype, kind = step.node.dtype, str(step.node.attributes["kind"])
    if index_bound.any():
        return np.full(step.node.shape, np.inf)
    at, kept, permutation, sizes = reference.scatter_plan(step.node, step.sources, indices)

    def spread(value: _AnyArray) -> _AnyArray:
        return value.transpose(permutation)[kept].reshape((-1, *sizes))

    def collect(function: np.ufunc, start: _AnyArray, value: _AnyArray) -> _AnyArray:
        result = np.array(start, dtype=np.float64)
        if at:
            function.at(result, at, spread(value))
        else:
            for item in spread(value):
                result = np.asarray(function(result, item))
        return result

    hits = collect(np.add, np.zeros(step.node.shape), np.ones(updates.shape))
    largest = collect(np.maximum, bound, update_bound)
    if kind == "replace":
        # It is left open which of several updates of one place remains.
        return np.where(
            hits > 1, np.inf, np.where(hits == 1, collect(np.add, np.zeros(step.node.shape), update_bound), bound)
        )
    if kind == "sum" and dtype.is_float:
        inherited = collect(np.add, bound, update_bound)
        absolute = collect(np.add, np.abs(x), np.abs(updates)) + inherited
        # Each update may be accumulated in the operand's own dtype, one at a time.
        rounding = np.where(hits > 0, hits * UNIT_ROUNDOFF[dtype] * absolute + hits * SMALLEST_NORMAL[dtype], 0)
        may_overflow = (hits > 0) & (absolute >= LARGEST[dtype] * (1 - OVERFLOW_MARGIN))
        reach = np.where(may_overflow, np.inf, clean(inherited + rounding))
        return np.where(~np.isfinite(step.result) & ~may_overflow & (inherited == 0), 0.0, reach)
    if kind == "sum":
        return collect(np.add, bound, update_bound)
    if kind in ("min", "max") and dtype is not DType.PRED:
        return largest
    reach = ambiguous(largest > 0)
    if kind == "product" and dtype.is_float:
        reach = reach + np.where(hits > 0, hits * UNIT_ROUNDOFF[dtype] * np.abs(step.result), 0)
    return clean(reach)


# ---- what the op itself adds: rounding, flushing, overflow ---------------------------------------------------------


def round_result(dtype: DType, ulps: float, value: _AnyArray, inherited: ErrorBound) -> tuple[_AnyArray, ErrorBound]:
    """The oracle's value and its bound after an op with an error of `ulps` units in the last place gave `value` in `dtype`.
    `inherited` is the bound that the operands' bounds cause.

    The value changes only where `dtype` certainly overflows: there it becomes Inf, as in any implementation.
    """
    if dtype is DType.PRED:
        return value, ambiguous(inherited > 0)
    if not dtype.is_float:
        if is_exact(inherited):
            return value, inherited
        limits = np.iinfo(str(dtype.numpy))
        size = value.astype(np.float64)
        wraps = (inherited > 0) & ((size + inherited > limits.max) | (size - inherited < limits.min))
        return value, np.where(wraps, np.inf, inherited)
    size = np.abs(value)
    exact_so_far = is_exact(inherited)
    farthest = size if exact_so_far else size + inherited
    top = largest_of(farthest)
    bound = inherited
    if ulps > 0:
        bound = _rounding(dtype, ulps, value, size, inherited, farthest, top)
    # The largest value is tested first: arrays are long, and few come near the end of the range. (A NaN fails the test.) What
    # `bound` has beyond `inherited` is a fraction of `farthest` and, by flushing, less than the smallest normal number.
    if top * (1 + _relative(dtype, ulps)) + 1.0 < LARGEST[dtype] * (1 - OVERFLOW_MARGIN):
        return value, bound
    finite = np.isfinite(value)
    over = finite & (size - bound > CLEAR_OVERFLOW * LARGEST[dtype])
    near = finite & ~over & (size + bound >= LARGEST[dtype] * (1 - OVERFLOW_MARGIN))
    if over.any():
        value = np.where(over, np.copysign(np.inf, value), value)
    return value, np.where(over, 0.0, np.where(near, np.inf, clean(bound)))


def _relative(dtype: DType, ulps: float) -> float:
    """The relative error of an op of `ulps`: f16 and bf16 are computed in float and rounded once, and the float64 oracle itself
    rounds as well."""
    unit, wide = UNIT_ROUNDOFF[dtype], UNIT_ROUNDOFF[accumulator(dtype)]
    relative = 2 * ulps * unit if unit == wide else 2 * ulps * wide + unit
    return relative + 2 * ulps * UNIT_ROUNDOFF[DType.F64]


def _rounding(
    dtype: DType, ulps: float, value: _AnyArray, size: _AnyArray, inherited: ErrorBound, farthest: _AnyArray, top: float
) -> ErrorBound:
    """`inherited` plus what an op of `ulps` may add by rounding and flushing. `size` is the value's magnitude, `farthest` is
    `size` plus the inherited bound, `top` the largest element of `farthest`."""
    local: ErrorBound = np.asarray(farthest * _relative(dtype, ulps))
    if dtype is DType.F16:
        local += 2.0**-25  # half the smallest subnormal
    if ulps == 0.5 and not smallest_of(inherited) > 0:
        # A correctly rounded op on exact operands is exact if its result needs no rounding.
        certain = np.asarray(inherited == 0)
        certain &= value.astype(dtype.numpy).astype(np.float64) == value
        np.copyto(local, 0.0, where=certain)
    if not top < np.inf:
        np.copyto(local, 0.0, where=~np.isfinite(value))
    # A result that may be subnormal may be flushed to zero. f16 is computed in float, where its subnormals are normal.
    smallest = SMALLEST_NORMAL[dtype]
    if dtype is not DType.F16:
        nearest = size - inherited
        if not smallest_of(nearest) >= smallest:
            local += np.where(nearest < smallest, np.minimum(smallest, farthest), 0.0)
    local += inherited
    return local


def input_bound(dtype: DType, value: _AnyArray) -> ErrorBound:
    """The bound of an input or a constant of `dtype` with value `value`: 0, except for subnormals of bf16, f32 and f64, which the
    processor may read as zero."""
    if not dtype.is_float or dtype is DType.F16:
        return no_error(value.shape)
    size = np.abs(value)
    tiny = size < SMALLEST_NORMAL[dtype]
    return np.where(tiny, size, 0.0) if size[tiny].any() else no_error(value.shape)


ERRORS: Final[Mapping[str, ErrorRule]] = {
    "abs": inherit,
    "negate": inherit,
    "sign": monotone(np.sign),
    "exp": monotone(np.exp),
    "expm1": monotone(np.expm1),
    "log": monotone(np.log),
    "log1p": monotone(np.log1p),
    "sqrt": monotone(np.sqrt),
    "rsqrt": monotone(reference.rsqrt),
    "cbrt": monotone(np.cbrt),
    "sin": oscillating,
    "cos": oscillating,
    "tan": tangent,
    "tanh": monotone(np.tanh),
    "logistic": monotone(reference.logistic),
    "erf": monotone(reference.erf),
    "floor": monotone(np.floor),
    "ceil": monotone(np.ceil),
    "round_nearest_even": monotone(np.rint),
    "round_nearest_afz": monotone(reference.round_away),
    "is_finite": lambda step: ambiguous(np.isinf(step.bounds[0])),
    "not": inherit,
    "popcnt": fragile,
    "clz": fragile,
    "copy": inherit,
    "convert": convert,
    "bitcast_convert": bitcast_convert,
    "reduce_precision": reduce_precision,
    "add": add,
    "subtract": add,
    "multiply": multiply,
    "divide": divide,
    "remainder": remainder,
    "maximum": extreme,
    "minimum": extreme,
    "power": power,
    "atan2": arctangent2,
    "and": logical,
    "or": logical,
    "xor": fragile,
    "shift_left": fragile,
    "shift_right_arithmetic": fragile,
    "shift_right_logical": fragile,
    "compare": compare,
    "select": select,
    "clamp": clamp,
    "philox": fragile,
    "iota": exact,
    "broadcast": moved(reference.broadcast),
    "reshape": moved(reference.reshape),
    "transpose": moved(reference.transpose),
    "slice": moved(reference.slice_),
    "pad": moved(reference.pad),
    "concatenate": moved(reference.concatenate),
    "reverse": moved(reference.reverse),
    "patches": moved(reference.patches),
    "reduce": reduce,
    "dot": dot,
    "reduce_window": reduce_window,
    "scan": scan,
    "gather": gather,
    "scatter": scatter,
    "dynamic_slice": dynamic_slice,
    "dynamic_update_slice": dynamic_update_slice,
}
"""Rule by op. `parameter` and `constant` use `input_bound`; `reduce_general` is analysed through its body, step by step."""


CONDITION: Final[dict[str, float]] = {
    "exp": 8.0,
    "expm1": 8.0,
    "power": 8.0,
    "logistic": 4.0,
    "sin": 4.0,
    "cos": 4.0,
    "tan": 8.0,
}
"""The factor by which these ops multiply a relative error of operands of ordinary size (exp's is |x|)."""
