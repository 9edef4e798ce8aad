"""Which effects a step has even if its data has ended.

An epoch over a dataset of unknown length ends with a call that fails: there is no next element. Beside the operator that fails
TensorFlow runs what does not depend on it, so iteration counters, seeds and schedules are advanced once more than there are batches.
A Stitch op waits for all of its arguments: together with what reads the element, these effects would not happen.

So they are in no cluster with operators that read the element, nor is what leads to them. Where much is to be computed before an
effect, TensorFlow too has ended the call before it happens, and the effect may be in any cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..graph.control_flow import is_back_edge
from ..graph.placed_graph import PlacedGraph
from ..graph.tf_ops import UNCOUNTED, is_product
from .updates import WRITES

_NEXT: Final = frozenset(
    "IteratorGetNext IteratorGetNextSync MultiDeviceIteratorGetNextFromShard QueueDequeue QueueDequeueV2 QueueDequeueMany "
    "QueueDequeueManyV2 QueueDequeueUpTo QueueDequeueUpToV2 ReaderRead ReaderReadV2 ReaderReadUpTo ReaderReadUpToV2 Unstage".split()
)
"""Operators that raise OutOfRangeError when there is no more data."""
_MOST_BEFORE: Final = 64
"""Most operators before an effect that happens although the call fails."""


def happening_anyway(graph: PlacedGraph, order: Sequence[int]) -> frozenset[int]:
    """The nodes that write a variable although the data has ended, and those that lead to them. order: all nodes, producers first."""
    reading = {node.index for node in graph.nodes if node.op in _NEXT}
    if not reading:
        return frozenset()
    for i in order:
        if not reading.isdisjoint(_before(graph, i)):
            reading.add(i)
    found: set[int] = set()
    for node in graph.nodes:
        if node.op in WRITES and node.index not in reading:
            leading = _leading_to(graph, node.index)
            if leading is not None:
                found |= leading
    return frozenset(found)


def _before(graph: PlacedGraph, index: int) -> list[int]:
    """What a node waits for, in a loop within the same iteration."""
    node = graph.nodes[index]
    before = [*(port.node for port in node.inputs), *node.control]
    return [i for i in before if not is_back_edge(graph, i)]


def _leading_to(graph: PlacedGraph, index: int) -> set[int] | None:
    """A node and all before it; None if that is much to compute."""
    found, waiting, computing = {index}, [index], 0
    while waiting:
        for before in _before(graph, waiting.pop()):
            node = graph.nodes[before]
            if before in found:
                continue
            if is_product(node.op) or (computing := computing + (node.op not in UNCOUNTED)) > _MOST_BEFORE:
                return None
            found.add(before)
            waiting.append(before)
    return found
