"""Which values of an input make sense to the ops that use it: a backward interval analysis.

An index into a table of 30 rows is in [0, 29]. From that use, the interval is propagated back through everything that keeps order or
moves elements: casts (Keras passes integer ids as floats), arithmetic with known numbers, reshapes, slices, exp and similar
functions. The interval that arrives at a parameter holds the values that a check may draw: the framework's operators reject other
values, or clamp all of them to the same place.

The uses demand:

    indices of gather, scatter, dynamic slices     [0, extent - 1]
    an integer compared for equality with an iota  [0, extent - 1] (a label, one-hot)
    divisors of integers                           [1, inf)
    exponents of integers                          [0, inf)

If two uses of a parameter contradict each other, as the branches of `select(x < 0, x + n, x)` do, the framework's convention
decides: an index is not negative.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, cast

import numpy as np

from ..ir.graph import Array, Graph, Literal, Node, WindowDimension
from ..ops.attributes import gather_numbers
from ..ops.table import OPS


class Interval(NamedTuple):
    """All numbers from `low` to `high`, both included. It is empty if low > high."""

    low: float
    high: float

    @property
    def is_empty(self) -> bool:
        """Whether no number is in the interval."""
        return not self.low <= self.high

    def within(self, other: Interval) -> bool:
        """Whether all numbers of this interval are in `other`."""
        return other.low <= self.low and self.high <= other.high

    def meet(self, other: Interval) -> Interval:
        """The intersection of the two intervals."""
        return Interval(max(self.low, other.low), min(self.high, other.high))


BEYOND_A_CLAMP: Final = 2
EVERYTHING: Final = Interval(-math.inf, math.inf)
TRUTH: Final = Interval(0, 1)


class _Want(NamedTuple):
    """The values that a use accepts. `is_needed`: other values are rejected; if False they are only useless (a clamp maps all of them
    to one value)."""

    interval: Interval
    is_needed: bool


def input_ranges(graph: Graph, divisors: bool = True) -> dict[int, Interval]:
    """The values that each parameter may have, by parameter number; parameters whose uses demand nothing are left out. `divisors`:
    whether integer divisors must not be zero and integer exponents not negative, as the framework demands and HLO does not."""
    known = _known_intervals(graph)
    wants: dict[int, list[_Want]] = {}
    found: dict[int, Interval] = {}
    for i in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[i]
        here = _agreed(wants.pop(i, ()))
        if here is not None and (node.dtype.is_integer or node.op in _ROUNDING):
            here = _Want(_whole_numbers(here.interval), here.is_needed)
            if here.interval.is_empty:
                here = None
        if node.op == "parameter":
            if here is not None and here.interval != EVERYTHING:
                found[int(cast("int", node.attributes["number"]))] = here.interval
            continue
        for position, operand in enumerate(node.operands):
            if graph.nodes[operand].op in ("constant", "iota"):
                continue
            made = list(_demands(graph, node, position, divisors))
            if here is not None:
                made += _through(graph, node, position, here, known)
            wants.setdefault(operand, []).extend(want for want in made if not want.interval.is_empty)
    return found


def _agreed(wants: Iterable[_Want]) -> _Want | None:
    """The want that satisfies as many of `wants` as possible together: needed ones first, then those that are not negative."""
    agreed: _Want | None = None
    for want in sorted(wants, key=lambda want: (not want.is_needed, want.interval.low < 0)):
        if agreed is None:
            agreed = want
        elif not (both := agreed.interval.meet(want.interval)).is_empty:
            agreed = _Want(both, agreed.is_needed)
    return agreed


def _demands(graph: Graph, node: Node, position: int, divisors: bool) -> Iterable[_Want]:
    """What the op itself demands of an operand."""
    shapes = [graph.nodes[operand].shape for operand in node.operands]
    dtype = graph.nodes[node.operands[position]].dtype
    if node.op in ("gather", "scatter") and position == 1:
        for dimension in gather_numbers(node).start_index_map:
            yield _Want(Interval(0, max(shapes[0][dimension], 1) - 1), True)
    first_start = {"dynamic_slice": 1, "dynamic_update_slice": 2}.get(node.op)
    if first_start is not None and position >= first_start:
        yield _Want(Interval(0, max(shapes[0][position - first_start], 1) - 1), True)
    if node.op == "compare" and node.attributes["direction"] == "EQ" and node.operands[0] != node.operands[1]:
        extent = _iota_extent(graph, node.operands[1 - position])
        if extent is not None:
            yield _Want(Interval(0, extent - 1), True)
    if divisors and position == 1 and dtype.is_integer:
        if node.op in ("divide", "remainder"):
            yield _Want(Interval(1, math.inf), True)
        if node.op == "power":
            yield _Want(Interval(0, math.inf), True)


def _iota_extent(graph: Graph, index: int) -> int | None:
    """The extent that an iota counts, seen through movement and conversion; None if the node is no iota."""
    node = graph.nodes[index]
    while node.op in ("broadcast", "reshape", "transpose", "convert", "copy"):
        node = graph.nodes[node.operands[0]]
    if node.op != "iota":
        return None
    return max(node.shape[int(cast("int", node.attributes["dimension"]))], 1)


# ---- backward: from what an op's result must be to what its operand must be ---------------------------------------------------

_ROUNDING: Final = ("floor", "ceil", "round_nearest_even", "round_nearest_afz")


def _whole_numbers(interval: Interval) -> Interval:
    """The largest part of the interval that has integer ends."""
    low, high = interval
    return Interval(math.ceil(low) if math.isfinite(low) else low, math.floor(high) if math.isfinite(high) else high)


_KEEPS: Final = ("convert", "reduce_precision", *_ROUNDING)
"""Ops whose result is in every interval with integer ends that holds the operand (a convert rounds towards zero)."""


def _moved(node: Node, position: int) -> bool:
    """Whether elements of the operand are elements of the result or lie beside them; includes those that a scatter combines."""
    moves = OPS[node.op].moves
    if moves is not None:
        return position in range(len(node.operands))[moves]
    return node.op in _KEEPS or (node.op == "scatter" and position != 1)


def _logit(y: float) -> float:
    return math.log(y) - math.log1p(-y)


_INVERSES: Final[dict[str, tuple[Callable[[float], float], Interval]]] = {
    "exp": (math.log, Interval(0.25, 1e30)),
    "expm1": (math.log1p, Interval(-0.75, 1e30)),
    "log": (math.exp, Interval(-80, 80)),
    "log1p": (math.expm1, Interval(-10, 80)),
    "sqrt": (lambda y: y * y, Interval(0, 1e15)),
    "cbrt": (lambda y: y**3, Interval(-1e10, 1e10)),
    "tanh": (math.atanh, Interval(-0.99, 0.99)),
    "logistic": (_logit, Interval(0.01, 0.99)),
}
"""Increasing functions: the inverse, and the range of results to draw from. The range leaves out results that half of all numbers
come close to, results of numbers so close to a pole that a float is rounded to it (log1p of -1 is -Inf), and results near the
largest float."""


def _through(graph: Graph, node: Node, position: int, want: _Want, known: Sequence[Interval]) -> list[_Want]:
    """What an operand must be for the result to be in `want.interval`; empty if there is no demand or it is not known."""
    low, high = want.interval
    op, operands = node.op, node.operands

    def needs(low: float, high: float) -> list[_Want]:
        return [_Want(Interval(low, high), want.is_needed)]

    if _moved(node, position):
        return needs(low, high)
    if op in _INVERSES:
        inverse, image = _INVERSES[op]
        possible = want.interval.meet(image)
        return [] if possible.is_empty else needs(_end(inverse, possible.low), _end(inverse, possible.high))
    if op in ("minimum", "maximum"):
        other = known[operands[1 - position]]
        is_possible = other.high >= low if op == "minimum" else other.low <= high
        return [want] if is_possible else []
    if op == "negate":
        return needs(-high, -low)
    if op == "abs":
        return needs(-high if low <= 0 else low, high)
    if op in ("reduce", "reduce_window") and position == 0:
        return _before_reduction(graph, node, want)
    if op == "clamp" and position == 1:
        if not Interval(known[operands[0]].low, known[operands[2]].high).within(want.interval):
            return [want]
        return [_Want(Interval(low - BEYOND_A_CLAMP, high + BEYOND_A_CLAMP), False)]  # some below, within and above
    if op in ("and", "remainder") and node.dtype.is_integer:
        return _below_a_limit(op, position, want, known[operands[1 - position]])
    if op in _ARITHMETIC and len(operands) == 2:
        return needs(*_ARITHMETIC[op](position, want.interval, known[operands[1 - position]], node.dtype.is_integer))
    return []


def _end(inverse: Callable[[float], float], value: float) -> float:
    try:
        return inverse(value)
    except OverflowError:
        return math.copysign(math.inf, value)


def _before_reduction(graph: Graph, node: Node, want: _Want) -> list[_Want]:
    low, high = want.interval
    if node.attributes["kind"] in ("max", "min", "replace"):
        return [want]
    if node.attributes["kind"] != "sum":
        return []
    source = graph.nodes[node.operands[0]]
    count = max(source.element_count // max(node.element_count, 1), 1)
    if node.op == "reduce_window":
        count = math.prod(one.size for one in cast("tuple[WindowDimension, ...]", node.attributes["window"]))
    return [_Want(Interval(low / count if low < 0 else 0 if low == 0 else low, high / count), want.is_needed)]


def _below_a_limit(op: str, position: int, want: _Want, other: Interval) -> list[_Want]:
    """x & mask and x % n, if the mask or n is known: any x that is not negative, if the mask or n is within what is wanted."""
    limit = other.high - (op == "remainder")
    if (op == "remainder" and position == 1) or other.low < 0 or want.interval.low > 0 or limit > want.interval.high:
        return []
    return [_Want(Interval(0, math.inf), want.is_needed)]


def _sum_operand(position: int, want: Interval, other: Interval, is_integer: bool) -> Interval:
    del position
    if other == EVERYTHING:  # each operand gets a half
        return Interval(_half(want.low, is_integer, up=True), _half(want.high, is_integer, up=False))
    return Interval(want.low - other.low, want.high - other.high)


def _half(value: float, is_integer: bool, up: bool) -> float:
    if not math.isfinite(value) or not is_integer:
        return value / 2
    return math.ceil(value / 2) if up else math.floor(value / 2)


def _difference_operand(position: int, want: Interval, other: Interval, is_integer: bool) -> Interval:
    if other == EVERYTHING:
        middle = _half(want.low + want.high, is_integer, up=False)
        if not math.isfinite(middle):
            return EVERYTHING
        return Interval(middle, want.high) if position == 0 else Interval(0, middle - want.low)
    if position == 0:
        return Interval(want.low + other.high, want.high + other.low)
    return Interval(other.high - want.high, other.low - want.low)


def _factor(position: int, want: Interval, other: Interval, is_integer: bool) -> Interval:
    del position
    if other == EVERYTHING:
        if want.low > 0 or want.high < 0:
            return EVERYTHING
        root = math.sqrt(want.high) if want.high < math.inf else math.inf
        return Interval(0, math.floor(root) if is_integer and root < math.inf else root)
    if other.low < 0 and other.high <= 0:
        negated = _factor(0, want, Interval(-other.high, -other.low), is_integer)
        return Interval(-negated.high, -negated.low)
    if other.low < 0:
        most = max(-other.low, other.high)
        reach = min(-want.low, want.high) / most
        return Interval(-reach, reach)
    if other.high == 0 or (other.low == 0 and (want.low > 0 or want.high < 0)):
        return EVERYTHING
    low = want.low / (other.high if want.low < 0 else other.low) if want.low else 0.0
    return Interval(low, want.high / (other.high if want.high >= 0 else other.low))


def _dividend(position: int, want: Interval, other: Interval, is_integer: bool) -> Interval:
    if position == 1 or other.low != other.high or not other.low > 0:
        return EVERYTHING
    rest = other.low - 1 if is_integer else 0.0  # what division towards zero discards
    low, high = want.low * other.low, want.high * other.low
    return Interval(low if want.low > 0 else low - rest, high if want.high < 0 else high + rest)


def _shifted_left(position: int, want: Interval, other: Interval, is_integer: bool) -> Interval:
    if position == 1 or other.low != other.high or not 0 <= other.low < 64:
        return EVERYTHING
    return _factor(0, want, Interval(2**other.low, 2**other.low), is_integer)


def _shifted_right(position: int, want: Interval, other: Interval, is_integer: bool) -> Interval:
    if position == 1 or other.low != other.high or not 0 <= other.low < 64:
        return EVERYTHING
    return Interval(want.low * 2**other.low, want.high * 2**other.low + 2**other.low - 1)


_ARITHMETIC: Final[dict[str, Callable[[int, Interval, Interval, bool], Interval]]] = {
    "add": _sum_operand,
    "subtract": _difference_operand,
    "multiply": _factor,
    "divide": _dividend,
    "shift_left": _shifted_left,
    "shift_right_arithmetic": _shifted_right,
    "shift_right_logical": _shifted_right,
}


# ---- forward: what is known of values for all inputs -------------------------------------------------------------------------


def _known_intervals(graph: Graph) -> list[Interval]:
    """For each node, an interval that holds all its elements: for constants, iotas, and what is computed from them alone."""
    known: list[Interval] = []
    for node in graph.nodes:
        known.append(_known_interval(node, [known[operand] for operand in node.operands]))
    return known


def _known_interval(node: Node, operands: Sequence[Interval]) -> Interval:
    if node.op == "constant":
        return _interval_of(cast("Literal", node.attributes["literal"]).value)
    if node.op == "iota":
        return Interval(0, max(node.shape[int(cast("int", node.attributes["dimension"]))], 1) - 1)
    if node.op == "compare":
        return TRUTH
    moves = OPS[node.op].moves
    if moves is not None:
        return Interval(min(one.low for one in operands[moves]), max(one.high for one in operands[moves]))
    if EVERYTHING in operands or not operands:
        return EVERYTHING
    if node.op == "convert":
        return operands[0]
    if node.op == "negate":
        return Interval(-operands[0].high, -operands[0].low)
    if node.op in ("add", "subtract", "multiply"):
        a, b = operands
        if node.op == "subtract":
            b = Interval(-b.high, -b.low)
        if node.op != "multiply":
            return Interval(a.low + b.low, a.high + b.high)
        ends = [x * y for x in a for y in b]
        return EVERYTHING if any(map(math.isnan, ends)) else Interval(min(ends), max(ends))
    return EVERYTHING


def _interval_of(values: Array) -> Interval:
    if not values.size:
        return EVERYTHING
    numbers = values.astype(np.float64)
    if np.isnan(numbers).any():
        return EVERYTHING
    return Interval(float(numbers.min()), float(numbers.max()))
