"""Random inputs for checking a kernel: floats by regime, and numbers that make sense where they are used.

Inputs follow their use (input_ranges.py): a parameter may be an index into a table of 30 rows, a class label that is compared with
an iota of 10, or a count, as an integer or as a float. Noise would be out of range everywhere and test nothing.
"""

from __future__ import annotations

import enum
import math
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..ir.graph import Array, DType, Graph, Node
from ..ops.errors import LARGEST
from .input_ranges import Interval, input_ranges

_SMALL_INTEGER: Final = 100  # ordinary integers are in [-100, 100], unsigned ones in [0, 100]
_SPECIAL_SHARE: Final = 0.15  # of the elements in the `special` regime


_POOL: Final = 1_000_003
"""Larger tensors repeat this many numbers: drawing is a large part of a check's time. It is a prime, so that no two rows are
alike."""


class Regime(enum.Enum):
    """How large the floats are, and which special values occur."""

    NORMAL = "normal"  # standard normal
    UNIT = "unit"  # uniform in (0.05, 0.95): valid decay rates, variances, probabilities
    TINY = "tiny"  # log-uniform towards the smallest normal number, both signs
    HUGE = "huge"  # log-uniform towards the largest, both signs; integers over their whole range
    NEGATIVE = "negative"  # all below zero
    SPECIAL = "special"  # normal, sprinkled with NaN, Inf, zeros of both signs, the largest and a subnormal number
    ZEROS = "zeros"  # normal, sprinkled with zeros of both signs, ones and numbers at which exp and similar functions saturate
    MISSING = "missing"  # as `zeros`, and in some rows (slices of the last dimension) NaN
    MIXED = "mixed"  # each row (slice of the last dimension) from another regime: all in one run, for large graphs


VALID: Final = (Regime.NORMAL, Regime.UNIT)
"""Regimes of inputs that the framework's own operators accept."""
RARE: Final = (Regime.ZEROS, Regime.MISSING)
"""Regimes of inputs on which implementations that agree elsewhere may differ: on these, kernels are compared with the framework's own
results."""
REGIMES: Final = tuple(regime for regime in Regime if regime not in (Regime.MIXED, *RARE))

_EXPONENTS: Final = {DType.F16: (-14.0, 15.0), DType.F64: (-1000.0, 1000.0)}
"""Smallest and largest exponent (of two) by dtype; f32 and bf16 use the default."""


def random_inputs(graph: Graph, rng: np.random.Generator, regime: Regime | str) -> list[Array]:
    """One array per parameter, of its shape and dtype, drawn by `regime` (a Regime or its value). Raises ValueError for any other
    string."""
    regime = Regime(regime)
    ranges = input_ranges(graph, divisors=regime in VALID)
    found = []
    for number, index in enumerate(graph.parameters):
        node = graph.nodes[index]
        if number in ranges and node.dtype is not DType.PRED:
            value = _within(node, rng, ranges[number])
        elif node.dtype.is_float:
            value = _floats(node, rng, regime)
        elif node.dtype is DType.PRED:
            value = rng.random(node.shape) < 0.5
        else:
            value = _integers(node, rng, regime)
        found.append(np.asarray(value).astype(node.dtype.numpy))
    return found


def _floats(node: Node, rng: np.random.Generator, regime: Regime) -> npt.NDArray[Any]:
    if regime is Regime.MIXED:
        return _mixed(node, rng)
    if node.element_count > 2 * _POOL:
        length = node.shape[-1]
        pool = (_POOL // length | 1, length) if regime is Regime.MISSING and 1 < length < _POOL else (_POOL,)
        return np.resize(_floats(replace(node, shape=pool), rng, regime), node.shape)
    if regime is Regime.UNIT:
        return rng.uniform(0.05, 0.95, node.shape)
    # All digits of an f64 must be drawn; for the other dtypes float32 is as good and takes half the time.
    kind: type[np.float64] | type[np.float32] = np.float64 if node.dtype is DType.F64 else np.float32
    values: npt.NDArray[Any] = np.asarray(rng.standard_normal(node.shape, kind))
    if regime is Regime.NEGATIVE:
        return np.asarray(-3 * np.abs(values) - 1e-3)
    if regime in RARE:
        return _rare(values, rng, regime)
    low, high = _EXPONENTS.get(node.dtype, (-126.0, 127.0))
    if regime is Regime.TINY:
        return _log_uniform(rng, low, low / 3, values)
    if regime is Regime.HUGE:
        return _log_uniform(rng, high / 16, high, values)
    if regime is Regime.SPECIAL:
        largest = 2.0**high * (2 - 2.0**-7)  # representable in each dtype
        special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, largest, -largest, 2.0**low / 4])
        chosen = rng.choice(special, node.shape)
        return np.where(rng.random(node.shape) < _SPECIAL_SHARE, chosen, values)
    return values


_ZEROS_SHARE: Final = 0.3  # share of the elements, in the regimes of RARE
_MISSING_SHARE: Final = 0.25  # share of the rows, and of their elements
_ZEROS: Final = (0.0, -0.0, 0.0, -0.0, 1.0, -1.0, 20.0, -20.0)


def _rare(values: npt.NDArray[Any], rng: np.random.Generator, regime: Regime) -> npt.NDArray[Any]:
    found = np.where(rng.random(values.shape) < _ZEROS_SHARE, rng.choice(np.array(_ZEROS), values.shape), values)
    if regime is Regime.MISSING and values.ndim > 1:  # if the only row held a NaN, all results would be NaN
        rows = rng.random(values.shape[:-1]) < _MISSING_SHARE
        places = rng.random(values.shape) < _MISSING_SHARE
        places[..., :1] |= ~places.any(-1, keepdims=True)
        found = np.where(rows[..., None] & places, np.nan, found)
    return found


def _log_uniform(rng: np.random.Generator, low: float, high: float, signs: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Numbers from 2^low up to 2^high with the given signs, each power of two as likely as the others."""
    exponents = rng.integers(math.ceil(low), math.floor(high), signs.shape, np.int32)
    return np.copysign(np.ldexp(1.0 + rng.random(signs.shape), exponents), signs)


_MIXTURE: Final = (Regime.NORMAL, Regime.TINY, Regime.HUGE, Regime.NEGATIVE, Regime.SPECIAL, Regime.ZEROS)


def _mixed(node: Node, rng: np.random.Generator) -> npt.NDArray[Any]:
    """Rows of each regime in turn. A tensor of few rows is normal, because one regime would decide every element alike."""
    length = node.shape[-1] if node.shape else 1
    rows = node.element_count // max(length, 1)
    if rows < len(_MIXTURE) or length == 0:
        return _floats(node, rng, Regime.NORMAL)
    values = np.empty((rows, length), np.float64 if node.dtype is DType.F64 else np.float32)
    for k, regime in enumerate(_MIXTURE):
        part = values[k :: len(_MIXTURE)]
        part[...] = _floats(replace(node, shape=part.shape), rng, regime)
    return values.reshape(node.shape)


def _integers(node: Node, rng: np.random.Generator, regime: Regime) -> npt.NDArray[Any]:
    limits = np.iinfo(str(node.dtype.numpy))
    low, high = max(-_SMALL_INTEGER, int(limits.min)), min(_SMALL_INTEGER, int(limits.max))
    if regime is Regime.NEGATIVE and node.dtype.is_signed:
        high = -1
    if regime is Regime.HUGE:
        low, high = int(limits.min), int(limits.max)
    return np.asarray(rng.integers(low, high, node.shape, dtype=str(node.dtype.numpy), endpoint=True))  # type: ignore[call-overload]


def _within(node: Node, rng: np.random.Generator, wanted: Interval) -> npt.NDArray[Any]:
    """Integers of the interval `wanted` (as floats if the dtype is one); other numbers of the interval if it holds no integer."""
    if wanted.low == -math.inf:
        wanted = Interval(min(-_SMALL_INTEGER, wanted.high), wanted.high)
    if wanted.high == math.inf:
        wanted = Interval(wanted.low, max(_SMALL_INTEGER, wanted.low))
    if node.dtype.is_float:
        limits = Interval(-_EXACT.get(node.dtype, 1 << 24), _EXACT.get(node.dtype, 1 << 24))
    else:
        limits = Interval(
            *(int(end) for end in (np.iinfo(str(node.dtype.numpy)).min, np.iinfo(str(node.dtype.numpy)).max))
        )
    possible = wanted.meet(limits)
    if possible.is_empty and node.dtype.is_float:
        # Beyond the integers that the dtype holds exactly, all of its numbers are integers.
        finite = wanted.meet(Interval(-LARGEST[node.dtype], LARGEST[node.dtype]))
        if not finite.is_empty:
            return rng.uniform(finite.low, finite.high, node.shape)
    if possible.is_empty:
        possible = limits
    low, high = math.ceil(possible.low), math.floor(possible.high)
    if low > high:
        return rng.uniform(possible.low, possible.high, node.shape)
    return np.asarray(rng.integers(low, high, node.shape, endpoint=True, dtype=np.uint64 if low >= 0 else np.int64))


_EXACT: Final = {DType.BF16: 1 << 8, DType.F16: 1 << 11, DType.F64: 1 << 53}
"""The largest number up to which every integer is a number of the dtype; for f32, 2^24."""
