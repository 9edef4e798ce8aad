"""Random inputs for checking a kernel: floats by regime, and integers that make sense where they are used.

Why by use: an s32 parameter may be an index into a table of 30 rows, a class label that is compared with an iota of
10, or a count. Full-range noise would be out of range everywhere and test nothing.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from .graph import Array, DType, Graph, Node
from .ops_numpy import gather_numbers

_SMALL_INTEGER: Final = 100  # ordinary integers lie in [-100, 100], unsigned ones in [0, 100]
_SPECIAL_SHARE: Final = 0.15  # of the elements in the `special` regime


_POOL: Final = 1_000_003
"""Larger tensors repeat so many numbers: drawing is a good part of a check's time. A prime, so that no two rows are alike."""


class Regime(enum.Enum):
    """How large the floats are."""

    NORMAL = "normal"  # standard normal
    UNIT = "unit"  # uniform in (0.05, 0.95): valid decay rates, variances, probabilities
    TINY = "tiny"  # log-uniform towards the smallest normal number, both signs
    HUGE = "huge"  # log-uniform towards the largest, both signs; integers over their whole range
    NEGATIVE = "negative"  # all below zero
    SPECIAL = "special"  # normal, sprinkled with NaN, Inf, zeros of both signs, the largest and a subnormal number
    MIXED = (
        "mixed"  # each row (slice of the last dimension) of one of the others: all regimes in one run, for large graphs
    )


REGIMES: Final = tuple(regime for regime in Regime if regime is not Regime.MIXED)

_EXPONENTS: Final = {DType.F16: (-14.0, 15.0), DType.F64: (-1000.0, 1000.0)}
"""Smallest and largest decimal logarithms would differ by dtype; these are powers of two, f32's and bf16's being the
default."""


def random_inputs(graph: Graph, rng: np.random.Generator, regime: Regime | str) -> list[Array]:
    """One array per parameter, of its shape and dtype, drawn by `regime` (a Regime or its value; ValueError for
    another word)."""
    regime = Regime(regime)
    limits = index_limits(graph)
    found = []
    for number, index in enumerate(graph.parameters):
        node = graph.nodes[index]
        if node.dtype.is_float:
            value = _floats(node, rng, regime)
        elif node.dtype is DType.PRED:
            value = rng.random(node.shape) < 0.5
        else:
            value = _integers(node, rng, regime, limits.get(number))
        found.append(np.asarray(value).astype(node.dtype.numpy))
    return found


def _floats(node: Node, rng: np.random.Generator, regime: Regime) -> npt.NDArray[Any]:
    if regime is Regime.MIXED:
        return _mixed(node, rng)
    if node.element_count > 2 * _POOL:
        return np.resize(_floats(replace(node, shape=(_POOL,)), rng, regime), node.shape)
    if regime is Regime.UNIT:
        return rng.uniform(0.05, 0.95, node.shape)
    # Each digit of an f64 has to be drawn; for the others float32 is as good and half the work.
    kind: type[np.float64] | type[np.float32] = np.float64 if node.dtype is DType.F64 else np.float32
    values: npt.NDArray[Any] = np.asarray(rng.standard_normal(node.shape, kind))
    if regime is Regime.NEGATIVE:
        return np.asarray(-3 * np.abs(values) - 1e-3)
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


def _log_uniform(rng: np.random.Generator, low: float, high: float, signs: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Numbers from 2^low up to 2^high with the signs given, each power of two as likely as the others."""
    exponents = rng.integers(math.ceil(low), math.floor(high), signs.shape, np.int32)
    return np.copysign(np.ldexp(1.0 + rng.random(signs.shape), exponents), signs)


_MIXTURE: Final = (Regime.NORMAL, Regime.TINY, Regime.HUGE, Regime.NEGATIVE, Regime.SPECIAL)


def _mixed(node: Node, rng: np.random.Generator) -> npt.NDArray[Any]:
    """Rows of each regime in turn; a tensor of one row or less is normal, or it would decide every element alike."""
    length = node.shape[-1] if node.shape else 1
    rows = node.element_count // max(length, 1)
    if rows < len(_MIXTURE) or length == 0:
        return _floats(node, rng, Regime.NORMAL)
    values = np.empty((rows, length), np.float64 if node.dtype is DType.F64 else np.float32)
    for k, regime in enumerate(_MIXTURE):
        part = values[k :: len(_MIXTURE)]
        part[...] = _floats(replace(node, shape=part.shape), rng, regime)
    return values.reshape(node.shape)


def _integers(node: Node, rng: np.random.Generator, regime: Regime, limit: int | None) -> npt.NDArray[Any]:
    if limit is not None:
        largest = min(limit, int(np.iinfo(str(node.dtype.numpy)).max) + 1)
        return rng.integers(0, max(largest, 1), node.shape)
    limits = np.iinfo(str(node.dtype.numpy))
    low, high = max(-_SMALL_INTEGER, int(limits.min)), min(_SMALL_INTEGER, int(limits.max))
    if regime is Regime.NEGATIVE and node.dtype.is_signed:
        high = -1
    if regime is Regime.HUGE:
        low, high = int(limits.min), int(limits.max)
    return np.asarray(rng.integers(low, high, node.shape, dtype=str(node.dtype.numpy), endpoint=True))  # type: ignore[call-overload]


_CARRIES: Final = frozenset(
    (
        *("broadcast", "reshape", "transpose", "slice", "concatenate", "reverse", "copy", "convert", "pad", "clamp"),
        *("select", "add", "minimum", "maximum"),
    )
)
"""Ops through which an index stays one (an addition or a select is how TensorFlow wraps negative ones)."""


def index_limits(graph: Graph) -> dict[int, int]:
    """Parameter number -> n, for integer parameters that are used as indices into n places: of a gather, scatter or
    dynamic slice, or compared for equality with an iota over n (a one-hot label). The smallest n of several uses."""
    users = graph.users()
    found: dict[int, int] = {}
    for number, index in enumerate(graph.parameters):
        if not graph.nodes[index].dtype.is_integer:
            continue
        limits: list[int] = []
        seen, waiting = {index}, [index]
        while waiting:
            at = waiting.pop()
            for user in users[at]:
                limits += _limits_at(graph, graph.nodes[user], at)
                if graph.nodes[user].op in _CARRIES and graph.nodes[user].dtype.is_integer and user not in seen:
                    seen.add(user)
                    waiting.append(user)
        if limits:
            found[number] = min(limits)
    return found


def _limits_at(graph: Graph, node: Node, operand: int) -> Sequence[int]:
    """The extents that `operand` indexes into as an operand of `node`."""
    shapes = [graph.nodes[i].shape for i in node.operands]
    positions = [i for i, source in enumerate(node.operands) if source == operand]
    if node.op in ("gather", "scatter") and 1 in positions:
        numbers = gather_numbers(node)
        return [max(shapes[0][dimension], 1) for dimension in numbers.start_index_map]
    first_start = {"dynamic_slice": 1, "dynamic_update_slice": 2}.get(node.op)
    if first_start is not None:
        return [max(shapes[0][i - first_start], 1) for i in positions if i >= first_start]
    if node.op == "compare" and node.attributes["direction"] == "EQ":
        other = node.operands[1 - positions[0]] if len(positions) == 1 else None
        extent = None if other is None else _iota_extent(graph, other)
        return [] if extent is None else [extent]
    return []


def _iota_extent(graph: Graph, index: int) -> int | None:
    """The extent counted by an iota, seen through movement and conversion; None for anything else."""
    node = graph.nodes[index]
    while node.op in ("broadcast", "reshape", "transpose", "convert", "copy"):
        node = graph.nodes[node.operands[0]]
    if node.op != "iota":
        return None
    return max(node.shape[int(node.attributes["dimension"])], 1)  # type: ignore[arg-type]
