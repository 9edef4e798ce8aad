"""What a reduction accumulates in, and what its tasks leave."""

from __future__ import annotations

from ..ir.graph import DType, Graph
from .mapping import RowMap, Segment, spans_rows


def accumulator_dtype(graph: Graph, segment: Segment, mapping: RowMap, scalar_over_rows: bool = False) -> DType:
    """What the reduction accumulates in: f16 and bf16 in f32; a float sum over all rows, one number per row, in f64."""
    node = graph.nodes[segment.node]
    if node.op == "reduce_general":
        return node.dtype
    if node.dtype in (DType.F16, DType.BF16):
        return DType.F32
    if scalar_over_rows and node.dtype is DType.F32 and kind_of(graph, segment) in ("sum", "product"):
        return DType.F64
    return node.dtype


def kind_of(graph: Graph, segment: Segment) -> str:
    return str(graph.nodes[segment.node].attributes["kind"])


def partial_dtype(graph: Graph, segment: Segment, mapping: RowMap) -> DType:
    """Element type of the partial results that tasks leave."""
    kept = graph.nodes[segment.node].element_count
    return accumulator_dtype(graph, segment, mapping, scalar_over_rows=kept == 1 and spans_rows(segment, mapping))
