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
    Combine,
    If,
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
from .lowering_context import BufferNumbers, Context, kind_of, partial_dtype
from .lowering_lanes import LaneLowering
from .lowering_rows import RowLowering
from .lowering_values import Emitter
from .mapping import RowMap, Segment, SegmentKind, divisor_near, spans_rows
from .memory import lifetimes, plan_memory
from .plan import Plan
from .plan_access import Request, attribute, gather_numbers, start_variable, trace
from .plan_alias import alias_pairs
from .plan_cost import LANE_ALIGNMENT
from .plan_index import ZERO, Bound, Index, Var, guard_of, linear, unravel
from .schemes import Nest

COMBINE_BLOCK = 1024
UNCLAMPED = 1 << 62


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
        return _lower_scatter(context, nest.placed[0][0])
    body = LaneLowering(context).body() if is_lane_wise(plan, nest) else RowLowering(context).body()
    partial = any(spans_rows(segment, mapping) for segment, mapping in nest.placed)
    here = set(context.buffers)
    shared = frozenset(number for number, buffer in enumerate(context.buffers) if aliases.get(buffer, set()) & here)
    code = NestCode(
        nest.number,
        tuple(context.buffers),
        body if context.buffers else (),
        nest.rows,
        plan.rows_per_task(nest),
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
    """The tasks' partial results of a reduction over rows combined, in the order of tasks: the same on any number of
    threads."""
    context = Context(plan, nest, [])
    graph = plan.graph
    node = graph.nodes[segment.node]
    tasks, count = plan.tasks_of(nest), node.element_count
    partial = plan.partial_buffer(segment, mapping)
    dtype = partial_dtype(graph, segment, mapping)
    kind = kind_of(graph, segment)
    source = context.number_of(partial)
    row, task = Var("r", count), Var("t", tasks)
    block = min(count, COMBINE_BLOCK)
    place = Index.of_var(row) - Index.of_var(Var("block_first", count))
    bounds = ("block_first", "block_last")
    add = (
        Let("part", dtype, loops.Load(source, dtype, Index.of_var(task) * count + Index.of_var(row))),
        Combine("total", dtype, place, kind, "part"),
    )
    finish: list[loops.Statement] = [Let("sum", dtype, loops.LoadLocal("total", place))]
    name = "sum"
    if dtype is not node.dtype:
        finish.append(Let("rounded", node.dtype, loops.Convert(dtype, "sum")))
        name = "rounded"
    finish.extend(Store(buffer, node.dtype, Index.of_var(row), name) for buffer in context.stores_of(segment.node))
    body = Blocks(
        block,
        (
            Local("total", dtype, block, kind),
            Loop(task, tasks, LoopKind.SERIAL, (Loop(row, block, LoopKind.SIMD, add, bounds=bounds),)),
            Loop(row, block, LoopKind.SIMD, tuple(finish), bounds=bounds),
        ),
    )
    cost = tasks * count * (plan.target.light_ns + dtype.size_bytes / plan.target.bytes_per_ns)
    per_task = max(1, math.ceil(count * plan.target.task_ns / max(cost, 1)))
    per_task = min(count, -(-per_task // LANE_ALIGNMENT) * LANE_ALIGNMENT)
    return NestCode(-1, tuple(context.buffers), (body,), count, per_task, cost, False)


def _lower_scatter(context: Context, segment: Segment) -> NestCode:
    """Updates applied one index after the other, so that the result does not depend on threads; windows are cut among
    tasks."""
    graph, plan = context.graph, context.plan
    node = graph.nodes[segment.node]
    numbers = gather_numbers(node)
    operand_shape, updates = node.shape, graph.nodes[node.operands[2]]
    indices = graph.nodes[node.operands[1]]
    batch_dims = [d for d in range(len(updates.shape)) if d not in numbers.offset_dims]
    batch_shape = tuple(updates.shape[d] for d in batch_dims)
    window_shape = tuple(updates.shape[d] for d in numbers.offset_dims)
    window = math.prod(window_shape)
    chunk = divisor_near(window, 256) if window > 256 else window
    if chunk < 16:
        chunk = window
    rows = window // chunk
    row, lane, batch = Var("r", rows), Var("w", chunk), Var("b", math.prod(batch_shape))

    emitter = Emitter(graph, BufferNumbers(context), row)
    for variable in (None, row, batch):
        emitter.push(variable)
    batch_index = unravel(Index.of_var(batch), batch_shape)
    window_index = unravel(Index.of_var(row) * chunk + Index.of_var(lane), window_shape)
    position = [ZERO] * len(updates.shape)
    for d, index in zip(batch_dims, batch_index, strict=True):
        position[d] = index
    for d, index in zip(numbers.offset_dims, window_index, strict=True):
        position[d] = index

    offsets = list(window_index)
    sizes = list(window_shape)
    target: list[Index] = []
    target_sizes: list[int] = []
    for d in range(len(operand_shape)):
        inserted = d in numbers.collapsed_slice_dims
        target.append(ZERO if inserted else offsets.pop(0))
        target_sizes.append(1 if inserted else sizes.pop(0))
    bounds: list[Bound] = []
    for k, d in enumerate(numbers.start_index_map):
        where = list(batch_index)
        if numbers.index_vector_dim < len(indices.shape):
            where.insert(numbers.index_vector_dim, Index(k))
        request = Request(node.operands[1], tuple(where))
        start = start_variable(request, UNCLAMPED, clamped=False)
        emitter.emit(trace(graph, [request], context.stored))
        emitter.define_starts_of(start)
        bounds.append(Bound(start, 0, operand_shape[d] - target_sizes[d] + 1))
        target[d] = target[d] + start
    emitter.push(None)  # the guarded body: nothing moves out of it
    emitter.push(lane)
    update = Request(node.operands[2], tuple(position))
    emitter.emit(trace(graph, [update], context.stored))
    name = emitter.name_of(update)
    kind = str(node.attributes["kind"])
    flat = linear(target, operand_shape)
    for buffer in context.stores_of(segment.node):
        emitter.put(loops.Update(buffer, node.dtype, flat, kind, name))
    body = emitter.pop()
    emitter.put(Loop(lane, chunk, LoopKind.SIMD if chunk > 1 else LoopKind.SERIAL, body))
    guarded = emitter.pop()
    emitter.put(If(guard_of(bounds), guarded))
    batch_body = emitter.pop()
    emitter.put(Loop(batch, batch.extent, LoopKind.SERIAL, batch_body))
    row_body = emitter.pop()
    emitter.put(Loop(row, rows, LoopKind.SERIAL, row_body, bounds=("first_row", "last_row")))
    elements = updates.element_count
    cost = elements * (plan.target.light_ns + 2 * node.dtype.size_bytes / plan.target.bytes_per_ns) + 4.0 * batch.extent
    return NestCode(context.nest.number, tuple(context.buffers), emitter.pop(), rows, 1, cost, False)


__all__ = ["Assign", "lower"]
