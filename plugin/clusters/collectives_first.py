"""Lets what leads to a collective run before what else a Stitch op has made ready.

In plain TensorFlow gradients become ready one by one. A Stitch op makes several results ready at once: the gradient that the next
layer's backward pass reads, gradients of biases, which are reduced over the ranks as they are, and what a product makes a weight's
gradient of. The executor gives all of them to its thread pool, where the collectives may come last (native/op/hand_on_op.cc). Since
other ranks wait for them, they come first: a HandOn op, which runs at once, stands before the operators that lead to collectives
and to nothing else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any

from ..graph.placed_graph import device_type
from ..ranks.collectives import BRANCHES, COLLECTIVES
from .rewrite import OUR_OPS

HAND_ON_OP = "StitchfleetHandOn"
MOST_BETWEEN = 4
"""The most operators between a Stitch op and a collective: a product, a reshape, a scale, a branch."""


def hand_on_first(graph: Any) -> int:
    """Adds HandOn ops to a GraphDef of Stitch ops, in place. Returns the number of ops added: 0 if there is no collective."""
    readers: dict[str, set[str]] = defaultdict(set)
    waits: set[str] = set()
    for node in graph.node:
        for text in node.input:
            if text.startswith("^"):
                waits.add(text[1:])
            else:
                readers[text.partition(":")[0]].add(node.name)
    nodes = {node.name: node for node in graph.node}
    leading = _leading_to_collectives(nodes, readers, waits)
    added = 0
    for stitch in [node for node in graph.node if node.op in OUR_OPS and device_type(node.device) == "CPU"]:
        first = readers[stitch.name] & leading
        if not first or (first == readers[stitch.name] and stitch.name not in waits):
            continue
        hand_on = graph.node.add(name=f"{stitch.name}/hand_on", op=HAND_ON_OP, device=stitch.device)
        outputs: dict[str, int] = {}
        for reader in sorted(first):
            for k, text in enumerate(nodes[reader].input):
                if not text.startswith("^") and text.partition(":")[0] == stitch.name:
                    output = outputs.setdefault(text, len(outputs))
                    nodes[reader].input[k] = f"{hand_on.name}:{output}" if output else hand_on.name
        hand_on.input.extend(outputs)
        types = stitch.attr["Tout"].list.type
        hand_on.attr["T"].list.type.extend(types[int(text.partition(":")[2] or 0)] for text in outputs)
        added += 1
    return added


def _leading_to_collectives(
    nodes: Mapping[str, Any], readers: Mapping[str, set[str]], waits: Collection[str]
) -> set[str]:
    """The collectives, and the operators that lead to them and to nothing else. readers: by the name of what they read. waits: names
    of operators for which others wait.

    A branch leads there if one of its ways does: Horovod reduces a gradient if the world has more than one rank, and hands it on
    otherwise (horovod/tensorflow/__init__.py, `_allreduce_cond`).
    """
    latest = {name for name, node in nodes.items() if node.op in COLLECTIVES}
    found = set(latest)
    for _ in range(MOST_BETWEEN):
        before = {text.partition(":")[0] for name in latest for text in nodes[name].input if not text.startswith("^")}
        latest = {
            name
            for name in before - found
            if name in nodes
            and nodes[name].op not in OUR_OPS
            and name not in waits
            and (readers[name] <= found or nodes[name].op in BRANCHES)
        }
        found |= latest
    return found
