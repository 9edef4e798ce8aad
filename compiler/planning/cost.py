"""What a nest costs: bytes moved, ops computed, nanoseconds; and how many rows make a task."""

from __future__ import annotations

import math
from typing import NamedTuple

from ..ir.graph import Graph
from ..ir.index_maps import Index
from ..ops.table import OPS, Cost
from ..targets.targets import GpuTarget, Target
from .access import Apply, trace
from .mapping import SegmentKind, spans_rows
from .schemes import Nest, Placement, mapped_roots, within

LANE_ALIGNMENT = 64
"""Rows that are lanes are cut at multiples of the widest vector, so that no task but the last one has a rest that scalar code must
compute."""
MIN_PARTIAL_NS = 4_000  # a task that leaves partial results should do at least this much


class NestCost(NamedTuple):
    """Bytes read and written (each tensor once), time on one core, and the cut into tasks."""

    bytes_read: int
    bytes_written: int
    one_core_ns: float
    rows_per_task: int


def nest_cost(graph: Graph, placement: Placement, nest: Nest, target: Target) -> NestCost:
    """The cost of `nest`: traffic over the core's bandwidth plus arithmetic plus the start of each row. Additive,
    because on one core without software prefetch the two overlap little for rows that fit L1."""
    read: dict[int, int] = {}
    written = light = expensive = reduced = 0
    row = Index.of_var(nest.row)
    for segment, mapping in nest.placed:
        inner = Index.of_var(within(mapping.inner))
        steps = trace(graph, mapped_roots(graph, segment, mapping, row, inner), placement.stored_in(nest))
        for request, step in steps.steps.items():
            if isinstance(step, Apply):
                varying = segment.size if request.position else 1
                if OPS[graph.nodes[request.node].op].cost is Cost.EXPENSIVE:
                    expensive += varying
                else:
                    light += varying
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
    partial = any(spans_rows(segment, mapping) for segment, mapping in nest.placed)
    accessed = [graph.nodes[node] for node in {*read, *nest.computes()}]
    widest = max((node.dtype.size_bytes for node in accessed if node.element_count > 1), default=4)
    rows_per_task = _rows_per_task(nest, time, partial, target, widest)
    return NestCost(sum(read.values()), written, time, rows_per_task)


def _rows_per_task(nest: Nest, time_ns: float, partial: bool, target: Target, widest: int) -> int:
    """widest: bytes of an element of the widest tensor."""
    if any(segment.kind is SegmentKind.SCATTER for segment, _ in nest.placed):
        return max(nest.rows, 1)
    if isinstance(target, GpuTarget):
        return _rows_per_group(nest, partial, target, widest)
    wanted = MIN_PARTIAL_NS if partial else target.task_ns
    tasks = max(1, min(nest.rows, int(time_ns / wanted)))
    if partial:
        tasks = min(tasks, target.partial_tasks)
    rows = math.ceil(nest.rows / tasks)
    if rows < nest.rows and max(mapping.inner for _, mapping in nest.placed) <= target.unroll_row:
        rows = -(-rows // LANE_ALIGNMENT) * LANE_ALIGNMENT
    return max(rows, 1)


def _rows_per_group(nest: Nest, partial: bool, target: GpuTarget, widest: int) -> int:
    """On a GPU a task is one group of threads at work: as many as the device holds, where each leaves partial results (AStitch's
    vertical packing); else one row, or one flat stretch of a block's threads, of as many bytes whatever the elements."""
    longest = max(mapping.inner for _, mapping in nest.placed)
    flat = longest == 1 or (longest <= target.unroll_row and nest.rows >= 4 * target.lanes)
    least = target.block * target.flat_per_thread * max(1, 4 // widest) if flat else 1
    if not partial:
        return least
    rows = max(least, -(-nest.rows // target.partial_tasks))
    return -(-rows // LANE_ALIGNMENT) * LANE_ALIGNMENT if flat else rows  # so that a task's elements go in vectors
