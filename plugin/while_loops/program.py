"""The program of a Loop op (native/loop/loop_op.cc): a while loop's operators as a GraphDef in execution order over slots."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..clusters.rewrite import LOOP_OP
from ..graph.placed_graph import OpDefinitions, PlacedGraph, Port
from .variables import LoopVariable

UNPACK, STACK = "TensorListFromTensor", "TensorListStack"
_DONE_BY_THE_LOOP = frozenset(
    "Placeholder Const Switch Merge TensorListFromTensor TensorListStack TensorListGetItem TensorListSetItem TensorListPushBack "
    "TensorListPopBack".split()
)
"""Operators of a program for which the Loop op calls no TensorFlow kernel, except in unusual cases (native/loop/shortcuts.h)."""


@dataclass
class LoopFrame:
    """A loop that qualifies. Nodes are given by number; `condition` and `body` are in an order in which they may run."""

    variables: list[LoopVariable]
    constants: list[int]
    condition_port: Port
    condition: list[int] = field(default_factory=list)
    body: list[int] = field(default_factory=list)
    unread: list[int] = field(default_factory=list)
    """Enters of constants that no result of the loop depends on."""
    unpacked: dict[int, int] = field(default_factory=dict)
    """Enter (in `constants` or `unread`) -> the operator before the loop that makes the list that only this Enter reads."""
    stacks: list[int] = field(default_factory=list)
    """The operators after the loop that stack a list that is one of its variables."""
    device: str = ""

    @property
    def enters(self) -> list[int]:
        """The Enters of the variables, then of the constants."""
        return [*(v.enter for v in self.variables), *self.constants]


class LoopProgram:
    """A frame's operators as a GraphDef in execution order, with its operands as Placeholders.

    operands: the Loop op's inputs, as (input text outside the loop, DataType number). dtypes: slot -> DataType number, of the slots
    that may leave the loop. sections: the number of nodes up to the end of the part before the loop, of its condition and of its
    body. text: the GraphDef serialized.
    """

    def __init__(self, graph: PlacedGraph, definitions: OpDefinitions, frame: LoopFrame) -> None:
        from tensorflow.core.framework import graph_pb2

        self._graph = graph
        self._definitions = definitions
        self._frame = frame
        self._own: dict[Port, str] = {}
        self._program: Any = graph_pb2.GraphDef()
        self.operands: list[tuple[str, int]] = []
        self.dtypes: dict[str, int] = {}
        self.sections: list[int] = []
        for enter in frame.enters:
            made = frame.unpacked.get(enter)
            if made is None:
                dtype = graph.nodes[enter].proto.attr["T"].type
                self._own[Port(enter, 0)] = self._operand(graph.nodes[enter].proto.input[0], dtype)
            else:
                listed = graph.nodes[made].proto
                self._own[graph.nodes[made].inputs[0]] = self._operand(
                    listed.input[0], listed.attr["element_dtype"].type
                )
                self._own[Port(enter, 0)] = listed.name
        for v in frame.variables:
            places = (Port(v.merge, 0), Port(v.switch, 1), *(Port(i, 0) for i in v.exits))
            self._own.update(dict.fromkeys(places, self._own[Port(v.enter, 0)]))
        lists = [frame.unpacked[enter] for enter in frame.constants if enter in frame.unpacked]
        for made in lists:
            shape = graph.nodes[made].inputs[1]
            if shape not in self._own and not is_literal(graph, shape):
                listed = graph.nodes[made].proto
                self._own[shape] = self._operand(listed.input[1], listed.attr["shape_type"].type)
        self._branches = self._inside_of_conds(frame)
        literals = {graph.nodes[i].inputs[1].node for i in (*lists, *frame.stacks)}
        for section in (
            [*(i for i in sorted(literals) if is_literal(graph, Port(i, 0))), *lists],
            frame.condition,
            frame.body,
        ):
            for i in section:
                self._add(i)
            self.sections.append(len(self._program.node))
        for i in frame.stacks:
            self._add(i)
            self.dtypes[graph.nodes[i].name] = graph.nodes[i].proto.attr["element_dtype"].type
        self.text = bytes(self._program.SerializeToString(deterministic=True))

    def _operand(self, text: str, dtype: int) -> str:
        """Adds an operand and returns its slot. text: the input text outside the loop."""
        count = len(self._frame.variables)
        k = len(self.operands)
        name = f"stitchfleet_variable_{k}" if k < count else f"stitchfleet_argument_{k - count}"
        self._program.node.add(name=name, op="Placeholder", device=self._frame.device).attr["dtype"].type = dtype
        self.operands.append((text, dtype))
        self.dtypes[name] = dtype
        return name

    def spell(self, port: Port) -> str:
        """The name of the slot that holds an output's value."""
        if port in self._own:
            return self._own[port]
        name = self._graph.nodes[port.node].name
        return f"{name}:{port.index}" if port.index else name

    def _inside_of_conds(self, frame: LoopFrame) -> set[int]:
        """Operators that may be dead in an iteration that is alive: those after a Switch that belongs to no loop variable."""
        found: set[int] = set()
        for i in (*frame.condition, *frame.body):
            node = self._graph.nodes[i]
            if (
                node.op == "Switch"
                or found.intersection(node.control)
                or any(port.node in found for port in node.inputs)
            ):
                found.add(i)
        return found

    def _add(self, i: int) -> None:
        node = self._graph.nodes[i]
        dies = i in self._branches
        if not dies and node.op == "NoOp":
            return
        if not dies and node.op == "Identity":
            self._own[Port(i, 0)] = self.spell(node.inputs[0])
            return
        copy = self._program.node.add()
        copy.CopyFrom(node.proto)
        copy.attr.pop("_class", None)
        self._definitions.add_defaults(copy)  # the Loop op makes kernels of these nodes as they are
        del copy.input[:]
        copy.input.extend(self.spell(port) for port in node.inputs)
        copy.input.extend(f"^{self._graph.nodes[c].name}" for c in node.control if c in self._branches)


def is_literal(graph: PlacedGraph, port: Port) -> bool:
    """Whether a port is that of a constant without control inputs. The program holds a copy of it."""
    return graph.nodes[port.node].op == "Const" and not graph.nodes[port.node].control


def operators_left(nodes: Iterable[Any]) -> frozenset[str]:
    """Names of the nodes for which a TensorFlow kernel runs, among the nodes of a rewritten graph; a Loop op counts as the nodes
    of its program."""
    from tensorflow.core.framework import graph_pb2

    found: set[str] = set()
    for node in nodes:
        if node.op == LOOP_OP:
            program: Any = graph_pb2.GraphDef.FromString(node.attr["program"].s)
            found |= operators_left(n for n in program.node if n.op not in _DONE_BY_THE_LOOP)
        else:
            found.add(node.name)
    return frozenset(found)
