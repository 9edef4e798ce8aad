"""Slices: which nodes of a graph can be computed a few rows at a time, and in which order.

The oracle makes a dozen float64 arrays per op. For whole tensors each of them would go through memory (and the page-fault handler);
in slices of some thousand elements they stay in the core's cache, which is five to ten times as fast.

A node is *sliced* along its leading dimensions: a slice of it needs only the same slice of some operands, and others as a whole.
Sliced nodes that feed each other make a *region*, a loop over slices. Everything else (a transpose of the leading dimension, a
reduction over it, a scatter) is computed *whole* and divides the graph into *waves*: the regions of wave k need only what earlier
waves have computed.

    plan_slices(graph) -> waves, each with its regions and then its whole nodes

A slice is a range of `units`. With 1024 units, unit 130 of [1024, 256] is row 130, and unit 130 of [8, 128, 256] is row 2 of picture
1, so that a reshape of one to the other is sliced like everything else. A range never crosses a leading index, which keeps each
slice rectangular. If a tensor has fewer elements than units (a number per picture), several slices share an element.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from ..ir.graph import Graph, Node, Shape
from ..ops.slicing import Need
from ..ops.table import OPS
from ..support.divisors import divisor_near
from ..support.sequences import zip_strict
from ..support.union_find import UnionFind

SLICE_ELEMENTS: Final = 1 << 14
"""Elements of the largest node of a slice: 128 KiB in float64, so that the handful of arrays that a rule works on stay in an L2
cache of 1 MiB. With half as many, numpy's own overhead (1 us a call) costs more; with twice as many, they no longer fit."""

COARSE: Final = 8
"""If the slices of a region would be this many times SLICE_ELEMENTS, it is worth splitting the region."""


@dataclass(frozen=True)
class Region:
    """Sliced nodes in topological order. `kept`: nodes whose slices are assembled, because they are outputs or are read outside
    (`handed_on`). `units`: number of units; `step`: units per slice. `whole`: leaves that the region reads as a whole."""

    nodes: tuple[int, ...]
    kept: frozenset[int]
    handed_on: frozenset[int]
    units: int
    step: int
    whole: frozenset[int] = frozenset()

    def slices(self) -> list[tuple[int, int]]:
        """The slices as ranges [first, last) of units."""
        return [(first, min(first + self.step, self.units)) for first in range(0, self.units, self.step)]


@dataclass(frozen=True)
class Wave:
    """Nodes that can be computed when all earlier waves are done: first the `regions`, in any order, then the nodes of `whole`, in
    order."""

    regions: tuple[Region, ...]
    whole: tuple[int, ...]


@dataclass(frozen=True)
class SlicePlan:
    """The waves; and, for each sliced node, whether it reads each operand sliced (else as a whole)."""

    waves: tuple[Wave, ...]
    needs: Mapping[int, tuple[bool, ...]]


class Cut(NamedTuple):
    """How a shape is cut into units: the unit number fixes the dimensions before `axis`, and `rows` indices of dimension `axis`
    make a unit; `below` units share one index of the dimensions before."""

    axis: int
    rows: int
    below: int


def cut_of(shape: Shape, units: int, deepest: int) -> Cut | None:
    """The cut of `shape` into `units` equal parts along its first `deepest` dimensions; None if there is none."""
    below = units
    for axis, extent in enumerate(shape[:deepest]):
        if extent % below == 0:
            return Cut(axis, extent // below, below)
        if below % extent:
            return None
        below //= extent
    return Cut(len(shape), 0, below) if math.prod(shape) <= units and deepest == len(shape) else None


def rows_of(shape: Shape, units: int, first: int, last: int) -> tuple[slice, ...]:
    """The index into an array of `shape` that gives units [first, last), a slice of the region."""
    cut = cut_of(shape, units, len(shape))
    assert cut is not None
    found: list[slice] = []
    fixed = first // cut.below
    for extent in reversed(shape[: cut.axis]):
        fixed, index = divmod(fixed, extent)
        found.append(slice(index, index + 1))
    found.reverse()
    if cut.axis < len(shape):
        start = first % cut.below
        found.append(slice(start * cut.rows, (start + last - first) * cut.rows))
    return tuple(found)


def sliced_node(node: Node, units: int, count: int) -> Node:
    """`node` with the shape that its result has in a slice of `count` units, if the whole has `units` units."""
    cut = cut_of(node.shape, units, len(node.shape))
    assert cut is not None
    middle = (cut.rows * count,) if cut.axis < len(node.shape) else ()
    return replace(node, shape=(*(1,) * cut.axis, *middle, *node.shape[cut.axis + 1 :]))


# ---- which operands a sliced node needs sliced ---------------------------------------------------------------------


def need_of(graph: Graph, node: Node) -> Need | None:
    """What a slice of `node` needs; None if `node` is computed as a whole."""
    if not node.shape or not node.element_count:
        return None
    rule = OPS[node.op].slicing
    found = None if rule is None else rule(graph, node)
    return found if found is not None and any(found.sliced) else None


# ---- regions and waves ---------------------------------------------------------------------------------------------


def plan_slices(graph: Graph, slice_elements: int = SLICE_ELEMENTS) -> SlicePlan:
    """Which nodes of `graph` are computed in slices, which as a whole, and in what order. `slice_elements`: most elements of the
    largest node of a slice; a region whose shapes have no cut that fine in common has larger slices."""
    needs: dict[int, Need] = {}
    for i, node in enumerate(graph.nodes):
        found = None if OPS[node.op].is_leaf else need_of(graph, node)
        if found is not None:
            needs[i] = found
    while True:
        wave = _waves(graph, needs)
        regions = _connected(graph, needs, wave)
        units = [_units(graph, needs, nodes, slice_elements) for nodes in regions]
        coarse = [
            i
            for nodes, found in zip_strict(regions, units)
            if found.slice_elements > COARSE * slice_elements
            for i in nodes
            if graph.nodes[i].op == "reshape"
        ]
        if not coarse:
            break
        # These regions have no fine cut in common: they are split at their reshapes, which are views of the whole.
        for i in coarse:
            del needs[i]
    home = {i: number for number, nodes in enumerate(regions) for i in nodes}
    handed_on = _handed_on(graph, needs, home)
    kept = handed_on.union(output for output in graph.outputs if output in needs)
    waves: list[Wave] = []
    for number in range(-1, max(wave, default=-1) + 1):
        built = []
        for nodes, found_units in zip_strict(regions, units):
            if wave[nodes[0]] == number:
                whole = {
                    operand
                    for i in nodes
                    for operand, sliced in zip_strict(graph.nodes[i].operands, needs[i].sliced)
                    if not sliced and OPS[graph.nodes[operand].op].is_leaf
                }
                built.append(
                    Region(
                        tuple(nodes),
                        kept.intersection(nodes),
                        handed_on.intersection(nodes),
                        found_units.units,
                        found_units.step,
                        frozenset(whole),
                    )
                )
        single = (i for i, node in enumerate(graph.nodes) if i not in needs and not OPS[node.op].is_leaf)
        waves.append(Wave(tuple(built), tuple(i for i in single if wave[i] == number)))
    return SlicePlan(tuple(waves), {i: need.sliced for i, need in needs.items()})


def _waves(graph: Graph, needs: Mapping[int, Need]) -> list[int]:
    """The wave of each node."""
    wave: list[int] = []
    for i, node in enumerate(graph.nodes):
        at = 0 if i in needs else -1
        for position, operand in enumerate(node.operands):
            if OPS[graph.nodes[operand].op].is_leaf:
                continue
            # An operand that a sliced node does not read slice by slice must be complete: the node waits for the next wave.
            waits = i in needs and not (needs[i].sliced[position] and operand in needs)
            at = max(at, wave[operand] + waits)
        wave.append(at)
    return wave


def _connected(graph: Graph, needs: Mapping[int, Need], wave: Sequence[int]) -> list[list[int]]:
    """Sliced nodes of one wave that read each other's slices, grouped."""
    sets = UnionFind(len(graph.nodes))
    for i, need in needs.items():
        for operand, sliced in zip_strict(graph.nodes[i].operands, need.sliced):
            if sliced and operand in needs and wave[operand] == wave[i]:
                sets.union(i, operand)
    found: dict[int, list[int]] = {}
    for i in needs:
        found.setdefault(sets.find(i), []).append(i)
    return list(found.values())


def _handed_on(graph: Graph, needs: Mapping[int, Need], home: Mapping[int, int]) -> frozenset[int]:
    """Sliced nodes that are read outside their region's slices."""
    found: set[int] = set()
    for i, node in enumerate(graph.nodes):
        for position, operand in enumerate(node.operands):
            inside = i in needs and needs[i].sliced[position] and home[i] == home.get(operand)
            if operand in needs and not inside:
                found.add(operand)
    return frozenset(found)


class _Units(NamedTuple):
    """A cut of a region (see Region). `slice_elements`: elements of its largest node in a slice."""

    units: int
    step: int
    slice_elements: int


def _units(graph: Graph, needs: Mapping[int, Need], nodes: Sequence[int], slice_elements: int) -> _Units:
    """The coarsest cut that all shapes of a region have in common and whose slices are small enough; if there is none, the finest."""
    shapes: dict[tuple[Shape, int], None] = {}
    for i in nodes:
        node, need = graph.nodes[i], needs[i]
        shapes[node.shape, need.deepest] = None
        for operand, sliced in zip_strict(node.operands, need.sliced):
            if sliced:
                shapes[graph.nodes[operand].shape, need.operand_deepest] = None
    largest = max(math.prod(shape) for shape, _ in shapes)
    candidates = {1}
    for shape, deepest in shapes:
        for depth in range(1, deepest + 1):
            candidates.add(math.prod(shape[:depth]))
            candidates.add(math.gcd(*(math.prod(other[:depth]) for other, _ in shapes)))
    best = _Units(1, 1, largest)
    for units in sorted(candidates):
        cuts = [cut_of(shape, units, deepest) for shape, deepest in shapes]
        if None in cuts:
            continue
        # A slice stays within one index of the dimensions before; if none are fixed, any range will do.
        runs = [cut.below for cut in cuts if cut is not None and cut.below != units]
        wanted = max(1, slice_elements * units // largest)
        step = divisor_near(math.gcd(*runs), wanted) if runs else min(wanted, units)
        best = _Units(units, step, -(-step * largest // units))
        if best.slice_elements <= slice_elements:
            break
    return best
