"""Matrix products within rows: row r of [m, k] times [k, n] is a row of n sums, which stay in registers while k is walked once
(lowering/product.py says how). Which products of a nest are computed so is decided here.

    batch product   rows of a row      the form
    [r, k] [k, n]   -                  n columns, k terms
    [r, m, k] [k, n]  m                n columns, k terms, m rows within the row
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from dataclasses import dataclass

from ..ir.graph import Graph
from ..ir.index_maps import Index, Var
from ..ops.propagation import ElementRequest, Forward, LoadOwn
from ..targets.targets import GpuTarget, Target
from .access import Trace, trace
from .accumulators import accumulator_dtype
from .mapping import RowMap, Segment, inner_pieces, roots_of
from .placement import Nest


@dataclass(frozen=True)
class RowProduct:
    """A product of rows in terms of its loops. columns: sums of a row. outer: rows of the product within a row of the nest. term,
    column, repeat: the variables of the three loops. left: the factor's element for a row and a term. right: the element that is read
    for a term and a column, at the position `flat` of its node, in elements."""

    columns: int
    outer: int
    term: Var
    column: Var
    repeat: Var
    left: ElementRequest
    right: ElementRequest
    flat: Index


def row_product(
    graph: Graph,
    segment: Segment,
    mapping: RowMap,
    row: Index,
    stored: Callable[[int], bool],
    here: Container[int],
    target: Target,
) -> RowProduct | None:
    """The segment as a product of rows; None if it is no dot, or has to be computed like any other reduction, term by term: on a GPU,
    if sums are in another dtype than the factors, if the row does not consist of columns, terms and, perhaps, rows in this order, or
    if the right factor does not lie in memory as it is read.

    row: the number of the row. stored: whether the nest reads a node from memory. here: the nodes that the nest itself computes."""
    node = graph.nodes[segment.node]
    if node.op != "dot" or isinstance(target, GpuTarget):
        return None
    pieces = inner_pieces(segment, mapping)
    if [reduced for _, _, reduced in pieces] not in ([False, True], [False, True, False]):
        return None
    if accumulator_dtype(graph, segment) is not node.dtype:
        return None
    terms = graph.nodes[node.operands[0]].shape[-1]
    columns, *kept = (extent for _, extent, reduced in pieces if not reduced)
    outer, size = math.prod(kept), mapping.inner
    term, column, repeat = Var(f"k{terms}_1", terms), Var(f"n{size}", columns), Var(f"m{size}", outer)
    inner = Index.of_var(column) + Index.of_var(term) * columns + Index.of_var(repeat) * (columns * terms)
    left, right = roots_of(graph, segment, mapping.point(row, inner))
    steps = trace(graph, [right], stored)
    if not is_moved(steps):
        return None
    ((request, flat),) = steps.loads()
    is_plain = column not in (flat - Index.of_var(column)).variables and all(
        each.source is None for each in flat.variables
    )
    if request.guard or not is_plain or request.node in here:
        return None
    return RowProduct(columns, outer, term, column, repeat, left, request, flat)


def row_products(graph: Graph, nest: Nest, stored: Callable[[int], bool], target: Target) -> frozenset[int]:
    """The nodes of the nest that are computed as products of rows."""
    here, row = nest.computes(), Index.of_var(nest.row)
    return frozenset(
        segment.node
        for segment, mapping in nest.placed
        if row_product(graph, segment, mapping, row, stored, here, target) is not None
    )


def is_moved(steps: Trace) -> bool:
    """Whether elements are only loaded and moved, not computed."""
    return all(isinstance(step, (Forward, LoadOwn)) for step in steps.steps.values())
