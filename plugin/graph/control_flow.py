"""Which nodes of a lowered graph are alive together: control-flow frames and deadness predicates.

A `tf.cond` lowered to Switch and Merge has no frame: in each step one of its two branches is *dead*, and an operator with a dead
input does not run. A Stitch op with members in both branches, or in a branch and outside, would be dead if one of its inputs is: the
values of its other members would be missing without an error. So members must share their frame and their predicate. The predicate
follows XLA's deadness analysis (tensorflow/compiler/jit/deadness_analysis.cc). In short:

    Switch(value, p)       true output: alive(value) and p; false output: alive(value) and not p
    Merge(a, b)            alive(a) or alive(b). If the two differ in one Switch only, this is the conjuncts that they share.
                           Control inputs do not count: a Merge also runs if they are dead
    Merge of a loop        alive once in each iteration of its frame: one symbol per frame
    any other node         alive if all its inputs and control inputs are

A predicate is a set of conjuncts; equal sets mean equal predicates. Unequal sets may also be equivalent: then two clusters stay
separate that could have been one, never the other way round.
"""

from __future__ import annotations

from dataclasses import dataclass

from .placed_graph import PlacedGraph

Conjunct = tuple[str, object]
Predicate = frozenset[Conjunct]
ALWAYS: Predicate = frozenset()


@dataclass(frozen=True)
class Liveness:
    """The frames and predicates of all nodes of a graph.

    frame[i]: the loop frame of node i ("" outside loops). predicate[i]: the predicate under which it runs. order: all nodes,
    producers first. entered: frame -> the predicate under which its loop runs.
    """

    frame: list[str]
    predicate: list[Predicate]
    order: list[int]
    entered: dict[str, Predicate]

    def key(self, node: int) -> tuple[str, Predicate]:
        """(frame, predicate) of a node. Nodes may share a cluster only if these are equal."""
        return self.frame[node], self.predicate[node]

    def when(self, node: int) -> Predicate:
        """A node's predicate, with the predicate of a loop's entry in place of that of its exit: an Exit is alive if the loop runs.

        Clusters use `key`, which keeps the two apart, so that no loop waits for another one.
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
    """Computes the frames and predicates of all nodes. Raises ValueError if the graph has a cycle outside loops."""
    order = topological_order(graph)
    frame = [""] * len(graph.nodes)
    parents: dict[str, str] = {"": ""}
    predicate: list[Predicate] = [ALWAYS] * len(graph.nodes)
    entered: dict[str, Predicate] = {}
    merges: dict[int, int] = {}
    for i in order:
        node = graph.nodes[i]
        sources = [port.node for port in node.inputs] + node.control
        loop_header = node.op in ("Merge", "RefMerge") and any(is_back_edge(graph, port.node) for port in node.inputs)
        if loop_header:
            sources = [s for s in sources if not is_back_edge(graph, s)]
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


def is_back_edge(graph: PlacedGraph, source: int) -> bool:
    """Whether the edges from a node lead to the next iteration of its loop."""
    return graph.nodes[source].op in ("NextIteration", "RefNextIteration")


def topological_order(graph: PlacedGraph) -> list[int]:
    """All nodes, producers first. Back edges of loops (from NextIteration) are ignored; raises ValueError for any other cycle."""
    waiting = [0] * len(graph.nodes)
    for node in graph.nodes:
        sources = [port.node for port in node.inputs] + node.control
        waiting[node.index] = sum(not is_back_edge(graph, s) for s in sources)
    ready = [node.index for node in graph.nodes if waiting[node.index] == 0]
    order: list[int] = []
    while ready:
        i = ready.pop()
        order.append(i)
        if is_back_edge(graph, i):
            continue
        for consumer in [c for c, _ in graph.consumers[i]] + graph.control_consumers[i]:
            waiting[consumer] -= 1
            if waiting[consumer] == 0:
                ready.append(consumer)
    if len(order) != len(graph.nodes):
        raise ValueError("the graph has a cycle that is not a loop")
    return order
