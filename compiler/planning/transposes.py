"""Nests that read a tensor across memory: neighbours in the tensor belong to different rows of the nest, or are far apart in a row.

    on a CPU   a nest that only computes elements is computed in squares of BLOCK_ROWS rows by BLOCK_ROWS lanes, in the order of
    neighbours in the tensor, so that a cache line that is read for one row is still cached for the next row. If squares do not fit,
    or the nest reduces, what is read across memory is first copied, transposed (`Turns`; lowering/turned_rows.py)
    on a GPU   elements that are adjacent where they are read are far apart where they are written, so they go through a square of
               shared memory: a group of threads reads the square along the tensor's memory, and writes it along the result's

For the GPU, the elements of all tensors that such a nest writes have the same numbers `u`. In a tensor that is read across,
neighbours differ from the neighbours of `u`:

    u = ((outer * down + i) * between + m) * along + j      j: of neighbours in what is written, i: in what is read

This form holds for any transpose, of matrices, of batches of matrices (0, 2, 1), of heads (0, 2, 3, 1), with or without computation
before or after it. A square has `sides` elements of i and of j; a square at the end of a side that is no multiple is filled in part.
The square's rows are an odd number of words apart, so that threads that go down it hit different banks of the memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..ir.graph import DType, Graph
from ..ir.index_maps import Digit, Guard, Index, Var, unravel
from ..loops.loops import shared_room
from ..ops.propagation import Apply, ElementRequest
from ..ops.table import OPS, Cost
from ..targets.targets import CpuTarget, GpuTarget, Target
from .access import trace
from .mapping import SPACE_VARIABLE, RowMap, Segment, SegmentKind, roots_of, spans_rows
from .placement import Nest, within

BLOCK_ROWS = 16
"""Rows of a CPU's square: a cache line of floats."""
SQUARE_LANES = 16
MOST_LANES = 320
"""The most lanes that are transposed at once for a block of rows if they do not divide into squares: 20 KiB of each tensor, which
stay in the first-level cache."""
TURN_BYTES = 32 * 1024
"""Most bytes that are copied, transposed, for a block of rows. They stay in L1."""
TURNED_BYTES = 4
"""Size of the elements that squares are made for."""
FEWEST_TURNED = 8
"""Fewer neighbours or lanes are no square."""
PANEL_ROWS = 256
"""Rows of a panel: for each group of lanes, all squares of the panel are processed before those of the next group. Measured on a
Zen 3 (512 KiB of second-level cache), in times of a copy of the same size: 16,384 x 128, 8.5 with panels of 16 rows, 3.0 with 128,
2.6 with 256, 2.4 with 1024; 2,048 x 512, 4.9, 3.6, 3.5 and 3.3; 1,024 x 1,024, 3.3 to 2.8."""
PANEL_ROW_BYTES = 512
"""The longest rows of a panel. Longer rows are written so far apart that their cache lines evict each other. Measured on a Zen 4 (1
MiB of second-level cache), on one core, with panels and without: rows of 384 bytes, 67 and 119 us; 512 bytes, 202 and 283; 1 KiB, 207
and 113; 2 KiB, 315 and 118; 4 KiB, 423 and 196. On a Zen 3 rows of 2 KiB were faster with panels (3.5 and 4.9, in times of a copy),
as those of 4 KiB were (2.8 and 3.3)."""
FEWEST_IN_ROW = 5
"""Rows of fewer elements are read as they are where rows are lanes: gcc takes vectors of 2, 3 or 4 rows' elements apart."""
FEWEST_IN_SUMMED = 3
"""The same in a nest that also adds up over rows. Measured on a Zen 4 (AVX-512, one core, 262,144 elements): softmax of 3 elements
and its sum over rows 407 us and 190, of 4 456 and 165; without that sum of 3 132 and 181, of 4 125 and 158."""
FEWEST_OF_THREE = 7
"""The same where a row has one sum and no function, and three tensors and more are copied; fewer are read as they are."""
LONGEST_ROW = 31
"""The longest rows that become lanes by copies. Measured on a Zen 4 (AVX-512, one core, 262,144 elements), row by row and as lanes,
in microseconds: softmax of 9 elements 368 and 170, of 16 211 and 145, of 31 309 and 168, of 49 174 and 175; the gradient of a
normalization 358 and 165, 198 and 124, 280 and 147, 134 and 141; the gradient of a softmax, which is one sum and no function, 58 and
123, 33 and 96, 59 and 128."""
MOST_STATEMENTS = 1000
"""The most operations of a row that becomes lanes: its code has no loops."""
LANES_TOGETHER = (128, 64, 32, 16)
"""Rows whose elements are copied at once where rows are lanes."""
CACHE_LINE_ELEMENTS = 16
"""Lanes that are at least this many elements apart use a cache line each."""
FEWEST_NEIGHBOURS = 4
"""With fewer neighbours in a cache line, rows are left in their order."""

Placed = Sequence[tuple[Segment, RowMap]]
"""Segments of a nest whose results must be stored, with their mappings."""


@dataclass(frozen=True)
class Turns:
    """A nest's rows in blocks for which what is read across memory is copied, transposed. rows: of a block; 1 if the neighbours in
    memory belong to one row. within: a block is within a multiple of so many rows, whose elements are neighbours; None: all are."""

    rows: int
    within: int | None


def turns_of(
    graph: Graph, nest: Nest, stored: Callable[[int], bool], target: Target, fits_squares: bool
) -> Turns | None:
    """How a CPU should copy what the nest reads across memory; None if there is nothing or if squares do better. stored: whether the
    nest reads a node from memory. fits_squares: whether there is an order for squares (`order_across_memory`)."""
    if not isinstance(target, CpuTarget):
        return None
    runs: set[int] = set()
    of_row: dict[tuple[int, Index], tuple[int, int]] = {}
    """Loads whose neighbours are in one row: how many, and the bytes that are copied for each of them."""
    of_rows: dict[tuple[int, Index], int] = {}
    """Loads whose neighbours are rows: the bytes that are copied for each row."""
    for segment, mapping in nest.placed:
        if segment.kind not in (SegmentKind.VALUE, SegmentKind.REDUCE):
            return None
        inner = within(mapping.inner)
        roots = roots_of(graph, segment, mapping.point(Index.of_var(nest.row), Index.of_var(inner)))
        for request, flat in trace(graph, roots, stored).loads():
            run = _across(flat, request.guard, nest.row, inner)
            if run is None or graph.nodes[request.node].dtype.size_bytes != TURNED_BYTES:
                continue
            digits = [a for _, a in flat.terms if isinstance(a, Digit) and a.variable == inner]
            if _is_loop_of_squares(run, digits, inner):
                continue
            fits_squares &= [a.extent % SQUARE_LANES for a in digits] == [0]
            if run.variable == nest.row:
                runs.add(run.extent)
                of_rows[request.node, flat] = TURNED_BYTES * math.prod(a.extent for a in digits)
            else:
                each = TURNED_BYTES * math.prod(a.extent for a in digits if a.stride < run.stride)
                of_row[request.node, flat] = (run.extent, each)
    if fits_squares:
        return None
    pays = any(turned_at_once(count, each, TURN_BYTES) for count, each in of_row.values())
    rows = next((rows for rows in (BLOCK_ROWS, BLOCK_ROWS // 2) if sum(of_rows.values()) * rows <= TURN_BYTES), 1)
    shortest = min(runs, default=1)
    if rows == 1 or not runs or any(run % shortest for run in runs):
        return Turns(1, None) if pays else None
    return Turns(rows, shortest if shortest < nest.rows else None)


def lanes_together(
    graph: Graph, nest: Nest, placed: Placed, stored: Callable[[int], bool], target: Target, anyway: bool
) -> int:
    """How many rows' elements a CPU should copy at once, transposed, so that rows are lanes; 1 if it should not. placed: as in
    `order_across_memory`. stored: whether the nest reads a node from memory or from its own row's results. anyway: whether rows are
    lanes also without. If not, they become lanes only if that saves enough: sums across lanes, and vectors that are not full."""
    longest = max(mapping.inner for _, mapping in nest.placed)
    fewest = (
        FEWEST_IN_SUMMED if any(spans_rows(segment, mapping) for segment, mapping in nest.placed) else FEWEST_IN_ROW
    )
    if not isinstance(target, CpuTarget) or not fewest <= longest <= LONGEST_ROW or nest.rows < 4 * target.lanes:
        return 1
    here = nest.computes()
    work, statements = 0, 0
    """work: reductions of a row, those to a maximum twice if gcc finds no vectors, and segments with a function such as exp."""
    reads: list[tuple[ElementRequest, Index, Var]] = []
    for segment, mapping in nest.placed:
        node, inner = graph.nodes[segment.node], within(mapping.inner)
        if segment.kind not in (SegmentKind.VALUE, SegmentKind.REDUCE) or node.op in ("dot", "reduce_window"):
            return 1
        roots = roots_of(graph, segment, mapping.point(Index.of_var(nest.row), Index.of_var(inner)))
        steps = trace(graph, roots, stored)
        made = [graph.nodes[request.node].op for request, step in steps.steps.items() if isinstance(step, Apply)]
        is_sum = segment.kind is SegmentKind.REDUCE and not spans_rows(segment, mapping)
        work += is_sum + any(OPS[op].cost is Cost.EXPENSIVE for op in made)
        work += (
            is_sum and node.attributes.get("kind") in ("max", "min") and node.dtype.is_float and longest < FEWEST_TURNED
        )
        statements += len(made) * mapping.inner
        reads += [(request, flat, inner) for request, flat in steps.loads() if request.node not in here]
    writes = [
        (
            segment.node,
            mapping.point(Index.of_var(nest.row), Index.of_var(within(mapping.inner))),
            within(mapping.inner),
        )
        for segment, mapping in placed
    ]
    accesses = [(request.node, flat, inner) for request, flat, inner in reads if not request.guard] + writes
    copied = {
        (node, flat.constant): inner.extent
        for node, flat, inner in accesses
        if _is_row(graph, node, flat, nest.row, inner, fewest)
    }
    """The elements of a row, by the node and the first one's place."""
    if anyway:
        pays = work >= 2 or (len(copied) >= 3 and longest >= FEWEST_OF_THREE)
    else:
        others = [
            node for node, flat, _ in accesses if (node, flat.constant) not in copied and not _is_plain(flat, nest.row)
        ]
        is_guarded = any(request.guard for request, _, _ in reads)
        pays = work >= 2 and not others and not is_guarded and statements <= MOST_STATEMENTS
    size = TURNED_BYTES * sum(copied.values())
    return next((rows for rows in LANES_TOGETHER if pays and copied and size * rows <= TURN_BYTES), 1)


def _is_row(graph: Graph, node: int, flat: Index, row: Var, inner: Var, fewest: int) -> bool:
    """Whether the elements of a row are neighbours, `fewest` of them and more, and rows follow each other."""
    apart = {atom: coefficient for coefficient, atom in flat.terms}
    along = apart.pop(Digit(inner, 1, inner.extent), 0)
    down = apart.pop(Digit(row, 1, row.extent), 0)
    is_four = graph.nodes[node].dtype.size_bytes == TURNED_BYTES
    return is_four and not apart and along == 1 and down >= inner.extent >= fewest


def _is_plain(flat: Index, row: Var) -> bool:
    """Whether the element is the same in all rows, or one of its row."""
    atoms = {atom for _, atom in flat.terms}
    return atoms <= {Digit(row, 1, row.extent)} or row not in flat.variables


def turned_at_once(count: int, each: int, room: int) -> int:
    """How many of `count` neighbours are copied at once, of `each` bytes, so that they take at most `room` bytes: a divisor of
    `count`, and at least FEWEST_TURNED; 0 if there is none."""
    most = min(count, room // each)
    return next((size for size in range(most, FEWEST_TURNED - 1, -1) if count % size == 0), 0)


def _is_loop_of_squares(run: Digit, digits: Sequence[Digit], inner: Var) -> bool:
    """Whether the neighbours are the iterations of a loop around SQUARE_LANES lanes, which is written in squares as it is."""
    lanes = [a.extent for a in digits if a.stride == 1]
    return run.variable == inner and lanes == [run.stride] == [SQUARE_LANES] and run.extent % SQUARE_LANES == 0


def _across(flat: Index, guard: Guard, row: Var, inner: Var) -> Digit | None:
    """If the lanes of a row read a cache line each in a tensor whose neighbours are elsewhere: the neighbours' digit, of the row or
    of the position in it. The lanes are the position's last digit that moves the element; what comes after it is unrolled, so that a
    guard may test that. None if the guard tests more."""
    digits = [(c, a) for c, a in flat.terms if isinstance(a, Digit)]
    last = min((a.stride for _, a in digits if a.variable == inner), default=1)
    lanes = [(c, a) for c, a in digits if a.variable == inner and a.stride == last]
    side_by_side = [a for c, a in digits if c == 1 and (a.variable == inner or (a.variable == row and a.stride == 1))]
    if len(lanes) != 1 or len(side_by_side) != 1 or len(digits) != len(flat.terms):
        return None
    tested = [atom for bound in guard for _, atom in bound.index.terms]
    if any(not isinstance(a, Digit) or a.variable != inner or a.stride * a.extent > last for a in tested):
        return None
    ((apart, lane),), (run,) = lanes, side_by_side
    is_square = min(lane.extent, run.extent) >= FEWEST_TURNED
    return run if apart >= CACHE_LINE_ELEMENTS and is_square else None


def order_across_memory(
    graph: Graph, nest: Nest, placed: Placed, stored: Callable[[int], bool], target: Target
) -> Index | None:
    """The order in which a nest that only computes elements should process its rows, if it reads a tensor across memory: the row's
    number as a function of its turn, such that neighbours in memory follow each other. None if squares do not apply. stored: whether
    the nest reads a node from memory."""
    if not placed or any(segment.kind is SegmentKind.REDUCE for segment, _ in placed):
        return None
    size, *others = {mapping.inner for _, mapping in placed}
    rows = nest.rows
    if others or size < SQUARE_LANES or rows < BLOCK_ROWS:
        return None
    row, inner = Index.of_var(nest.row), Index.of_var(within(size))
    found: list[Digit] = []
    for segment, mapping in sorted(placed, key=lambda item: item[0].node):
        roots = roots_of(graph, segment, mapping.point(row, inner))
        for _, flat in trace(graph, roots, stored).loads():
            digits = [(c, a) for c, a in flat.terms if isinstance(a, Digit)]
            neighbours = [a for c, a in digits if c == 1 and a.variable == nest.row]
            lanes = [c for c, a in digits if a.stride == 1 and a.variable == within(size)]
            if len(neighbours) == 1 and lanes and lanes[0] >= CACHE_LINE_ELEMENTS:
                found += neighbours
    side_by_side = [digit for digit in found if digit.stride == 1]
    if side_by_side or not found or isinstance(target, GpuTarget):
        return row if side_by_side else None
    apart, extent = found[0].stride, found[0].extent
    if extent < FEWEST_NEIGHBOURS or rows % (apart * extent):
        return None
    outer, between, neighbour = unravel(row, (rows // (apart * extent), apart, extent))
    return (outer * extent + neighbour) * apart + between


def panel_rows_of(graph: Graph, nest: Nest, placed: Placed, order: Index, target: Target) -> int:
    """Number of rows of a panel (see PANEL_ROWS). Within a panel, the next square reads each of its lanes where the last one stopped:
    the processor prefetches these lines, and they stay cached even if the lanes are a power of two apart. BLOCK_ROWS if panels do not
    pay: then all lanes of a block of rows are processed before the next block."""
    longest = max(mapping.inner * graph.nodes[segment.node].dtype.size_bytes for segment, mapping in placed)
    in_order = order == Index.of_var(nest.row)
    return PANEL_ROWS if in_order and longest <= PANEL_ROW_BYTES and isinstance(target, CpuTarget) else BLOCK_ROWS


SHORTEST_SIDE = 4
"""A GPU uses tiles only if both sides have at least this many elements; neighbours of a shorter side use up a cache line
anyway."""
APART = 4
"""A GPU uses tiles only if elements that are written side by side are at least this many elements apart where they are read."""
SIDE, SIDE_OF_HALVES = 32, 64
"""Side of a square in elements: 128 bytes side by side for the threads of a warp; SIDE_OF_HALVES for dtypes of at most 2 bytes."""


@dataclass(frozen=True)
class TiledTranspose:
    """How the elements of a nest are numbered (the extents in the module's formula for `u`), and the square's sides in elements: down
    (adjacent where they are read) and along (adjacent where they are written)."""

    outer: int
    down: int
    between: int
    along: int
    sides: tuple[int, int]

    @property
    def pitch(self) -> int:
        """Words from one row of the square to the next."""
        return self.sides[0] | 1

    @property
    def squares(self) -> tuple[int, int, int, int]:
        """Number of squares in each dimension: outer, between, down, along."""
        return self.outer, self.between, -(-self.down // self.sides[0]), -(-self.along // self.sides[1])

    @property
    def count(self) -> int:
        """Number of squares."""
        outer, between, down, along = self.squares
        return outer * between * down * along

    def room(self, dtype: DType) -> int:
        """Bytes of shared memory for one tensor's square."""
        return shared_room(self.pitch * self.sides[1], dtype)

    def __str__(self) -> str:
        return f"{self.count} tiles of {self.sides[0]} x {self.sides[1]} through shared memory"


def tiled_transpose_of(
    graph: Graph, nest: Nest, placed: Placed, stored: Callable[[int], bool], target: GpuTarget
) -> TiledTranspose | None:
    """The squares in which a GPU should compute the nest, or None. They apply if the nest only computes elements, each segment in
    memory order and all segments with the same number of elements, and a tensor is read across. stored: whether the nest reads a
    node from memory."""
    row = Index.of_var(nest.row)
    for segment, mapping in placed:
        inner = Index.of_var(within(mapping.inner))
        in_order = mapping.point(row, inner) == row * mapping.inner + inner
        if segment.kind is not SegmentKind.VALUE or segment.size != placed[0][0].size or not in_order:
            return None
    if not placed:
        return None
    variable = Var(SPACE_VARIABLE, placed[0][0].size)
    found: dict[TiledTranspose, int] = {}
    for segment, _ in placed:
        steps = trace(graph, roots_of(graph, segment, Index.of_var(variable)), stored)
        for request, flat in steps.loads():
            node = graph.nodes[request.node]
            tiled = None if request.guard else _tiled_transpose(flat, variable, node.dtype, target)
            if tiled is not None:
                found[tiled] = max(found.get(tiled, 0), node.element_count)
    return max(found, key=lambda tiled: found[tiled], default=None)


def _tiled_transpose(flat: Index, u: Var, dtype: DType, target: GpuTarget) -> TiledTranspose | None:
    """How the tensor's element `flat` is read across, in terms of the element `u` that is written; None if it is not."""
    digits = [(c, a) for c, a in flat.terms if isinstance(a, Digit) and a.variable == u]
    written = [(c, a) for c, a in digits if a.stride == 1]
    read = [a for c, a in digits if c == 1 and a.stride > 1]
    if len(written) != 1 or len(read) != 1 or u in (Index(0, flat.terms) - _sum(digits)).variables:
        return None
    (apart, along), (down,) = written[0], read
    if min(along.extent, down.extent) < SHORTEST_SIDE or apart < APART or down.stride % along.extent:
        return None
    if u.extent % (down.stride * down.extent):
        return None
    side = SIDE_OF_HALVES if dtype.size_bytes <= 2 else SIDE
    while True:
        tiled = TiledTranspose(
            u.extent // (down.stride * down.extent),
            down.extent,
            down.stride // along.extent,
            along.extent,
            _sides(down.extent, along.extent, side),
        )
        if tiled.room(dtype) <= target.tile_bytes or side == 1:
            return tiled
        side //= 2


def _sum(terms: list[tuple[int, Digit]]) -> Index:
    return Index(0, tuple(terms))


def _sides(down: int, along: int, side: int) -> tuple[int, int]:
    """A square or, if the tensor has too few rows or columns for one, a rectangle with about as many elements."""
    if down < side:
        return down, min(along, max(1, side * side // down))
    if along < side:
        return min(down, max(1, side * side // along)), along
    return side, side
