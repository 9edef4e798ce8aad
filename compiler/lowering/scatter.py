"""Scatters to loops, so that the result depends neither on threads nor on their order: updates of one place are applied one after
the other, in the order of the indices.

    by windows   a task has a piece of the window and goes through all indices: what a CPU does, and what is right wherever windows
                 overlap in part
    by owners    (on a GPU) a task has one index and a piece of the window. The first index that names a place owns it: its task alone
                 applies all updates there. Tasks look through the indices together; most own a place that only they name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..ir.graph import DType
from ..ir.index_maps import ZERO, Bound, Index, Var, guard_of, linear, unravel
from ..loops import loops
from ..loops.loops import Collapse, Combine, If, LetIndex, Local, Loop, LoopKind, NestCode, Statement
from ..planning.access import Request, gather_numbers, start_variable, trace
from ..planning.mapping import Segment
from ..support.divisors import divisor_near
from ..targets.targets import GpuTarget
from .context import BufferNumbers, Context
from .values import Emitter

UNCLAMPED = 1 << 62
MOST_OWNERS = 1 << 15
"""Indices above which looking for a place's owner, all by all, costs more than it saves."""


def lower_scatter(context: Context, segment: Segment) -> NestCode:
    """The nest of one scatter, which updates its base in place."""
    scatter = _Scatter(context, segment)
    if isinstance(context.plan.target, GpuTarget) and scatter.windows_meet_whole and 1 < scatter.count <= MOST_OWNERS:
        return scatter.by_owners()
    return scatter.by_windows()


@dataclass(frozen=True)
class _Place:
    """Where an index points to: for each dimension that it names, its start and what that must be within; the place in all."""

    bounds: tuple[Bound, ...]
    position: tuple[Index, ...]


class _Scatter:
    def __init__(self, context: Context, segment: Segment) -> None:
        self.context, self.number = context, segment.node
        self.graph = context.plan.graph
        self.node = node = self.graph.nodes[segment.node]
        self.numbers = gather_numbers(node)
        self.updates, self.indices = (self.graph.nodes[node.operands[k]] for k in (2, 1))
        dims = range(len(self.updates.shape))
        self.batch_dims = [d for d in dims if d not in self.numbers.offset_dims]
        self.batch_shape = tuple(self.updates.shape[d] for d in self.batch_dims)
        self.window_shape = tuple(self.updates.shape[d] for d in self.numbers.offset_dims)
        self.count = math.prod(self.batch_shape)
        window = math.prod(self.window_shape)
        self.chunk = divisor_near(window, 256) if window > 256 else window
        if self.chunk < 16:
            self.chunk = window
        self.pieces = window // self.chunk
        self.lane = Var("w", self.chunk)
        sizes = list(self.window_shape)
        self.target_sizes = [
            1 if d in self.numbers.collapsed_slice_dims else sizes.pop(0) for d in range(len(node.shape))
        ]

    @property
    def windows_meet_whole(self) -> bool:
        """Whether two windows are the same or have nothing in common."""
        return all(self.target_sizes[d] == 1 for d in self.numbers.start_index_map)

    def by_windows(self) -> NestCode:
        row, batch = Var("r", self.pieces), Var("b", self.count)
        emitter = Emitter(self.graph, BufferNumbers(self.context), row)
        for variable in (None, row, batch):
            emitter.push(variable)
        place = self._place(emitter, Index.of_var(batch))
        emitter.push(None)  # the guarded body: nothing moves out of it
        self._apply(emitter, Index.of_var(batch), Index.of_var(row), place)
        emitter.put(If(guard_of(place.bounds), emitter.pop()))
        emitter.put(Loop(batch, batch.extent, LoopKind.SERIAL, emitter.pop()))
        return self._nest(emitter, row)

    def by_owners(self) -> NestCode:
        row, other, later = Var("r", self.count * self.pieces), Var("o", self.count), Var("p", self.count)
        emitter = Emitter(self.graph, BufferNumbers(self.context), row)
        for variable in (None, row):
            emitter.push(variable)
        own, piece = unravel(Index.of_var(row), (self.count, self.pieces))
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
        emitter.put(If((Bound(Index.of_var(same), 2, self.count + 1),), emitter.pop()))
        owns = Bound(Index.of_var(first) - own, 0, 1)
        emitter.put(If((*guard_of(place.bounds), owns), emitter.pop()))
        return self._nest(emitter, row)

    def _look_through(self, emitter: Emitter, other: Var, place: _Place) -> tuple[Var, Var]:
        """The first index that names the place, and how many do; all indices are looked through."""
        lanes = self.context.plan.target.lanes
        emitter.put(Local("firsts", DType.S32, lanes, "min"))
        emitter.put(Local("sames", DType.S32, lanes, "sum"))
        emitter.push(other)
        alike = _same_place(place, self._place(emitter, Index.of_var(other)))
        depth = len(emitter.scopes) - 1
        number = emitter.let(DType.S32, loops.FromIndex(Index.of_var(other)), depth)
        for local, kind, yes, no in (("firsts", "min", number, str(self.count)), ("sames", "sum", "1", "0")):
            value = emitter.let(DType.S32, loops.Choose(((alike, yes),), no), depth)
            emitter.put(Combine(local, DType.S32, None, kind, value))
        emitter.put(Loop(other, other.extent, LoopKind.LANES, emitter.pop(), width=lanes))
        found = []
        for local, kind in (("firsts", "min"), ("sames", "sum")):
            variable = Var(f"{local}_found", self.count + 1)
            emitter.put(Collapse(f"{local}_all", local, DType.S32, lanes, kind))
            emitter.put(LetIndex(variable, f"{local}_all", False))
            emitter.scopes[-1].variables.add(variable)
            found.append(variable)
        return found[0], found[1]

    def _place(self, emitter: Emitter, number: Index) -> _Place:
        """Where index `number` points to; what it loads for that is emitted."""
        offsets = [Index(0)] * len(self.node.shape)
        bounds: list[Bound] = []
        where_batch = unravel(number, self.batch_shape)
        for k, d in enumerate(self.numbers.start_index_map):
            where = list(where_batch)
            if self.numbers.index_vector_dim < len(self.indices.shape):
                where.insert(self.numbers.index_vector_dim, Index(k))
            request = Request(self.node.operands[1], tuple(where))
            start = start_variable(request, UNCLAMPED, clamped=False)
            emitter.emit(trace(self.graph, [request], self.context.stored))
            emitter.define_starts_of(start)
            bounds.append(Bound(start, 0, self.node.shape[d] - self.target_sizes[d] + 1))
            offsets[d] = start
        return _Place(tuple(bounds), tuple(offsets))

    def _apply(self, emitter: Emitter, number: Index, piece: Index, place: _Place) -> None:
        """The loop over a piece of the window that applies index `number`'s update at the place."""
        window_index = unravel(piece * self.chunk + Index.of_var(self.lane), self.window_shape)
        position = [ZERO] * len(self.updates.shape)
        for d, index in zip(self.batch_dims, unravel(number, self.batch_shape), strict=True):
            position[d] = index
        for d, index in zip(self.numbers.offset_dims, window_index, strict=True):
            position[d] = index
        offsets = list(window_index)
        target = [
            place.position[d] + (ZERO if d in self.numbers.collapsed_slice_dims else offsets.pop(0))
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
        emitter.put(Loop(self.lane, self.chunk, LoopKind.SIMD if self.chunk > 1 else LoopKind.SERIAL, body))

    def _nest(self, emitter: Emitter, row: Var) -> NestCode:
        body: Sequence[Statement] = emitter.pop()
        emitter.put(Loop(row, row.extent, LoopKind.SERIAL, tuple(body), bounds=("first_row", "last_row")))
        target = self.context.plan.target
        moved = self.updates.element_count * (target.light_ns + 2 * self.node.dtype.size_bytes / target.bytes_per_ns)
        cost = moved + 4.0 * self.count
        buffers = tuple(self.context.buffers)
        return NestCode(self.context.nest.number, buffers, emitter.pop(), row.extent, 1, cost, False)


def _same_place(one: _Place, other: _Place) -> tuple[Bound, ...]:
    return tuple(Bound(b.index - a.index, 0, 1) for a, b in zip(one.bounds, other.bounds, strict=True))
