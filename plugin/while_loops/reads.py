"""Hoists reads of variables that a loop only reads: they are read once, before the loop.

A lookup of a variable's rows (ResourceGather) puts the variable into copy-on-read mode for good: each later ReadVariableOp copies all
of it (EnsureSparseVariableAccess in TensorFlow's core/kernels/training_op_helpers.h). A decoder that multiplies with its embedding
copies the whole table at every token. TensorFlow's optimizers leave the read in the loop, since the operator is stateful.

In a loop lowered to frames, a read is hoisted if its handle enters the frame as a constant, and if only readers use that handle
inside any frame: then every iteration sees the same value. The node keeps its name, control inputs and place, and becomes an Identity
of the value, so that order and deadness do not change:

    handle -> Enter -> ReadVariableOp     becomes     handle -> ReadVariableOp -> Enter -> Identity

The read has the control inputs of the handle's Enter, as the loop has; so it keeps its order with writes outside the loop.
"""

from __future__ import annotations

from typing import Any

from ..base.edges import control_inputs
from ..base.op_names import READ_VARIABLE, RESOURCE_GATHER
from ..graph.placed_graph import PlacedGraph, Port
from .variables import add_enter, is_constant_enter

_READERS = frozenset((READ_VARIABLE, RESOURCE_GATHER, "ResourceGatherNd", "VariableShape", "VarIsInitializedOp"))


def hoist_reads(graph: Any) -> int:
    """Hoists the reads of variables that a loop only reads out of the loops of a placed GraphDef, in place. Returns their number."""
    if not any(is_constant_enter(node) for node in graph.node) or not any(
        node.op == READ_VARIABLE for node in graph.node
    ):
        return 0
    placed = PlacedGraph(graph)
    paths = {
        node.index: path
        for node in placed.nodes
        if node.op == READ_VARIABLE and (path := _enters(placed, node.inputs[0])) is not None
    }
    read_only = {
        root: _is_only_read_in_loops(placed, root) for root in {_root(placed, path[0]) for path in paths.values()}
    }
    values: dict[int, str] = {}
    """Enter of a handle -> name of the Enter of the variable's value."""
    hoisted = 0
    for index, path in paths.items():
        if not read_only[_root(placed, path[0])]:
            continue
        node = placed.nodes[index].proto
        dtype = node.attr["dtype"].type
        for outer, enter in zip([None, *path], path):
            if enter not in values:
                source = _read_before(graph, placed, enter, dtype) if outer is None else values[outer]
                handle = placed.nodes[enter].proto
                values[enter] = str(add_enter(graph, handle, f"{handle.name}/stitchfleet_value", source, dtype).name)
        control = control_inputs(node)
        node.op = "Identity"
        for name in list(node.attr):
            del node.attr[name]
        node.attr["T"].type = dtype
        del node.input[:]
        node.input.extend([values[path[-1]], *control])
        hoisted += 1
    return hoisted


def _enters(placed: PlacedGraph, port: Port) -> list[int] | None:
    """The constant Enters that a handle came through, outermost first; None if it came another way, or through no Enter."""
    found: list[int] = []
    node = placed.nodes[port.node]
    while node.op == "Identity" or is_constant_enter(node.proto):
        if node.op == "Enter":
            found.insert(0, node.index)
        node = placed.nodes[node.inputs[0].node]
    return found if found and node.op in ("_Arg", "VarHandleOp", "Placeholder", "Switch") else None


def _root(placed: PlacedGraph, enter: int) -> Port:
    """The port outside all loops that the handle of an Enter comes from."""
    port = placed.nodes[enter].inputs[0]
    while placed.nodes[port.node].op in ("Identity", "Enter", "Switch"):
        port = placed.nodes[port.node].inputs[0]
    return port


def _is_only_read_in_loops(placed: PlacedGraph, root: Port) -> bool:
    seen = set()
    waiting = [(consumer, False) for consumer, output in placed.consumers[root.node] if output == root.index]
    while waiting:
        index, in_loop = waiting.pop()
        if (index, in_loop) in seen:
            continue
        seen.add((index, in_loop))
        node = placed.nodes[index]
        if node.op in ("Identity", "Enter", "Switch"):
            waiting += [(consumer, in_loop or node.op == "Enter") for consumer, _ in placed.consumers[index]]
        elif in_loop and node.op not in _READERS:
            return False
        elif node.op in ("Merge", "NextIteration", "Exit"):
            return False  # the handle may change: its later uses are unknown
    return True


def _read_before(graph: Any, placed: PlacedGraph, enter: int, dtype: int) -> str:
    handle = placed.nodes[enter].proto
    read = graph.node.add(
        name=f"{handle.name}/stitchfleet_read", op=READ_VARIABLE, device=handle.device, input=list(handle.input)
    )
    read.attr["dtype"].type = dtype
    return str(read.name)
