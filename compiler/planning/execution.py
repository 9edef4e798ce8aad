"""How a nest is executed: its mode, its rows and tasks, and what it costs. Decided here and nowhere else; lowering dispatches on it,
`explain` prints it.

    nest ── a scatter or a scan ─────────────────────────────> SCATTER, OWNERS; SCAN, SCAN_LANES
         ── on a GPU, a tensor read across ──────────────────> TILED_TRANSPOSE
         ── rows too short to be worth a loop each ──────────> LANES
         ── on a CPU, a tensor read across ──────────────────> SQUARES
         ── else ────────────────────────────────────────────> ROWS
    partial results of a nest's tasks ───────────────────────> BLOCKS, ONE, COLUMNS

Nothing here depends on how many threads a job has: tasks, and with them the order of a sum, follow from shapes and the device.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass

from ..ir.graph import DType, Graph, Node
from ..ir.index_maps import Index
from ..ops.attributes import attribute
from ..targets.targets import GpuTarget, Target
from .cost import NestCost
from .families import Family
from .mapping import LANE_ALIGNMENT, SegmentKind, spans_rows
from .placement import Nest
from .scatters import scatter_work
from .transposes import BLOCK_ROWS, Placed, TiledTranspose, order_across_memory, tiled_transpose_of

MIN_PARTIAL_NS = 4_000
"""A task that leaves partial results should do at least this much."""
MOST_OWNERS = 1 << 15
"""Indices of a scatter above which looking for a place's owner, all by all, costs more than it saves."""
INDEX_NS = 4.0
"""What a scatter takes for an index, beside its window."""
SECTOR_BYTES = 32
"""What a GPU's memory and caches move at least (CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory")."""
MOST_COLUMNS = 32
"""Neighbouring results that a GPU's block takes at most: one for each thread of a warp."""


class Mode(enum.Enum):
    """How the code of a nest goes through its rows. `is_combination`: of partial results, not of a nest of the plan."""

    LANES = "rows are the lanes"
    ROWS = "row by row"
    SQUARES = "squares of rows"
    TILED_TRANSPOSE = "tiles through shared memory"
    SCATTER = "windows, each through all indices"
    OWNERS = "indices, of which each place has an owner"
    SCAN = "row by row, in order"
    SCAN_LANES = "rows are the lanes, in order"
    BLOCKS = "neighbouring results, through the parts"
    ONE = "one result, its parts shared"
    COLUMNS = "columns of results, their parts shared"


@dataclass(frozen=True)
class Execution:
    """rows: of the code, which are not the nest's where it turns squares or scatters, and those of all components of a family, end
    to end. cost_ns: on one core of a CPU; on a GPU, of the whole device. keeps_tasks: tasks must be kept apart, as each leaves
    partial results of its own or is a block's. order: SQUARES'; transpose: TILED_TRANSPOSE's; columns: COLUMNS'."""

    mode: Mode
    rows: int
    rows_per_task: int
    cost_ns: float
    keeps_tasks: bool = False
    order: Index | None = None
    transpose: TiledTranspose | None = None
    columns: int = 0

    @property
    def tasks(self) -> int:
        return -(-self.rows // self.rows_per_task)


def execution_of(
    graph: Graph,
    nest: Nest,
    placed: Placed,
    stored: Callable[[int], bool],
    cost: NestCost,
    family: Family | None,
    target: Target,
) -> Execution:
    """The execution of a nest. placed: those of its segments that something must be stored of. stored: which nodes it reads from
    memory."""
    first, mapping = nest.placed[0]
    if first.kind is SegmentKind.SCATTER:
        return _scatter(graph, graph.nodes[first.node], target)
    partial = any(spans_rows(segment, mapping) for segment, mapping in nest.placed)
    lanes = is_lane_wise(nest, target)
    per_task = rows_per_task(nest, cost, partial, lanes, target)
    if first.kind is SegmentKind.SCAN:
        extent = graph.nodes[first.node].shape[attribute(graph.nodes[first.node], "dimension", int)]
        is_short = mapping.inner == extent <= target.unroll_row
        return Execution(Mode.SCAN_LANES if is_short else Mode.SCAN, nest.rows, per_task, cost.one_core_ns)
    if isinstance(target, GpuTarget) and family is None:
        tiled = tiled_transpose_of(graph, nest, placed, stored, target)
        if tiled is not None:
            return Execution(Mode.TILED_TRANSPOSE, tiled.count, 1, cost.one_core_ns, transpose=tiled)
    if family is not None:
        if not isinstance(target, GpuTarget):
            per_task = max(1, round(target.task_ns / (cost.one_core_ns / nest.rows) / LANE_ALIGNMENT)) * LANE_ALIGNMENT
        return Execution(Mode.LANES, family.rows, per_task, cost.one_core_ns / nest.rows * family.elements, partial)
    if lanes:
        return Execution(Mode.LANES, nest.rows, per_task, cost.one_core_ns, partial)
    order = order_across_memory(graph, nest, placed, stored, target)
    if order is None:
        return Execution(Mode.ROWS, nest.rows, per_task, cost.one_core_ns, partial)
    if per_task < nest.rows:
        per_task = -(-per_task // BLOCK_ROWS) * BLOCK_ROWS  # whole squares
    return Execution(Mode.SQUARES, nest.rows, per_task, cost.one_core_ns, partial, order=order)


def is_lane_wise(nest: Nest, target: Target) -> bool:
    """Whether the rows themselves are the lanes: they are too short to be worth a loop each."""
    longest = max(mapping.inner for _, mapping in nest.placed)
    if longest == 1:
        return True
    shared = any(spans_rows(segment, mapping) for segment, mapping in nest.placed)
    return longest <= target.unroll_row and nest.rows >= 4 * target.lanes and not (shared and longest > 4)


def rows_per_task(nest: Nest, cost: NestCost, partial: bool, lanes: bool, target: Target) -> int:
    """Rows of a task. partial: each task leaves partial results. lanes: rows are the lanes."""
    if isinstance(target, GpuTarget):
        return _rows_per_group(nest, cost, partial, lanes, target)
    wanted = MIN_PARTIAL_NS if partial else target.task_ns
    tasks = max(1, min(nest.rows, int(cost.one_core_ns / wanted)))
    if partial:
        tasks = min(tasks, target.partial_tasks)
    rows = math.ceil(nest.rows / tasks)
    if rows < nest.rows and lanes:
        rows = -(-rows // LANE_ALIGNMENT) * LANE_ALIGNMENT
    return max(rows, 1)


def _rows_per_group(nest: Nest, cost: NestCost, partial: bool, lanes: bool, target: GpuTarget) -> int:
    """On a GPU a task is one group of threads at work: as many as the device holds, where each leaves partial results (AStitch's
    vertical packing); else one row, or one flat stretch of a block's threads, of as many bytes whatever the elements."""
    least = target.block * target.flat_per_thread * max(1, 4 // cost.widest) if lanes else 1
    if not partial:
        return least
    rows = max(least, -(-nest.rows // target.partial_tasks))
    return -(-rows // LANE_ALIGNMENT) * LANE_ALIGNMENT if lanes else rows  # so that a task's elements go in vectors


def _scatter(graph: Graph, node: Node, target: Target) -> Execution:
    work = scatter_work(graph, node)
    updates = graph.nodes[node.operands[2]]
    moved = updates.element_count * (target.light_ns + 2 * node.dtype.size_bytes / target.bytes_per_ns)
    cost = moved + INDEX_NS * work.count
    if isinstance(target, GpuTarget) and work.windows_meet_whole and 1 < work.count <= MOST_OWNERS:
        return Execution(Mode.OWNERS, work.count * work.pieces, 1, cost)
    return Execution(Mode.SCATTER, work.pieces, 1, cost)


def combination(count: int, parts: int, dtype: DType, target: Target) -> Execution:
    """How `count` results of `parts` partial ones each are combined, which lie in memory as one row of results for each part."""
    cost = parts * count * (target.light_ns + dtype.size_bytes / target.bytes_per_ns)
    if not isinstance(target, GpuTarget):
        per_task = max(1, math.ceil(count * target.task_ns / max(cost, 1)))
        per_task = min(count, -(-per_task // LANE_ALIGNMENT) * LANE_ALIGNMENT)
        return Execution(Mode.BLOCKS, count, per_task, cost)
    if count >= target.multiprocessors * target.busy_threads:
        return Execution(Mode.BLOCKS, count, min(count, target.block), cost)
    if count == 1:
        return Execution(Mode.ONE, 1, 1, cost)
    columns = _columns(count, parts, dtype, target)
    return Execution(Mode.COLUMNS, -(-count // columns) * parts, parts, cost, keeps_tasks=True, columns=columns)


def _columns(count: int, parts: int, dtype: DType, target: GpuTarget) -> int:
    """Results of a block: a sector's, or more while that leaves a block for each multiprocessor or groups without a row."""
    columns = SECTOR_BYTES // dtype.size_bytes
    while columns < MOST_COLUMNS and (count > 2 * columns * target.multiprocessors or parts * columns < target.block):
        columns *= 2
    return min(columns, count)
