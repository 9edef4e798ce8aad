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

from ..ir.index_maps import Index
from ..loops import loops
from ..loops.loops import Assign, Let, Load, LoadLocal, Local, Loop, LoopKind, Product
from ..ops.propagation import ElementRequest
from ..planning.access import Trace, trace
from ..planning.products import RowProduct, is_moved
from .context import Context
from .passes import Member, RowSplit
from .values import Emitter


class ProductLowering:
    """The product of a member that the plan computes by rows."""

    def __init__(self, context: Context, emitter: Emitter, member: Member, form: RowProduct) -> None:
        self._context, self._emitter, self._member, self._form = context, emitter, member, form
        self._node = context.graph.nodes[member.segment.node]
        self._right = Load(emitter.buffer_of[form.right.node], self._node.dtype, form.flat)
        self.term, self.left = form.term, form.left

    @property
    def split(self) -> RowSplit:
        """The loop over the left factors of a row, for the planning of tiles."""
        return RowSplit(self.term.extent, ((self.term, 1),), 1)

    def lower(self, local: str) -> None:
        """Puts the statements that fill `local`, an array of the row's sums."""
        emitter, member, form = self._emitter, self._member, self._form
        assert form.right not in emitter.tiles, "a right factor is no row"
        several = form.outer > 1
        if several:
            emitter.push(form.repeat)
        left, factor = self._factors()
        offset = Index.of_var(form.repeat) * form.columns if several else Index(0)
        emitter.put(Product(local, member.accumulator, offset, form.term, form.column, left, factor, self._right))
        if several:
            body = emitter.pop()
            emitter.put(Loop(form.repeat, form.outer, LoopKind.SERIAL, body))

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


def _is_loaded(steps: Trace) -> bool:
    return is_moved(steps) and not any(_is_computed(request) for request, _ in steps.loads())


def _is_computed(request: ElementRequest) -> bool:
    """Whether finding out where the element lies takes more than its position."""
    return bool(request.guard) or any(variable.source is not None for variable in request.variables)
