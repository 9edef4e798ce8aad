"""From a plan to loops: every nest lowered in its mode, reductions over rows completed, phases put in order, scratch
laid out."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from . import loops
from .families import Family
from .graph import Graph, Literal
from .loops import (
    Assign,
    Blocks,
    Buffer,
    BufferKind,
    Collapse,
    Combine,
    Instance,
    Let,
    Local,
    Loop,
    LoopKind,
    Loops,
    NestCode,
    Phase,
    Store,
)
from .lowering_context import Context, kind_of, partial_dtype
from .lowering_lanes import LaneLowering
from .lowering_rows import RowLowering
from .lowering_scatter import lower_scatter
from .lowering_transpose import transpose_body, turn_of
from .mapping import RowMap, Segment, SegmentKind, spans_rows
from .memory import lifetimes, plan_memory
from .plan import Plan
from .plan_access import attribute
from .plan_alias import alias_pairs
from .plan_cost import LANE_ALIGNMENT
from .plan_index import Index, Var
from .schemes import Nest
from .targets import GpuTarget

COMBINE_BLOCK = 1024


def lower(plan: Plan) -> Loops:
    """The loops of a plan: one kernel."""
    phases: list[list[NestCode]] = [[] for _ in range(len(plan.levels) + 1)]
    aliases = alias_pairs(plan)
    for level, nests in enumerate(plan.levels):
        for nest in nests:
            phases[level].append(_lower_nest(plan, nest, aliases))
            for segment, mapping in nest.placed:
                if segment.kind is SegmentKind.REDUCE and spans_rows(segment, mapping):
                    phases[level + 1].append(_lower_combine(plan, nest, segment, mapping))
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
    turn = turn_of(plan, nest)
    if turn is not None:
        body = transpose_body(context, turn)
    else:
        body = LaneLowering(context).body() if is_lane_wise(plan, nest) else RowLowering(context).body()
    partial = any(spans_rows(segment, mapping) for segment, mapping in nest.placed)
    here = set(context.buffers)
    shared = frozenset(number for number, buffer in enumerate(context.buffers) if aliases.get(buffer, set()) & here)
    code = NestCode(
        nest.number,
        tuple(context.buffers),
        body if context.buffers else (),
        nest.rows if turn is None else turn.count,
        plan.rows_per_task(nest) if turn is None else 1,
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


def _lower_combine(plan: Plan, nest: Nest, segment: Segment, mapping: RowMap) -> NestCode:
    """The tasks' partial results of a reduction over rows combined, in an order that shapes and the device decide: the same on any
    number of threads."""
    context = Context(plan, nest, [])
    graph = plan.graph
    node = graph.nodes[segment.node]
    tasks, count = plan.tasks_of(nest), node.element_count
    partial = plan.partial_buffer(segment, mapping)
    dtype = partial_dtype(graph, segment, mapping)
    kind = kind_of(graph, segment)
    source = context.number_of(partial)
    row, task = Var("r", count), Var("t", tasks)
    load = Let("part", dtype, loops.Load(source, dtype, Index.of_var(task) * count + Index.of_var(row)))
    finish: list[loops.Statement] = []
    name = "sum"
    if dtype is not node.dtype:
        finish.append(Let("rounded", node.dtype, loops.Convert(dtype, "sum")))
        name = "rounded"
    finish.extend(Store(buffer, node.dtype, Index.of_var(row), name) for buffer in context.stores_of(segment.node))
    cost = tasks * count * (plan.target.light_ns + dtype.size_bytes / plan.target.bytes_per_ns)
    if isinstance(plan.target, GpuTarget) and count < plan.target.multiprocessors * plan.target.busy_threads:
        # Too few results to keep the device busy with a thread each: a group of threads shares the parts of one.
        lanes = plan.target.lanes
        result = (
            Local("total", dtype, lanes, kind),
            Loop(task, tasks, LoopKind.LANES, (load, Combine("total", dtype, None, kind, "part")), width=lanes),
            Collapse("sum", "total", dtype, lanes, kind),
            *finish,
        )
        body: loops.Statement = Loop(row, count, LoopKind.SERIAL, result, bounds=("first_row", "last_row"))
        return NestCode(-1, tuple(context.buffers), (body,), count, 1, cost, False)
    block = min(count, COMBINE_BLOCK)
    place = Index.of_var(row) - Index.of_var(Var("block_first", count))
    bounds = ("block_first", "block_last")
    body = Blocks(
        block,
        (
            Local("total", dtype, block, kind),
            Loop(
                task,
                tasks,
                LoopKind.SERIAL,
                (Loop(row, block, LoopKind.SIMD, (load, Combine("total", dtype, place, kind, "part")), bounds=bounds),),
            ),
            Loop(
                row,
                block,
                LoopKind.SIMD,
                (Let("sum", dtype, loops.LoadLocal("total", place)), *finish),
                bounds=bounds,
            ),
        ),
    )
    if isinstance(plan.target, GpuTarget):
        return NestCode(-1, tuple(context.buffers), (body,), count, min(count, plan.target.block), cost, False)
    per_task = max(1, math.ceil(count * plan.target.task_ns / max(cost, 1)))
    per_task = min(count, -(-per_task // LANE_ALIGNMENT) * LANE_ALIGNMENT)
    return NestCode(-1, tuple(context.buffers), (body,), count, per_task, cost, False)


__all__ = ["Assign", "lower"]
