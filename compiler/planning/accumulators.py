"""The dtypes in which reductions accumulate, and those of the partial results of tasks."""

from __future__ import annotations

from ..ir.graph import DType, Graph
from .mapping import RowMap, Segment, spans_rows


def accumulator_dtype(graph: Graph, segment: Segment, mapping: RowMap, scalar_over_rows: bool = False) -> DType:
    """The dtype in which the reduction accumulates: f32 for f16 and bf16; f64 for an f32 sum or product over all rows with one result
    per row (`scalar_over_rows`); else the node's own."""
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
    return str(graph.nodes[segment.node].attributes["kind"])


def partial_dtype(graph: Graph, segment: Segment, mapping: RowMap) -> DType:
    """Element type of the partial results that tasks store."""
    kept = graph.nodes[segment.node].element_count
    return accumulator_dtype(graph, segment, mapping, scalar_over_rows=kept == 1 and spans_rows(segment, mapping))
