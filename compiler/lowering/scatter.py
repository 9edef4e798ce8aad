"""Lowers scatters to loops, so that the result depends neither on the number of threads nor on their order: updates of one place are
applied one after the other, in the order of the indices.

    by windows   a task has a piece of the window and goes through all indices. A CPU does this; it is right also if windows
                 overlap in part. Updates that lie across memory are copied before, transposed (turned_rows.py)
    by owners    (on a GPU) a task has one index and a piece of the window. The first index that names a place owns it: its task alone
                 applies all updates there. A task is the work of one warp, which looks through the indices by ballots. If there are
                 many indices, two phases before have entered into a table the first and the last index that name each place
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..ir.graph import DType
from ..ir.index_maps import ZERO, Bound, Index, Var, guard_of, linear, unravel
from ..loops import loops
from ..loops.loops import Assign, Find, If, LetIndex, Local, Loop, LoopKind, Statement, Visit
from ..ops.c_text import literal_text
from ..ops.propagation import ElementRequest, start_variable
from ..planning.access import trace
from ..planning.execution import Execution, Mode
from ..planning.mapping import Segment
from ..planning.scatters import LONGEST_PIECE, IndexTable, TableStep, scatter_work
from ..support.sequences import zip_strict
from .context import BufferNumbers, Context
from .values import Emitter

UNCLAMPED = 1 << 62
NEVER = 2**31 - 1
"""More than the number of any index."""


def scatter_body(context: Context, segment: Segment, execution: Execution) -> tuple[Statement, ...]:
    """The statements of one scatter, which updates its base in place."""
    scatter = _Scatter(context, segment)
    return scatter.by_owners() if execution.mode is Mode.OWNERS else scatter.by_windows()


def table_body(context: Context, step: TableStep, execution: Execution) -> tuple[Statement, ...]:
    """The statements of a step for the table of the nest's scatter."""
    scatter = _Scatter(context, context.nest.placed[0][0])
    return scatter.clear(execution.rows) if step is TableStep.CLEAR else scatter.mark()


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
        row, other = Var("r", self.work.count * self.work.pieces), Var("o", self.work.count)
        emitter = Emitter(self.graph, BufferNumbers(self.context), row)
        for variable in (None, row):
            emitter.push(variable)
        own, piece = unravel(Index.of_var(row), (self.work.count, self.work.pieces))
        place = self._place(emitter, own)
        emitter.push(None)  # what follows is only for places within the result
        table = self.context.plan.table_of(self.context.nest)
        if table is None:
            first = Var("first", self.work.count + 1)
            emitter.push(other)
            alike = _same_place(place, self._place(emitter, Index.of_var(other)))
            emitter.put(Find(first, other, self.work.count, emitter.pop(), alike))
            emitter.scopes[-1].variables.add(first)
        else:
            first = self._look_up("first", table, 0, place, emitter)
        emitter.push(None)  # and what follows only for their owners
        stop = Index(self.work.count)
        if table is not None:
            stop = Index.of_var(self._look_up("last", table, 1, place, emitter)) + 1
        self._apply_all(emitter, own, stop, piece, place)
        emitter.put(If((Bound(Index.of_var(first) - own, 0, 1),), emitter.pop()))
        emitter.put(If(guard_of(place.bounds), emitter.pop()))
        return self._nest(emitter, row)

    def clear(self, places: int) -> tuple[Statement, ...]:
        """No index names any place. A place's first index is then found by a minimum and its last one by a maximum, whose results do
        not depend on the order."""
        table = self.context.plan.table_of(self.context.nest)
        assert table is not None
        row = Var("r", places)
        stores = tuple(
            loops.Store(self.context.number_of(buffer), DType.S32, Index.of_var(row), literal_text(DType.S32, nothing))
            for buffer, nothing in zip_strict(table.buffers, (NEVER, -1))
        )
        return (Loop(row, places, LoopKind.SIMD, stores, bounds=("first_row", "last_row")),)

    def mark(self) -> tuple[Statement, ...]:
        """Each index is entered at its place, if it names one."""
        table = self.context.plan.table_of(self.context.nest)
        assert table is not None
        row = Var("r", self.work.count)
        emitter = Emitter(self.graph, BufferNumbers(self.context), row)
        for variable in (None, row):
            emitter.push(variable)
        place = self._place(emitter, Index.of_var(row))
        number = emitter.let(DType.S32, loops.FromIndex(Index.of_var(row)), 1)
        emitter.push(None)
        at = linear([bound.index for bound in place.bounds], table.extents)
        for buffer, kind in zip_strict(table.buffers, ("min", "max")):
            emitter.put(loops.Update(self.context.number_of(buffer), DType.S32, at, kind, number, atomic=True))
        emitter.put(If(guard_of(place.bounds), emitter.pop()))
        emitter.put(Loop(row, row.extent, LoopKind.SIMD, emitter.pop(), bounds=("first_row", "last_row")))
        return emitter.pop()

    def _look_up(self, name: str, table: IndexTable, which: int, place: _Place, emitter: Emitter) -> Var:
        """The first (0) or last (1) index that names the place, from the table."""
        at, buffer = linear([bound.index for bound in place.bounds], table.extents), table.buffers[which]
        loaded = emitter.let(
            DType.S32, loops.Load(self.context.number_of(buffer), DType.S32, at), len(emitter.scopes) - 1
        )
        found = Var(name, self.work.count)
        emitter.put(LetIndex(found, loaded, False))
        emitter.scopes[-1].variables.add(found)
        return found

    def _apply_all(self, emitter: Emitter, first: Index, stop: Index, piece: Index, place: _Place) -> None:
        """Applies to a piece of the window the updates of all indices in [first, stop) that name the place. In between, each thread
        keeps its elements in registers. As in memory, each result is rounded to the scatter's dtype."""
        dtype, kind, later = self.node.dtype, str(self.node.attributes["kind"]), Var("p", self.work.count)
        if self.work.chunk > LONGEST_PIECE:  # too long for registers
            emitter.push(later)
            alike = _same_place(place, self._place(emitter, Index.of_var(later)))
            test = emitter.pop()
            emitter.push(later)
            self._apply(emitter, Index.of_var(later), piece, place)
            emitter.put(Visit(later, first, stop, self.work.count, test, alike, None, (), emitter.pop()))
            return
        stores, lane = self.context.stores_of(self.number), Index.of_var(self.lane)
        flat = self._flat(place, piece)
        result, value = Local("result", dtype, self.work.chunk, None), Local("update", dtype, self.work.chunk, None)
        emitter.put(result)
        if kind != "replace":
            emitter.push(self.lane)
            depth = len(emitter.scopes) - 1
            emitter.put(Assign(result.name, lane, emitter.let(dtype, loops.Load(stores[0], dtype, flat), depth)))
            self._put_lanes(emitter)
        emitter.push(later)
        alike = _same_place(place, self._place(emitter, Index.of_var(later)))
        test = emitter.pop()
        emitter.push(later)
        emitter.push(self.lane)
        emitter.put(Assign(value.name, lane, self._update(emitter, Index.of_var(later), piece)))
        self._put_lanes(emitter)
        ahead = emitter.pop()
        emitter.push(None)
        emitter.push(self.lane)
        depth = len(emitter.scopes) - 1
        new = emitter.let(dtype, loops.LoadLocal(value.name, lane), depth)
        if kind != "replace":
            old = emitter.let(dtype, loops.LoadLocal(result.name, lane), depth)
            new = emitter.let(dtype, loops.Merge(kind, old, new), depth)
            new = emitter.let(dtype, loops.Convert(dtype, new), depth)
        emitter.put(Assign(result.name, lane, new))
        self._put_lanes(emitter)
        body = emitter.pop()
        emitter.put(Visit(later, first, stop, self.work.count, test, alike, value, ahead, body))
        emitter.push(self.lane)
        name = emitter.let(dtype, loops.LoadLocal(result.name, lane), len(emitter.scopes) - 1)
        for buffer in stores:
            emitter.put(loops.Store(buffer, dtype, flat, name))
        self._put_lanes(emitter)

    def _place(self, emitter: Emitter, number: Index) -> _Place:
        """The place that index `number` points to. The loads that this needs are emitted."""
        offsets = [Index(0)] * len(self.node.shape)
        bounds: list[Bound] = []
        where_batch = unravel(number, self.work.batch_shape)
        for k, d in enumerate(self.work.numbers.start_index_map):
            where = list(where_batch)
            if self.work.numbers.index_vector_dim < len(self.indices.shape):
                where.insert(self.work.numbers.index_vector_dim, Index(k))
            request = ElementRequest(self.node.operands[1], tuple(where))
            start = start_variable(request, UNCLAMPED, clamped=False)
            emitter.emit(trace(self.graph, [request], self.context.stored))
            emitter.define_starts_of(start)
            bounds.append(Bound(start, 0, self.node.shape[d] - self.work.sizes[d] + 1))
            offsets[d] = start
        return _Place(tuple(bounds), tuple(offsets))

    def _apply(self, emitter: Emitter, number: Index, piece: Index, place: _Place) -> None:
        """The loop over a piece of the window that applies the update of index `number` at the place."""
        emitter.push(self.lane)
        name, flat = self._update(emitter, number, piece), self._flat(place, piece)
        kind = str(self.node.attributes["kind"])
        for buffer in self.context.stores_of(self.number):
            emitter.put(loops.Update(buffer, self.node.dtype, flat, kind, name))
        self._put_lanes(emitter)

    def _window_index(self, piece: Index) -> tuple[Index, ...]:
        return tuple(unravel(piece * self.work.chunk + Index.of_var(self.lane), self.work.window_shape))

    def _update(self, emitter: Emitter, number: Index, piece: Index) -> str:
        """The name of the current element of the update of index `number`."""
        position = [ZERO] * len(self.updates.shape)
        for d, index in zip_strict(self.work.batch_dims, unravel(number, self.work.batch_shape)):
            position[d] = index
        for d, index in zip_strict(self.work.numbers.offset_dims, self._window_index(piece)):
            position[d] = index
        update = ElementRequest(self.node.operands[2], tuple(position))
        emitter.emit(trace(self.graph, [update], self.context.stored))
        return emitter.name_of(update)

    def _flat(self, place: _Place, piece: Index) -> Index:
        """Where the current element of the window is in the result."""
        offsets = list(self._window_index(piece))
        target = [
            place.position[d] + (ZERO if d in self.work.numbers.collapsed_slice_dims else offsets.pop(0))
            for d in range(len(self.node.shape))
        ]
        return linear(target, self.node.shape)

    def _put_lanes(self, emitter: Emitter) -> None:
        """Puts the loop over a piece of the window around the statements of the innermost scope."""
        body = emitter.pop()
        emitter.put(Loop(self.lane, self.work.chunk, LoopKind.SIMD if self.work.chunk > 1 else LoopKind.SERIAL, body))

    def _nest(self, emitter: Emitter, row: Var) -> tuple[Statement, ...]:
        body: Sequence[Statement] = emitter.pop()
        emitter.put(Loop(row, row.extent, LoopKind.SERIAL, tuple(body), bounds=("first_row", "last_row")))
        return emitter.pop()


def _same_place(first: _Place, second: _Place) -> tuple[Bound, ...]:
    return tuple(Bound(b.index - a.index, 0, 1) for a, b in zip_strict(first.bounds, second.bounds))
