"""Lowers scatters to loops, so that the result depends neither on the number of threads nor on their order: updates of one place are
applied one after the other, in the order of the indices.

    by windows   a task has a piece of the window and goes through all indices. A CPU does this; it is right also if windows
                 overlap in part
    by owners    (on a GPU) a task has one index and a piece of the window. The first index that names a place owns it: its task alone
                 applies all updates there. Tasks look through the indices together; most own a place that no other index names
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..ir.graph import DType
from ..ir.index_maps import ZERO, Bound, Index, Var, guard_of, linear, unravel
from ..loops import loops
from ..loops.loops import Collapse, Combine, If, LetIndex, Local, Loop, LoopKind, Statement
from ..ops.propagation import Request, start_variable
from ..planning.access import trace
from ..planning.execution import Execution, Mode
from ..planning.mapping import Segment
from ..planning.scatters import scatter_work
from ..support.sequences import zip_strict
from .context import BufferNumbers, Context
from .values import Emitter

UNCLAMPED = 1 << 62


def scatter_body(context: Context, segment: Segment, execution: Execution) -> tuple[Statement, ...]:
    """The statements of one scatter, which updates its base in place."""
    scatter = _Scatter(context, segment)
    return scatter.by_owners() if execution.mode is Mode.OWNERS else scatter.by_windows()


@dataclass(frozen=True)
class _Place:
    """The place that an index points to. bounds: for each dimension that it names, its start and the range that it must be in.
    position: in all dimensions."""

    bounds: tuple[Bound, ...]
    position: tuple[Index, ...]


class _Scatter:
    def __init__(self, context: Context, segment: Segment) -> None:
        self.context, self.number = context, segment.node
        self.graph = context.plan.graph
        self.node = node = self.graph.nodes[segment.node]
        self.work = scatter_work(self.graph, node)
        self.updates, self.indices = (self.graph.nodes[node.operands[k]] for k in (2, 1))
        self.lane = Var("w", self.work.chunk)

    def by_windows(self) -> tuple[Statement, ...]:
        row, batch = Var("r", self.work.pieces), Var("b", self.work.count)
        emitter = Emitter(self.graph, BufferNumbers(self.context), row)
        for variable in (None, row, batch):
            emitter.push(variable)
        place = self._place(emitter, Index.of_var(batch))
        emitter.push(None)  # the guarded body: no statement moves out of it
        self._apply(emitter, Index.of_var(batch), Index.of_var(row), place)
        emitter.put(If(guard_of(place.bounds), emitter.pop()))
        emitter.put(Loop(batch, batch.extent, LoopKind.SERIAL, emitter.pop()))
        return self._nest(emitter, row)

    def by_owners(self) -> tuple[Statement, ...]:
        row, other, later = (
            Var("r", self.work.count * self.work.pieces),
            Var("o", self.work.count),
            Var("p", self.work.count),
        )
        emitter = Emitter(self.graph, BufferNumbers(self.context), row)
        for variable in (None, row):
            emitter.push(variable)
        own, piece = unravel(Index.of_var(row), (self.work.count, self.work.pieces))
        place = self._place(emitter, own)
        first, same = self._look_through(emitter, other, place)
        emitter.push(None)
        emitter.push(None)
        self._apply(emitter, own, piece, place)
        emitter.put(If((Bound(Index.of_var(same), 1, 2),), emitter.pop()))
        emitter.push(None)
        emitter.push(later)
        there = self._place(emitter, Index.of_var(later))
        emitter.push(None)
        self._apply(emitter, Index.of_var(later), piece, place)
        emitter.put(If(_same_place(place, there), emitter.pop()))
        emitter.put(Loop(later, later.extent, LoopKind.SERIAL, emitter.pop()))
        emitter.put(If((Bound(Index.of_var(same), 2, self.work.count + 1),), emitter.pop()))
        owns = Bound(Index.of_var(first) - own, 0, 1)
        emitter.put(If((*guard_of(place.bounds), owns), emitter.pop()))
        return self._nest(emitter, row)

    def _look_through(self, emitter: Emitter, other: Var, place: _Place) -> tuple[Var, Var]:
        """The first index that names the place, and the number of indices that name it. All indices are looked through."""
        lanes = self.context.plan.target.lanes
        emitter.put(Local("firsts", DType.S32, lanes, "min"))
        emitter.put(Local("sames", DType.S32, lanes, "sum"))
        emitter.push(other)
        alike = _same_place(place, self._place(emitter, Index.of_var(other)))
        depth = len(emitter.scopes) - 1
        number = emitter.let(DType.S32, loops.FromIndex(Index.of_var(other)), depth)
        for local, kind, yes, no in (("firsts", "min", number, str(self.work.count)), ("sames", "sum", "1", "0")):
            value = emitter.let(DType.S32, loops.Choose(((alike, yes),), no), depth)
            emitter.put(Combine(local, DType.S32, None, kind, value))
        emitter.put(Loop(other, other.extent, LoopKind.LANES, emitter.pop(), width=lanes))
        found = []
        for local, kind in (("firsts", "min"), ("sames", "sum")):
            variable = Var(f"{local}_found", self.work.count + 1)
            emitter.put(Collapse(f"{local}_all", local, DType.S32, lanes, kind))
            emitter.put(LetIndex(variable, f"{local}_all", False))
            emitter.scopes[-1].variables.add(variable)
            found.append(variable)
        return found[0], found[1]

    def _place(self, emitter: Emitter, number: Index) -> _Place:
        """The place that index `number` points to. The loads that this needs are emitted."""
        offsets = [Index(0)] * len(self.node.shape)
        bounds: list[Bound] = []
        where_batch = unravel(number, self.work.batch_shape)
        for k, d in enumerate(self.work.numbers.start_index_map):
            where = list(where_batch)
            if self.work.numbers.index_vector_dim < len(self.indices.shape):
                where.insert(self.work.numbers.index_vector_dim, Index(k))
            request = Request(self.node.operands[1], tuple(where))
            start = start_variable(request, UNCLAMPED, clamped=False)
            emitter.emit(trace(self.graph, [request], self.context.stored))
            emitter.define_starts_of(start)
            bounds.append(Bound(start, 0, self.node.shape[d] - self.work.sizes[d] + 1))
            offsets[d] = start
        return _Place(tuple(bounds), tuple(offsets))

    def _apply(self, emitter: Emitter, number: Index, piece: Index, place: _Place) -> None:
        """The loop over a piece of the window that applies the update of index `number` at the place."""
        window_index = unravel(piece * self.work.chunk + Index.of_var(self.lane), self.work.window_shape)
        position = [ZERO] * len(self.updates.shape)
        for d, index in zip_strict(self.work.batch_dims, unravel(number, self.work.batch_shape)):
            position[d] = index
        for d, index in zip_strict(self.work.numbers.offset_dims, window_index):
            position[d] = index
        offsets = list(window_index)
        target = [
            place.position[d] + (ZERO if d in self.work.numbers.collapsed_slice_dims else offsets.pop(0))
            for d in range(len(self.node.shape))
        ]
        emitter.push(self.lane)
        update = Request(self.node.operands[2], tuple(position))
        emitter.emit(trace(self.graph, [update], self.context.stored))
        name = emitter.name_of(update)
        flat = linear(target, self.node.shape)
        kind = str(self.node.attributes["kind"])
        for buffer in self.context.stores_of(self.number):
            emitter.put(loops.Update(buffer, self.node.dtype, flat, kind, name))
        body = emitter.pop()
        emitter.put(Loop(self.lane, self.work.chunk, LoopKind.SIMD if self.work.chunk > 1 else LoopKind.SERIAL, body))

    def _nest(self, emitter: Emitter, row: Var) -> tuple[Statement, ...]:
        body: Sequence[Statement] = emitter.pop()
        emitter.put(Loop(row, row.extent, LoopKind.SERIAL, tuple(body), bounds=("first_row", "last_row")))
        return emitter.pop()


def _same_place(one: _Place, other: _Place) -> tuple[Bound, ...]:
    return tuple(Bound(b.index - a.index, 0, 1) for a, b in zip_strict(one.bounds, other.bounds))
