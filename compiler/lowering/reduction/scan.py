"""Lowers scans to loops: each row has one accumulator per neighbour side by side, and goes through the dimension once.

    neighbours side by side   the loop over them is vectorised; every sum is in order
    one, a long dimension     lanes are scanned together (LoopKind.SCAN): a block of lanes, then the sum so far is added
    one, a short dimension    rows are the lanes, and the dimension is written out

On a CPU, sums and products of floats overflow as they would in order: what has become infinite stays infinite (`loops.Scan`).
"""

from __future__ import annotations

from ...ir.graph import DType
from ...ir.index_maps import ZERO, Index, Var, unravel
from ...loops import loops
from ...loops.loops import Assign, Local, Loop, LoopKind, Scan, Statement, Store
from ...ops.propagation import ElementRequest
from ...ops.reference import prefix_of_scan
from ...planning.access import trace
from ...planning.execution import Execution, Mode
from ...planning.mapping import RowMap, Segment, roots_of
from ..context import BufferNumbers, Context
from ..values import Emitter

LANES = 16
"""Lanes of a SCAN loop: two vectors of 32 bytes, or one of 64, of floats."""
MOST_IN_FLOAT = 512
"""For more elements, floats are accumulated in double: a sum in order has as many roundings as elements."""


def scan_body(context: Context, segment: Segment, mapping: RowMap, execution: Execution) -> tuple[Statement, ...]:
    """The statements of one scan."""
    lowering = _ScanLowering(context, segment, mapping)
    return lowering.rows_as_lanes() if execution.mode is Mode.SCAN_LANES else lowering.by_rows()


class _ScanLowering:
    def __init__(self, context: Context, segment: Segment, mapping: RowMap) -> None:
        self.context, self.segment, self.mapping = context, segment, mapping
        self.graph = context.graph
        self.node = self.graph.nodes[segment.node]
        self.prefix = prefix_of_scan(self.node)
        self.kind = str(self.node.attributes["kind"])
        self.extent = self.node.shape[self.prefix.dimension]
        self.beside = mapping.inner // self.extent
        self.steps = self.extent - (1 - self.prefix.first)
        """An exclusive scan stores each result one place further on, and does not need the last element."""
        self.emitter = Emitter(self.graph, BufferNumbers(context), context.row)
        self.row = Index.of_var(context.row)

    @property
    def accumulator(self) -> DType:
        if self.node.dtype in (DType.F16, DType.BF16):
            return DType.F32
        is_long = self.node.dtype is DType.F32 and self.kind == "sum" and self.extent > MOST_IN_FLOAT
        return DType.F64 if is_long else self.node.dtype

    def _point(self, step: Index, lane: Index) -> Index:
        """The linear element of the row's `lane` at a step in the scan's direction."""
        place = Index(self.extent - 1) - step if self.prefix.reverse else step
        return self.mapping.point(self.row, place * self.beside + lane)

    def _start(self, lane: Index) -> str:
        """The name of the value from which a lane's scan starts."""
        position = list(unravel(self._point(Index(0), lane), self.node.shape))
        del position[self.prefix.dimension]
        request = ElementRequest(self.node.operands[1], tuple(position))
        self.emitter.emit(trace(self.graph, [request], self.context.stored))
        return self.emitter.name_of(request)

    def _element(self, step: Index, lane: Index) -> str:
        (root,) = roots_of(self.graph, self.segment, self._point(step, lane))
        self.emitter.emit(trace(self.graph, [root], self.context.stored))
        return self.emitter.name_of(root)

    def _stores(self, step: Index, lane: Index, name: str) -> list[Statement]:
        place = self._point(step, lane)
        return [Store(buffer, self.node.dtype, place, name) for buffer in self.context.stores_of(self.segment.node)]

    def rows_as_lanes(self) -> tuple[Statement, ...]:
        """Straight-line code for a row; the loop over rows is vectorised."""
        emitter, depth = self.emitter, 1
        emitter.push(None)
        emitter.push(self.context.row)
        total, writes = self._start(ZERO), []
        if self.accumulator is not self.node.dtype:
            total = emitter.let(self.accumulator, loops.Convert(self.node.dtype, total), depth)
        for step in range(self.extent):
            if self.prefix.first == 0:
                writes += self._stores(Index(step), ZERO, self._rounded(total, depth))
            if step < self.steps:
                value = self._element(Index(step), ZERO)
                total = emitter.let(self.accumulator, loops.Merge(self.kind, total, value), depth)
            if self.prefix.first == 1:
                writes += self._stores(Index(step), ZERO, self._rounded(total, depth))
        for statement in writes:
            emitter.put(statement)
        return self._row_loop(LoopKind.SIMD)

    def _rounded(self, name: str, depth: int) -> str:
        if self.accumulator is self.node.dtype:
            return name
        return self.emitter.let(self.node.dtype, loops.Convert(self.accumulator, name), depth)

    def _row_loop(self, kind: LoopKind) -> tuple[Statement, ...]:
        body = self.emitter.pop()
        bounds = ("first_row", "last_row")
        self.emitter.put(Loop(self.context.row, self.context.nest.rows, kind, body, bounds=bounds))
        return self.emitter.pop()

    def by_rows(self) -> tuple[Statement, ...]:
        emitter = self.emitter
        emitter.push(None)
        emitter.push(self.context.row)
        emitter.put(Local("total", self.accumulator, self.beside, None))
        self._begin()
        if self.steps and self.beside == 1:
            step = Var("k", self.steps)
            emitter.push(step)
            self._step(Index.of_var(step), ZERO)
            emitter.put(Loop(step, self.steps, LoopKind.SCAN, emitter.pop(), LANES))
        elif self.steps:
            step, lane = Var("k", self.steps), Var("w", self.beside)
            emitter.push(step)
            emitter.push(lane)
            self._step(Index.of_var(step), Index.of_var(lane))
            emitter.put(Loop(lane, self.beside, LoopKind.SIMD, emitter.pop()))
            emitter.put(Loop(step, self.steps, LoopKind.SERIAL, emitter.pop()))
        return self._row_loop(LoopKind.SERIAL)

    def _begin(self) -> None:
        """Fills the accumulators. The first result of an exclusive scan is its start."""
        emitter, lane = self.emitter, Var("v", self.beside)
        emitter.push(lane)
        place = Index.of_var(lane) if self.beside > 1 else ZERO
        name = self._start(place)
        emitter.put(Assign("total", place, name))
        if self.prefix.first == 0:
            for statement in self._stores(Index(0), place, name):
                emitter.put(statement)
        body, kind = emitter.pop(), LoopKind.SIMD if self.beside > 1 else LoopKind.SERIAL
        emitter.put(Loop(lane, self.beside, kind, body))

    def _step(self, step: Index, lane: Index) -> None:
        emitter = self.emitter
        value, name = self._element(step, lane), emitter.fresh("scan")
        emitter.put(Scan(name, self.node.dtype, "total", self.accumulator, lane, self.kind, value))
        for statement in self._stores(step + (1 - self.prefix.first), lane, name):
            emitter.put(statement)
