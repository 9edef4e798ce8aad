"""The tasks' partial results of a reduction over rows combined, in an order that shapes and the device decide: the same on any
number of threads. They lie in memory as one row of `count` results for each task.

    on the CPU            a task takes neighbouring results, up to COMBINE_BLOCK at once, and goes through the rows
    on a GPU, results     enough to keep the device busy with a thread each: so too
              one         a group of threads shares its parts, which lie end to end
              few         a block takes neighbouring results, as many as a sector of memory holds or some more, and its groups
                          of threads share the rows; what they have added up is combined in shared memory (cuda_together.py)
"""

from __future__ import annotations

import math

from ...ir.index_maps import Bound, Index, Var, guard_of
from ...loops import loops
from ...loops.loops import Blocks, Collapse, Combine, If, Let, Local, Loop, LoopKind, NestCode, Store
from ...planning.accumulators import kind_of, partial_dtype
from ...planning.cost import LANE_ALIGNMENT
from ...planning.mapping import RowMap, Segment
from ...planning.plan import Plan
from ...planning.schemes import Nest
from ...targets.targets import GpuTarget
from ..context import Context

COMBINE_BLOCK = 1024
SECTOR_BYTES = 32
"""What a GPU's memory and caches move at least (CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory")."""
MOST_COLUMNS = 32
"""Neighbouring results that a block takes at most: one for each thread of a warp."""


def lower_combine(plan: Plan, nest: Nest, segment: Segment, mapping: RowMap) -> NestCode:
    """The nest that combines what the tasks of `nest` have left of `segment`."""
    return _Combination(plan, nest, segment, mapping).code()


class _Combination:
    def __init__(self, plan: Plan, nest: Nest, segment: Segment, mapping: RowMap) -> None:
        self.context = Context(plan, nest, [])
        self.target = plan.target
        self.number, self.node = segment.node, plan.graph.nodes[segment.node]
        self.kind = kind_of(plan.graph, segment)
        self.dtype = partial_dtype(plan.graph, segment, mapping)
        self.tasks, self.count = plan.tasks_of(nest), self.node.element_count
        self.source = self.context.number_of(plan.partial_buffer(segment, mapping))
        element_ns = plan.target.light_ns + self.dtype.size_bytes / plan.target.bytes_per_ns
        self.cost_ns = self.tasks * self.count * element_ns

    def code(self) -> NestCode:
        if not isinstance(self.target, GpuTarget):
            per_task = max(1, math.ceil(self.count * self.target.task_ns / max(self.cost_ns, 1)))
            per_task = min(self.count, -(-per_task // LANE_ALIGNMENT) * LANE_ALIGNMENT)
            return self._nest(self._in_blocks(), self.count, per_task)
        if self.count >= self.target.multiprocessors * self.target.busy_threads:
            return self._nest(self._in_blocks(), self.count, min(self.count, self.target.block))
        if self.count == 1:
            return self._nest(self._of_one(), 1, 1)
        columns = self._columns(self.target)
        return self._nest(
            self._in_columns(columns), -(-self.count // columns) * self.tasks, self.tasks, is_together=True
        )

    def _nest(
        self, body: tuple[loops.Statement, ...], rows: int, rows_per_task: int, is_together: bool = False
    ) -> NestCode:
        return NestCode(-1, tuple(self.context.buffers), body, rows, rows_per_task, self.cost_ns, is_together)

    def _load(self, task: Index, place: Index, guard: tuple[Bound, ...] = ()) -> Let:
        return Let("part", self.dtype, loops.Load(self.source, self.dtype, task * self.count + place, guard))

    def _finish(self, place: Index) -> list[loops.Statement]:
        """What becomes of `sum`, the result at `place`."""
        found: list[loops.Statement] = []
        name = "sum"
        if self.dtype is not self.node.dtype:
            found.append(Let("rounded", self.node.dtype, loops.Convert(self.dtype, "sum")))
            name = "rounded"
        buffers = self.context.stores_of(self.number)
        return [*found, *(Store(buffer, self.node.dtype, place, name) for buffer in buffers)]

    def _in_blocks(self) -> tuple[loops.Statement, ...]:
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

    def _of_one(self) -> tuple[loops.Statement, ...]:
        lanes, task = self.target.lanes, Var("t", self.tasks)
        add = (self._load(Index.of_var(task), Index(0)), Combine("total", self.dtype, None, self.kind, "part"))
        result = (
            Local("total", self.dtype, lanes, self.kind),
            Loop(task, self.tasks, LoopKind.LANES, add, width=lanes),
            Collapse("sum", "total", self.dtype, lanes, self.kind),
            *self._finish(Index(0)),
        )
        return (Loop(Var("r", 1), 1, LoopKind.SERIAL, result, bounds=("first_row", "last_row")),)

    def _columns(self, target: GpuTarget) -> int:
        """Results of a block: a sector's, or more while that leaves a block for each multiprocessor or groups without a row."""
        columns = SECTOR_BYTES // self.dtype.size_bytes
        while columns < MOST_COLUMNS and (
            self.count > 2 * columns * target.multiprocessors or self.tasks * columns < target.block
        ):
            columns *= 2
        return min(columns, self.count)

    def _in_columns(self, columns: int) -> tuple[loops.Statement, ...]:
        """The rows of a nest's task, the block's, are the parts of its results."""
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


__all__ = ["lower_combine"]
