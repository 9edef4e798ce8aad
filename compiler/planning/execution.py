"""How a nest is executed: its mode, its rows and tasks, and its cost. This is decided only here; lowering dispatches on it, and
`explain` prints it.

    nest ── a scatter or a scan ─────────────────────────────> SCATTER (on a CPU with turns), OWNERS; SCAN, SCAN_LANES
         ── on a GPU, a tensor is read across memory ────────> TILED_TRANSPOSE
         ── rows are too short for a loop each ──────────────> LANES; on a CPU with copies (lanes_together) if that helps
         ── on a CPU, a tensor is read across memory ────────> SQUARES; ROWS with copies (turns) if these do not fit
         ── else ────────────────────────────────────────────> ROWS
    the partial results of a nest's tasks ───────────────────> BLOCKS, ONE, COLUMNS

Nothing here depends on the number of threads of a job: tasks, and so the order of a sum, follow from shapes and the device.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..ir.graph import DType, Graph, Node
from ..ir.index_maps import Index
from ..ops.attributes import attribute
from ..ops.propagation import Apply, ElementRequest, LoadOwn, sources
from ..ops.table import OPS, Cost
from ..targets.targets import WARP, CpuTarget, GpuTarget, Target
from .access import trace
from .cost import NestCost
from .families import Family
from .mapping import LANE_ALIGNMENT, SegmentKind, spans_rows
from .placement import Nest, mapped_roots, within
from .products import RowProduct, row_products
from .scatters import scatter_work, searches
from .transposes import (
    BLOCK_ROWS,
    FEWEST_TURNED,
    Placed,
    TiledTranspose,
    Turns,
    lanes_together,
    order_across_memory,
    panel_rows_of,
    tiled_transpose_of,
    turns_of,
)

MIN_PARTIAL_NS = 4_000
"""A CPU's task that stores partial results has at least this much work."""
INDEX_NS = 4.0
"""Estimated time that a scatter needs per index, besides the update of the window."""
SECTOR_BYTES = 32
"""The least that a GPU's memory and caches move (CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory")."""
BLOCK_COLUMNS = 32
"""The most neighbouring results that a GPU's block computes: one for each thread of a warp."""


class Mode(enum.Enum):
    """How the code of a nest runs over its rows. BLOCKS, ONE and COLUMNS combine partial results; they execute no nest of the
    plan."""

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


WAVES = 4
"""If each of the blocks that a GPU runs at once has at least this many tasks, tasks of flat elements are twice as long."""


@dataclass(frozen=True)
class Execution:
    """How a nest is executed.

    rows: of the code. They are the nest's except for a family (the rows of all components, end to end), TILED_TRANSPOSE (tiles),
    SCATTER and OWNERS (pieces of windows), and combinations (results). cost_ns: on one core of a CPU, or on the whole GPU.
    keeps_tasks: tasks must stay separate, because each stores partial results of its own or is the task of one block. order and
    panel_rows (see transposes.py) are for SQUARES only, transpose is for TILED_TRANSPOSE, columns for COLUMNS. row_products: by node,
    the products of a CPU's mode ROWS that are computed by rows; rows_together: the number of rows for which these are computed at
    once; numbers_together: the number of rows whose expensive numbers are computed at once, as vectors; passes_together: the number
    of rows of which each pass is done before the next one begins (all three: lowering/row_blocks.py). busy_rows: the number of rows
    that keep a GPU busy, for its mode ROWS; if there are fewer, lowering makes rows of the iterations of a loop over the row, if it
    can (lowering/spread.py). turns: how a CPU's modes ROWS and SCATTER copy what they read across memory. lanes_together: the number
    of rows whose elements a CPU's mode LANES copies at once, transposed (lowering/turned_lanes.py)."""

    mode: Mode
    rows: int
    rows_per_task: int
    cost_ns: float
    keeps_tasks: bool = False
    order: Index | None = None
    panel_rows: int = 0
    transpose: TiledTranspose | None = None
    columns: int = 0
    row_products: Mapping[int, RowProduct] = field(default_factory=dict)
    rows_together: int = 1
    numbers_together: int = 1
    passes_together: int = 1
    busy_rows: int = 0
    turns: Turns | None = None
    lanes_together: int = 1

    @property
    def tasks(self) -> int:
        """Number of tasks."""
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
    """How a nest is executed. placed: the nest's segments whose results must be stored, with their mappings. stored: whether the nest
    reads a node from memory."""
    first, mapping = nest.placed[0]
    if first.kind is SegmentKind.SCATTER:
        return _scatter(graph, graph.nodes[first.node], target)
    partial = any(spans_rows(segment, mapping) for segment, mapping in nest.placed)
    lanes = is_lane_wise(graph, nest, target)
    together = lanes_together(graph, nest, placed, stored, target, lanes) if family is None else 1
    lanes |= together > 1
    per_task = rows_per_task(nest, cost, partial, lanes, target, nest.rows if family is None else family.rows)
    if first.kind is SegmentKind.SCAN:
        extent = graph.nodes[first.node].shape[attribute(graph.nodes[first.node], "dimension", int)]
        is_short = mapping.inner == extent <= target.unroll_row
        return Execution(Mode.SCAN_LANES if is_short else Mode.SCAN, nest.rows, per_task, cost.one_core_ns)
    if isinstance(target, GpuTarget) and family is None:
        tiled = tiled_transpose_of(graph, nest, placed, stored, target)
        if tiled is not None:
            return Execution(Mode.TILED_TRANSPOSE, tiled.count, 1, cost.one_core_ns, transpose=tiled)
    if family is not None:
        if isinstance(target, CpuTarget):
            per_task = max(1, round(target.task_ns / (cost.one_core_ns / nest.rows) / LANE_ALIGNMENT)) * LANE_ALIGNMENT
        return Execution(Mode.LANES, family.rows, per_task, cost.one_core_ns / nest.rows * family.elements, partial)
    if lanes:
        return Execution(Mode.LANES, nest.rows, per_task, cost.one_core_ns, partial, lanes_together=together)
    products = row_products(graph, nest, stored, target)
    order = order_across_memory(graph, nest, placed, stored, target)
    turns = turns_of(graph, nest, stored, target, order is not None) if not products else None
    if turns is not None:
        if per_task < nest.rows:
            per_task = -(-per_task // turns.rows) * turns.rows  # whole blocks
        return Execution(Mode.ROWS, nest.rows, per_task, cost.one_core_ns, partial, turns=turns)
    if order is None:
        together = rows_together(graph, nest) if products else 1
        if per_task < nest.rows:
            per_task = -(-per_task // together) * together  # whole blocks
        is_full = isinstance(target, CpuTarget) and per_task >= FEWEST_NUMBERS
        numbers = not products and is_full and has_expensive_numbers(graph, nest, stored)
        passes = 1 if products or numbers else passes_together(graph, nest, target)
        if per_task < nest.rows:
            per_task = -(-per_task // passes) * passes
        busy = target.multiprocessors * target.busy_threads // WARP if isinstance(target, GpuTarget) else 0
        return Execution(
            Mode.ROWS,
            nest.rows,
            per_task,
            cost.one_core_ns,
            partial,
            row_products=products,
            rows_together=together,
            numbers_together=NUMBERS_TOGETHER if numbers else 1,
            passes_together=passes,
            busy_rows=busy,
        )
    if per_task < nest.rows:
        per_task = -(-per_task // BLOCK_ROWS) * BLOCK_ROWS  # whole squares
    panel = panel_rows_of(graph, nest, placed, order, target)
    return Execution(Mode.SQUARES, nest.rows, per_task, cost.one_core_ns, partial, order=order, panel_rows=panel)


PRODUCT_ROWS = (6, 4)
"""Rows of a matrix product that are computed at once: six rows of two vectors are 12 sums, which hide the latency of an addition with
16 registers to hold them (the micro-kernel of BLIS for AVX2: 6 x 16). Fewer where a batch's products have no multiple of six rows."""


def rows_together(graph: Graph, nest: Nest) -> int:
    """Number of rows for which the products of a nest are computed at once; 1 if neighbouring rows belong to different products of a
    batch."""
    products = [
        (graph.nodes[segment.node], mapping)
        for segment, mapping in nest.placed
        if graph.nodes[segment.node].op == "dot"
    ]
    for rows in PRODUCT_ROWS:
        if nest.rows >= rows and all(
            nest.rows * node.shape[-1] == node.element_count and (len(node.shape) == 2 or node.shape[-2] % rows == 0)
            for node, _ in products
        ):
            return rows
    return 1


NUMBERS_TOGETHER = LANE_ALIGNMENT
"""Rows whose expensive numbers are computed at once."""
FEWEST_NUMBERS = 16
"""With fewer rows in a task, a vector of their numbers would not be full."""


PASSES_TOGETHER = 8
"""Rows of which each pass is done before the next one begins."""
LONGEST_OF_PASSES, LONGEST_OF_FUNCTIONS = 100, 64
"""The longest rows for which that pays, and those with a function such as exp."""
MOST_OF_PASSES = 4 << 20
"""The most bytes of a tensor for which it does. Larger ones are not in the caches: their passes prefetch (codegen/cpu/forms.py)."""


def passes_together(graph: Graph, nest: Nest, target: Target) -> int:
    """The number of rows of which a CPU does each pass before the next one; 1 if none. A pass ends with a sum or a maximum of lanes,
    for which a short row's next pass would wait; the next row's pass does not. Measured on a Zen 4 (AVX-512, one core, 262,144
    elements in rows of 32 to 64): a normalization becomes 1.1 to 1.5 times as fast, its gradient 1.1 to 1.6, softmax 1.1 to 1.2. The
    gradient of a softmax, which is one sum, became slower."""
    sums = [
        segment
        for segment, mapping in nest.placed
        if segment.kind is SegmentKind.REDUCE and mapping.inner > 1 and not spans_rows(segment, mapping)
    ]
    if not isinstance(target, CpuTarget) or len(sums) < 2 or nest.rows < 4 * PASSES_TOGETHER:
        return 1
    has_function = any(OPS[graph.nodes[node].op].cost is Cost.EXPENSIVE for node in nest.slices)
    longest = max(mapping.inner for _, mapping in nest.placed)
    largest = max(graph.nodes[node].size_bytes for node in {*nest.reads, *nest.computes()})
    is_short = longest <= (LONGEST_OF_FUNCTIONS if has_function else LONGEST_OF_PASSES)
    return PASSES_TOGETHER if is_short and largest <= MOST_OF_PASSES else 1


def has_expensive_numbers(graph: Graph, nest: Nest, stored: Callable[[int], bool]) -> bool:
    """Whether a row has a number that takes a function such as exp, and that depends on no result of the row itself. Row by row, it
    would be computed by scalar instructions. stored: whether the nest reads a node from memory or from its own row results."""
    here = nest.computes()
    for segment, mapping in nest.placed:
        inner = Index.of_var(within(mapping.inner))
        steps = trace(graph, mapped_roots(graph, segment, mapping, Index.of_var(nest.row), inner), stored)
        numbers: set[ElementRequest] = set()
        for request, step in steps.steps.items():
            variables = request.variables
            is_result = isinstance(step, LoadOwn) and request.node in here
            if request.guard or is_result or not variables <= {nest.row} or not numbers.issuperset(sources(step)):
                continue
            numbers.add(request)
            if variables and isinstance(step, Apply) and OPS[graph.nodes[request.node].op].cost is Cost.EXPENSIVE:
                return True
    return False


def is_lane_wise(graph: Graph, nest: Nest, target: Target) -> bool:
    """Whether the rows themselves are the lanes of a vector loop, because they are too short for a loop each."""
    longest = max(mapping.inner for _, mapping in nest.placed)
    if any(graph.nodes[segment.node].op == "dot" for segment, _ in nest.placed):
        return False  # a row of a product is at least a loop
    if longest == 1:
        return True
    shared = any(spans_rows(segment, mapping) for segment, mapping in nest.placed)
    longest_shared = FEWEST_TURNED - 1 if isinstance(target, CpuTarget) else 4
    return longest <= (longest_shared if shared else target.unroll_row) and nest.rows >= 4 * target.lanes


def rows_per_task(nest: Nest, cost: NestCost, partial: bool, lanes: bool, target: Target, rows_in_all: int) -> int:
    """Number of rows per task; the last task may have fewer. partial: each task stores partial results. lanes: the rows are the
    lanes of a vector loop. rows_in_all: of the nest, or of all components of its family."""
    if isinstance(target, GpuTarget):
        return _rows_per_group(nest, cost, partial, lanes, target, rows_in_all)
    assert isinstance(target, CpuTarget)
    wanted = MIN_PARTIAL_NS if partial else target.task_ns
    tasks = max(1, min(nest.rows, int(cost.one_core_ns / wanted)))
    if partial:
        tasks = min(tasks, target.partial_tasks)
    rows = math.ceil(nest.rows / tasks)
    if rows < nest.rows and lanes:
        rows = -(-rows // LANE_ALIGNMENT) * LANE_ALIGNMENT
    return max(rows, 1)


def _rows_per_group(nest: Nest, cost: NestCost, partial: bool, lanes: bool, target: GpuTarget, rows_in_all: int) -> int:
    """Rows per task on a GPU, where a task is what one group of threads does. With partial results there are as many tasks as groups
    that run at once (AStitch's vertical packing). Without them a task is one row, or one flat run of elements for a block's threads,
    of the same number of bytes for every dtype: fewer where one element per thread already occupies no more than the whole device,
    and more where all blocks still have several tasks, so that a thread loads two vectors before it waits for one."""
    least = target.block * target.flat_per_thread * max(1, 4 // cost.widest) if lanes else 1
    if not partial:
        if not lanes or max(mapping.inner for _, mapping in nest.placed) > 1:
            return least
        if rows_in_all <= target.block * target.multiprocessors:
            return target.block
        return 2 * least if rows_in_all >= 2 * least * WAVES * target.row_slots else least
    rows = max(least, -(-nest.rows // target.partial_tasks))
    return -(-rows // LANE_ALIGNMENT) * LANE_ALIGNMENT if lanes else rows  # so that a task's elements go in vectors


def _scatter(graph: Graph, node: Node, target: Target) -> Execution:
    work = scatter_work(graph, node)
    updates = graph.nodes[node.operands[2]]
    moved = updates.element_count * (target.light_ns + 2 * node.dtype.size_bytes / target.bytes_per_ns)
    cost = moved + INDEX_NS * work.count
    if isinstance(target, GpuTarget) and work.windows_meet_whole and work.count > 1:
        cost = moved + searches(graph, node).tests * target.light_ns
        return Execution(Mode.OWNERS, work.count * work.pieces, 1, cost)
    return Execution(
        Mode.SCATTER, work.pieces, 1, cost, turns=Turns(1, None) if isinstance(target, CpuTarget) else None
    )


def flat_execution(rows: int, moved: int, target: Target) -> Execution:
    """How a flat loop over `rows` elements, which moves `moved` bytes, is executed on a GPU: with fewer elements per thread if some
    multiprocessors would have none."""
    assert isinstance(target, GpuTarget)
    per_task = target.block * max(1, min(target.flat_per_thread, rows // (target.block * target.multiprocessors)))
    return Execution(Mode.LANES, rows, per_task, rows * target.light_ns + moved / target.bytes_per_ns)


def combination(count: int, parts: int, dtype: DType, target: Target) -> Execution:
    """How `count` results are combined from `parts` partial results each. The partial results are an array of `dtype` with the shape
    [parts, count]."""
    cost = parts * count * (target.light_ns + dtype.size_bytes / target.bytes_per_ns)
    if isinstance(target, CpuTarget):
        per_task = max(1, math.ceil(count * target.task_ns / max(cost, 1)))
        per_task = min(count, -(-per_task // LANE_ALIGNMENT) * LANE_ALIGNMENT)
        return Execution(Mode.BLOCKS, count, per_task, cost)
    assert isinstance(target, GpuTarget)
    if count >= target.multiprocessors * target.busy_threads:
        return Execution(Mode.BLOCKS, count, min(count, target.block), cost)
    if count == 1:
        return Execution(Mode.ONE, 1, 1, cost)
    columns = _columns(count, parts, dtype, target)
    return Execution(Mode.COLUMNS, -(-count // columns) * parts, parts, cost, keeps_tasks=True, columns=columns)


def _columns(count: int, parts: int, dtype: DType, target: GpuTarget) -> int:
    """Results per block: one sector's worth, or more as long as every multiprocessor still gets a block, or if a block's threads
    would otherwise have no part to work on."""
    columns = SECTOR_BYTES // dtype.size_bytes
    while columns < BLOCK_COLUMNS and (count > 2 * columns * target.multiprocessors or parts * columns < target.block):
        columns *= 2
    return min(columns, count)
