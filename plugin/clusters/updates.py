"""The optimizer's update: which operators it consists of, so that a few Stitch ops do it in place on the variables.

An update is a chain of reads, arithmetic, assigns, reads, ... that connected scopes would cut at every assign. Its members are found
backwards: assigns and fused Apply operators; element-wise operators whose consumers are all members; and reads, of variables that
members write, whose consumers are all members. So an update computes no tensor that the rest of the step needs, and reductions stay
with the gradients that they read. Control edges order reads and assigns. The cycle check treats them as edges, and a cluster that
contains the whole order may hold all locks at once and see every intermediate value.

A sparse update in the order (an embedding's scatter) stays in TensorFlow, and the dense parts before and after it become separate
clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ..base.dtypes import KERNEL_DTYPES
from ..base.op_names import READ_VARIABLE, RESOURCE_GATHER
from ..graph.apply_ops import APPLY, APPLY_DTYPES
from ..graph.placed_graph import PlacedGraph, Port
from ..graph.tf_ops import ELEMENT_WISE
from .demands import has_demand

ASSIGNS = frozenset(("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"))
WRITES = ASSIGNS | APPLY.keys()
VARIABLE_OPS = WRITES | {READ_VARIABLE, RESOURCE_GATHER}


def handles_of(graph: PlacedGraph, index: int) -> list[Port]:
    """The variables' handles that an operator takes, in its operands' order; none if it is not an operator on variables."""
    node = graph.nodes[index]
    if node.op in APPLY:
        return node.inputs[: len(APPLY[node.op].variables)]
    return node.inputs[:1] if node.op in VARIABLE_OPS else []


def variable_dtype(graph: PlacedGraph, index: int) -> int:
    """DataType number of the variable that an operator in VARIABLE_OPS reads or writes."""
    attributes = graph.nodes[index].proto.attr
    return int(attributes["T" if graph.nodes[index].op in APPLY else "dtype"].type)


def find_members(
    graph: PlacedGraph,
    order: list[int],
    may_leave: list[bool],
    preserve: Collection[str],
    excluded_ops: Collection[str],
) -> set[int]:
    """The members of all updates of a graph.

    order: all nodes, producers first. may_leave[i]: whether node i could be in an ordinary cluster. preserve: names of nodes whose
    results must stay. excluded_ops: operators that cannot be lowered.
    """
    members: set[int] = set()
    written: set[Port] = set()
    for node in graph.nodes:
        if _is_write(graph, node.index, excluded_ops):
            members.add(node.index)
            written.update(handles_of(graph, node.index))
    for i in reversed(order):
        node = graph.nodes[i]
        readers = {consumer for consumer, _ in graph.consumers[i]}
        if i in members or not readers or not readers <= members:
            continue
        if node.op == READ_VARIABLE:
            stays = node.name in preserve or node.inputs[0] not in written
        else:
            # If an operator raised an error, the variables written in place could not be restored.
            stays = node.op not in ELEMENT_WISE or not may_leave[i] or has_demand(graph, i)
        if not stays:
            members.add(i)
    return members


def fits(graph: PlacedGraph, most: int) -> Callable[[Sequence[int], Sequence[int]], bool]:
    """Whether two sets of nodes that no path connects have at most `most` operands from outside together. If so, they are taken for
    one set from then on, which begins with the first one's nodes."""
    known: dict[tuple[int, int], set[Port]] = {}

    def operands(members: Sequence[int]) -> set[Port]:
        key = (members[0], len(members))  # sets are disjoint and only grow
        if key not in known:
            inside = set(members)
            known[key] = {port for i in members for port in graph.nodes[i].inputs if port.node not in inside}
        return known[key]

    def answer(first: Sequence[int], second: Sequence[int]) -> bool:
        host, joining = operands(first), operands(second)
        if len(host) + len(joining - host) > most:
            return False
        host |= joining
        known[first[0], len(first) + len(second)] = host
        return True

    return answer


def _is_write(graph: PlacedGraph, index: int, excluded_ops: Collection[str]) -> bool:
    node = graph.nodes[index]
    if node.op not in WRITES:
        return False
    if node.op in excluded_ops or node.device_type not in ("CPU", "GPU"):
        return False  # a name in `preserve` does not matter: the operator has no result, and a NoOp takes its name
    dtype = variable_dtype(graph, index)
    return dtype in (APPLY_DTYPES if node.op in APPLY else KERNEL_DTYPES)


def writes(graph: PlacedGraph, members: Collection[int]) -> bool:
    """Whether one of the members writes a variable."""
    return any(graph.nodes[i].op in WRITES for i in members)
