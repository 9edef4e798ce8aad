"""A plan in words: groups with their dominants, the scheme of each op and why, rows and tasks, phases, bytes written to
memory."""

from __future__ import annotations

from collections.abc import Iterator

from ..ir.graph import Graph
from ..ir.index_maps import Index
from ..ops.table import OPS
from ..planning.access import trace
from ..planning.families import Family
from ..planning.mapping import RowMap, Segment, SegmentKind, spans_rows
from ..planning.placement import Nest, mapped_roots, within
from ..planning.plan import Plan
from ..targets.targets import GpuTarget


def explain(plan: Plan) -> str:
    """The text that `stitchfleet explain` prints for one kernel."""
    return "\n".join(_lines(plan))


def _lines(plan: Plan) -> Iterator[str]:
    graph = plan.graph
    between = plan.intermediates
    total = sum(buffer.size_bytes for buffer in between)
    yield f"kernel {graph.name}: {plan.op_count} ops in {len(plan.groups)} groups, {len(plan.nests)} nests, {len(plan.levels)} levels"
    for split in plan.splits:
        yield f"{'split in ' + str(split.parts) if split.parts > 1 else 'not split'}: {split.node}: {split.reason}"
    yield f"intermediates written to memory: {total} bytes" + (
        " ("
        + ", ".join(f"%{buffer.number}{' partial' if buffer.role else ''} {buffer.size_bytes}" for buffer in between)
        + ")"
        if between
        else ""
    )
    if plan.forced:
        yield "taken out of line: " + ", ".join(f"%{node}" for node in sorted(plan.forced))
    for number, group in enumerate(plan.groups):
        yield f"group {number}: dominant {_name(graph, group.dominant)}" + (
            ", sub-dominants " + ", ".join(_name(graph, node) for node in group.sub_dominants)
            if group.sub_dominants
            else ""
        )
        for node in group.ops:
            if not OPS[graph.nodes[node].op].is_leaf:
                found = plan.scheme_of(node)
                yield f"  {_name(graph, node):<42} {found.scheme.value:<9} {found.reason}"
    for level, nests in enumerate(plan.levels):
        yield f"level {level}:"
        for nest in nests:
            yield from _nest_lines(plan, nest)


def _place(plan: Plan) -> str:
    """What the estimated times refer to: the whole GPU, or one core."""
    return "the device" if isinstance(plan.target, GpuTarget) else "one core"


def _nest_lines(plan: Plan, nest: Nest) -> Iterator[str]:
    cost, execution = plan.costs[nest.number], plan.executions[nest.number]
    family = plan.families.get(nest.number)
    if family is not None:
        yield from _family_lines(plan, nest, family)
        return
    yield (
        f"  nest {nest.number}: {execution.rows} rows in {execution.tasks} tasks of {execution.rows_per_task}; "
        f"reads {cost.bytes_read} bytes, writes {cost.bytes_written}; about {execution.cost_ns / 1000:.1f} us on {_place(plan)}"
    )
    if execution.transpose is not None:
        yield f"    in {execution.transpose}: what is read and what is written lie side by side"
    if execution.rows < execution.busy_rows:
        yield f"    the device wants {execution.busy_rows} rows: if a loop over the row allows, its iterations become rows"
    if execution.rows_together > 1:
        yield f"    matrix products of {execution.rows_together} rows at once: a right factor is loaded once for all of them"
    if execution.turns is not None and execution.turns.rows > 1:
        yield f"    what is read across memory is copied, transposed, for {execution.turns.rows} rows at once"
    elif execution.turns is not None:
        yield "    what is read across memory is copied, transposed, before the loop that reads it"
    if execution.numbers_together > 1:
        yield f"    what is expensive and the same for all of a row is computed for {execution.numbers_together} rows at once"
    if execution.passes_together > 1:
        yield f"    each loop over a row runs for {execution.passes_together} rows before the next loop: none waits for its row's sum"
    for segment, mapping in nest.placed:
        yield f"    {_segment_text(plan, nest, segment, mapping)}"


def _family_lines(plan: Plan, nest: Nest, family: Family) -> Iterator[str]:
    """Lines for a nest that stands for a family: what they say of one component holds for each."""
    cost, execution = plan.costs[nest.number], plan.executions[nest.number]
    sizes = [instance.size for instance in family.instances]
    share = family.elements / nest.rows
    yield (
        f"  nest {nest.number}: {len(sizes)} components alike, of {min(sizes)} to {max(sizes)} elements, {family.elements} in all, "
        f"end to end in tasks of {execution.rows_per_task}; reads {round(cost.bytes_read * share)} bytes, writes "
        f"{round(cost.bytes_written * share)}; about {execution.cost_ns / 1000:.1f} us on {_place(plan)}; the largest:"
    )
    for segment, mapping in nest.placed:
        yield f"    {_segment_text(plan, nest, segment, mapping)}"


def _segment_text(plan: Plan, nest: Nest, segment: Segment, mapping: RowMap) -> str:
    graph = plan.graph
    row, inner = Index.of_var(nest.row), Index.of_var(within(mapping.inner))
    steps = trace(graph, mapped_roots(graph, segment, mapping, row, inner), plan.placement.stored_in(nest))
    read = ", ".join(dict.fromkeys(f"%{request.node}" for request, _ in steps.loads()))
    what = {
        SegmentKind.VALUE: "computes",
        SegmentKind.REDUCE: "reduces over rows to" if spans_rows(segment, mapping) else "reduces within a row to",
        SegmentKind.BASE: "fills the base of",
        SegmentKind.SCATTER: "scatters into",
        SegmentKind.SCAN: "scans each row to",
    }[segment.kind]
    names = ", ".join(_name(graph, node) for node in segment.nodes)
    return f"{what} {names} [{mapping}; r: row]" + (f" from {read}" if read else "")


def _name(graph: Graph, node: int) -> str:
    found = graph.nodes[node]
    return f"%{node} {found.op} {found.type_text}"
