"""Whether a graph is that of a training function: it writes a variable and has a gradient, or it writes a non-scalar variable other
than by adding to it, by initializing it or by taking another rank's value. job/training.py has the reasons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..base.edges import data_inputs, node_of
from ..base.op_names import READ_VARIABLE, VARIABLES

_WRITES = ("Assign", "ResourceApply", "ResourceSparseApply", "ResourceScatter", "Apply", "SparseApply", "Scatter")
_ADDS = ("AssignAdd", "AssignAddVariableOp")
_SUMS = ("Add", "AddV2", "AddN")
_OF_ANOTHER_RANK = "HorovodBroadcast"
_SAME_VALUE = ("Identity", "Snapshot")
_GRADIENT_SCOPES = ("gradients", "gradient_tape")
_GRADIENT_OPS = ("Grad", "Backprop")


def trains(graph: Any) -> bool:
    """Whether a GraphDef, as TensorFlow offers it for optimization, is that of a training function."""
    written = [node for node in graph.node if node.op.startswith(_WRITES)]
    if not written:
        return False
    if any(_is_of_gradient(node) for node in graph.node):
        return True
    scalars = {node.name for node in graph.node if _is_scalar_variable(node)}
    nodes = {node.name: node for node in graph.node}
    return any(
        not (
            node_of(node.input[0]) in scalars
            or _adds(node, nodes)
            or _initializes(node, nodes)
            or _is_of_another_rank(node, nodes)
        )
        for node in written
    )


def _adds(write: Any, nodes: Mapping[str, Any]) -> bool:
    """Whether a node adds to a variable: by an operator for that, or by writing the variable's own value plus or minus terms that do
    not depend on it, as Keras 3's metrics do. An average that is written so depends on it twice."""
    if write.op in _ADDS:
        return True
    if not write.op.startswith("Assign") or len(write.input) < 2:
        return False
    variable = node_of(write.input[0])
    waiting, own, others = [write.input[1]], 0, []
    while waiting:
        name = node_of(waiting.pop())
        node = nodes.get(name)
        if name == variable:
            own += 1
        elif node is None:
            return False
        elif node.op in _SAME_VALUE or node.op == READ_VARIABLE:
            waiting.append(node.input[0])
        elif node.op in _SUMS:
            waiting += data_inputs(node)
        elif node.op == "Sub":
            waiting.append(node.input[0])
            others.append(node_of(node.input[1]))
        else:
            others.append(name)
    return own == 1 and not _depends(others, variable, nodes)


def _depends(names: list[str], variable: str, nodes: Mapping[str, Any]) -> bool:
    """Whether a value of the named nodes depends on a variable."""
    waiting, seen = list(names), set(names)
    while waiting:
        name = waiting.pop()
        if name == variable:
            return True
        for edge in data_inputs(nodes[name]) if name in nodes else ():
            if node_of(edge) not in seen:
                seen.add(node_of(edge))
                waiting.append(node_of(edge))
    return False


def _initializes(write: Any, nodes: Mapping[str, Any]) -> bool:
    """Whether a node writes what is computed from constants and random numbers alone."""
    if write.op not in ("Assign", "AssignVariableOp") or len(write.input) < 2:
        return False
    waiting, seen = [node_of(write.input[1])], set[str]()
    while waiting:
        node = nodes.get(waiting.pop())
        if node is None:
            return False
        inputs = set(map(node_of, data_inputs(node)))
        if not inputs and node.op != "Const":
            return False
        waiting += inputs - seen
        seen |= inputs
    return True


def _is_of_another_rank(write: Any, nodes: Mapping[str, Any]) -> bool:
    """Whether a node writes the value that another rank has broadcast, as each rank does when a job begins or a rank joins it."""
    if not write.op.startswith("Assign") or len(write.input) < 2:
        return False
    value = nodes.get(node_of(write.input[1]))
    while value is not None and value.op in _SAME_VALUE:
        value = nodes.get(node_of(value.input[0]))
    return value is not None and value.op.startswith(_OF_ANOTHER_RANK)


def _is_of_gradient(node: Any) -> bool:
    if any(word in node.op for word in _GRADIENT_OPS):
        return True
    return any(part.startswith(_GRADIENT_SCOPES) for part in node.name.split("/")[:-1])


def _is_scalar_variable(node: Any) -> bool:
    """Whether a node is the handle of a scalar variable: an argument in a function's graph, an operator in a session's."""
    if node.op == "_Arg" and "_handle_shapes" in node.attr:
        return all(_is_scalar(shape) for shape in node.attr["_handle_shapes"].list.shape)
    return node.op in VARIABLES and "shape" in node.attr and _is_scalar(node.attr["shape"].shape)


def _is_scalar(shape: Any) -> bool:
    return not shape.unknown_rank and len(shape.dim) == 0
