"""Which nodes of a lowered graph are alive together: control-flow frames and deadness predicates.

A `tf.cond` lowered to Switch and Merge has no frame: of its two branches one is *dead* in a step, and an operator that has a dead
input does not run. One Stitch op with members of both branches, or of a branch and of the code around it, would be dead whenever
one of its inputs is: its other members' values would be missing without an error. So members must share their frame and their
predicate. The predicate is computed as XLA's deadness analysis does (tensorflow/compiler/jit/deadness_analysis.cc), in brief:

    Switch(value, p)       true output: alive(value) and p; false output: alive(value) and not p
    Merge(a, b)            alive(a) or alive(b); where the two differ in one Switch only, what they share (what it waits for may be
                           dead: a Merge waits for it and lives)
    Merge of a loop        alive once for each iteration of its frame: one symbol a frame
    any other node         alive when all its inputs and control inputs are

Predicates are sets of conjuncts; equal sets mean equal predicates. Unequal sets may still be equal in truth: then two clusters are
kept apart that could have been one, never the other way round.
"""

from __future__ import annotations

from dataclasses import dataclass

from .placed_graph import PlacedGraph

Conjunct = tuple[str, object]
Predicate = frozenset[Conjunct]
ALWAYS: Predicate = frozenset()


@dataclass(frozen=True)
class Liveness:
    """frame[i]: the loop frame of node i ("" outside loops); predicate[i]: when it runs; order: all nodes, producers first;
    entered: when a frame's loop runs at all."""

    frame: list[str]
    predicate: list[Predicate]
    order: list[int]
    entered: dict[str, Predicate]

    def key(self, node: int) -> tuple[str, Predicate]:
        """Nodes may share a cluster only when their keys are equal."""
        return self.frame[node], self.predicate[node]

    def when(self, node: int) -> Predicate:
        """The node's predicate without the loops that end before it: what leaves a loop is there when the loop runs at all.

        For clusters they are told apart, so that no loop waits for another one.
        """
        found: set[Conjunct] = set()
        waiting = list(self.predicate[node])
        seen: set[Conjunct] = set()
        while waiting:
            conjunct = waiting.pop()
            if conjunct in seen:
                continue
            seen.add(conjunct)
            if conjunct[0] == "exit":
                waiting += self.entered[str(conjunct[1])]
            else:
                found.add(conjunct)
        return frozenset(found)


def analyse(graph: PlacedGraph) -> Liveness:
    """Frames and predicates of every node. Raises ValueError for a graph with a cycle outside loops."""
    order = topological_order(graph)
    frame = [""] * len(graph.nodes)
    parents: dict[str, str] = {"": ""}
    predicate: list[Predicate] = [ALWAYS] * len(graph.nodes)
    entered: dict[str, Predicate] = {}
    merges: dict[int, int] = {}
    for i in order:
        node = graph.nodes[i]
        sources = [port.node for port in node.inputs] + node.control
        loop_header = node.op in ("Merge", "RefMerge") and any(
            graph.nodes[port.node].op in ("NextIteration", "RefNextIteration") for port in node.inputs
        )
        if loop_header:
            sources = [s for s in sources if graph.nodes[s].op not in ("NextIteration", "RefNextIteration")]
        frame[i] = _frame_of(graph, i, sources, frame, parents)
        inputs = [_alive(graph, port.node, port.index, predicate) for port in node.inputs]
        if loop_header:
            predicate[i] = frozenset([("iteration", frame[i])])
        elif node.op in ("Merge", "RefMerge"):
            predicate[i] = _merged(inputs, merges.setdefault(i, len(merges)))
        elif node.op in ("Exit", "RefExit"):
            predicate[i] = frozenset([("exit", frame[sources[0]])]) if sources else ALWAYS
        else:
            predicate[i] = _all(inputs) | _all(_alive(graph, c, 0, predicate, control=True) for c in node.control)
        if node.op in ("Enter", "RefEnter"):
            entered[frame[i]] = entered.get(frame[i], ALWAYS) | predicate[i]
    return Liveness(frame, predicate, order, entered)


def _alive(graph: PlacedGraph, node: int, output: int, predicate: list[Predicate], control: bool = False) -> Predicate:
    source = graph.nodes[node]
    if control or source.op not in ("Switch", "RefSwitch"):
        return predicate[node]
    chosen = source.inputs[1]
    return predicate[node] | {("branch", (chosen.node, chosen.index, output == 1))}


def _all(predicates: object) -> Predicate:
    found: Predicate = ALWAYS
    for predicate in predicates:  # type: ignore[attr-defined]
        found |= predicate
    return found


def _merged(inputs: list[Predicate], number: int) -> Predicate:
    if len(inputs) == 2:
        first, second = inputs
        shared = first & second
        left, right = first - shared, second - shared
        if len(left) == len(right) == 1:
            ((kind, choice),) = left
            ((other_kind, other),) = right
            if (
                kind == other_kind == "branch"
                and isinstance(choice, tuple)
                and isinstance(other, tuple)
                and choice[:2] == other[:2]
                and choice[2] != other[2]
            ):
                return shared
    return frozenset([("merge", number)])


def _frame_of(graph: PlacedGraph, i: int, sources: list[int], frame: list[str], parents: dict[str, str]) -> str:
    node = graph.nodes[i]
    inner = ""
    for source in sources:
        outer = frame[source]
        if graph.nodes[source].op in ("Exit", "RefExit"):
            outer = parents.get(outer, "")
        if len(_path(outer, parents)) > len(_path(inner, parents)):
            inner = outer
    if node.op in ("Enter", "RefEnter"):
        name = str(node.proto.attr["frame_name"].s.decode())
        parents.setdefault(name, inner)
        return name
    return inner


def _path(name: str, parents: dict[str, str]) -> list[str]:
    path = []
    while name:
        path.append(name)
        name = parents.get(name, "")
    return path


def topological_order(graph: PlacedGraph) -> list[int]:
    """All nodes, producers first; back edges of loops (from NextIteration) do not count. Raises ValueError for any other cycle."""
    waiting = [0] * len(graph.nodes)
    for node in graph.nodes:
        sources = [port.node for port in node.inputs] + node.control
        waiting[node.index] = sum(graph.nodes[s].op not in ("NextIteration", "RefNextIteration") for s in sources)
    ready = [node.index for node in graph.nodes if waiting[node.index] == 0]
    order: list[int] = []
    while ready:
        i = ready.pop()
        order.append(i)
        if graph.nodes[i].op in ("NextIteration", "RefNextIteration"):
            continue
        for consumer in [c for c, _ in graph.consumers[i]] + graph.control_consumers[i]:
            waiting[consumer] -= 1
            if waiting[consumer] == 0:
                ready.append(consumer)
    if len(order) != len(graph.nodes):
        raise ValueError("the graph has a cycle that is not a loop")
    return order
