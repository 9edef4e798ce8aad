"""The shape of a scatter's work: its indices, and the window that each index updates, cut into pieces."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from ..ir.graph import DType, GatherDimensions, Graph, Node, Shape
from ..loops.loops import Buffer, BufferKind
from ..ops.attributes import gather_numbers
from ..support.divisors import divisor_near

LONGEST_PIECE = 256
"""The most elements of a window that one task updates."""
SHORTEST_PIECE = 16
"""If the window has no divisor between this and LONGEST_PIECE, it is not cut."""

TESTED_AT_ONCE = 256
"""Indices that the threads of a GPU's warp compare with a place in one round."""
LEAST_MARKED = 2048
"""With fewer indices there is no table: the task of each index looks through the earlier indices for its own place."""


@dataclass(frozen=True)
class ScatterWork:
    """numbers: the scatter's dimension numbers. batch_dims: the dimensions of the updates that enumerate the indices; their extents
    are `batch_shape`. window_shape: the extents of the other dimensions of the updates. chunk: elements of a piece of the window.
    sizes: the window's extent in each dimension of the result."""

    numbers: GatherDimensions
    batch_dims: tuple[int, ...]
    batch_shape: Shape
    window_shape: Shape
    chunk: int
    sizes: tuple[int, ...]

    @property
    def count(self) -> int:
        """Number of indices."""
        return math.prod(self.batch_shape)

    @property
    def pieces(self) -> int:
        """Number of pieces of a window."""
        return math.prod(self.window_shape) // self.chunk

    @property
    def windows_meet_whole(self) -> bool:
        """Whether any two windows are either the same or disjoint: they have extent 1 in each dimension that an index names."""
        return all(self.sizes[d] == 1 for d in self.numbers.start_index_map)


@dataclass(frozen=True)
class Searches:
    """The searches of a scatter by owners, if all places are named equally often. tests: comparisons of an index with a place, of all
    tasks. rounds, updates: of the owner that has most of them, one after the other."""

    tests: float
    rounds: int
    updates: float


def searches(graph: Graph, node: Node) -> Searches:
    """About how much the tasks of a scatter by owners search. With a table only owners search, between the first and the last index
    of their place; otherwise all do, on the average through half of the indices, and owners through the rest."""
    work, table = scatter_work(graph, node), index_table(graph, node)
    places = math.prod(node.shape[d] for d in work.numbers.start_index_map)
    each = work.count / max(1, places)
    rounds = -(-work.count // TESTED_AT_ONCE)
    if table is None:
        return Searches(float(work.count) ** 2 * work.pieces, rounds, max(1.0, each))
    between = max(TESTED_AT_ONCE, work.count * each / (1 + each))
    owners = min(work.count, places)
    return Searches(owners * between * work.pieces, rounds if each * owners > 1 else 1, max(1.0, each))


class TableStep(enum.Enum):
    """What is done to a scatter's table, each in a phase of its own, before the scatter reads it."""

    CLEAR = "no place has an index"
    MARK = "each index is entered at its place"


@dataclass(frozen=True)
class IndexTable:
    """For each place of a scatter's result that an index can name, the first and the last index that name it. Scatters with the
    same indices and extents share a table. indices: the node that holds the indices; vector_dim: its dimension whose elements
    make one index; extents: of the result's dimensions that an index names."""

    indices: int
    vector_dim: int
    extents: Shape

    @property
    def places(self) -> int:
        """Number of places."""
        return math.prod(self.extents)

    @property
    def buffers(self) -> tuple[Buffer, Buffer]:
        """Two scratch buffers, indexed by place: the first and the last index that name it. A place that no index names has a
        number above all indices in the first buffer and a negative number in the second."""
        role = f"{self.vector_dim}.{'x'.join(map(str, self.extents))}"
        first, last = (
            Buffer(BufferKind.SCRATCH, self.indices, DType.S32, self.places, f"{which}.{role}")
            for which in ("first", "last")
        )
        return first, last


def index_table(graph: Graph, node: Node) -> IndexTable | None:
    """The table of a scatter on a GPU whose indices have owners; None if there are so few indices that looking through them costs
    less than two more phases."""
    work = scatter_work(graph, node)
    if work.count < LEAST_MARKED:
        return None
    extents = tuple(node.shape[d] for d in work.numbers.start_index_map)
    return IndexTable(node.operands[1], work.numbers.index_vector_dim, extents)


def scatter_work(graph: Graph, node: Node) -> ScatterWork:
    """The work of scatter `node`."""
    numbers, updates = gather_numbers(node), graph.nodes[node.operands[2]]
    batch_dims = tuple(d for d in range(len(updates.shape)) if d not in numbers.offset_dims)
    window_shape = tuple(updates.shape[d] for d in numbers.offset_dims)
    window = math.prod(window_shape)
    chunk = divisor_near(window, LONGEST_PIECE) if window > LONGEST_PIECE else window
    sizes = list(window_shape)
    return ScatterWork(
        numbers,
        batch_dims,
        tuple(updates.shape[d] for d in batch_dims),
        window_shape,
        chunk if chunk >= SHORTEST_PIECE else window,
        tuple(1 if d in numbers.collapsed_slice_dims else sizes.pop(0) for d in range(len(node.shape))),
    )
