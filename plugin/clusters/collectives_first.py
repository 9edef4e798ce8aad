"""Lets what leads to a collective run before what else a Stitch op has made ready.

In plain TensorFlow gradients become ready one by one. A Stitch op makes several results ready at once: the gradient that the next
layer's backward pass reads, gradients of biases, which are reduced over the ranks as they are, and what a product makes a weight's
gradient of. The executor gives all of them to its thread pool, where the collectives may come last (native/op/hand_on_op.cc). Since
other ranks wait for them, they come first: a HandOn op, which runs at once, stands before the operators that lead to collectives
and to nothing else.
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
    """Adds HandOn ops to a GraphDef of Stitch ops, in place. Returns the number of ops added: 0 if there is no collective."""
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
        hand_on = graph.node.add(name=f"{stitch.name}/hand_on", op=HAND_ON_OP, device=stitch.proto.device)
        outputs: dict[int, int] = {}
        for reader in sorted(first):
            node = placed.nodes[reader]
            for k, port in enumerate(node.inputs):  # the first of a node's inputs: control inputs come after them
                if port.node == stitch.index:
                    output = outputs.setdefault(port.index, len(outputs))
                    node.proto.input[k] = f"{hand_on.name}:{output}" if output else hand_on.name
        hand_on.input.extend(f"{stitch.name}:{index}" if index else stitch.name for index in outputs)
        types = stitch.proto.attr["Tout"].list.type
        hand_on.attr["T"].list.type.extend(types[index] for index in outputs)
        added += 1
    return added


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
