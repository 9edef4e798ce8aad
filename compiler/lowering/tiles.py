"""Elements of a row that one pass keeps for a later pass. Softmax's exp is computed once; attention weights are not recomputed for
every column that they weigh.

A node is kept as a whole: its slice of the row is in a tile on the task's stack, or in the output where it was just written. That
is worth it if computing the node again costs more than a store to L1 and a load from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..ir.graph import Graph
from ..ir.index_maps import Index, Var, linear
from ..ops.propagation import Apply, Choose, ElementRequest, sources
from ..planning.access import Trace
from ..planning.groups import KEEP_LIGHT_OPS
from ..targets.targets import Target
from .context import slice_cost


@dataclass(frozen=True)
class Kept:
    """Where a node's slice of the row is: in a local array (`tile`), or in the buffer of an output."""

    slice_size: int
    tile: str | None
    buffer: int | None = None


class Tiles:
    """What is kept of a row. `request in tiles`: an earlier pass has kept that element."""

    def __init__(self, graph: Graph, row: Var, rows: int) -> None:
        self.graph = graph
        self.row = Index.of_var(row)
        self.rows = rows
        self.kept: dict[int, Kept] = {}
        self.filled: set[int] = set()

    def slice_size(self, node: int) -> int | None:
        """Number of elements of the node per row; None if rows do not divide it."""
        count = self.graph.nodes[node].element_count
        return count // self.rows if count % self.rows == 0 else None

    def place(self, request: ElementRequest) -> Index | None:
        """The element's position within the row's slice of its node; None if it may be in another row's slice."""
        size = self.slice_size(request.node)
        if size is None:
            return None
        place = linear(request.position, self.graph.nodes[request.node].shape) - self.row * size
        if place.variables & self.row.variables or place.low < 0 or place.high >= size:
            return None
        return place

    def __contains__(self, request: object) -> bool:
        return isinstance(request, ElementRequest) and request.node in self.filled and self.place(request) is not None


@dataclass(frozen=True)
class SegmentVisit:
    """One segment in one pass, for the planning of tiles: its trace at element `inner` of a row of `size` elements. `steps`: traces
    `roots`, given the tiles that are known so far."""

    pass_number: int
    roots: tuple[ElementRequest, ...]
    steps: Callable[[Tiles], Trace]
    inner: Index
    size: int
    stored_in: int | None  # buffer of the output that the root is written to


def plan_tiles(
    tiles: Tiles,
    visits: Sequence[SegmentVisit],
    loop_variables: frozenset[Var],
    target: Target,
    declare: Callable[[int, int], str],
    wanted: Callable[[int], bool],
) -> None:
    """Decides which nodes are kept (at most `target.tile_bytes` in tiles), and enters them in `tiles.kept`. `visits`: in the order of
    the passes. `declare(node, size)` declares a local array for a node and returns its name. wanted: whether the plan wants a node
    kept."""
    made: set[int] = set()
    outputs: dict[int, int] = {}
    budget = target.tile_bytes
    here: set[int] = set()
    current = -1
    for visit in visits:
        if visit.pass_number != current:
            made |= here
            here, current = set(), visit.pass_number
        tiles.filled = set(tiles.kept) & made
        steps = visit.steps(tiles)
        for request in _frontier(tiles, steps, visit.roots, made, loop_variables):
            light, expensive = slice_cost(tiles.graph, request, steps, set(), target)
            if not expensive and light < KEEP_LIGHT_OPS and not wanted(request.node):
                continue
            node, size = request.node, tiles.slice_size(request.node)
            assert size is not None
            taken = size * max(tiles.graph.nodes[node].dtype.size_bytes, 4)
            if node in outputs:
                tiles.kept[node] = Kept(size, None, outputs[node])
            elif taken <= budget:
                budget -= taken
                tiles.kept[node] = Kept(size, declare(node, size))
            tiles.filled = set(tiles.kept) & made
        for request in steps.steps:
            if tiles.slice_size(request.node) == visit.size and tiles.place(request) == visit.inner:
                here.add(request.node)
        if visit.stored_in is not None and visit.roots[0].node in here:
            outputs.setdefault(visit.roots[0].node, visit.stored_in)
    tiles.filled = set()


def _frontier(
    tiles: Tiles, steps: Trace, roots: Iterable[ElementRequest], made: set[int], loop_variables: frozenset[Var]
) -> list[ElementRequest]:
    """Elements that an earlier pass has computed, that this pass reads for something new, and that change along the
    row."""

    def known(request: ElementRequest) -> bool:
        return request.node in made and request.node not in tiles.kept and tiles.place(request) is not None

    found: dict[ElementRequest, None] = {}
    candidates = [*roots]
    for request, step in steps.steps.items():
        if not known(request):
            candidates.extend(sources(step))
    for request in candidates:
        moves = any(index.variables & loop_variables for index in request.position)
        if known(request) and isinstance(steps.steps[request], (Apply, Choose)) and moves:
            found[request] = None
    return list(found)
