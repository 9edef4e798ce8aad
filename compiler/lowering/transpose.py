"""Transposes on a GPU, tile by tile through shared memory (`planning.transposes.TiledTranspose`): a group of threads reads a tile
along the tensor's memory, and writes it along the result's."""

from __future__ import annotations

from ..ir.graph import DType, Graph
from ..ir.index_maps import Bound, Digit, Index, Var, guard_of, unravel
from ..loops import loops
from ..loops.loops import Assign, If, LetIndex, Local, Loop, LoopKind, Statement, Store
from ..ops.propagation import ElementRequest
from ..planning.access import Trace, trace
from ..planning.mapping import Segment, roots_of
from ..planning.transposes import APART, TiledTranspose
from ..support.sequences import zip_strict
from .context import BufferNumbers, Context
from .values import Emitter


def transpose_body(context: Context, tiled: TiledTranspose) -> tuple[Statement, ...]:
    """The statements of the nest, square by square. Each square is a row of the code."""
    return _Lowering(context, tiled).body()


class _Lowering:
    def __init__(self, context: Context, tiled: TiledTranspose) -> None:
        self.context, self.transpose = context, tiled
        self.graph: Graph = context.graph
        self.square = Var("r", tiled.count)
        self.emitter = Emitter(context.graph, BufferNumbers(context), self.square)
        self.down, self.along = Var("down", tiled.down), Var("along", tiled.along)
        outer, between, self.first_down, self.first_along = unravel(Index.of_var(self.square), tiled.squares)
        i, j = Index.of_var(self.down), Index.of_var(self.along)
        self.point = ((outer * tiled.down + i) * tiled.between + between) * tiled.along + j

    def body(self) -> tuple[Statement, ...]:
        emitter = self.emitter
        segments = [segment for segment, _ in self.context.plan.stored_of(self.context.nest)]
        traces = [(segment, *self._trace(segment)) for segment in segments]
        emitter.push(None)
        emitter.push(self.square)
        squares = self._squares([steps for _, _, steps in traces])
        self._fill(squares)
        self._write(squares, traces)
        row = self.square
        emitter.put(Loop(row, row.extent, LoopKind.SERIAL, emitter.pop(), bounds=("first_row", "last_row")))
        return emitter.pop()

    def _trace(self, segment: Segment) -> tuple[ElementRequest, Trace]:
        (root,) = roots_of(self.graph, segment, self.point)
        return root, trace(self.graph, (root,), self.context.stored)

    def _squares(self, traces: list[Trace]) -> dict[ElementRequest, str]:
        """The elements that go through shared memory, with each one's array, as far as there is room for them."""
        found: dict[ElementRequest, str] = {}
        room = self.context.target.tile_bytes
        for request, flat in (load for steps in traces for load in steps.loads()):
            terms = {a: c for c, a in flat.terms if isinstance(a, Digit)}
            own = {self.square, self.down, self.along}
            across = terms.get(Digit(self.down, 1, self.down.extent)) == 1 and (
                terms.get(Digit(self.along, 1, self.along.extent), 0) >= APART
            )
            dtype = self.graph.nodes[request.node].dtype
            taken = self.transpose.room(dtype)
            if request in found or request.guard or not across or not flat.variables <= own or taken > room:
                continue
            room -= taken
            found[request] = self.emitter.fresh("square")
            self.emitter.put(Local(found[request], dtype, self.transpose.pitch * self.transpose.sides[1], None))
        return found

    def _places(self, variable: Var, fastest: int, down_first: bool) -> tuple[Index, tuple[Bound, ...]]:
        """For a loop over a square, whose neighbouring iterations go down or along the square (`fastest` of them): the element's
        position in shared memory, and its two positions in the tensors as bounds."""
        slow, fast = unravel(Index.of_var(variable), (variable.extent // fastest, fastest))
        down, along = (fast, slow) if down_first else (slow, fast)
        sides, tiled = self.transpose.sides, self.transpose
        bounds = (
            Bound(self.first_down * sides[0] + down, 0, tiled.down),
            Bound(self.first_along * sides[1] + along, 0, tiled.along),
        )
        return along * tiled.pitch + down, bounds

    def _name_places(self, bounds: tuple[Bound, ...], clamped: bool) -> None:
        emitter = self.emitter
        for place, bound in zip_strict((self.down, self.along), bounds):
            dtype = DType.S32 if bound.index.high < 1 << 31 else DType.S64
            name = emitter.let(dtype, loops.FromIndex(bound.index), len(emitter.scopes) - 1)
            emitter.put(LetIndex(place, name, clamped and not bound.always))
            emitter.scopes[-1].variables.add(place)

    def _fill(self, squares: dict[ElementRequest, str]) -> None:
        """Reads the squares. Beyond the tensor's end, the last element is read again: without branches, a thread issues all its
        loads before it waits for one."""
        emitter, (down, along) = self.emitter, self.transpose.sides
        variable = Var("x", down * along)
        place, bounds = self._places(variable, down, down_first=True)
        emitter.push(variable)
        self._name_places(bounds, clamped=True)
        for request, square in squares.items():
            emitter.emit(trace(self.graph, (request,), self.context.stored))
            emitter.put(Assign(square, place, emitter.name_of(request)))
        emitter.put(Loop(variable, variable.extent, LoopKind.SIMD, emitter.pop()))

    def _write(self, squares: dict[ElementRequest, str], traces: list[tuple[Segment, ElementRequest, Trace]]) -> None:
        emitter, (down, along) = self.emitter, self.transpose.sides
        variable = Var("y", down * along)
        place, bounds = self._places(variable, along, down_first=False)
        guard = guard_of(bounds)
        emitter.push(variable)
        if guard:
            emitter.push(None)  # no statement moves out of it
        self._name_places(bounds, clamped=False)
        for request, square in squares.items():
            dtype = self.graph.nodes[request.node].dtype
            emitter.let(dtype, loops.LoadLocal(square, place), len(emitter.scopes) - 1, request)
        writes = []
        for segment, root, steps in traces:
            emitter.emit(steps)
            dtype, value = self.graph.nodes[segment.node].dtype, emitter.name_of(root)
            writes += [Store(buffer, dtype, self.point, value) for buffer in self.context.stores_of(segment.node)]
        for statement in writes:  # stores come last: an output may be in an input's memory
            emitter.put(statement)
        if guard:
            emitter.put(If(guard, emitter.pop()))
        emitter.put(Loop(variable, variable.extent, LoopKind.SIMD, emitter.pop()))
