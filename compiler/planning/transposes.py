"""Nests that only compute elements and read a tensor across: its neighbours in memory belong to different rows of what is written.

    on a CPU   rows are taken in squares of BLOCK_ROWS by as many lanes, in the order in which neighbours follow each other, so that a
               cache line that is read for one row is still there for the next
    on a GPU   what lies side by side where it is read lies far apart where it is written, so it goes through a square of shared
               memory: a group of threads reads the square along the tensor's memory, and writes it along the result's

For the GPU the elements of all that such a nest writes are numbered alike, `u`; where a tensor is read across, its neighbours are not
`u`'s:

    u = ((outer * down + i) * between + m) * along + j      j: of neighbours in what is written, i: in what is read

for any transpose, of matrices, of batches of them (0, 2, 1), of heads (0, 2, 3, 1), with or without something computed before or
after. A square is `sides` of i and j; one at the end of a side that is no multiple is filled in part. Its rows lie an odd number of
words apart, so that threads that go down it hit different banks of the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..ir.graph import DType, Graph
from ..ir.index_maps import Digit, Index, Var, unravel
from ..loops.loops import shared_room
from ..targets.targets import GpuTarget, Target
from .access import trace
from .mapping import SPACE_VARIABLE, RowMap, Segment, SegmentKind, roots_of
from .placement import Nest, within

BLOCK_ROWS = 16
"""Rows of a CPU's square: a cache line of floats."""
SQUARE_LANES = 16
CACHE_LINE_ELEMENTS = 16
"""Lanes that lie further apart than this use a cache line each."""
FEWEST_NEIGHBOURS = 4
"""Of a line, below which rows are left in their order."""

Placed = Sequence[tuple[Segment, RowMap]]
"""Segments of a nest with their mappings: those that something must be stored of."""


def order_across_memory(
    graph: Graph, nest: Nest, placed: Placed, stored: Callable[[int], bool], target: Target
) -> Index | None:
    """The order in which a nest that only computes elements had better take its rows, if it reads a tensor across: the number of the
    row that comes at each turn, such that neighbours in memory come one after the other; None: in their own order. stored: which
    nodes the nest reads from memory."""
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


FEWEST = 4
"""Of a GPU's tiles: elements of either side below which a line of memory is used up by neighbours anyway, ..."""
APART = 4
"""... and of distance between two that are written side by side."""
SIDE, SIDE_OF_HALVES = 32, 64
"""Of a square: a warp's threads have 128 bytes side by side, of halves a vector of lines."""


@dataclass(frozen=True)
class TiledTranspose:
    """How the elements of a nest are numbered, and the square's sides: elements down (read side by side) and along (written so)."""

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
        """How many there are: outer, between, down, along."""
        return self.outer, self.between, -(-self.down // self.sides[0]), -(-self.along // self.sides[1])

    @property
    def count(self) -> int:
        outer, between, down, along = self.squares
        return outer * between * down * along

    def room(self, dtype: DType) -> int:
        """Bytes of shared memory of one tensor's square."""
        return shared_room(self.pitch * self.sides[1], dtype)

    def __str__(self) -> str:
        return f"{self.count} tiles of {self.sides[0]} x {self.sides[1]} through shared memory"


def tiled_transpose_of(
    graph: Graph, nest: Nest, placed: Placed, stored: Callable[[int], bool], target: GpuTarget
) -> TiledTranspose | None:
    """The squares by which a GPU had better do the nest: where all it does is compute elements, each segment's in the order of memory
    and all as many, and a tensor is read across. stored: which nodes the nest reads from memory."""
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
    """How an element at `flat` of the tensor is read across, in terms of the element `u` that is written."""
    digits = [(c, a) for c, a in flat.terms if isinstance(a, Digit) and a.variable == u]
    written = [(c, a) for c, a in digits if a.stride == 1]
    read = [a for c, a in digits if c == 1 and a.stride > 1]
    if len(written) != 1 or len(read) != 1 or u in (Index(0, flat.terms) - _sum(digits)).variables:
        return None
    (apart, along), (down,) = written[0], read
    if min(along.extent, down.extent) < FEWEST or apart < APART or down.stride % along.extent:
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
    """A square, or where a tensor has not as many rows or columns, as many elements of the other."""
    if down < side:
        return down, min(along, max(1, side * side // down))
    if along < side:
        return min(down, max(1, side * side // along)), along
    return side, side
