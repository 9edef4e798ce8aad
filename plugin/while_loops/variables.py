"""The variables and constants of a while loop, in the form that TensorFlow's lowering gives them (lower_while_op.cc in its
core/common_runtime):

value -> Enter -> Merge -> Switch -> (output 1) the body ... -> NextIteration -> Merge
                                  -> (output 0) Exit -> what follows the loop
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..base.edges import control_inputs
from ..graph.placed_graph import PlacedGraph, Port


@dataclass
class LoopVariable:
    """The numbers of the nodes of one loop variable.

    passed: the Identities between Switch and NextIteration, the last one first. exits: the readers of the Switch's output 0.
    unchanged: whether the NextIteration gets the Switch's output 1, through those Identities only.
    """

    enter: int
    merge: int
    switch: int
    next: int
    passed: list[int] = field(default_factory=list)
    exits: list[int] = field(default_factory=list)
    unchanged: bool = False


def is_constant_enter(node: Any) -> bool:
    """Whether a NodeDef is an Enter whose value is the same in all iterations of its loop."""
    return node.op == "Enter" and bool(node.attr["is_constant"].b)


def add_enter(graph: Any, like: Any, name: str, source: str, dtype: int, waits: Iterable[str] = ()) -> Any:
    """Adds an Enter of another value into the frame of the Enter `like`, and returns its NodeDef.

    It has the control inputs of `like`, and those in `waits` ("^" and a name). source: the value outside. dtype: its DataType number.
    """
    control = dict.fromkeys([*control_inputs(like), *waits])
    node = graph.node.add(name=name, op="Enter", device=like.device, input=[source, *control])
    node.attr["T"].type = dtype
    for attribute in ("frame_name", "is_constant", "parallel_iterations"):
        node.attr[attribute].CopyFrom(like.attr[attribute])
    return node


def variable_of(graph: PlacedGraph, enter: int) -> LoopVariable | None:
    """The loop variable that begins at an Enter; None if its nodes do not have that form."""
    merges = {consumer for consumer, _ in graph.consumers[enter] if graph.nodes[consumer].op == "Merge"}
    if len(merges) != 1 or len(graph.consumers[enter]) != 1:
        return None
    (merge,) = merges
    loops = [port.node for port in graph.nodes[merge].inputs if graph.nodes[port.node].op == "NextIteration"]
    switches = [c for c, _ in graph.consumers[merge] if graph.nodes[c].op == "Switch"]
    switches = [c for c in switches if graph.nodes[graph.nodes[c].inputs[1].node].op == "LoopCond"]
    if len(loops) != 1 or len(switches) != 1 or len(graph.nodes[merge].inputs) != 2:
        return None
    found = LoopVariable(enter, merge, switches[0], loops[0])
    found.exits = [c for c, output in graph.consumers[found.switch] if output == 0]
    port = graph.nodes[found.next].inputs[0]
    while graph.nodes[port.node].op == "Identity":
        found.passed.append(port.node)
        port = graph.nodes[port.node].inputs[0]
    found.unchanged = port == Port(found.switch, 1)
    return found
