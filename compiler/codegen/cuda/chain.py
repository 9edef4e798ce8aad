"""The longest chain of dependent steps of a nest's work item, from how its loops are distributed over threads. The cost model charges
it (lowering/gpu_cost.py)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from ...loops import loops
from ...loops.loops import Loop, NestCode, Statement, walk
from ...lowering.gpu_cost import Chain
from ...targets.targets import WARP
from .layout import Layout, ThreadMapping

MOST_SINGLE_READS = 4
"""Reads of single elements that are counted: the others overlap with these."""


def chain_of(code: NestCode, layout: Layout) -> Chain:
    """The longest chain of one work item. If threads reduce together in a serial loop, its iterations run one after the other; the
    iterations of any other loop, serial or distributed, overlap."""
    counter = _Counter(code, layout)
    counter.visit(code.body, 1, 1)
    reduces = counter.reduces + (len(layout.totals) if layout.together else 0)
    return Chain(counter.rounds, counter.iterations, reduces * max(1.0, layout.threads / WARP))


class _Counter:
    def __init__(self, code: NestCode, layout: Layout) -> None:
        self.code, self.layout = code, layout
        self.rounds = self.iterations = self.reduces = 0.0

    def visit(self, body: Sequence[Statement], times: int, overlapping: int) -> None:
        """times: how often the body runs, one after the other; overlapping: how often besides, at the same time."""
        singles = 0
        for statement in body:
            if isinstance(statement, Loop):
                mapping = self.layout.mappings.get(id(statement))
                if mapping is not None:
                    self._distributed(statement, mapping, times, overlapping)
                elif _reduces(statement.body):
                    self.visit(statement.body, times * self._trips(statement), overlapping)
                else:
                    self.visit(statement.body, times, overlapping * self._trips(statement))
            elif isinstance(statement, (loops.Blocks, loops.If)):
                self.visit(statement.body, times, overlapping)
            elif isinstance(statement, (loops.Collapse, loops.Fold)):
                self.reduces += times
            elif isinstance(statement, loops.Let) and isinstance(statement.value, loops.Load):
                singles += 1
        self.rounds += 0.5 * min(singles * times * overlapping, MOST_SINGLE_READS)

    def _distributed(self, loop: Loop, mapping: ThreadMapping, times: int, overlapping: int) -> None:
        inside = [*walk(loop.body)]
        reads = [one for one in inside if isinstance(one, loops.Let) and isinstance(one.value, loops.Load)]
        if all(one.name in mapping.kept for one in reads):
            return
        extent = self._task_rows() if loop.bounds == ("first_row", "last_row") else loop.extent
        own = -(-extent // (mapping.threads * mapping.width)) * prod(max(1, one.extent) for one in _loops(inside))
        self.rounds += times
        self.iterations += times * (overlapping * own - 1)

    def _trips(self, loop: Loop) -> int:
        if loop.bounds != ("first_row", "last_row"):
            return loop.extent
        return -(-self._task_rows() // self.layout.groups) if self.layout.together else self._task_rows()

    def _task_rows(self) -> int:
        return min(self.code.rows_per_task, self.code.rows)


def _loops(statements: Iterable[Statement]) -> Iterable[Loop]:
    return (one for one in statements if isinstance(one, Loop))


def _reduces(body: Sequence[Statement]) -> bool:
    return any(isinstance(one, (loops.Collapse, loops.Fold)) for one in walk(body))
