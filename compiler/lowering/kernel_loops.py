"""From a plan to loops: lowers every nest in its mode, phase by phase, and lays out scratch. The plan decides which nests there
are, in which phases, and how each is executed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from ..ir.graph import Graph, Literal
from ..loops.loops import Buffer, BufferKind, Instance, Loops, NestCode, Phase, Statement
from ..loops.scratch import lifetimes, plan_memory
from ..ops.attributes import attribute
from ..planning.execution import Execution, Mode
from ..planning.families import Family
from ..planning.plan import PhaseNest, Plan
from ..support.sequences import zip_strict
from .alias import alias_pairs
from .context import Context
from .lanes import LaneLowering
from .reduction.combine import combine_body
from .reduction.scan import scan_body
from .row_blocks import numbers_of_rows, passes_of_rows, products_of_rows
from .rows import RowLowering
from .scatter import scatter_body, table_body
from .spread import spread_rows
from .transpose import transpose_body
from .turned_lanes import turned_lanes
from .turned_rows import turned_rows


def lower(plan: Plan) -> Loops:
    """The loops of a plan: one kernel, with the plan's phases, rows and tasks."""
    aliases = alias_pairs(plan)
    built = tuple(
        Phase(
            tuple(_lower_nest(plan, phase_nest, aliases) for phase_nest in phase.nests), phase.is_serial, phase.cost_ns
        )
        for phase in plan.phases
    )
    memory = plan_memory(lifetimes([list(phase.nests) for phase in built]))
    buffers: dict[Buffer, None] = {}
    for phase in built:
        for code in phase.nests:
            buffers.update(dict.fromkeys(code.all_buffers))
    constants = {
        buffer.number: _constant_bytes(plan.graph, buffer.number)
        for buffer in buffers
        if buffer.kind is BufferKind.CONSTANT
    }
    return Loops(plan.graph.name, tuple(buffers), built, constants, dict(memory.offsets), memory.total_bytes)


def _constant_bytes(graph: Graph, node: int) -> bytes:
    return np.ascontiguousarray(attribute(graph.nodes[node], "literal", Literal).value).tobytes()


def _lower_nest(plan: Plan, phase_nest: PhaseNest, aliases: dict[Buffer, set[Buffer]]) -> NestCode:
    """The code of one nest of a phase, of the combination of its partial results or of a step for its table, executed as the plan
    says."""
    context, execution = Context(plan, phase_nest.nest, []), phase_nest.execution
    if phase_nest.partial is not None:
        body = combine_body(context, execution, *phase_nest.partial)
        return _code(context, execution, body, number=-1)
    if phase_nest.table is not None:
        body = table_body(context, phase_nest.table, execution)
        return _code(context, execution, body, number=-1)
    body = _body(context, execution)
    here = set(context.buffers) if execution.mode not in NEVER_IN_PLACE else set()
    shared = frozenset(number for number, buffer in enumerate(context.buffers) if aliases.get(buffer, set()) & here)
    code = _code(context, execution, body, phase_nest.nest.number, shared)
    family = plan.families.get(phase_nest.nest.number)
    if execution.turns is not None:
        code = turned_rows(code, execution.turns)
    elif execution.lanes_together > 1:
        code = turned_lanes(code, execution.lanes_together)
    elif execution.rows_together > 1:
        code = products_of_rows(code, execution.rows_together)
    elif execution.numbers_together > 1:
        code = numbers_of_rows(code, execution.numbers_together)
    elif execution.passes_together > 1:
        code = passes_of_rows(code, execution.passes_together)
    if execution.busy_rows:
        return spread_rows(code, execution.busy_rows)
    return code if family is None else replace(code, instances=tuple(_instances(code, family)))


NEVER_IN_PLACE: Final = (Mode.SCATTER, Mode.OWNERS, Mode.SCAN, Mode.SCAN_LANES)


def _body(context: Context, execution: Execution) -> tuple[Statement, ...]:
    segment, mapping = context.nest.placed[0]
    mode = execution.mode
    if mode in (Mode.SCATTER, Mode.OWNERS):
        return scatter_body(context, segment, execution)
    if mode in (Mode.SCAN, Mode.SCAN_LANES):
        return scan_body(context, segment, mapping, execution)
    if mode is Mode.TILED_TRANSPOSE:
        assert execution.transpose is not None
        return transpose_body(context, execution.transpose)
    if mode is Mode.LANES:
        return LaneLowering(context).body()
    if mode is Mode.SQUARES:
        assert execution.order is not None
        return RowLowering(context).squares(execution.order, execution.panel_rows)
    if mode is Mode.ROWS:
        return RowLowering(context).body()
    raise AssertionError(f"{mode} is no way to execute a nest")


def _code(
    context: Context,
    execution: Execution,
    body: tuple[Statement, ...],
    number: int,
    may_alias: frozenset[int] = frozenset(),
) -> NestCode:
    return NestCode(
        number,
        tuple(context.buffers),
        body,
        execution.rows,
        execution.rows_per_task,
        execution.cost_ns,
        execution.keeps_tasks,
        may_alias,
    )


def _instances(code: NestCode, family: Family) -> Iterator[Instance]:
    """The buffers and rows of each component, derived from the code of the family's representative."""
    for component, start in zip_strict(family.instances, family.starts):
        buffers = []
        for buffer in code.buffers:
            numbers = {BufferKind.INPUT: component.inputs, BufferKind.OUTPUT: component.outputs}.get(buffer.kind)
            if numbers is not None and buffer.number in numbers:
                elements = component.size if buffer.elements > 1 else buffer.elements
                buffer = Buffer(buffer.kind, numbers[buffer.number], buffer.dtype, elements)
            buffers.append(buffer)
        yield Instance(tuple(buffers), component.size, start)


__all__ = ["lower"]
