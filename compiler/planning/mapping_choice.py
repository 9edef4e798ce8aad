"""How a segment that starts a nest is mapped: which of its elements make a row (AStitch section 3.3: horizontal and vertical
packing, splitting)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from ..ir.graph import Graph
from ..ops.attributes import attribute
from ..support.divisors import divisor_near
from ..support.sequences import zip_strict
from ..targets.targets import GpuTarget, Target
from .access import Trace
from .mapping import RowMap, Segment, SegmentDigit, SegmentKind, boundaries, row_map, side_by_side, top_rows

MIN_ROW: int = 64  # with fewer elements in a row, starting the row costs more than its work
MIN_ROWS: int = 8  # with fewer rows, a nest cannot keep a machine's cores busy
MIN_TOGETHER: int = 16  # with fewer results of a reduce_window in a row, one loop over all of them is better
MOST_SCANNED: int = 512  # most neighbours in one row of a scan: their accumulators stay in L1
FEWEST_SCANNED: int = 32  # the fewest: two cache lines of floats, because each step waits for the previous one
MOST_PRODUCT_COLUMNS: int = 4096  # most columns of a product in one row: their sums stay in L1
LARGE_FACTOR: int = 1 << 16  # elements of a right factor that takes longer to read than threads to wake
STRIP_COLUMNS: int = 256  # columns of a single row times such a factor that make a row: 16 vectors of AVX-512
LONGEST_UNCUT_ROW: int = 8192  # a longer element-wise row is cut, so that there are enough rows


def choose(graph: Graph, segment: Segment, steps: Trace, target: Target, kin: Callable[[], set[int]] = set) -> RowMap:
    """The mapping of a segment that starts a nest. `steps`: what it reads, in terms of its linear element. `kin`: returns the strides
    at which segments that may join the nest split the element; it is called only if this segment splits it nowhere."""
    node = graph.nodes[segment.node]
    size = segment.size
    if segment.kind is SegmentKind.SCATTER:
        return top_rows(size, size)
    if segment.kind is SegmentKind.SCAN:
        return _scan_map(segment, attribute(node, "dimension", int), target)
    loads = steps.loads()
    cuts = boundaries((flat for _, flat in loads), segment.variable)
    if not segment.reduces:
        # Pieces that are joined or padded may all be read at one stride; then their conditions alone split the element.
        conditions = (bound.index for request, _ in loads for bound in request.guard)
        return _choose_elementwise(size, cuts or boundaries(conditions, segment.variable) or kin())
    if node.op == "reduce" and segment.flags() and all(reduced for _, reduced in segment.flags()):
        return _choose_elementwise(size, cuts)  # a full reduction: every task leaves a partial result
    if node.op == "dot":
        return _product_map(segment)
    if node.op == "reduce_general" and isinstance(target, GpuTarget):
        return _variadic_map(segment)
    together = side_by_side(graph, segment.node) if node.op == "reduce_window" else None
    for candidate in _reduction_maps(segment, node.op == "reduce", together, cuts, target):
        if candidate is not None:
            return candidate
    raise AssertionError("the mapping with one row per result always exists")


def _scan_map(segment: Segment, dimension: int, target: Target) -> RowMap:
    """A row is the whole scanned dimension for some neighbours side by side: so many that each step fills vectors, and so few that
    there are rows for all threads."""
    extent, inner = segment.space[dimension], math.prod(segment.space[dimension + 1 :])
    outer = math.prod(segment.space[:dimension])
    beside = inner if inner <= MOST_SCANNED else divisor_near(inner, MOST_SCANNED)
    wanted = max(MIN_ROWS, target.row_slots)
    while outer * inner // beside < wanted and beside >= 2 * FEWEST_SCANNED:
        fewer = divisor_near(inner, beside // 2)
        if fewer < FEWEST_SCANNED:
            break
        beside = fewer
    kept = [SegmentDigit(beside, inner // beside), SegmentDigit(extent * inner, outer)]
    found = _one_row_each(segment.size, kept)
    assert found is not None
    return found


def _choose_elementwise(size: int, cuts: set[int]) -> RowMap:
    usable = sorted(cut for cut in cuts if size % cut == 0)
    if not usable:
        return top_rows(size, 1)  # one flat loop
    inner = next((cut for cut in usable if cut >= MIN_ROW), usable[-1])
    if inner > LONGEST_UNCUT_ROW or (size // inner < MIN_ROWS and inner > 2 * MIN_ROW):
        wanted = max(MIN_ROW, min(LONGEST_UNCUT_ROW, inner * (size // inner) // (4 * MIN_ROWS)))
        # Whole pieces: a row that ends within one would take a division for each element to know where it is.
        piece = math.lcm(*(cut for cut in usable if cut < inner and inner % cut == 0))
        cut = piece * divisor_near(inner // piece, -(-wanted // piece))
        inner = cut if cut >= MIN_ROW else inner
    return top_rows(size, inner)


def _product_map(segment: Segment) -> RowMap:
    """A row of a matrix product is a row, with all of its columns if they are no more than MOST_PRODUCT_COLUMNS. If the product has a
    single row and a large right factor, strips of columns are rows, for several threads."""
    *batch, terms, columns = segment.space
    most = STRIP_COLUMNS if math.prod(batch) == 1 and terms * columns > LARGE_FACTOR else MOST_PRODUCT_COLUMNS
    run = columns if columns <= most else divisor_near(columns, most)
    stride = terms * columns
    found = _one_row_each(
        segment.size, [SegmentDigit(run, columns // run), SegmentDigit(stride, segment.size // stride)]
    )
    assert found is not None
    return found


def _variadic_map(segment: Segment) -> RowMap:
    """The mapping of a variadic reduction on a GPU, which keeps its order. A group of threads computes each result, each thread
    folding a stretch; or, if neighbouring results read neighbouring elements, a group computes several results, each thread folding
    its own."""
    flags = segment.flags()
    strides = [math.prod(extent for extent, _ in flags[:i]) for i in range(len(flags))]
    kept = [SegmentDigit(stride, extent) for stride, (extent, reduced) in zip_strict(strides, flags) if not reduced]
    if flags and not flags[0][1]:
        run = divisor_near(flags[0][0], MIN_ROW)
        if run >= MIN_TOGETHER or run == flags[0][0]:
            kept[0] = SegmentDigit(run, flags[0][0] // run)
    found = _one_row_each(segment.size, kept)
    assert found is not None
    return found


def _reduction_maps(
    segment: Segment, splittable: bool, together: int | None, cuts: set[int], target: Target
) -> Iterator[RowMap | None]:
    """Mappings for a reduction, best first. The last one, one row per result element, is always possible. together: for a
    reduce_window, how many neighbouring results can share a row; None for other ops. cuts: the strides at which the loads split the
    element."""
    flags = segment.flags()
    strides = [math.prod(extent for extent, _ in flags[:i]) for i in range(len(flags))]
    blocks = [SegmentDigit(stride, extent) for stride, (extent, _) in zip_strict(strides, flags)]
    kept = [block for block, (_, reduced) in zip_strict(blocks, flags) if not reduced]
    kept_size = math.prod(block.extent for block in kept)
    accumulators = kept_size * 4
    size = segment.size
    if flags and not flags[-1][1]:
        # The outermost block is kept: it makes the rows, if there are many and the accumulators of one fit a tile.
        rows = blocks[-1].extent
        if kept_size // rows * 4 <= target.tile_bytes and (rows >= MIN_ROWS or rows == kept_size):
            yield top_rows(size, size // rows)
    if flags and splittable and flags[-1][1]:
        # The outermost block is reduced (column reduce): each task adds up rows, if the columns fit a tile.
        rows = blocks[-1].extent
        if rows >= 2 * MIN_ROWS and accumulators <= target.tile_bytes // 2:
            yield top_rows(size, size // rows)
    if together is not None:
        run = divisor_near(together, target.tile_bytes // 32)
        if flags and not flags[0][1] and run >= min(MIN_TOGETHER, target.lanes):
            yield _one_row_each(size, [SegmentDigit(run, blocks[0].extent // run), *kept[1:]])
    elif flags and not flags[0][1] and blocks[0].extent >= MIN_ROW:
        # The innermost block is kept: cut it into runs that stream well; with all other kept digits they make the rows.
        run = _run_of(blocks[0].extent, max(MIN_ROW, target.tile_bytes // 32), cuts)
        if run >= MIN_ROW:
            yield _one_row_each(size, [SegmentDigit(run, blocks[0].extent // run), *kept[1:]])
    if flags and splittable and flags[-1][1] and accumulators <= target.tile_bytes // 2:
        yield top_rows(size, size // blocks[-1].extent)
    yield _one_row_each(size, kept)


def _run_of(extent: int, wanted: int, cuts: set[int]) -> int:
    """The divisor of `extent` near `wanted` that lies at the cuts, or divides what lies between two: a run that ends elsewhere would
    take divisions for each element to know where it is."""
    pieces = sorted({1, extent, *(cut for cut in cuts if cut < extent and extent % cut == 0)})
    runs = [
        piece * divisor_near(whole // piece, max(1, wanted // piece))
        for piece, whole in zip(pieces, pieces[1:])
        if whole % piece == 0
    ]
    return min(runs, key=lambda run: abs(math.log(run / wanted)), default=divisor_near(extent, wanted))


def _one_row_each(size: int, kept: Sequence[SegmentDigit]) -> RowMap | None:
    parts, weight = [], 1
    for block in kept:
        parts.append(SegmentDigit(block.stride, block.extent, weight))
        weight *= block.extent
    return row_map(size, [part for part in parts if part.extent > 1])
