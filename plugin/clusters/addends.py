"""The order in which TensorFlow's AddN adds up, which its place in the graph decides.

AddN (aggregate_ops.cc in TensorFlow's core/kernels) adds from left to right, but begins with the first operand whose buffer it may
write over: it exchanges that one with the first. An operand's buffer may be written over if there is no other reference to it. In a
fallback the caller holds all arguments, so that AddN would begin with another operand there than in the job's own graph, and a sum of
three and more would differ in the last place. There the order of the job's graph is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ..graph.placed_graph import PlacedGraph, Port, small_constant
from ..graph.tf_ops import RULES

SUM = "AddN"
_HELD = frozenset(
    ("Const", "_Arg", "Placeholder", "ReadVariableOp", "VariableV2", "TensorListGetItem", "Split", "SplitV", "Unpack")
)
"""Operators whose results share a buffer that stays: a constant's, an argument's, a variable's, a list's, a part of a larger one."""
_LOOPS = frozenset(("Switch", "Enter", "Exit", "NextIteration"))
"""Operators of control flow that pass their first operand's buffer on."""
_REDUCTIONS = frozenset(("Sum", "Mean", "Prod", "Max", "Min", "EuclideanNorm"))
"""Operators that pass their first operand's buffer on if there is nothing to reduce (reduction_ops_common.h)."""


def depend_on_order(node: Any) -> bool:
    """Whether a node is a sum of three and more. node: a NodeDef."""
    return bool(node.op == SUM and node.attr["N"].i > 2)


def come_from_within(graph: PlacedGraph, index: int, members: Collection[int]) -> bool:
    """Whether the buffers of all operands of a SUM certainly are results of `members`. Then TensorFlow's kernel adds up in the same
    order in a function of the members as in the job's own graph."""
    return all(_source(graph, port, members).node in members for port in graph.nodes[index].inputs)


def in_order(graph: PlacedGraph, index: int) -> list[Port]:
    """The operands of a SUM in the order in which TensorFlow's kernel adds them up in the job's own graph. Where this depends on
    what has run before (an operand with a second reader), the operand is taken for one that is still read."""
    inputs = list(graph.nodes[index].inputs)
    first = next((k for k, port in enumerate(inputs) if _is_own(graph, port)), 0)
    inputs[0], inputs[first] = inputs[first], inputs[0]
    return inputs


def keep_order(
    function: Any, name: str, node: Any, operands: Sequence[str], held: Sequence[bool], own: Sequence[bool]
) -> list[str]:
    """The operands with which a SUM in a FunctionDef adds up `operands` in their order. Appends a sum of the first ones if it would
    begin with another one.

    name: of the sum; node: its NodeDef. held, own: for each operand, whether somebody else certainly refers to its buffer there,
    and whether certainly nobody does.
    """
    if own[0] or all(held):
        return list(operands)
    # Two addends may change places, and of more that are all held the first one is the first.
    count = max(2, next(k for k, is_held in enumerate(held) if not is_held))
    begun = function.node_def.add(name=f"{name}_begun", op=SUM, input=operands[:count])
    begun.attr["T"].type, begun.attr["N"].i = node.attr["T"].type, count
    return [f"{begun.name}:sum:0", *operands[count:]]


def is_fresh(graph: PlacedGraph, port: Port) -> bool:
    """Whether a port's buffer is its operator's own, and nothing but its only reader refers to it."""
    return not _passes_on(graph, port.node) and _is_own(graph, port)


def _is_own(graph: PlacedGraph, port: Port) -> bool:
    """Whether nothing but its only reader refers to a port's buffer."""
    while True:
        readers = sum(output == port.index for _, output in graph.consumers[port.node])
        node = graph.nodes[port.node]
        if readers != 1 or node.op in _HELD:
            return False
        if not _passes_on(graph, port.node):
            return True
        port = node.inputs[0]


def _source(graph: PlacedGraph, port: Port, members: Collection[int]) -> Port:
    """The port whose buffer a port's is, or the first one on the way to it that is not among the results of `members`."""
    while port.node in members and _passes_on(graph, port.node):
        port = graph.nodes[port.node].inputs[0]
    return port


def _passes_on(graph: PlacedGraph, index: int) -> bool:
    """Whether a node's result is its first operand's buffer. A reduction whose axes are computed is taken for one that has none: it
    is the gradient of an operand that may have been broadcast, and mostly has not."""
    op = graph.nodes[index].op
    if op in _REDUCTIONS:
        return small_constant(graph, index, 1) is None
    return op in _LOOPS or (op in RULES and RULES[op].free)
