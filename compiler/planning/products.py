"""Matrix products within rows: row r of [m, k] times [k, n] is a row of n sums, which stay in registers while k is walked once
(lowering/product.py says how). Which products of a nest are computed so is decided here.

    rows of the nest        the loops over a row
    of the product          n columns, k terms
    of its batch            n columns, k terms, m rows of the product, of shape [batch, m, k] times [batch, k, n]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..ir.graph import Graph, GraphBuilder, Node, Shape
from ..ir.index_maps import Index, Var
from ..ops.propagation import ElementRequest, Forward, LoadOwn
from ..ops.table import build
from ..passes.simplify import replace_nodes
from ..targets.targets import GpuTarget, Target
from .access import Trace, trace
from .accumulators import accumulator_dtype
from .mapping import RowMap, Segment, inner_pieces, roots_of
from .placement import Nest


@dataclass(frozen=True)
class RowProduct:
    """A product of rows in terms of its loops. columns: sums of a row. outer: rows of the product within a row of the nest. term,
    column, repeat: the variables of the three loops. left: the factor's element for a row and a term. right: the element that is read
    for a term and a column; flat: its row-major position in its node, in elements."""

    columns: int
    outer: int
    term: Var
    column: Var
    repeat: Var
    left: ElementRequest
    right: ElementRequest
    flat: Index


def single_rows_as_sums(graph: Graph, target: Target) -> Graph:
    """An equal graph for a GPU (up to rounding) without products [1, k] times [k, n]: a row is one group's work, too little to keep a
    device busy. The terms are multiplied element by element and summed over k, which is planned as any reduction of columns. A CPU's
    graph stays."""
    if not isinstance(target, GpuTarget) or not any(_is_single_row(node) for node in graph.nodes):
        return graph

    def replacement(builder: GraphBuilder, i: int, renamed: Sequence[int]) -> int | None:
        node = graph.nodes[i]
        if not _is_single_row(node):
            return None
        left, right = (renamed[operand] for operand in node.operands)
        return _sum_of_terms(builder, left, right, node.shape)

    return replace_nodes(graph, replacement)


def _is_single_row(node: Node) -> bool:
    return node.op == "dot" and node.shape[-2] == 1


def _sum_of_terms(builder: GraphBuilder, left: int, right: int, shape: Shape) -> int:
    whole = builder.nodes[right].shape
    factors = build(builder, "reshape", (left,), shape=whole[:-1])
    factors = build(builder, "broadcast", (factors,), shape=whole, dimensions=tuple(range(len(whole) - 1)))
    terms = build(builder, "multiply", (factors, right))
    total = build(builder, "reduce", (terms,), dimensions=(len(whole) - 2,), kind="sum")
    return build(builder, "reshape", (total,), shape=shape)


def row_products(graph: Graph, nest: Nest, stored: Callable[[int], bool], target: Target) -> Mapping[int, RowProduct]:
    """The products of a nest that are computed by rows, by node. The others are computed like any reduction, term by term: on a GPU,
    if sums are in another dtype than the factors, if the row does not consist of columns, terms and, perhaps, rows in this order, or
    if the right factor does not lie in memory as it is read. stored: whether the nest reads a node from memory or from its own row
    results."""
    if isinstance(target, GpuTarget):
        return {}
    dots = ((segment, mapping) for segment, mapping in nest.placed if graph.nodes[segment.node].op == "dot")
    found = {segment.node: _row_product(graph, nest, segment, mapping, stored) for segment, mapping in dots}
    return {node: product for node, product in found.items() if product is not None}


def _row_product(
    graph: Graph, nest: Nest, segment: Segment, mapping: RowMap, stored: Callable[[int], bool]
) -> RowProduct | None:
    node = graph.nodes[segment.node]
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
    left, right = roots_of(graph, segment, mapping.point(Index.of_var(nest.row), inner))
    steps = trace(graph, [right], stored)
    if not is_moved(steps):
        return None
    ((request, flat),) = steps.loads()
    is_plain = column not in (flat - Index.of_var(column)).variables and all(
        each.source is None for each in flat.variables
    )
    if request.guard or not is_plain or request.node in nest.computes():
        return None
    return RowProduct(columns, outer, term, column, repeat, left, request, flat)


def is_moved(steps: Trace) -> bool:
    """Whether elements are only loaded and moved, not computed."""
    return all(isinstance(step, (Forward, LoadOwn)) for step in steps.steps.values())
