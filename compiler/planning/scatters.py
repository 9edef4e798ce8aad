"""The shape of a scatter's work: its indices, and the window that each index updates, cut into pieces."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..ir.graph import GatherDimensions, Graph, Node, Shape
from ..ops.attributes import gather_numbers
from ..support.divisors import divisor_near

LONGEST_PIECE = 256
"""The most elements of a window that one task updates."""
SHORTEST_PIECE = 16
"""If the window has no divisor between this and LONGEST_PIECE, it is not cut."""


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
