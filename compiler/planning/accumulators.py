"""The dtypes in which reductions accumulate, and those of the partial results of tasks."""

from __future__ import annotations

from ..ir.graph import DType, Graph
from .mapping import RowMap, Segment, spans_rows


def accumulator_dtype(graph: Graph, segment: Segment, scalar_over_rows: bool = False) -> DType:
    """The dtype in which the reduction accumulates: the node's own for a variadic reduction, otherwise f32 for f16 and bf16. With
    `scalar_over_rows` (one result, reduced over all rows) f64 for a sum or product of f32. Else the node's own."""
    node = graph.nodes[segment.node]
    if node.op == "reduce_general":
        return node.dtype
    if node.dtype in (DType.F16, DType.BF16):
        return DType.F32
    if scalar_over_rows and node.dtype is DType.F32 and kind_of(graph, segment) in ("sum", "product"):
        return DType.F64
    return node.dtype


def kind_of(graph: Graph, segment: Segment) -> str:
    """The reduction kind of a segment's node, one of graph.REDUCE_KINDS."""
    node = graph.nodes[segment.node]
    return "sum" if node.op == "dot" else str(node.attributes["kind"])


def partial_dtype(graph: Graph, segment: Segment, mapping: RowMap) -> DType:
    """The dtype of the partial results that the tasks of a reduction over rows store."""
    kept = graph.nodes[segment.node].element_count
    return accumulator_dtype(graph, segment, scalar_over_rows=kept == 1 and spans_rows(segment, mapping))
