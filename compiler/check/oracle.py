"""The oracle: a graph's outputs in float64 and, for each element, how far from it a correct implementation in the graph's own dtypes
may be (rules: ops/errors.py). It computes slice by slice (slices.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import numpy as np

from ..ir.graph import Array, DType, Graph, Node
from ..ops.errors import ComputedNode, ErrorBound, input_bound, no_error, round_result
from ..ops.interpreter import check_body_op, check_inputs, quiet, reduce_by_body, reference_of, walk
from ..ops.table import OPS
from ..support.sequences import zip_strict
from .slices import SLICE_ELEMENTS, Region, SlicePlan, plan_slices, rows_of, sliced_node

if TYPE_CHECKING:
    from typing import TypeAlias


class Bounded(NamedTuple):
    """An output of the oracle, both arrays of the output's shape: `value` (float64, or the output's integer or boolean dtype) and
    `bound` (float64). `bound` is 0 if only this value is right, and infinity if any value is."""

    value: Array
    bound: ErrorBound


def evaluate_with_bounds(graph: Graph, inputs: Sequence[Array], slice_elements: int = SLICE_ELEMENTS) -> list[Bounded]:
    """The oracle's outputs with their bounds. `inputs` are ordered by parameter number and have the parameters' shapes and dtypes.
    `slice_elements`: how many elements are computed at a time, which changes at most the last bits. Raises GraphError if the inputs
    do not fit or an op is unknown."""
    return _Evaluation(graph, inputs, plan_slices(graph, slice_elements)).run()


Ranges: TypeAlias = "tuple[slice, ...] | None"
"""Elements of an output, counted in row-major order; None: all of them."""

SAMPLED_WHOLE: Final = 8
SAMPLED_SHARE: Final = 1 / 16
"""Of a region of more than SAMPLED_WHOLE slices, only SAMPLED_WHOLE slices and the share SAMPLED_SHARE of the others are
computed."""


def evaluate_sample(
    graph: Graph,
    inputs: Sequence[Array],
    rng: np.random.Generator,
    slice_elements: int = SLICE_ELEMENTS,
    unlimited: bool = False,
) -> tuple[list[Bounded], list[Ranges]]:
    """As `evaluate_with_bounds`, but computes only some slices of a large output: the first, the last, and others drawn by `rng`.
    Returns for each output which elements these are; its other values and bounds are undefined. What a reduction over everything,
    or any other op, needs as a whole is computed as a whole.

    unlimited: without bounds (all are 0), and no dtype but f64 has a largest number: a value is infinite or NaN by an op on zeros or
    by an infinite input, not by overflow."""
    evaluation = _Evaluation(graph, inputs, plan_slices(graph, slice_elements), rng, unlimited)
    return evaluation.run(), [evaluation.ranges.get(output) for output in graph.outputs]


def _keep_freed_memory() -> None:
    """Lets glibc keep up to 64 MB of freed memory. By default the arrays of a slice are mapped and unmapped again and again, and page
    faults take a third of the time. glibc's thresholds follow the largest block that was ever freed, up to 32 MB (malloc(3),
    M_MMAP_THRESHOLD); the block allocated here is never touched."""
    np.empty((32 << 20) - (64 << 10), np.uint8)


_Step: TypeAlias = "Callable[[Node, tuple[Node, ...], Sequence[Bounded]], Bounded]"
"""Computes one op: of the node, its operands' nodes, and their values with bounds."""


class _Evaluation:
    """One run. `whole`: the complete values that are still needed. `rng`: draws the slices of a sample. `ranges`: for each sampled
    node, the elements that were computed. `step`: computes an op."""

    def __init__(
        self,
        graph: Graph,
        inputs: Sequence[Array],
        plan: SlicePlan,
        rng: np.random.Generator | None = None,
        unlimited: bool = False,
    ) -> None:
        check_inputs(graph, inputs)
        self.graph = graph
        self.inputs = inputs
        self.plan = plan
        self.rng = rng
        self.step: _Step = _unlimited_step if unlimited else bounded_step
        self.whole: dict[int, Bounded] = {}
        self.ranges: dict[int, tuple[slice, ...]] = {}
        self.readers = self._count_readers()

    def run(self) -> list[Bounded]:
        _keep_freed_memory()
        with quiet():
            for wave in self.plan.waves:
                for region in wave.regions:
                    self._run_region(region)
                    self._release(region.nodes)
                for i in wave.whole:
                    self.whole[i] = self._whole_step(i)
                    self._release([i])
            return [self._complete(output) for output in self.graph.outputs]

    def _count_readers(self) -> dict[int, int]:
        """How often each node is read, so that a complete value can be dropped after its last use."""
        found = dict.fromkeys(self.graph.outputs, 1)
        for node in self.graph.nodes:
            for operand in node.operands:
                found[operand] = found.get(operand, 0) + 1
        return found

    def _release(self, nodes: Iterable[int]) -> None:
        for i in nodes:
            for operand in self.graph.nodes[i].operands:
                self.readers[operand] -= 1
                if not self.readers[operand]:
                    self.whole.pop(operand, None)
            if not self.readers.get(i):
                self.whole.pop(i, None)

    def _complete(self, i: int) -> Bounded:
        """The complete value of a node: kept from before, or a leaf."""
        found = self.whole.get(i)
        if found is None:
            node = self.graph.nodes[i]
            assert OPS[node.op].is_leaf, f"%{i} {node.op} was dropped already"
            found = self.whole[i] = self._leaf(i, node, ())
        return found

    def _leaf(self, i: int, node: Node, rows: tuple[slice, ...]) -> Bounded:
        """A leaf or, with `rows`, a slice of it; `node` is the node of that slice."""
        if node.op == "parameter":
            value = self.inputs[_number(node)][rows].astype(oracle_dtype(node.dtype))
            return Bounded(value, input_bound(node.dtype, value))
        result = reference_of(node)(self.graph.nodes[i], (), ())[rows].astype(oracle_dtype(node.dtype), copy=False)
        if node.op == "constant":
            return Bounded(result, input_bound(node.dtype, result))
        return Bounded(*round_result(node.dtype, OPS[node.op].ulps, result, no_error(result.shape)))

    def _whole_step(self, i: int) -> Bounded:
        node = self.graph.nodes[i]
        sources = tuple(self.graph.nodes[operand] for operand in node.operands)
        if node.op == "reduce":
            return _reduce_in_blocks(node, sources[0], partial(self._rows, node.operands[0]), self.step)
        return self.step(node, sources, [self._complete(operand) for operand in node.operands])

    def _rows(self, i: int, rows: tuple[slice, ...]) -> Bounded:
        """A part of a leaf or of a complete value."""
        node = self.graph.nodes[i]
        if OPS[node.op].is_leaf and i not in self.whole:
            return self._leaf(i, node, rows)
        value, bound = self.whole[i]
        return Bounded(value[rows], bound[rows])

    def _run_region(self, region: Region) -> None:
        for i in region.whole:
            self._complete(i)
        for i in region.kept:
            node = self.graph.nodes[i]
            value = np.empty(node.shape, oracle_dtype(node.dtype))
            self.whole[i] = Bounded(value, np.empty(node.shape, np.float64))
        slices = region.slices()
        chosen = set(range(len(slices)))
        needed = region
        if self.rng is not None and len(slices) > SAMPLED_WHOLE:
            needed = self._needed_whole(region)
            drawn = self.rng.permutation(np.arange(1, len(slices) - 1))
            count = SAMPLED_WHOLE - 2 + math.ceil((len(slices) - SAMPLED_WHOLE) * SAMPLED_SHARE)
            chosen = {0, len(slices) - 1, *map(int, drawn[:count])}
            for i in region.kept - needed.kept:
                unit = self.graph.nodes[i].element_count // region.units
                self.ranges[i] = tuple(slice(slices[k][0] * unit, slices[k][1] * unit) for k in sorted(chosen))
        everything, rest = _SliceLoop(self, region), _SliceLoop(self, needed)
        for k, (first, last) in enumerate(slices):
            (everything if k in chosen else rest).run(first, last)

    def _needed_whole(self, region: Region) -> Region:
        """The part of a region that must be computed in every slice: what is read as a whole, and what that depends on."""
        inside = set(region.nodes)
        kept = region.handed_on.union(i for i in region.kept if self.graph.nodes[i].element_count % region.units)
        nodes: set[int] = set()
        waiting = list(kept)
        while waiting:
            i = waiting.pop()
            if i not in nodes:
                nodes.add(i)
                waiting += [operand for operand in self.graph.nodes[i].operands if operand in inside]
        return replace(region, nodes=tuple(i for i in region.nodes if i in nodes), kept=kept)

    def slice_of(self, i: int, units: int, first: int, last: int) -> Bounded:
        """A slice of a leaf or of a complete value."""
        return self._rows(i, rows_of(self.graph.nodes[i].shape, units, first, last))


class _SliceLoop:
    """The body of the loop over a region's slices."""

    def __init__(self, evaluation: _Evaluation, region: Region) -> None:
        self.evaluation = evaluation
        self.region = region
        graph, needs = evaluation.graph, evaluation.plan.needs
        self.nodes: dict[int, dict[int, tuple[Node, tuple[Node, ...]]]] = {}
        self.last_use: dict[int, int] = {}
        for i in region.nodes:
            for operand, sliced in zip_strict(graph.nodes[i].operands, needs[i]):
                if sliced:
                    self.last_use[operand] = i
        self.dying: dict[int, list[int]] = {}
        for operand, reader in self.last_use.items():
            self.dying.setdefault(reader, []).append(operand)

    def _sliced(self, count: int) -> dict[int, tuple[Node, tuple[Node, ...]]]:
        """The region's nodes, each with its operands, as they are in slices of `count` units."""
        if count not in self.nodes:
            graph, needs, units = self.evaluation.graph, self.evaluation.plan.needs, self.region.units
            self.nodes[count] = {
                i: (
                    sliced_node(graph.nodes[i], units, count),
                    tuple(
                        sliced_node(graph.nodes[operand], units, count) if by_slice else graph.nodes[operand]
                        for operand, by_slice in zip_strict(graph.nodes[i].operands, needs[i])
                    ),
                )
                for i in self.region.nodes
            }
        return self.nodes[count]

    def run(self, first: int, last: int) -> None:
        """Computes units [first, last) of all nodes of the region."""
        evaluation, units = self.evaluation, self.region.units
        graph, needs = evaluation.graph, evaluation.plan.needs
        values: dict[int, Bounded] = {}
        for i, (node, sources) in self._sliced(last - first).items():
            operands: list[Bounded] = []
            for operand, by_slice in zip_strict(node.operands, needs[i]):
                if not by_slice:
                    operands.append(evaluation.whole[operand])
                    continue
                if operand not in values:
                    values[operand] = evaluation.slice_of(operand, units, first, last)
                operands.append(values[operand])
            made = values[i] = evaluation.step(node, sources, operands)
            if i in self.region.kept:
                rows = rows_of(graph.nodes[i].shape, units, first, last)
                complete = evaluation.whole[i]
                complete.value[rows], complete.bound[rows] = made
            for operand in self.dying.get(i, ()):
                values.pop(operand, None)
            if i not in self.last_use:
                values.pop(i, None)


def _number(node: Node) -> int:
    return int(node.attributes["number"])  # type: ignore[arg-type]


def oracle_dtype(dtype: DType) -> np.dtype[Any]:
    """The numpy dtype in which the oracle computes `dtype`."""
    return np.dtype(np.float64) if dtype.is_float else dtype.numpy


def bounded_step(node: Node, sources: tuple[Node, ...], operands: Sequence[Bounded]) -> Bounded:
    """One op: its value in float64, with the bound inherited from the operands and what the op itself may add."""
    values, bounds = tuple(x.value for x in operands), tuple(x.bound for x in operands)
    if node.op == "reduce_general":
        reduced = reduce_by_body(node, [*values, *bounds], partial(_run_bounded_body, step=bounded_step), bounded=True)
        return Bounded(*reduced)
    result = np.asarray(reference_of(node)(node, sources, values)).astype(oracle_dtype(node.dtype), copy=False)
    if node.op == "constant":
        return Bounded(result, input_bound(node.dtype, result))
    row = OPS[node.op]
    inherited = row.error(ComputedNode(node, sources, values, bounds, result))
    if row.moves is not None and not row.elementwise:  # nothing is rounded, and an overflow happened earlier
        return Bounded(result, inherited)
    return Bounded(*round_result(node.dtype, row.ulps, result, inherited))


def _unlimited_step(node: Node, sources: tuple[Node, ...], operands: Sequence[Bounded]) -> Bounded:
    """One op in float64, whose range is every dtype's here. The bounds are 0."""
    values = tuple(x.value for x in operands)
    if node.op == "reduce_general":
        bounds = tuple(x.bound for x in operands)
        run = partial(_run_bounded_body, step=_unlimited_step)
        return Bounded(*reduce_by_body(node, [*values, *bounds], run, bounded=True))
    result = np.asarray(reference_of(node)(node, sources, values)).astype(oracle_dtype(node.dtype), copy=False)
    return Bounded(result, no_error(result.shape))


REDUCED_AT_ONCE: Final = 1 << 15


def _reduce_in_blocks(
    node: Node, source: Node, part_of: Callable[[tuple[slice, ...]], Bounded], compute: _Step
) -> Bounded:
    """A reduction that cannot be sliced along its operand's first dimension is sliced along the longest dimension that it keeps: a
    column reduction processes some columns at a time. `part_of` gives parts of the operand; `compute`: one op."""
    dimensions = node.attributes["dimensions"]
    kept = [d for d in range(len(source.shape)) if d not in cast("tuple[int, ...]", dimensions)]
    if not kept or source.element_count <= REDUCED_AT_ONCE:
        return compute(node, (source,), [part_of(())])
    position = max(range(len(kept)), key=lambda k: source.shape[kept[k]])
    axis, extent = kept[position], source.shape[kept[position]]
    step = max(1, REDUCED_AT_ONCE * extent // source.element_count)
    value = np.empty(node.shape, oracle_dtype(node.dtype))
    bound = np.empty(node.shape, np.float64)
    for first in range(0, extent, step):
        last = min(first + step, extent)
        there = (*(slice(None),) * axis, slice(first, last))
        here = (*(slice(None),) * position, slice(first, last))
        value[here], bound[here] = compute(
            _resized(node, position, last - first), (_resized(source, axis, last - first),), [part_of(there)]
        )
    return Bounded(value, bound)


def _resized(node: Node, axis: int, extent: int) -> Node:
    shape = (*node.shape[:axis], extent, *node.shape[axis + 1 :])
    return Node(node.op, node.operands, shape, node.dtype, node.attributes, node.name)


def _run_bounded_body(body: Graph, values: Sequence[Array], step: _Step) -> list[Array]:
    """Runs a reduction's scalar body on arrays, for the oracle. Arguments and results are values followed by their bounds."""
    count = len(values) // 2

    def compute(node: Node, sources: tuple[Node, ...], operands: list[Bounded]) -> Bounded:
        if node.op == "parameter":
            return Bounded(values[_number(node)], cast("ErrorBound", values[count + _number(node)]))
        check_body_op(body, node)
        return step(node, sources, operands)

    shape = np.broadcast_shapes(*(value.shape for value in values))
    results: list[Bounded] = walk(body, cast("Callable[..., Bounded]", compute))
    parts = [result.value for result in results] + [result.bound for result in results]
    return [np.broadcast_to(part, shape) for part in parts]


__all__ = ["Bounded", "Ranges", "bounded_step", "evaluate_sample", "evaluate_with_bounds", "oracle_dtype"]
