"""Loop variables that no iteration changes become constants of the loop's frame.

TensorFlow lowers all variables of a while loop in the same way: each runs a Merge, a Switch, a NextIteration and mostly an Identity
in every iteration, half a microsecond each. Seven of the twelve variables of Keras' GRU never change: the tensors that the body
captures (weights, the list of inputs, the mask). For each such variable

    value -> Enter -> Merge -> Switch:1 -> the body's operators            becomes     value -> Enter (constant) -> the operators
               NextIteration <- Identity                                               value -> Identity, in place of the Exit

A constant of a frame is alive in every iteration, also in the last, in which the body is dead. So an operator of the body whose other
inputs are all alive then waits for a pivot, an Identity of another variable's Switch. TensorFlow's own lowering does the same for
operators without inputs (lower_while_op.cc in its core/common_runtime). The other variable's NextIteration takes over the control
inputs of the removed nodes; the readers of the Exit still wait for the end of the loop.
"""

from __future__ import annotations

import collections
from typing import Any

from ..base.dtypes import DT_BOOL, INDEX_INTEGERS
from ..graph.control_flow import Liveness, analyse
from ..graph.placed_graph import PlacedGraph
from .variables import LoopVariable, variable_of

_SMALL = INDEX_INTEGERS | {DT_BOOL}
"""The dtypes of counters; most loops have one."""


def free_invariants(graph: Any) -> int:
    """Turns the loop variables that no iteration changes into constants of their frames, in a placed GraphDef, in place. Returns
    their number."""
    freed = 0
    done: set[str] = set()
    while True:
        if not any(node.op == "Enter" and node.attr["frame_name"].s.decode() not in done for node in graph.node):
            return freed
        placed = PlacedGraph(graph)
        frames: dict[str, list[LoopVariable]] = collections.defaultdict(list)
        for node in placed.nodes:
            if node.op == "Enter":
                frames[node.proto.attr["frame_name"].s.decode()].extend(_variables_of(placed, node.index))
        todo = next(((name, found) for name, found in frames.items() if name not in done and _some_change(found)), None)
        if todo is None:
            return freed
        name, variables = todo
        done.add(name)  # one frame at a time: the next may read nodes that this one has changed
        freed += _Frame(graph, placed, variables).free()


def _some_change(variables: list[LoopVariable]) -> bool:
    return len({variable.unchanged for variable in variables}) == 2


def _variables_of(graph: PlacedGraph, enter: int) -> list[LoopVariable]:
    found = variable_of(graph, enter)
    if found is None:
        return []
    found.unchanged = found.unchanged and _may_go(graph, found)
    return [found]


def _may_go(graph: PlacedGraph, variable: LoopVariable) -> bool:
    """Whether a variable's own nodes are read only in ways that this module rewrites."""
    merge, switch, back = variable.merge, variable.switch, variable.next
    if graph.control_consumers[back]:
        return False
    if graph.nodes[merge].control or any(output for _, output in graph.consumers[merge]):
        return False  # a node reads which operand the Merge took
    if graph.nodes[switch].control or graph.consumers[back] != [(merge, 0)]:
        return False
    if any(graph.nodes[i].op != "Exit" or graph.nodes[i].control for i in variable.exits):
        return False
    readers = [c for c, output in graph.consumers[switch] if output == 1]
    readers += [c for c, _ in graph.consumers[merge] if c != switch]
    return not any(graph.nodes[c].op in ("Merge", "NextIteration") and c != back for c in readers)


class _Frame:
    """One loop frame whose `unchanged` variables are freed. other: a variable that stays; nodes that waited for them wait for it."""

    def __init__(self, graph: Any, placed: PlacedGraph, variables: list[LoopVariable]) -> None:
        self.graph, self.placed = graph, placed
        kept = [variable for variable in variables if not variable.unchanged]
        self.other = min(kept, key=lambda v: placed.nodes[v.switch].proto.attr["T"].type not in _SMALL)
        self.condition = placed.nodes[self.other.switch].inputs[1]
        self.unchanged = [v for v in variables if v.unchanged and placed.nodes[v.switch].inputs[1] == self.condition]
        self.owner = {i: v for v in self.unchanged for i in (v.merge, v.switch)}
        self.removed = self._removed()

    def _removed(self) -> set[int]:
        removed = {i for v in self.unchanged for i in (v.merge, v.switch, v.next)}
        for variable in self.unchanged:
            for i in variable.passed:  # last one first: it goes if all its readers go
                if not self.placed.control_consumers[i] and {c for c, _ in self.placed.consumers[i]} <= removed:
                    removed.add(i)
        return removed

    def free(self) -> int:
        """Changes the graph. Returns the number of variables freed."""
        for variable in self.unchanged:
            self.placed.nodes[variable.enter].proto.attr["is_constant"].b = True
            waited = [c for i in (*variable.passed, variable.next) for c in self.placed.nodes[i].control]
            _wait_for(self.placed.nodes[self.other.next].proto, [self.placed.nodes[c].name for c in waited])
        self._replace_reads()
        self._replace_exits()
        self._replace_waits()
        names = {self.placed.nodes[i].name for i in self.removed}
        for position in reversed(range(len(self.graph.node))):
            if self.graph.node[position].name in names:
                del self.graph.node[position]
        return len(self.unchanged)

    def _replace_exits(self) -> None:
        """Replaces each Exit by the value from before the loop, available when the loop has ended."""
        exits = [(variable, i) for variable in self.unchanged for i in variable.exits]
        end = self._exit() if exits else ""
        for variable, i in exits:
            node = self.placed.nodes[i].proto
            node.op = "Identity"
            del node.input[:]
            node.input.extend([self.placed.nodes[variable.enter].proto.input[0], f"^{end}"])

    def _replace_reads(self) -> None:
        exits = {i for v in self.unchanged for i in v.exits}
        live = analyse(self.placed)
        pivot = ""
        for node in self.placed.nodes:
            read = [port for port in node.inputs if port.node in self.owner]
            if not read or node.index in self.removed | exits:
                continue
            for position, port in enumerate(node.inputs):
                if port.node in self.owner:
                    node.proto.input[position] = self.placed.nodes[self.owner[port.node].enter].name
            in_body = any(self.placed.nodes[port.node].op == "Switch" for port in read)
            if in_body and not self._dies_with_the_body(live, node.index):
                pivot = pivot or self._pivot()
                _wait_for(node.proto, [pivot])

    def _dies_with_the_body(self, live: Liveness, index: int) -> bool:
        """Whether an input that stays makes a node of the body dead in the last iteration."""
        dead = ("branch", (self.condition.node, self.condition.index, True))
        node = self.placed.nodes[index]
        for port in node.inputs:
            source = self.placed.nodes[port.node]
            chosen = source.op == "Switch" and source.inputs[1] == self.condition and port.index == 1
            if port.node not in self.removed and (chosen or dead in live.predicate[port.node]):
                return True
        return any(source not in self.removed and dead in live.predicate[source] for source in node.control)

    def _replace_waits(self) -> None:
        """Moves control edges from a removed Merge or Switch to that of the other variable, which runs in the same iteration."""
        stand_in = {
            f"^{self.placed.nodes[gone].name}": self.placed.nodes[there].name
            for v in self.unchanged
            for gone, there in ((v.merge, self.other.merge), (v.switch, self.other.switch))
        }
        for node in self.graph.node:
            gone = [text for text in node.input if text in stand_in]
            for text in gone:
                node.input.remove(text)
            _wait_for(node, [stand_in[text] for text in gone])

    def _pivot(self) -> str:
        switch = self.placed.nodes[self.other.switch].proto
        return self._add("Identity", f"{switch.name}/stitchfleet_pivot", f"{switch.name}:1")

    def _exit(self) -> str:
        if self.other.exits and self.placed.nodes[self.other.exits[0]].op == "Exit":
            return self.placed.nodes[self.other.exits[0]].name
        switch = self.placed.nodes[self.other.switch].proto
        return self._add("Exit", f"{switch.name}/stitchfleet_exit", str(switch.name))

    def _add(self, op: str, name: str, source: str) -> str:
        switch = self.placed.nodes[self.other.switch].proto
        node = self.graph.node.add(name=name, op=op, device=switch.device, input=[source])
        node.attr["T"].type = switch.attr["T"].type
        return name


def _wait_for(node: Any, names: list[str]) -> None:
    present = set(node.input)
    node.input.extend(text for name in dict.fromkeys(names) if (text := f"^{name}") not in present)
