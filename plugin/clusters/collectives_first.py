"""Lets what leads to a collective run before what else a Stitch op has made ready.

In plain TensorFlow gradients become ready one by one. A Stitch op makes several results ready at once: the gradient that the next
layer's backward pass reads, gradients of biases, which are reduced over the ranks as they are, and what a product makes a weight's
gradient of. The executor gives all of them to its thread pool, where the collectives may come last (native/op/hand_on_op.cc). Since
other ranks wait for them, they come first. Two HandOn ops, which run at once, stand behind such a Stitch op:

    Stitch -> all -> first -> operators that lead to collectives and to nothing else
              all -> all other operators

What is ready when a Stitch op ends goes to the thread pool in the order of the graph's edges, since its kernel is asynchronous. With
`all` that is one operator. What that makes ready goes to the pool too, but for `first`, which runs at once, and what `first` makes
ready runs next.
"""

from __future__ import annotations

from typing import Any

from ..graph.placed_graph import PlacedGraph
from ..ranks.collectives import BRANCHES, COLLECTIVES
from .rewrite import OUR_OPS

HAND_ON_OP = "StitchfleetHandOn"
MOST_BETWEEN = 4
"""The most operators between a Stitch op and a collective: a product, a reshape, a scale, a branch."""


def hand_on_first(graph: Any) -> int:
    """Adds HandOn ops to a GraphDef of Stitch ops, in place. Returns the number of Stitch ops that got them: 0 if there is no
    collective."""
    if not any(node.op in COLLECTIVES for node in graph.node):
        return 0
    placed = PlacedGraph(graph)
    leading = _leading_to_collectives(placed)
    added = 0
    for stitch in placed.nodes:
        readers = {reader for reader, _ in placed.consumers[stitch.index]}
        first = readers & leading
        if stitch.op not in OUR_OPS or stitch.device_type != "CPU" or not first:
            continue
        if first == readers and not placed.control_consumers[stitch.index]:
            continue
        types = list(stitch.proto.attr["Tout"].list.type)
        read = _outputs_read(placed, stitch.index, readers)
        of_first = _outputs_read(placed, stitch.index, first)
        of_all = _hand_on(graph, stitch, "all", {index: (stitch.name, index) for index in read}, types)
        of_those = _hand_on(graph, stitch, "first", {index: of_all[index] for index in of_first}, types)
        for reader in sorted(readers):
            node = placed.nodes[reader]
            for k, port in enumerate(node.inputs):  # the first of a node's inputs: control inputs come after them
                if port.node == stitch.index:
                    node.proto.input[k] = _written(*(of_those if reader in first else of_all)[port.index])
        added += 1
    return added


def _outputs_read(graph: PlacedGraph, index: int, readers: set[int]) -> list[int]:
    """The outputs of a node that some of its readers read, in order."""
    return sorted({port.index for reader in readers for port in graph.nodes[reader].inputs if port.node == index})


def _hand_on(
    graph: Any, stitch: Any, name: str, sources: dict[int, tuple[str, int]], types: list[int]
) -> dict[int, tuple[str, int]]:
    """Adds a HandOn op. sources: output of the Stitch op -> (node, output) from which it comes. types: of the Stitch op's outputs.
    Returns the same for the readers of the HandOn op."""
    node = graph.node.add(name=f"{stitch.name}/{name}", op=HAND_ON_OP, device=stitch.proto.device)
    node.input.extend(_written(*source) for source in sources.values())
    node.attr["T"].list.type.extend(types[index] for index in sources)
    return {index: (node.name, output) for output, index in enumerate(sources)}


def _written(node: str, output: int) -> str:
    """A tensor as a NodeDef's input names it."""
    return f"{node}:{output}" if output else node


def _leading_to_collectives(graph: PlacedGraph) -> set[int]:
    """The collectives, and the operators that lead to them and to nothing else.

    A branch leads there if one of its ways does: Horovod reduces a gradient if the world has more than one rank, and hands it on
    otherwise (horovod/tensorflow/__init__.py, `_allreduce_cond`).
    """

    def leads(index: int) -> bool:
        node = graph.nodes[index]
        if node.op in OUR_OPS or graph.control_consumers[index]:
            return False
        return node.op in BRANCHES or all(reader in found for reader, _ in graph.consumers[index])

    latest = {node.index for node in graph.nodes if node.op in COLLECTIVES}
    found = set(latest)
    for _ in range(MOST_BETWEEN):
        before = {port.node for index in latest for port in graph.nodes[index].inputs}
        latest = {index for index in before - found if leads(index)}
        found |= latest
    return found
