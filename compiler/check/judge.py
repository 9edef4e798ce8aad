"""The judge of numbers: is the result of a kernel right?

`judge` compares outputs with the float64 oracle (oracle.evaluate_with_bounds), not with TensorFlow's own result: whether a sum of
normals of size 1e37 overflows depends on the order alone, and a sum with cancellation has an unbounded relative error, so comparing
two float32 results would reject right kernels and accept wrong ones. An element passes if

- NaN and Inf are as the oracle's, or the oracle cannot tell (an infinite bound: too close to a discontinuity or to overflow);
- its distance from the oracle is at most its running error bound or, if a reference (TensorFlow's own result) is given, at most
  twice the reference's distance at that element, or twice the reference's worst distance over that output in multiples of the
  bound (counted up to REFERENCE_SLACK_LIMIT bounds);
- integers and booleans are equal, if the oracle is certain.

`guard_tolerance` gives the cheap comparison for every call in a running job; the judge decides its suspicious cases.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ..ir.graph import Array, Graph, Node
from ..ops.attributes import window_of
from ..ops.errors import UNIT_ROUNDOFF, accumulator, summation_depth
from ..ops.infer import GraphError
from ..ops.interpreter import quiet
from ..ops.reference import prefix_of_scan
from ..ops.table import OPS
from ..support.sequences import zip_strict
from .oracle import Bounded, Ranges, evaluate_with_bounds

REFERENCE_FACTOR: Final = 2.0
"""A result may be so many times as far from the oracle as the framework's own."""
REFERENCE_SLACK_LIMIT: Final = 16.0
"""A reference with a larger error, in multiples of the bound, is no measure for other elements (its own element still counts, by the
first rule)."""


JUDGED_AT_ONCE: Final = 1 << 14
"""Elements that are judged at a time: half a dozen float64 arrays of this size stay in an L2 cache."""


@dataclass(frozen=True)
class Violation:
    """One wrong element: its index, its value, the oracle's value, the bound on their distance, and the reference's distance from the
    oracle (None without a reference)."""

    index: tuple[int, ...]
    actual: float
    oracle: float
    bound: float
    reference_error: float | None = None

    def __str__(self) -> str:
        text = f"at {list(self.index)} {self.actual!r}, oracle {self.oracle!r} +- {self.bound:.3g}"
        return text if self.reference_error is None else f"{text}, reference errs by {self.reference_error:.3g}"


@dataclass(frozen=True)
class OutputVerdict:
    """One output: the number of wrong elements and the worst of them; the share of elements that the oracle could decide (finite
    bound, finite value); and the largest error among these in multiples of its bound (exact elements excluded)."""

    violations: int
    worst: Violation | None
    decided: float
    largest_ratio: float

    @property
    def ok(self) -> bool:
        """Whether no element is wrong."""
        return self.violations == 0


@dataclass(frozen=True)
class Verdict:
    """The judgement of all outputs; `str` gives one line."""

    graph_name: str
    outputs: tuple[OutputVerdict, ...]

    @property
    def ok(self) -> bool:
        """Whether no output has a wrong element."""
        return all(output.ok for output in self.outputs)

    @property
    def decided(self) -> float:
        """The smallest share of decided elements of any output, in [0, 1]. Near 0, the inputs tested little."""
        return min((output.decided for output in self.outputs), default=1.0)

    def __str__(self) -> str:
        for number, output in enumerate(self.outputs):
            if output.worst is not None:
                return f"{self.graph_name}: output {number} has {output.violations} wrong elements; {output.worst}"
        return f"{self.graph_name}: {len(self.outputs)} outputs right"


def judge(
    graph: Graph,
    inputs: Sequence[Array],
    actual: Sequence[Array],
    reference: Sequence[Array] | None = None,
) -> Verdict:
    """Judges `actual`, a kernel's outputs for `inputs`, against the oracle. If `reference` is given (the same outputs by the
    framework), an error up to twice the reference's is allowed too (see the module).

    Raises GraphError if inputs or outputs do not match the graph in number, shapes and dtypes.
    """
    return judge_by(graph, evaluate_with_bounds(graph, inputs), actual, reference)


def judge_by(
    graph: Graph,
    oracle: Sequence[Bounded],
    actual: Sequence[Array],
    reference: Sequence[Array] | None = None,
    ranges: Sequence[Ranges] | None = None,
) -> Verdict:
    """As `judge`, with an oracle computed before (it does not depend on the kernel, and costs more than the comparison). `ranges`:
    which elements of each output are judged, if the oracle knows only some (`oracle.evaluate_sample`)."""
    for given in (actual, reference):
        if given is not None:
            _check_outputs(graph, given)
    verdicts = []
    for number, (expected, value) in enumerate(zip_strict(oracle, actual)):
        peer = None if reference is None else reference[number]
        with quiet():
            verdicts.append(_judge_ranges(expected, value, peer, None if ranges is None else ranges[number]))
    return Verdict(graph.name, tuple(verdicts))


def _check_outputs(graph: Graph, given: Sequence[Array]) -> None:
    if len(given) != len(graph.outputs):
        raise GraphError(f"graph {graph.name}: given {len(given)} outputs, expected {len(graph.outputs)}")
    for number, (index, value) in enumerate(zip_strict(graph.outputs, given)):
        node = graph.nodes[index]
        if value.shape != node.shape or value.dtype != node.dtype.numpy:
            shown = f"{value.dtype}{list(value.shape)}"
            raise GraphError(f"graph {graph.name}: output {number} given {shown}, expected {node.type_text}")


def _distance(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """|a - b| in float64: 0 if both are NaN or the same infinity, infinity if only one is."""
    if a.dtype.kind in "iub":
        same = a == b
        far = np.abs(a.astype(np.float64) - b.astype(np.float64))
        # Neighbouring integers beyond 2^53 are the same float64, but they differ all the same.
        return np.where(same, 0.0, np.maximum(far, 1.0))
    a, b = a.astype(np.float64, copy=False), b.astype(np.float64, copy=False)
    far = np.abs(a - b)
    if not np.isnan(far).any():
        return np.asarray(far)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    return np.where(same, 0.0, np.where(np.isnan(far), np.inf, far))


def _judge_ranges(expected: Bounded, actual: Array, reference: Array | None, ranges: Ranges) -> OutputVerdict:
    if ranges is None:
        return _judge_output(expected, actual, reference)

    def sample(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        flat = array.reshape(-1)
        return np.concatenate([flat[part] for part in ranges])

    seen = Bounded(sample(expected.value), sample(expected.bound))
    verdict = _judge_output(seen, sample(actual), None if reference is None else sample(reference))
    if verdict.worst is None:
        return verdict
    place = int(np.concatenate([np.arange(part.start, part.stop) for part in ranges])[verdict.worst.index])
    index = tuple(int(i) for i in np.unravel_index(place, actual.shape))
    return replace(verdict, worst=replace(verdict.worst, index=index))


def _judge_output(expected: Bounded, actual: Array, reference: Array | None) -> OutputVerdict:
    """Judges block by block, in the core's cache. Only if something is wrong is the whole output examined, to find the worst
    element."""
    if reference is None and expected.value.size > JUDGED_AT_ONCE:
        oracle, bound, value = expected.value.reshape(-1), expected.bound.reshape(-1), actual.reshape(-1)
        verdicts = [
            _judge_array(Bounded(oracle[at], bound[at]), value[at], None)
            for at in (slice(i, i + JUDGED_AT_ONCE) for i in range(0, oracle.size, JUDGED_AT_ONCE))
        ]
        if all(verdict.ok for verdict in verdicts):
            last = oracle.size - (len(verdicts) - 1) * JUDGED_AT_ONCE
            decided = sum(v.decided for v in verdicts[:-1]) * JUDGED_AT_ONCE + verdicts[-1].decided * last
            return OutputVerdict(0, None, decided / oracle.size, max(v.largest_ratio for v in verdicts))
    return _judge_array(expected, actual, reference)


def _judge_array(expected: Bounded, actual: Array, reference: Array | None) -> OutputVerdict:
    oracle, bound = expected
    error = _distance(actual, oracle)
    # If the oracle is certain of a NaN or an infinity, nothing else is accepted.
    finite = np.isfinite(oracle)
    allowed = bound if finite.all() else np.where(finite, bound, np.where(np.isinf(bound), np.inf, 0.0))
    undecided = np.isinf(allowed)
    decided = finite & ~undecided
    reference_error = None
    if reference is not None:
        reference_error = _distance(reference, oracle)
        allowed = np.where(
            decided, np.maximum(allowed, _allowed_by_reference(reference_error, bound, decided)), allowed
        )
    wrong = error > allowed
    wrong &= ~undecided
    measured = decided & (bound > 0)
    ratio = float(np.max(np.divide(error, bound, out=np.zeros(error.shape), where=measured), initial=0.0))
    share = float(decided.mean()) if decided.size else 1.0
    if not wrong.any():
        return OutputVerdict(0, None, share, ratio)
    excess = np.where(wrong, np.where(allowed > 0, error / np.where(allowed > 0, allowed, 1.0), np.inf), -1.0)
    flat = int(np.argmax(excess))
    index = tuple(int(i) for i in np.unravel_index(flat, excess.shape))
    worst = Violation(
        index,
        float(actual[index].astype(np.float64)),
        float(oracle[index].astype(np.float64)),
        float(bound[index]),
        None if reference_error is None else float(reference_error[index]),
    )
    return OutputVerdict(int(wrong.sum()), worst, share, ratio)


def _allowed_by_reference(
    reference_error: npt.NDArray[np.float64], bound: npt.NDArray[np.float64], decided: npt.NDArray[np.bool_]
) -> npt.NDArray[np.float64]:
    """Twice the reference's own error: that at the element, and its worst over the output in multiples of the bound."""
    usable = np.where(decided & np.isfinite(reference_error), reference_error, 0.0)
    measured = decided & (bound > 0)
    worst = float(np.max(usable[measured] / bound[measured], initial=0.0))
    finite = np.where(np.isfinite(bound), bound, 0.0)
    everywhere = min(worst, REFERENCE_SLACK_LIMIT) * finite
    return np.where(bound > 0, REFERENCE_FACTOR * np.maximum(usable, everywhere), 0.0)


# ---- the guard's tolerance -----------------------------------------------------------------------------------------


class Tolerance(NamedTuple):
    """Two float results a and b of one output agree if |a - b| <= relative * |b| + of_largest * max|b| for each element, and NaN
    and Inf are at the same places. (0, 0): exact."""

    relative: float
    of_largest: float


GUARD_SAFETY: Final = 8.0
"""Both results have errors (a factor of 2), and the errors of an op's operands add up, while `guard_tolerance` takes the largest (2);
the rest is for condition numbers beyond the first order."""


def guard_tolerance(graph: Graph) -> tuple[Tolerance, ...]:
    """For each output, the tolerance with which two implementations of the graph are compared on a job's data.

    Both numbers are GUARD_SAFETY * e, where e estimates the output's relative error from its history, and is at least u, the unit
    roundoff of the output's dtype. A leaf has e = 0. An op has the largest e of its operands (times its condition, for exp and
    similar ops) plus its own rounding: u of its dtype if it rounds, and 2 * ulps * u of the dtype in which it computes (f32 for
    halves). A sum also adds summation_depth(count) * u of that dtype; a window's count is at most the number of elements of the
    source. Maxima and minima add nothing; for integers and booleans the tolerance is 0.

    It is an estimate: cancellation can exceed it, and a comparison that falls on the other side of a tie will. A result that exceeds
    it is suspicious, not wrong: `judge` decides.
    """
    errors: list[float] = []
    for node in graph.nodes:
        inherited = max((errors[operand] for operand in node.operands), default=0.0)
        errors.append(inherited * OPS[node.op].condition + _own_error(graph, node))
    found = []
    for output in graph.outputs:
        dtype = graph.nodes[output].dtype
        # At least a few units of the output's own dtype: implementations may round differently.
        error = GUARD_SAFETY * max(errors[output], UNIT_ROUNDOFF[dtype]) if dtype.is_float else 0.0
        found.append(Tolerance(error, error))
    return tuple(found)


def _own_error(graph: Graph, node: Node) -> float:
    if not node.dtype.is_float:
        return 0.0
    unit, wide = UNIT_ROUNDOFF[node.dtype], UNIT_ROUNDOFF[accumulator(node.dtype)]
    ulps = OPS[node.op].ulps
    own = (unit if ulps else 0.0) + 2 * ulps * wide
    if OPS[node.op].is_reduction:
        if node.attributes.get("kind") in ("max", "min", "replace"):  # no arithmetic, however many terms
            return 0.0
        source = graph.nodes[node.operands[-1 if node.op == "scatter" else 0]]
        count = max(source.element_count // max(node.element_count, 1), 1)
        if node.op == "reduce_window":
            extents = zip_strict(window_of(node), source.shape)
            count = math.prod(min(item.size, max(extent, 1)) for item, extent in extents)
        elif node.op == "dot":
            count = source.shape[-1]
            own += wide  # of each product, unless it is fused with the addition
        elif node.op == "scan":
            prefix = prefix_of_scan(node)
            count = max(prefix.first + source.shape[prefix.dimension] - 1, 1)
        own += summation_depth(count) * wide
    return own


def agrees(a: Array, b: Array, tolerance: Tolerance) -> bool:
    """Whether two results of one output agree under `tolerance` (see Tolerance); integers and booleans must be equal. This is the
    guard's run-time comparison, in numpy."""
    if a.dtype.kind in "iub":
        return bool(np.array_equal(a, b))
    with quiet():
        x, y = a.astype(np.float64), b.astype(np.float64)
        finite = np.isfinite(x) & np.isfinite(y)
        alike = (x == y) | (np.isnan(x) & np.isnan(y))
        largest = float(np.max(np.abs(y[np.isfinite(y)]), initial=0.0))
        near = finite & (np.abs(x - y) <= tolerance.relative * np.abs(y) + tolerance.of_largest * largest)
        return bool((alike | near).all())
