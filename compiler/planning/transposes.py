"""Nests that compute elements only and read a tensor across memory: neighbours in the tensor belong to different rows of the output.

    on a CPU   the nest is computed in squares of BLOCK_ROWS rows by BLOCK_ROWS lanes, in the order of neighbours in the tensor,
    so that a cache line that is read for one row is still cached for the next row
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

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..ir.graph import DType, Graph
from ..ir.index_maps import Digit, Index, Var, unravel
from ..loops.loops import shared_room
from ..targets.targets import CpuTarget, GpuTarget, Target
from .access import trace
from .mapping import SPACE_VARIABLE, RowMap, Segment, SegmentKind, roots_of
from .placement import Nest, within

BLOCK_ROWS = 16
"""Rows of a CPU's square: a cache line of floats."""
SQUARE_LANES = 16
PANEL_ROWS = 256
"""Rows of a panel: for each group of lanes, all squares of the panel are processed before those of the next group. Measured on a
Zen 3 (512 KiB of second-level cache), in times of a copy of the same size: 16,384 x 128, 8.5 with panels of 16 rows, 3.0 with 128,
2.6 with 256, 2.4 with 1024; 2,048 x 512, 4.9, 3.6, 3.5 and 3.3; 1,024 x 1,024, 3.3 to 2.8."""
PANEL_ROW_BYTES = 4096
"""The longest rows of a panel. Longer rows, or rows in another order than in memory, are written so far apart that their cache lines
evict each other: a panel of 128 rows of 32 KiB takes 1.35 times as long as without a panel."""
CACHE_LINE_ELEMENTS = 16
"""Lanes that are at least this many elements apart use a cache line each."""
FEWEST_NEIGHBOURS = 4
"""With fewer neighbours in a cache line, rows are left in their order."""

Placed = Sequence[tuple[Segment, RowMap]]
"""Segments of a nest whose results must be stored, with their mappings."""


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
