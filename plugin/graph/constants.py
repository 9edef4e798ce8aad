"""Constants are freed of what they wait for, so that a cluster may reach across them, and dropped once nothing reads them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from ..base.edges import node_of
from .control_flow import topological_order
from .placed_graph import PlacedGraph
from .tf_ops import MAX_CONST_BYTES

_MERGES = ("Merge", "RefMerge")
_SWITCHES = ("Switch", "RefSwitch", "_SwitchN")
_SHAPES = ("Shape", "ShapeN", "Size", "Rank")
_JOINED = ("Conv2DBackpropFilter",)
"""Operators that TensorFlow joins with another one only if they wait for nothing; a constant says how large the filter is."""


def free_constants(graph: Any) -> int:
    """Moves the control inputs of constants to their consumers. Changes `graph`, a GraphDef, in place; returns the number of
    constants freed. Raises ValueError if the graph has a cycle that is not a loop.

    A constant made under `tf.control_dependencies` waits for nodes that it does not depend on, and so separates the clusters before
    and after it. Order and deadness do not change, since the consumers wait instead. A consumer that runs after such a node anyway
    gets no edge from it: TensorFlow's oneDNN pass fuses only operators that wait for nothing. Constants that a Merge reads are left
    alone: it takes the operand that is alive, so a branch's constant must stay dead with its branch. A graph with loop frames is left
    alone: there control inputs place a constant in its frame.
    """
    if any(node.op in ("Enter", "RefEnter") for node in graph.node):
        return 0
    merged = {node_of(name) for node in graph.node if node.op in _MERGES for name in node.input}
    waits = {
        node.name: list(node.input)
        for node in graph.node
        if node.op == "Const"
        and node.input
        and node.name not in merged
        and node.attr["value"].tensor.ByteSize() <= MAX_CONST_BYTES
    }
    if not waits:
        return 0
    runs_before = _orders(PlacedGraph(graph))

    def inherited(node: Any) -> dict[str, list[str]]:
        """The constants that a node reads or waits for -> what it has to wait for in the place of each."""
        others = [name for text in node.input if (name := node_of(text)) not in waits]
        found: dict[str, list[str]] = {}
        for read in {node_of(text) for text in node.input} & waits.keys():
            found[read] = []
            sources = [read]
            while sources:  # a constant may have waited for another
                for name in waits[sources.pop()]:
                    if name[1:] in waits:
                        sources.append(name[1:])
                    elif not runs_before(name[1:], others):
                        found[read].append(name)
        return found

    for node in graph.node:
        if node.op in _JOINED:
            for constant, names in inherited(node).items():
                if names:
                    del waits[constant]
    for node in graph.node:
        if node.name in waits:
            del node.input[:]
        else:
            node.input.extend(sorted({name for names in inherited(node).values() for name in names}))
    return len(waits)


def drop_unread(graph: Any, preserve: Collection[str]) -> int:
    """Removes the constants that no node of a GraphDef reads or waits for, in place, but for those with a name in `preserve`. Returns
    their number."""
    read = {node_of(text) for node in graph.node for text in node.input}
    kept = [node for node in graph.node if node.op != "Const" or node.name in read or node.name in preserve]
    dropped = len(graph.node) - len(kept)
    if dropped:
        remaining = type(graph)(node=kept)
        del graph.node[:]
        graph.node.extend(remaining.node)
    return dropped


def _orders(graph: PlacedGraph) -> Callable[[str, Iterable[str]], bool]:
    """A function that says whether a node is one of others or always runs before one of them, and if it is dead, so is that one; or
    whether this holds for all that it takes the shape of."""
    before = [0] * len(graph.nodes)
    """For each node, the nodes that run before it: bit i for node i."""

    def up_to(i: int) -> int:
        return before[i] | 1 << i

    for i in topological_order(graph):
        node = graph.nodes[i]
        operands = [up_to(port.node) for port in node.inputs]
        if node.op in _MERGES and operands:  # it takes what comes
            common = operands[0]
            for operand in operands[1:]:
                common &= operand
            operands = [common]
        for found in [*operands, *map(up_to, node.control)]:
            before[i] |= found

    def runs_before(name: str, others: Iterable[str]) -> bool:
        node, behind = graph.nodes[graph.by_name[name]], 0
        for other in others:
            behind |= up_to(graph.by_name[other])
        if behind & 1 << node.index:
            return True
        if node.op not in _SHAPES:
            return False
        needed = {port.node for port in node.inputs} | set(node.control)
        return all(
            behind & 1 << i and graph.nodes[i].op not in _SWITCHES for i in needed
        )  # a Switch is dead in one output only

    return runs_before
