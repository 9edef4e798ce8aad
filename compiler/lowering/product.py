"""A matrix product within a row: row r of [m, k] times [k, n] is a row of n sums, which stay in registers while k is walked once.

    local row[n]
    for k in [0, K) simd: factors[k] = ...      only if the left factors are computed, and not just loaded
    product row[n] = sum over k of factors[k] * right[k, n]

This is the update by rows of the outer-product form: each element of the right factor is loaded once per row, and nothing is stored
before the sums are complete. If the sums of a row fit the registers, it runs near a core's peak as long as the right factor stays in
L1 (the micro-kernel of BLIS with one row: Van Zee and van de Geijn, BLIS, 2015). The row is then in a local array like the result
of any reduction within a row, so that what follows (bias, activation, softmax, another product) is computed in the same row.
"""

from __future__ import annotations

import math

from ..ir.index_maps import Index, Var
from ..loops import loops
from ..loops.loops import Assign, Let, Load, LoadLocal, Local, Loop, LoopKind, Product
from ..ops.propagation import ElementRequest, Forward, LoadOwn
from ..planning.access import Trace, trace
from ..planning.accumulators import accumulator_dtype
from ..planning.mapping import inner_pieces, roots_of
from ..targets.targets import GpuTarget
from .context import Context
from .passes import Member, RowSplit
from .values import Emitter


class RowProduct:
    """The product of a member whose segment is a dot. `is_possible`: whether it can be written in the form above; if not, it is
    lowered like any other reduction, one term at a time."""

    def __init__(self, context: Context, emitter: Emitter, member: Member, row: Index) -> None:
        self._context, self._emitter, self._member = context, emitter, member
        self._node = context.graph.nodes[member.segment.node]
        self._pieces = inner_pieces(member.segment, member.mapping)
        terms = context.graph.nodes[self._node.operands[0]].shape[-1]
        kept = [extent for _, extent, reduced in self._pieces if not reduced]
        is_column = bool(self._pieces) and not self._pieces[0][2]
        self._columns = kept.pop(0) if is_column else 1
        self._outer = math.prod(kept)
        size = member.mapping.inner
        self.term = Var(f"k{terms}_1", terms)
        self._column, self._repeat = Var(f"n{size}", self._columns), Var(f"m{size}", self._outer)
        inner = Index.of_var(self._column) + Index.of_var(self.term) * self._columns
        inner = inner + Index.of_var(self._repeat) * (self._columns * terms)
        self.left, self._right = roots_of(context.graph, member.segment, member.mapping.point(row, inner))

    @property
    def split(self) -> RowSplit:
        """The loop over the left factors of a row, for the planning of tiles."""
        return RowSplit(self.term.extent, ((self.term, 1),), 1)

    def is_possible(self) -> bool:
        """Whether the right factor lies in memory as it is read, sums are in the factors' dtype, and the row consists of columns,
        terms and, perhaps, rows in this order."""
        context = self._context
        order = [reduced for _, _, reduced in self._pieces]
        if isinstance(context.target, GpuTarget) or order not in ([False, True], [False, True, False]):
            return False
        is_narrow = accumulator_dtype(context.graph, self._member.segment) is not self._node.dtype
        return not is_narrow and self._load_of_right() is not None

    def _load_of_right(self) -> Load | None:
        context, emitter = self._context, self._emitter
        steps = trace(context.graph, [self._right], context.stored)
        if not _is_moved(steps):
            return None
        ((request, flat),) = steps.loads()
        rest = flat - Index.of_var(self._column)
        is_plain = self._column not in rest.variables and all(variable.source is None for variable in flat.variables)
        if request.guard or not is_plain or request.node in emitter.row_results or request in emitter.tiles:
            return None
        return Load(emitter.buffer_of[request.node], self._node.dtype, flat)

    def lower(self, local: str) -> None:
        """Puts the statements that fill `local`, an array of the row's sums."""
        emitter, member = self._emitter, self._member
        right = self._load_of_right()
        assert right is not None
        several = self._outer > 1
        if several:
            emitter.push(self._repeat)
        left, factor = self._factors()
        offset = Index.of_var(self._repeat) * self._columns if several else Index(0)
        emitter.put(Product(local, member.accumulator, offset, self.term, self._column, left, factor, right))
        if several:
            body = emitter.pop()
            emitter.put(Loop(self._repeat, self._outer, LoopKind.SERIAL, body))

    def _factors(self) -> tuple[tuple[loops.Statement, ...], str]:
        """The statements that make one left factor available, and its name. What is computed is computed in a loop of its own, as
        vectors, and not once for each strip of columns."""
        context, emitter = self._context, self._emitter
        steps = trace(context.graph, [self.left], context.stored, emitter.tiles)
        if not _is_loaded(steps):
            values = emitter.fresh("factors")
            emitter.put(Local(values, self._node.dtype, self.term.extent, None))
            emitter.push(self.term)
            emitter.emit(steps)
            emitter.put(Assign(values, Index.of_var(self.term), emitter.name_of(self.left)))
            body = emitter.pop()
            emitter.put(Loop(self.term, self.term.extent, LoopKind.SIMD, body))
            name = emitter.fresh()
            return (Let(name, self._node.dtype, LoadLocal(values, Index.of_var(self.term))),), name
        emitter.push(self.term)
        emitter.emit(steps)
        name = emitter.name_of(self.left)
        return emitter.pop(), name


def _is_moved(steps: Trace) -> bool:
    """Whether elements are only loaded and moved, not computed."""
    return all(isinstance(step, (Forward, LoadOwn)) for step in steps.steps.values())


def _is_loaded(steps: Trace) -> bool:
    return _is_moved(steps) and not any(_is_computed(request) for request, _ in steps.loads())


def _is_computed(request: ElementRequest) -> bool:
    """Whether finding out where the element lies takes more than its position."""
    return bool(request.guard) or any(
        variable.source is not None for index in request.position for variable in index.variables
    )
