"""Transposes on a GPU: what lies side by side where it is read lies far apart where it is written, so it goes through a square of
shared memory. A group of threads reads the square along the tensor's memory, and writes it along the result's.

The elements of all that such a nest writes are numbered alike, `u`; where a tensor is read across, its neighbours are not `u`'s:

    u = ((outer * down + i) * between + m) * along + j      j: of neighbours in what is written, i: in what is read

for any transpose, of matrices, of batches of them (0, 2, 1), of heads (0, 2, 3, 1), with or without something computed before or
after. A square is `sides` of i and j; one at the end of a side that is no multiple is filled in part. Its rows lie an odd number of
words apart, so that threads that go down it hit different banks of the memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.graph import DType, Graph
from ..ir.index_maps import Bound, Digit, Index, Var, guard_of, unravel
from ..loops import loops
from ..loops.loops import Assign, If, LetIndex, Local, Loop, LoopKind, Statement, Store, shared_room
from ..planning.access import Request, Trace, trace
from ..planning.mapping import SPACE_VARIABLE, Segment, SegmentKind, roots_of
from ..planning.plan import Plan
from ..planning.schemes import Nest, within
from ..targets.targets import GpuTarget
from .context import BufferNumbers, Context, needs_store
from .values import Emitter

FEWEST = 4
"""Elements of either side below which a line of memory is used up by neighbours anyway, ..."""
APART = 4
"""... and of distance between two that are written side by side."""
SIDE, SIDE_OF_HALVES = 32, 64
"""Of a square: a warp's threads have 128 bytes side by side, of halves a vector of lines."""


@dataclass(frozen=True)
class Turn:
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
        return f"{self.count} squares of {self.sides[0]} x {self.sides[1]}, turned in shared memory"


def turn_of(plan: Plan, nest: Nest) -> Turn | None:
    """The squares by which a GPU had better do the nest: where all it does is compute elements, and a tensor is read across."""
    if not isinstance(plan.target, GpuTarget) or nest.number in plan.families:
        return None
    context = Context(plan, nest, [])
    segments = _segments(context)
    if segments is None:
        return None
    variable = Var(SPACE_VARIABLE, segments[0].size)
    found: dict[Turn, int] = {}
    for segment in segments:
        steps = trace(plan.graph, roots_of(plan.graph, segment, Index.of_var(variable)), context.stored)
        for request, flat in steps.loads():
            node = plan.graph.nodes[request.node]
            turn = None if request.guard else _turn(flat, variable, node.dtype, plan.target)
            if turn is not None:
                found[turn] = max(found.get(turn, 0), node.element_count)
    return max(found, key=lambda turn: found[turn], default=None)


def _segments(context: Context) -> list[Segment] | None:
    """The nest's segments, if each computes its elements in the order of memory and all have as many."""
    placed = [(segment, mapping) for segment, mapping in context.nest.placed if needs_store(context, segment)]
    if not placed or any(segment.kind is not SegmentKind.VALUE for segment, _ in placed):
        return None
    row = Index.of_var(context.row)
    for segment, mapping in placed:
        inner = Index.of_var(within(mapping.inner))
        if segment.size != placed[0][0].size or mapping.point(row, inner) != row * mapping.inner + inner:
            return None
    return [segment for segment, _ in placed]


def _turn(flat: Index, u: Var, dtype: DType, target: GpuTarget) -> Turn | None:
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
        turn = Turn(
            u.extent // (down.stride * down.extent),
            down.extent,
            down.stride // along.extent,
            along.extent,
            _sides(down.extent, along.extent, side),
        )
        if turn.room(dtype) <= target.tile_bytes or side == 1:
            return turn
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


def transpose_body(context: Context, turn: Turn) -> tuple[Statement, ...]:
    """The nest, square by square; each is a row of the code."""
    return _Lowering(context, turn).body()


class _Lowering:
    def __init__(self, context: Context, turn: Turn) -> None:
        self.context, self.turn = context, turn
        self.graph: Graph = context.graph
        self.square = Var("r", turn.count)
        self.emitter = Emitter(context.graph, BufferNumbers(context), self.square)
        self.down, self.along = Var("down", turn.down), Var("along", turn.along)
        outer, between, self.first_down, self.first_along = unravel(Index.of_var(self.square), turn.squares)
        i, j = Index.of_var(self.down), Index.of_var(self.along)
        self.point = ((outer * turn.down + i) * turn.between + between) * turn.along + j

    def body(self) -> tuple[Statement, ...]:
        emitter, segments = self.emitter, _segments(self.context)
        assert segments is not None, "turn_of has looked"
        traces = [(segment, *self._trace(segment)) for segment in segments]
        emitter.push(None)
        emitter.push(self.square)
        squares = self._squares([steps for _, _, steps in traces])
        self._fill(squares)
        self._write(squares, traces)
        row = self.square
        emitter.put(Loop(row, row.extent, LoopKind.SERIAL, emitter.pop(), bounds=("first_row", "last_row")))
        return emitter.pop()

    def _trace(self, segment: Segment) -> tuple[Request, Trace]:
        (root,) = roots_of(self.graph, segment, self.point)
        return root, trace(self.graph, (root,), self.context.stored)

    def _squares(self, traces: list[Trace]) -> dict[Request, str]:
        """The elements that go through shared memory, with the array of each, as far as there is room for them."""
        found: dict[Request, str] = {}
        room = self.context.target.tile_bytes
        for request, flat in (load for steps in traces for load in steps.loads()):
            terms = {a: c for c, a in flat.terms if isinstance(a, Digit)}
            own = {self.square, self.down, self.along}
            across = terms.get(Digit(self.down, 1, self.down.extent)) == 1 and (
                terms.get(Digit(self.along, 1, self.along.extent), 0) >= APART
            )
            dtype = self.graph.nodes[request.node].dtype
            taken = self.turn.room(dtype)
            if request in found or request.guard or not across or not flat.variables <= own or taken > room:
                continue
            room -= taken
            found[request] = self.emitter.fresh("square")
            self.emitter.put(Local(found[request], dtype, self.turn.pitch * self.turn.sides[1], None))
        return found

    def _places(self, variable: Var, fastest: int, down_first: bool) -> tuple[Index, tuple[Bound, ...]]:
        """The element of a square that a loop comes to, whose neighbours lie down or along it, `fastest` of them: its place in shared
        memory, and its two positions within the tensors."""
        slow, fast = unravel(Index.of_var(variable), (variable.extent // fastest, fastest))
        down, along = (fast, slow) if down_first else (slow, fast)
        sides, turn = self.turn.sides, self.turn
        bounds = (
            Bound(self.first_down * sides[0] + down, 0, turn.down),
            Bound(self.first_along * sides[1] + along, 0, turn.along),
        )
        return along * turn.pitch + down, bounds

    def _name_places(self, bounds: tuple[Bound, ...], clamped: bool) -> None:
        emitter = self.emitter
        for place, bound in zip((self.down, self.along), bounds, strict=True):
            dtype = DType.S32 if bound.index.high < 1 << 31 else DType.S64
            name = emitter.let(dtype, loops.FromIndex(bound.index), len(emitter.scopes) - 1)
            emitter.put(LetIndex(place, name, clamped and not bound.always))
            emitter.scopes[-1].variables.add(place)

    def _fill(self, squares: dict[Request, str]) -> None:
        """Beyond the tensor's end the last element is read again: without branches, a thread asks for all before it waits for one."""
        emitter, (down, along) = self.emitter, self.turn.sides
        variable = Var("x", down * along)
        place, bounds = self._places(variable, down, down_first=True)
        emitter.push(variable)
        self._name_places(bounds, clamped=True)
        for request, square in squares.items():
            emitter.emit(trace(self.graph, (request,), self.context.stored))
            emitter.put(Assign(square, place, emitter.name_of(request)))
        emitter.put(Loop(variable, variable.extent, LoopKind.SIMD, emitter.pop()))

    def _write(self, squares: dict[Request, str], traces: list[tuple[Segment, Request, Trace]]) -> None:
        emitter, (down, along) = self.emitter, self.turn.sides
        variable = Var("y", down * along)
        place, bounds = self._places(variable, along, down_first=False)
        guard = guard_of(bounds)
        emitter.push(variable)
        if guard:
            emitter.push(None)  # nothing moves out of it
        self._name_places(bounds, clamped=False)
        for request, square in squares.items():
            dtype = self.graph.nodes[request.node].dtype
            emitter.let(dtype, loops.LoadLocal(square, place), len(emitter.scopes) - 1, request)
        writes = []
        for segment, root, steps in traces:
            emitter.emit(steps)
            dtype, value = self.graph.nodes[segment.node].dtype, emitter.name_of(root)
            writes += [Store(buffer, dtype, self.point, value) for buffer in self.context.stores_of(segment.node)]
        for statement in writes:  # an output may be an input's memory
            emitter.put(statement)
        if guard:
            emitter.put(If(guard, emitter.pop()))
        emitter.put(Loop(variable, variable.extent, LoopKind.SIMD, emitter.pop()))
