"""Which outputs may be written into an input's memory: no element of the input may be needed after the output has been
written there.

This lets a fused optimizer update work in place. The rule is checked on the plan; op names play no part.
"""

from __future__ import annotations

from typing import NamedTuple

from ..ir.index_maps import Index
from ..loops.loops import Buffer, BufferKind
from ..planning.access import trace
from ..planning.mapping import SegmentKind, roots_of
from ..planning.placement import within
from ..planning.plan import Plan
from .context import Context
from .passes import assign_passes


class _Place(NamedTuple):
    """Where memory is read or written: the loop (given by its nest, its pass and the length of its rows), and the position in it."""

    nest: int
    pass_number: int
    row_length: int
    position: str


def alias_pairs(plan: Plan) -> dict[Buffer, set[Buffer]]:
    """For each output, the inputs whose memory it may use; and for each such input, the outputs.

    An output and an input of equal dtype and size qualify if the input is read in the output's nest only and, for each i, element i
    of the input is read only where element i of the output is computed, by the very same loop. Then every read comes before the
    write, and on a GPU one thread does both.

    It is not enough that both are in the same pass. A pass has a loop for each length of a row: the row's one number y[r] is written
    before or after a loop over the row's 256 elements reads x[r], which is the same position in both.
    """
    reads: dict[int, list[_Place]] = {}  # parameter -> where it is read
    writes: dict[int, _Place] = {}  # candidate -> where it is stored
    for nest in plan.nests:
        context = Context(plan, nest, [])
        passes = {member.segment: member.number for members in assign_passes(context) for member in members}
        row = Index.of_var(nest.row)
        for segment, mapping in plan.stored_of(nest):
            point = mapping.point(row, Index.of_var(within(mapping.inner)))
            node = plan.graph.nodes[segment.node]
            if segment.kind in (SegmentKind.SCATTER, SegmentKind.SCAN) or node.op in (
                "reduce_general",
                "reduce_window",
                "dot",
            ):
                # These have loops of their own, whose order relative to the other loops of a pass must not be relied on.
                for operand in node.operands:
                    _forbid(plan, operand, reads)
                continue
            steps = trace(plan.graph, roots_of(plan.graph, segment, point), context.stored)
            for request, flat in steps.loads():
                if plan.graph.nodes[request.node].op == "parameter":
                    where = str(flat) if not request.guard else "guarded"
                    place = _Place(nest.number, passes.get(segment, 0), mapping.inner, where)
                    reads.setdefault(request.node, []).append(place)
            if segment.kind is SegmentKind.VALUE:
                writes[segment.node] = _Place(nest.number, passes[segment], mapping.inner, str(point))
    # What other components of a family read (a learning rate, for example) is read at places that the plan does not hold.
    elsewhere = {
        number
        for family in plan.families.values()
        for instance in family.instances[1:]
        for number in instance.inputs.values()
    }
    alone: dict[_Place, list[int]] = {}  # by place: the parameters that are read at that place only
    for parameter, places in reads.items():
        if len(set(places)) == 1 and plan.graph.nodes[parameter].attributes["number"] not in elsewhere:
            alone.setdefault(places[0], []).append(parameter)
    pairs: dict[Buffer, set[Buffer]] = {}
    for output in dict.fromkeys(plan.graph.outputs):
        if output not in writes:
            continue
        node = plan.graph.nodes[output]
        for parameter in alone.get(writes[output], ()):
            other = plan.graph.nodes[parameter]
            if other.dtype is not node.dtype or other.element_count != node.element_count:
                continue
            for buffer in plan.memory_of(output):
                source = plan.read_from(parameter)
                pairs.setdefault(buffer, set()).add(source)
                pairs.setdefault(source, set()).add(buffer)
    return pairs


def kernel_aliases(plan: Plan) -> list[tuple[int, int]]:
    """(output, input) numbers of the whole kernel, including those of all instances of its families."""
    found = {
        (buffer.number, other.number)
        for buffer, others in alias_pairs(plan).items()
        if buffer.kind is BufferKind.OUTPUT
        for other in others
    }
    for family in plan.families.values():
        theirs = family.representative.outputs
        pairs = [pair for pair in found if pair[0] in theirs]
        for instance in family.instances[1:]:
            moved = ((instance.outputs[output], instance.inputs[source]) for output, source in pairs)
            found.update(pair for pair in moved if pair[1] in instance.alone)
    return sorted(found)


def _forbid(plan: Plan, operand: int, reads: dict[int, list[_Place]]) -> None:
    """Forbids all parameters below a scatter's operands: they are read at positions that the plan does not follow."""
    stack, seen = [operand], {operand}
    while stack:
        current = stack.pop()
        if plan.graph.nodes[current].op == "parameter":
            reads.setdefault(current, []).append(_Place(-1, -1, 0, "scatter"))
        for source in plan.graph.nodes[current].operands:
            if source not in seen:
                seen.add(source)
                stack.append(source)
