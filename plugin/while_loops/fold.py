"""While loops as one operator each: a frame of TensorFlow's control flow becomes a StitchfleetLoop (native/loop/loop_op.cc).

TensorFlow's executor runs a loop node by node, and most nodes in an iteration of a recurrent network are control flow: of the 63
nodes in DIEN's evolution layer nine compute something. The Loop op holds those nine as a list. They do not change, and Stitch ops
among them keep their guard. The other nodes are replaced:

    Enter, Merge, Switch, Exit, NextIteration, LoopCond   of the loop's own variables: by slots of a table
    Identity, NoOp, control edges                         by another name for a slot, and by the order of the list
    Const                                                 by a value that is made once
    TensorList...                                         by reads and writes of elements in the Loop op itself
    TensorListFromTensor before the loop,
    TensorListStack after it                              if no other node reads the list: by rows of a tensor, without a copy

A loop qualifies if one thread can run its operators one after the other with the same result: it has the form that TensorFlow's
lowering gives it (variables.py), all of it is on one CPU, and it has no operator that waits for another thread or device (queues,
sends, collectives, functions) or has an unknown effect. Inner loops come first; a loop with an inner loop that stays, stays too.
"""

from __future__ import annotations

import collections
import hashlib
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from ..base.dtypes import REFERENCES
from ..clusters.clusters import ClusterPlan, FoldedLoop
from ..clusters.rewrite import LOOP_OP, OUR_OPS, copy_without
from ..graph.control_flow import Liveness, analyse
from ..graph.node_defs import RefusalOf
from ..graph.placed_graph import OpDefinitions, PlacedGraph, Port
from .program import STACK, UNPACK, LoopFrame, LoopProgram, is_literal, operators_left
from .variables import is_constant_enter, variable_of

_EFFECTS = tuple(
    "ReadVariableOp Assign ResourceGather ResourceScatter ResourceApply ResourceStridedSlice TensorArray "
    "RandomUniform RandomStandardNormal TruncatedNormal StatefulUniform StatefulStandardNormal Assert PrintV2 Stitchfleet".split()
)
"""Beginnings of the names of operators with effects that one thread may run one after the other: none waits for another thread."""
_FRAME_OPS = frozenset(("Enter", "Exit", "NextIteration", "LoopCond"))
_ENDS = frozenset(("_Send", "_Recv", "_HostSend", "_HostRecv", "_Arg", "_Retval", "Placeholder"))


@dataclass(frozen=True)
class StitchedLoops:
    """The GraphDef after folding, the loops that became one op each, and why the others stay (name of the frame -> reason)."""

    graph: Any
    loops: list[FoldedLoop]
    stay: dict[str, str]


class _UnfitError(Exception):
    """A loop does not qualify. The message is the reason, for people."""


def stitch_loops(
    graph: Any,
    definitions: OpDefinitions,
    refusal_of: RefusalOf,
    preserve: Collection[str] = (),
    is_excluded: Callable[[str], bool] = lambda name: False,
) -> StitchedLoops:
    """Replaces each loop that holds a Stitch op and qualifies by one Loop op. The given GraphDef is not changed.

    refusal_of: maps a serialized NodeDef to the reason why TensorFlow cannot create its operator, "" if it can. preserve: names that
    TensorFlow looks up afterwards. is_excluded: whether the loop with a given name ("loop_" and its hash) must stay as it is.
    """
    loops: list[FoldedLoop] = []
    stay: dict[str, str] = {}
    if not any(node.op == "Enter" for node in graph.node):
        return StitchedLoops(graph, loops, stay)
    placed = PlacedGraph(graph)
    live = analyse(placed)
    while True:
        frames: dict[str, list[int]] = collections.defaultdict(list)
        for node in placed.nodes:
            if live.frame[node.index]:
                frames[live.frame[node.index]].append(node.index)
        todo = [name for name in frames if name not in stay]
        if not todo:
            break
        for name in todo:
            try:
                frame = _read(placed, live, definitions, frames[name])
                _drop_unread(placed, definitions, frame, preserve)
                _find_lists(placed, frame, preserve)
                loop, changed = _replace(placed, definitions, frame, frames[name], name, preserve)
                following = _placed(changed)
                if is_excluded(loop.name.rpartition("/")[2]):
                    raise _UnfitError("switched off by name")
                reason = refusal_of(bytes(changed.node[-1].SerializeToString()))
                if reason:
                    raise _UnfitError(reason)
            except _UnfitError as error:
                stay[name] = str(error)
                continue
            loops.append(loop)
            placed, live = following
            stay.clear()  # another loop may have stayed because of this one
            break
    return StitchedLoops(placed.graph, loops, stay)


def _placed(graph: Any) -> tuple[PlacedGraph, Liveness]:
    """Indexes a graph in which a loop has become one node. Raises _UnfitError if that has caused a cycle."""
    placed = PlacedGraph(graph)
    try:
        return placed, analyse(placed)
    except ValueError as error:
        raise _UnfitError("something outside both reads and feeds it") from error


def note_loops(plan: ClusterPlan, graph: PlacedGraph, found: StitchedLoops) -> None:
    """Notes the loops in the plan of a placed graph. Nodes that a Loop op computes itself no longer count as left out."""
    plan.loops, plan.staying_loops = found.loops, found.stay
    for loop in found.loops:
        for name in loop.vanished & plan.left_out_nodes.keys():
            plan.take_in(graph.nodes[graph.by_name[name]])


def _read(graph: PlacedGraph, live: Liveness, definitions: OpDefinitions, members: list[int]) -> LoopFrame:
    """The frame with the given members. Raises _UnfitError if it does not qualify."""
    ops = collections.defaultdict(list)
    for i in members:
        ops[graph.nodes[i].op].append(i)
    if not OUR_OPS.intersection(ops):
        raise _UnfitError("nothing in it is stitched")
    if any(graph.nodes[c].op == "Enter" for i in members if graph.nodes[i].op != "Exit" for c, _ in graph.consumers[i]):
        raise _UnfitError("a loop inside stays")
    if len(ops["LoopCond"]) != 1:
        raise _UnfitError("it has no condition of its own")
    constants = [i for i in ops["Enter"] if is_constant_enter(graph.nodes[i].proto)]
    variables = []
    for i in ops["Enter"]:
        if i not in constants:
            variable = variable_of(graph, i)
            if variable is None:
                raise _UnfitError(f"its variable {graph.nodes[i].name} is spelled in an unknown way")
            variables.append(variable)
    if not variables:
        raise _UnfitError("it has no variables")
    (loop_condition,) = ops["LoopCond"]
    frame = LoopFrame(variables, constants, graph.nodes[loop_condition].inputs[0])
    _check_variables(graph, live, frame, ops, loop_condition)
    own = {loop_condition, *constants, *ops["Exit"]}
    own.update(i for v in variables for i in (v.enter, v.merge, v.switch, v.next))
    inside = set(members)
    for i in members:
        if i not in own:
            _check_operator(graph, definitions, i, inside)
    devices = {graph.nodes[i].proto.device for i in members if i not in own} - {""}
    if len(devices) > 1 or any("CPU" not in device for device in devices):
        raise _UnfitError("it runs on several devices, or not on the CPU")
    frame.device = next(iter(devices), "")
    switches = {v.switch for v in variables}
    in_body: set[int] = set()
    for i in live.order:
        if i in inside and i not in own:
            read = {port.node for port in graph.nodes[i].inputs}
            if read & switches or in_body.intersection(read.union(graph.nodes[i].control)):
                in_body.add(i)
                frame.body.append(i)
            else:
                frame.condition.append(i)
    if frame.condition_port.node in in_body:
        raise _UnfitError("its condition is computed in its body")
    return frame


def _check_variables(
    graph: PlacedGraph, live: Liveness, frame: LoopFrame, ops: dict[str, list[int]], loop_condition: int
) -> None:
    variables = frame.variables
    enters = [*frame.constants, *(v.enter for v in variables)]
    outside = live.when(enters[0])
    if any(live.when(i) != outside for i in enters):
        raise _UnfitError("what enters it is not alive together")
    if {v.next for v in variables} != set(ops["NextIteration"]) or {i for v in variables for i in v.exits} != set(
        ops["Exit"]
    ):
        raise _UnfitError("it has an exit or a next iteration of no variable")
    condition = Port(loop_condition, 0)
    iteration = ("iteration", live.frame[loop_condition])
    alive = outside | {iteration, ("branch", (condition.node, condition.index, True))}
    if not live.when(loop_condition) <= outside | {iteration}:
        raise _UnfitError("its condition may be dead")
    for v in variables:
        if graph.nodes[v.switch].inputs[1] != condition:
            raise _UnfitError("it has several conditions")
        if not live.when(v.next) <= alive:
            raise _UnfitError("a variable's next value may be dead")
        if any(output for _, output in graph.consumers[v.merge]):
            raise _UnfitError("it asks which operand a variable's Merge took")
        if graph.nodes[v.enter].proto.attr["T"].type > REFERENCES:
            raise _UnfitError("it has a reference to a variable")
    if any(graph.nodes[c].op != "Switch" for c, _ in graph.consumers[loop_condition]):
        raise _UnfitError("others than its variables read its condition")


def _drop_unread(graph: PlacedGraph, definitions: OpDefinitions, frame: LoopFrame, preserve: Collection[str]) -> None:
    """Removes nodes from `frame` that affect neither a value that leaves the loop, nor its condition, nor an operator with an effect:
    a second counter, an element of a list whose product was hoisted."""
    variable_at = {i: v for v in frame.variables for i in (v.merge, v.switch)}
    found: set[int] = set()
    waiting = [frame.condition_port.node]
    waiting += [i for i in (*frame.condition, *frame.body) if definitions.is_stateful(graph.nodes[i].op)]
    for v in frame.variables:
        if any(graph.consumers[i] or graph.control_consumers[i] or graph.nodes[i].name in preserve for i in v.exits):
            waiting.append(v.switch)
    while waiting:
        i = waiting.pop()
        if i in variable_at:
            i = variable_at[i].next
        if i not in found:
            found.add(i)
            if graph.nodes[i].op != "Enter":
                waiting += [port.node for port in graph.nodes[i].inputs] + graph.nodes[i].control
    kept = [v for v in frame.variables if v.next in found]
    if kept:
        frame.variables = kept
        frame.unread = [i for i in frame.constants if i not in found]
        frame.constants = [i for i in frame.constants if i in found]
        frame.condition = [i for i in frame.condition if i in found]
        frame.body = [i for i in frame.body if i in found]


def _find_lists(graph: PlacedGraph, frame: LoopFrame, preserve: Collection[str]) -> None:
    """Finds the operators before the loop that make a list only for it, and those after it that stack a list that it has written."""

    def may_join(i: int) -> bool:
        return graph.nodes[i].proto.device in ("", frame.device) and graph.nodes[i].name not in preserve

    enters = {*frame.enters, *frame.unread}
    for enter in (*frame.constants, *frame.unread):
        made = graph.nodes[enter].inputs[0].node
        alone = graph.consumers[made] == [(enter, 0)] and enters.issuperset(graph.control_consumers[made])
        if graph.nodes[made].op == UNPACK and alone and may_join(made):
            frame.unpacked[enter] = made
    leaving = [i for variable in frame.variables for i in variable.exits]
    for i in dict.fromkeys(consumer for left in leaving for consumer, _ in graph.consumers[left]):
        node = graph.nodes[i]
        if node.op == STACK and not node.control and is_literal(graph, node.inputs[1]) and may_join(i):
            frame.stacks.append(i)


def _check_operator(graph: PlacedGraph, definitions: OpDefinitions, i: int, inside: set[int]) -> None:
    node = graph.nodes[i]
    if node.op in _FRAME_OPS or node.op in _ENDS or definitions.find(node.op) is None:
        raise _UnfitError(f"{node.op} in it")
    if definitions.is_stateful(node.op) and not node.op.startswith(_EFFECTS):
        raise _UnfitError(f"{node.op}, which has an effect, in it")
    if any(attr.HasField("func") or attr.list.func for attr in node.proto.attr.values()):
        raise _UnfitError(f"{node.op}, which calls a function, in it")
    types = [dtype for _, _, dtype in (*definitions.inputs(node.proto), *definitions.outputs(node.proto))]
    if any(dtype > REFERENCES for dtype in types):
        raise _UnfitError("it has a reference to a variable")
    if any(port.node not in inside for port in node.inputs) or any(source not in inside for source in node.control):
        raise _UnfitError("it reads from outside without entering")


def _replace(
    graph: PlacedGraph,
    definitions: OpDefinitions,
    frame: LoopFrame,
    members: list[int],
    name: str,
    preserve: Collection[str],
) -> tuple[FoldedLoop, Any]:
    """(the loop, a GraphDef with its op as the last node). Raises _UnfitError."""
    program = LoopProgram(graph, definitions, frame)
    gone = {*members, *frame.unpacked.values(), *frame.stacks}
    exits = [i for v in frame.variables for i in v.exits]
    left = [i for i in exits if graph.nodes[i].name in preserve]
    read = [i for i in exits if i in left or any(consumer not in gone for consumer, _ in graph.consumers[i])]
    values = list(dict.fromkeys(program.spell(Port(i, 0)) for i in (*read, *frame.stacks)))
    following = [program.spell(graph.nodes[v.next].inputs[0]) for v in frame.variables]
    condition = program.spell(frame.condition_port)
    digest = hashlib.sha256("\n".join((*following, condition, *values)).encode() + program.text).hexdigest()[:10]
    scope = re.sub(r"[^\w./-]", "_", name.rpartition("/")[0])
    own_name = "/".join(part for part in ("stitchfleet", scope, f"loop_{digest}") if part)
    if own_name in graph.by_name:
        raise _UnfitError("another one like it")

    def result(port: Port) -> str:
        if port.node not in exits and port.node not in frame.stacks:
            raise _UnfitError("something outside reads it without an exit")
        return f"{own_name}:{values.index(program.spell(port))}"

    changed = copy_without(
        graph, dict.fromkeys(gone, own_name), result, set(preserve) - {graph.nodes[i].name for i in left}
    )
    for i in left:
        node = changed.node.add(name=graph.nodes[i].name, op="Identity", device=graph.nodes[i].proto.device)
        node.input.append(result(Port(i, 0)))
        node.attr["T"].type = graph.nodes[i].proto.attr["T"].type
    loop = changed.node.add(name=own_name, op=LOOP_OP, device=frame.device)
    loop.input.extend(text for text, _ in program.operands)
    waits = {c for i in (*frame.enters, *frame.unpacked.values()) for c in graph.nodes[i].control}.difference(gone)
    loop.input.extend(f"^{graph.nodes[c].name}" for c in sorted(waits))
    loop.attr["Tin"].list.type.extend(dtype for _, dtype in program.operands)
    loop.attr["Tout"].list.type.extend(program.dtypes[value] for value in values)
    loop.attr["program"].s = program.text
    loop.attr["condition"].s = condition.encode()
    loop.attr["sections"].list.i.extend(program.sections)
    loop.attr["next"].list.s.extend(t.encode() for t in following)
    loop.attr["values"].list.s.extend(t.encode() for t in values)
    names = frozenset(graph.nodes[i].name for i in gone)
    return FoldedLoop(own_name, name, names, names - operators_left([loop])), changed
