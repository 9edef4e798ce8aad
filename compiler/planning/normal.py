"""The form of graphs that planning expects: no tensor without elements, no duplicates, nothing unused, no op that does
nothing.

Graphs come from the importer's `simplify` or from elsewhere; this module makes the planner's own assumptions true. Each rule is
exact for every dtype. Parameters stay as they are, used or not: they are the kernel's signature.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

import numpy as np

from ..ir.graph import Attribute, Graph, Literal, Node
from ..ops.reference import reduce_identity
from ..passes.simplify import prune


def normalise(graph: Graph) -> Graph:
    """An equal graph in which (1) only parameters and constants may have zero elements; (2) nodes are unique; (3) all nodes except
    parameters are needed; (4) there are no copies, and no reshapes, transposes or converts that change nothing."""
    nodes: list[Node] = []
    seen: dict[object, int] = {}
    renamed: list[int] = []
    for old in graph.nodes:
        operands = tuple(renamed[operand] for operand in old.operands)
        node = Node(old.op, operands, old.shape, old.dtype, old.attributes, old.name)
        same = _same_as_operand(node, nodes)
        if same is None:
            node = _without_empty(node, nodes)
            same = _same_as_operand(node, nodes)
        if same is None:
            key = _key(node) if node.op != "parameter" else len(nodes)
            same = seen.setdefault(key, len(nodes))
            if same == len(nodes):
                nodes.append(node)
        renamed.append(same)
    return prune(Graph(graph.name, tuple(nodes), tuple(renamed[output] for output in graph.outputs)))


def _key(node: Node) -> object:
    attributes = tuple(sorted((key, _attribute_key(value)) for key, value in node.attributes.items()))
    return (node.op, node.operands, node.shape, node.dtype, attributes)


def _attribute_key(value: Attribute) -> str:
    return value.digest if isinstance(value, (Literal, Graph)) else repr(value)


def _same_as_operand(node: Node, nodes: list[Node]) -> int | None:
    """The operand that the node equals, in shape and in every element; None if there is none."""
    if not node.operands:
        return None
    first = nodes[node.operands[0]]
    if node.shape != first.shape or node.dtype is not first.dtype:
        return None
    if node.op in ("copy", "reshape", "convert", "bitcast_convert", "slice", "broadcast"):
        # A slice or a broadcast that keeps the shape keeps every element: strides are positive, and dimensions increase.
        return node.operands[0]
    if node.op == "transpose" and node.attributes["permutation"] == tuple(range(len(node.shape))):
        return node.operands[0]
    if node.op == "concatenate" and len(node.operands) == 1:
        return node.operands[0]
    return None


def _constant(value: object, node: Node) -> Node:
    array = np.full(node.shape, value, node.dtype.numpy)
    return Node("constant", (), node.shape, node.dtype, MappingProxyType({"literal": Literal(array)}), node.name)


def _forward(node: Node, operand: int) -> Node:
    return Node("copy", (operand,), node.shape, node.dtype, MappingProxyType({}), node.name)


def _spread(node: Node, scalar: int) -> Node:
    """A node of `node`'s shape filled with a scalar."""
    if not node.shape:
        return _forward(node, scalar)
    return Node("broadcast", (scalar,), node.shape, node.dtype, MappingProxyType({"dimensions": ()}), node.name)


def _without_empty(node: Node, nodes: list[Node]) -> Node:
    """`node` without operands that have no elements. What is left is a constant, a fill or an operand."""
    if node.op in ("parameter", "constant"):
        return node
    if node.element_count == 0:
        return _constant(0, node)
    empty = [operand for operand in node.operands if nodes[operand].element_count == 0]
    rule = _EMPTY.get(node.op)
    return rule(node, empty) if empty and rule is not None else node


def _reduce(node: Node, empty: list[int]) -> Node:
    return _constant(reduce_identity(str(node.attributes["kind"]), node.dtype), node)


def _dot(node: Node, empty: list[int]) -> Node:
    return _constant(0, node)


def _reduce_general(node: Node, empty: list[int]) -> Node:
    result = node.attributes["result"]
    assert isinstance(result, int)
    return _spread(node, node.operands[len(node.operands) // 2 + result])


def _pad(node: Node, empty: list[int]) -> Node:
    return _spread(node, node.operands[1])


def _concatenate(node: Node, empty: list[int]) -> Node:
    kept = tuple(operand for operand in node.operands if operand not in empty)
    return Node(node.op, kept, node.shape, node.dtype, node.attributes, node.name)


def _first_operand(node: Node, empty: list[int]) -> Node:
    return _forward(node, node.operands[0])


_EMPTY: dict[str, Callable[[Node, list[int]], Node]] = {
    "reduce": _reduce,
    "dot": _dot,
    "reduce_general": _reduce_general,
    "pad": _pad,
    "concatenate": _concatenate,
    "scatter": _first_operand,
    "dynamic_update_slice": _first_operand,
}
