"""From a plan to loops: every nest lowered in its mode, reductions over rows completed, phases put in order, scratch
laid out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..ir.graph import Graph, Literal
from ..loops.loops import Assign, Blocks, Buffer, BufferKind, Instance, Loops, NestCode, Phase
from ..loops.scratch import lifetimes, plan_memory
from ..planning.access import attribute
from ..planning.cost import LANE_ALIGNMENT
from ..planning.families import Family
from ..planning.mapping import SegmentKind, spans_rows
from ..planning.plan import Plan
from ..planning.schemes import Nest
from .alias import alias_pairs
from .context import Context
from .lanes import LaneLowering
from .passes import BLOCK_ROWS
from .reduction.combine import lower_combine
from .reduction.scan import lower_scan
from .rows import RowLowering
from .scatter import lower_scatter
from .transpose import transpose_body, turn_of


def lower(plan: Plan) -> Loops:
    """The loops of a plan: one kernel."""
    phases: list[list[NestCode]] = [[] for _ in range(len(plan.levels) + 1)]
    aliases = alias_pairs(plan)
    for level, nests in enumerate(plan.levels):
        for nest in nests:
            phases[level].append(_lower_nest(plan, nest, aliases))
            for segment, mapping in nest.placed:
                if segment.kind is SegmentKind.REDUCE and spans_rows(segment, mapping):
                    phases[level + 1].append(lower_combine(plan, nest, segment, mapping))
    phases = [[nest for nest in phase if nest.body] for phase in phases]
    phases = [phase for phase in phases if phase]
    memory = plan_memory(lifetimes(phases))
    built = tuple(_phase(plan, nests) for nests in phases)
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


def _phase(plan: Plan, nests: list[NestCode]) -> Phase:
    cost = sum(nest.cost_ns for nest in nests)
    serial = cost < plan.target.serial_below_ns or sum(nest.tasks for nest in nests) == 1
    return Phase(tuple(nests), serial, cost)


def is_lane_wise(plan: Plan, nest: Nest) -> bool:
    """Whether the rows themselves are the lanes: they are too short to be worth a loop each."""
    longest = max(mapping.inner for _, mapping in nest.placed)
    if longest == 1:
        return True
    shared = any(spans_rows(segment, mapping) for segment, mapping in nest.placed)
    return longest <= plan.target.unroll_row and nest.rows >= 4 * plan.target.lanes and not (shared and longest > 4)


def _lower_nest(plan: Plan, nest: Nest, aliases: dict[Buffer, set[Buffer]]) -> NestCode:
    context = Context(plan, nest, [])
    cost = plan.costs[nest.number]
    if nest.placed[0][0].kind is SegmentKind.SCATTER:
        return lower_scatter(context, nest.placed[0][0])
    if nest.placed[0][0].kind is SegmentKind.SCAN:
        return lower_scan(context, *nest.placed[0])
    turn = turn_of(plan, nest)
    if turn is not None:
        body = transpose_body(context, turn)
    else:
        body = LaneLowering(context).body() if is_lane_wise(plan, nest) else RowLowering(context).body()
    partial = any(spans_rows(segment, mapping) for segment, mapping in nest.placed)
    here = set(context.buffers)
    shared = frozenset(number for number, buffer in enumerate(context.buffers) if aliases.get(buffer, set()) & here)
    rows_per_task = plan.rows_per_task(nest) if turn is None else 1
    if rows_per_task < nest.rows and any(isinstance(item, Blocks) and item.size == BLOCK_ROWS for item in body):
        rows_per_task = -(-rows_per_task // BLOCK_ROWS) * BLOCK_ROWS  # whole squares
    code = NestCode(
        nest.number,
        tuple(context.buffers),
        body if context.buffers else (),
        nest.rows if turn is None else turn.count,
        rows_per_task,
        cost.one_core_ns,
        partial,
        shared,
    )
    family = plan.families.get(nest.number)
    return code if family is None else _with_instances(code, family)


def _with_instances(code: NestCode, family: Family) -> NestCode:
    """The nest of a family's representative, run for all its components."""
    found: list[Instance] = []
    start = 0
    for component in family.instances:
        buffers = []
        for buffer in code.buffers:
            numbers = {BufferKind.INPUT: component.inputs, BufferKind.OUTPUT: component.outputs}.get(buffer.kind)
            if numbers is not None and buffer.number in numbers:
                elements = component.size if buffer.elements > 1 else buffer.elements
                buffer = Buffer(buffer.kind, numbers[buffer.number], buffer.dtype, elements)
            buffers.append(buffer)
        found.append(Instance(tuple(buffers), component.size, start))
        start += -(-component.size // LANE_ALIGNMENT) * LANE_ALIGNMENT
    cost = code.cost_ns / code.rows * sum(instance.rows for instance in found)
    return replace(code, instances=tuple(found), rows=start, cost_ns=cost)


__all__ = ["Assign", "lower"]
