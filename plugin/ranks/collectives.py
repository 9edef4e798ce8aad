"""Whether a step always runs a collective of all ranks: then no rank ends the step before all have begun it.

The agreement of ranks (agreement.py) relies on this to count steps. A collective of a process set does not tie all ranks together,
nor does one that runs only in some steps (in a branch: `backward_passes_per_step` above 1) or outside the function. A branch whose
predicate depends on the world alone is the same in all steps and on all ranks: in elastic jobs Horovod reduces gradients only if the
world has more than one rank (horovod/tensorflow/__init__.py, `_allreduce_cond`), and a world of one rank is tied to itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

COLLECTIVES = frozenset(
    f"Horovod{name}"
    for name in (
        *("Allreduce", "GroupedAllreduce", "Allgather", "GroupedAllgather"),
        *("Alltoall", "Reducescatter", "GroupedReducescatter"),
    )
)
BRANCHES = ("Switch", "RefSwitch", "_SwitchN")
_OF_THE_WORLD = frozenset(("HorovodSize", "HorovodLocalSize", "HorovodProcessSetIncluded", "Const"))
"""Operators whose results are the same in all steps of a world and, for the set of all ranks, on all ranks."""
_PURE = frozenset(
    (
        *("Equal", "NotEqual", "Greater", "GreaterEqual", "Less", "LessEqual"),
        *("LogicalAnd", "LogicalOr", "LogicalNot", "Cast", "Identity"),
    )
)
_JOINS = ("Merge", "RefMerge", "Exit", "RefExit")
"""Operators after these run whichever way the predicate went."""


class Node(NamedTuple):
    """An operator. inputs: names of the operators that it reads or waits for. process_set: 0 is the set of all ranks."""

    op: str
    inputs: Sequence[str]
    process_set: int = 0


def node_of(definition: Any) -> Node:
    """The Node of a NodeDef."""
    inputs = [name.lstrip("^").partition(":")[0] for name in definition.input]
    return Node(
        definition.op, inputs, definition.attr["process_set_id"].i if "process_set_id" in definition.attr else 0
    )


def ties_all_ranks(nodes: Iterable[str], node: Callable[[str], Node]) -> bool:
    """Whether one of the operators named in `nodes` is a collective of all ranks outside branches. node: maps a name to its Node."""
    for name in nodes:
        found = node(name)
        if found.op in COLLECTIVES and found.process_set == 0 and not _is_guarded(name, node):
            return True
    return False


def _is_guarded(name: str, node: Callable[[str], Node]) -> bool:
    """Whether the predicate of a branch decides if the operator runs, and may differ from step to step."""
    seen, waiting = {name}, [name]
    while waiting:
        found = node(waiting.pop())
        if found.op in BRANCHES and not (len(found.inputs) > 1 and _depends_on_the_world_alone(found.inputs[1], node)):
            return True
        if found.op in _JOINS:
            continue
        fresh = set(found.inputs) - seen
        seen |= fresh
        waiting += fresh
    return False


def _depends_on_the_world_alone(name: str, node: Callable[[str], Node]) -> bool:
    found = node(name)
    if found.op in _OF_THE_WORLD:
        return found.process_set == 0
    return found.op in _PURE and all(_depends_on_the_world_alone(each, node) for each in found.inputs)


def graph_ties_all_ranks(graph: Any) -> bool:
    """Whether a GraphDef, all of whose operators run, holds a collective of all ranks that is in no branch."""
    nodes = {definition.name: definition for definition in graph.node}
    found = [name for name, definition in nodes.items() if definition.op in COLLECTIVES]
    return bool(found) and ties_all_ranks(found, lambda name: node_of(nodes[name]))


def fetches_tie_all_ranks(graph: Any, names: Sequence[str]) -> bool:
    """Whether a session run that fetches these tensors and operators of a Graph runs a collective of all ranks.

    Raises what Graph.get_operation_by_name raises for a name that is not there (KeyError, ValueError).
    """
    waiting = [name.partition(":")[0] for name in names]
    nodes: dict[str, Node] = {}
    while waiting:
        name = waiting.pop()
        if name in nodes:
            continue
        operation = graph.get_operation_by_name(name)
        inputs = [tensor.op.name for tensor in operation.inputs] + [before.name for before in operation.control_inputs]
        is_of_a_set = operation.type.startswith("Horovod") and "process_set_id" in operation.node_def.attr
        nodes[name] = Node(operation.type, inputs, int(operation.get_attr("process_set_id")) if is_of_a_set else 0)
        waiting += inputs
    return ties_all_ranks([name for name, found in nodes.items() if found.op in COLLECTIVES], nodes.__getitem__)
