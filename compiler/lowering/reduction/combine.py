"""Combines the partial results of a reduction over rows, in an order that follows from shapes and the device, so that it is the
same for any number of threads. In memory they are one row of `count` results per task.

    on the CPU            a task takes neighbouring results, up to COMBINE_BLOCK at once, and goes through the rows
    on a GPU, results     enough to keep the device busy with one thread each: as on the CPU
              one         a group of threads shares its parts, which lie end to end
              few         a block takes neighbouring results, a sector of memory or more, and its groups of threads share the rows;
                          the groups' totals are combined in shared memory
"""

from __future__ import annotations

from ...ir.index_maps import Bound, Index, Var, guard_of
from ...loops import loops
from ...loops.loops import Blocks, Collapse, Combine, If, Let, Local, Loop, LoopKind, Store
from ...planning.accumulators import kind_of, partial_dtype
from ...planning.execution import Execution, Mode
from ...planning.mapping import RowMap, Segment
from ..context import Context

COMBINE_BLOCK = 1024


def combine_body(
    context: Context, execution: Execution, segment: Segment, mapping: RowMap
) -> tuple[loops.Statement, ...]:
    """The statements that combine the partial results of `segment`, as `execution` says."""
    combination = _Combination(context, segment, mapping)
    if execution.mode is Mode.BLOCKS:
        return combination.in_blocks()
    return combination.of_one() if execution.mode is Mode.ONE else combination.in_columns(execution.columns)


class _Combination:
    def __init__(self, context: Context, segment: Segment, mapping: RowMap) -> None:
        self.context, self.target = context, context.target
        self.number, self.node = segment.node, context.graph.nodes[segment.node]
        self.kind = kind_of(context.graph, segment)
        self.dtype = partial_dtype(context.graph, segment, mapping)
        self.tasks, self.count = context.plan.executions[context.nest.number].tasks, self.node.element_count
        self.source = context.number_of(context.plan.partial_buffer(segment, mapping))

    def _load(self, task: Index, place: Index, guard: tuple[Bound, ...] = ()) -> Let:
        return Let("part", self.dtype, loops.Load(self.source, self.dtype, task * self.count + place, guard))

    def _finish(self, place: Index) -> list[loops.Statement]:
        """Rounds and stores `sum`, the result at `place`."""
        found: list[loops.Statement] = []
        name = "sum"
        if self.dtype is not self.node.dtype:
            found.append(Let("rounded", self.node.dtype, loops.Convert(self.dtype, "sum")))
            name = "rounded"
        buffers = self.context.stores_of(self.number)
        return [*found, *(Store(buffer, self.node.dtype, place, name) for buffer in buffers)]

    def in_blocks(self) -> tuple[loops.Statement, ...]:
        block = min(self.count, COMBINE_BLOCK)
        row, task = Var("r", self.count), Var("t", self.tasks)
        place = Index.of_var(row) - Index.of_var(Var("block_first", self.count))
        bounds = ("block_first", "block_last")
        add = (
            self._load(Index.of_var(task), Index.of_var(row)),
            Combine("total", self.dtype, place, self.kind, "part"),
        )
        finish = (Let("sum", self.dtype, loops.LoadLocal("total", place)), *self._finish(Index.of_var(row)))
        return (
            Blocks(
                block,
                (
                    Local("total", self.dtype, block, self.kind),
                    Loop(task, self.tasks, LoopKind.SERIAL, (Loop(row, block, LoopKind.SIMD, add, bounds=bounds),)),
                    Loop(row, block, LoopKind.SIMD, finish, bounds=bounds),
                ),
            ),
        )

    def of_one(self) -> tuple[loops.Statement, ...]:
        lanes, task = self.target.lanes, Var("t", self.tasks)
        add = (self._load(Index.of_var(task), Index(0)), Combine("total", self.dtype, None, self.kind, "part"))
        result = (
            Local("total", self.dtype, lanes, self.kind),
            Loop(task, self.tasks, LoopKind.LANES, add, width=lanes),
            Collapse("sum", "total", self.dtype, lanes, self.kind),
            *self._finish(Index(0)),
        )
        return (Loop(Var("r", 1), 1, LoopKind.SERIAL, result, bounds=("first_row", "last_row")),)

    def in_columns(self, columns: int) -> tuple[loops.Statement, ...]:
        """In the code, the rows of a task (of a block) are the parts of its results."""
        blocks = -(-self.count // columns)
        row, task, column = Var("r", blocks * self.tasks), Var("task", blocks), Var("c", columns)
        place = Index.of_var(task) * columns + Index.of_var(column)
        guard = guard_of([Bound(place, 0, self.count)])
        part = Index.of_var(row) - Index.of_var(task) * self.tasks
        add = (self._load(part, place, guard), Combine("total", self.dtype, Index.of_var(column), self.kind, "part"))
        finish: tuple[loops.Statement, ...] = tuple(self._finish(place))
        total = Let("sum", self.dtype, loops.LoadLocal("total", Index.of_var(column)))
        each = Loop(column, columns, LoopKind.SIMD, add)
        return (
            Local("total", self.dtype, columns, self.kind),
            Loop(row, blocks * self.tasks, LoopKind.SERIAL, (each,), bounds=("first_row", "last_row")),
            Loop(column, columns, LoopKind.SIMD, (total, If(guard, finish)) if guard else (total, *finish)),
        )
