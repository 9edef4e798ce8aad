"""The cost of a nest: bytes moved, ops computed, nanoseconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ..ir.graph import DType, Graph, Node
from ..ir.index_maps import Index
from ..ops.c_text import EXACT_OPS
from ..ops.propagation import Apply
from ..ops.table import OPS, Cost
from ..targets.targets import CpuTarget, Target
from .access import trace
from .mapping import SegmentKind
from .placement import Nest, Placement, mapped_roots, within

ROUNDING_OPS: Final[Mapping[DType, int]] = {DType.BF16: 6, DType.F16: 20}
"""Light ops in which a CPU rounds a result to the dtype (kernel_prelude.h). A GPU has an instruction."""


def light_ops(node: Node, target: Target) -> int:
    """Number of light ops that an element of a node takes whose own op is light: that one, and its rounding."""
    rounds = isinstance(target, CpuTarget) and node.op not in EXACT_OPS
    return 1 + (ROUNDING_OPS.get(node.dtype, 0) if rounds else 0)


class NestCost(NamedTuple):
    """Bytes read and written (each tensor once), the time in ns on one core of a CPU or on the whole GPU, and the bytes per element
    of the widest tensor (4 if the nest accesses scalars only)."""

    bytes_read: int
    bytes_written: int
    one_core_ns: float
    widest: int


def nest_cost(graph: Graph, placement: Placement, nest: Nest, target: Target) -> NestCost:
    """The cost of `nest`: its traffic at the target's bandwidth, plus its arithmetic, plus the start of each row. The terms are
    added, because on one core without software prefetch they overlap little for rows that fit L1."""
    read: dict[int, int] = {}
    written = light = expensive = reduced = 0
    row = Index.of_var(nest.row)
    for segment, mapping in nest.placed:
        inner = Index.of_var(within(mapping.inner))
        # What a product's left factors take to compute, they take once for all columns (lowering/product.py).
        elements = segment.size
        if graph.nodes[segment.node].op == "dot" and isinstance(target, CpuTarget):
            elements = max(1, segment.size // graph.nodes[segment.node].shape[-1])
        steps = trace(graph, mapped_roots(graph, segment, mapping, row, inner), placement.stored_in(nest))
        for request, step in steps.steps.items():
            if isinstance(step, Apply):
                variables = request.variables
                # A number of the row is computed once per row, before its loops (lowering/values.py).
                varying = elements if variables - {nest.row} else nest.rows if variables else 1
                node = graph.nodes[request.node]
                if OPS[node.op].cost is Cost.EXPENSIVE:
                    expensive += varying
                else:
                    light += varying * light_ops(node, target)
        for request, _ in steps.loads():
            node = graph.nodes[request.node]
            read[request.node] = min(node.size_bytes, segment.size * node.dtype.size_bytes)
        if segment.kind is SegmentKind.SCAN:
            reduced += segment.size
            written += graph.nodes[segment.node].size_bytes
        elif segment.kind is SegmentKind.REDUCE:
            reduced += segment.size
        elif segment.kind is SegmentKind.SCATTER:
            updates = graph.nodes[graph.nodes[segment.node].operands[2]]
            written += min(updates.size_bytes, graph.nodes[segment.node].size_bytes)
        else:
            written += graph.nodes[segment.node].size_bytes
    moved = sum(read.values()) + written
    time = (
        moved / target.bytes_per_ns
        + (light + reduced) * target.light_ns
        + expensive * target.expensive_ns
        + (nest.rows * target.row_ns if any(mapping.inner > target.unroll_row for _, mapping in nest.placed) else 0)
    )
    accessed = [graph.nodes[node] for node in {*read, *nest.computes()}]
    widest = max((node.dtype.size_bytes for node in accessed if node.element_count > 1), default=4)
    return NestCost(sum(read.values()), written, time, widest)
