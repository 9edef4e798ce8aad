"""Schedules the operators that lead to a collective before the other readers of the same results.

In plain TensorFlow gradients become ready one by one. A Stitch op makes several results ready at once: the gradient that the next
layer's backward pass reads, gradients of biases, which are reduced over the ranks as they are, and the operands of the products that
compute gradients of weights. The executor gives all their readers to its thread pool, where the collectives may come last
(native/op/hand_on_op.cc). Other ranks wait for the collectives, so these have to come first. For that, HandOn ops, which return their
inputs and run at once, are inserted behind the operator:

    Stitch -> all -> first -> operators that lead to collectives and to nothing else
              all -> all other operators

A Stitch op's kernel is asynchronous: when it ends, all ready readers go to the thread pool, in the order of the graph's edges. `all`
is its only reader, so one task goes to the pool. When `all`, which is synchronous, ends, its readers go to the pool too, except for
`first`, which runs at once on the same thread, and whose readers run next. Behind an operator of TensorFlow's, which is synchronous,
`first` alone is enough: its results, too, may be read both by operators that lead to a collective and by others, such as the result
of the Reshape of a gradient that two products read.
"""

from __future__ import annotations

from typing import Any

from ..base.dtypes import REFERENCES
from ..graph.placed_graph import GraphNode, OpDefinitions, PlacedGraph
from ..ranks.collectives import BRANCHES, COLLECTIVES
from .rewrite import OUR_OPS, UPDATE_OP

HAND_ON_OP = "StitchfleetHandOn"
MOST_BETWEEN = 4
"""Most operators on a path from a result with several readers to a collective: a product, a reshape, a scale, a branch."""
_CONTROL_FLOW = frozenset((*BRANCHES, "Merge", "Enter", "Exit", "NextIteration", "LoopCond"))


def hand_on_first(graph: Any) -> int:
    """Inserts HandOn ops into a GraphDef that has Stitch ops, in place, behind operators on the CPU. Returns the number of
    operators behind which they were inserted; 0 if there is no collective."""
    if not any(node.op in COLLECTIVES for node in graph.node):
        return 0
    placed = PlacedGraph(graph)
    definitions = OpDefinitions()
    leading = _leading_to_collectives(placed)
    added = 0
    for source in placed.nodes:
        readers = {reader for reader, _ in placed.consumers[source.index]}
        first = readers & leading
        is_stitched = source.op in OUR_OPS
        waits = bool(placed.control_consumers[source.index]) and is_stitched
        if not first or source.device_type != "CPU" or (first == readers and not waits):
            continue
        types = _types_of_outputs(source, definitions)
        if types is None:
            continue
        places = {index: (source.name, index) for index in _outputs_read(placed, source.index, readers)}
        if is_stitched:
            places = _hand_on(graph, source, "all", places, types)
        of_first = {index: places[index] for index in _outputs_read(placed, source.index, first)}
        of_first = _hand_on(graph, source, "first", of_first, types)
        for reader in sorted(readers):
            node = placed.nodes[reader]
            for k, port in enumerate(node.inputs):  # the first of a node's inputs: control inputs come after them
                if port.node == source.index:
                    node.proto.input[k] = _written(*(of_first if reader in first else places)[port.index])
        added += 1
    return added


def _types_of_outputs(node: GraphNode, definitions: OpDefinitions) -> list[int] | None:
    """The DataType numbers of a node's outputs; None if no HandOn op belongs behind it, since its result is ready before the
    step's work (a variable's value) or it decides what runs (control flow)."""
    if node.op in OUR_OPS:
        return list(node.proto.attr["Tout"].list.type)
    if node.op in _CONTROL_FLOW or not node.inputs or definitions.is_stateful(node.op):
        return None
    types = [dtype for _, _, dtype in definitions.outputs(node.proto)]
    return None if any(dtype > REFERENCES for dtype in types) else types


def _outputs_read(graph: PlacedGraph, index: int, readers: set[int]) -> list[int]:
    """The outputs of a node that some of its readers read, in order."""
    return sorted({port.index for reader in readers for port in graph.nodes[reader].inputs if port.node == index})


def _hand_on(
    graph: Any, source: GraphNode, name: str, places: dict[int, tuple[str, int]], types: list[int]
) -> dict[int, tuple[str, int]]:
    """Inserts a HandOn op. places: output number of the operator `source` -> (node, output) that has its value. types: the
    DataType numbers of all outputs of `source`. Returns `places` for the readers of the HandOn op."""
    node = graph.node.add(name=f"{source.name}/stitchfleet_{name}", op=HAND_ON_OP, device=source.proto.device)
    node.input.extend(_written(*place) for place in places.values())
    node.attr["T"].list.type.extend(types[index] for index in places)
    return {index: (node.name, output) for output, index in enumerate(places)}


def _written(node: str, output: int) -> str:
    """A tensor as a NodeDef's input names it."""
    return f"{node}:{output}" if output else node


def _leading_to_collectives(graph: PlacedGraph) -> set[int]:
    """Indices of the collectives, and of the operators all of whose results are read only on paths of at most MOST_BETWEEN
    operators to them.

    A branch counts if one of its sides leads to a collective: Horovod reduces a gradient if the world has more than one rank, and
    passes it on unchanged otherwise (horovod/tensorflow/__init__.py, `_allreduce_cond`).
    """

    def leads(index: int) -> bool:
        node = graph.nodes[index]
        if node.op == UPDATE_OP or graph.control_consumers[index]:
            return False
        return node.op in BRANCHES or all(reader in found for reader, _ in graph.consumers[index])

    latest = {node.index for node in graph.nodes if node.op in COLLECTIVES}
    found = set(latest)
    for _ in range(MOST_BETWEEN):
        before = {port.node for index in latest for port in graph.nodes[index].inputs}
        latest = {index for index in before - found if leads(index)}
        found |= latest
    return found
