"""A placed GraphDef, indexed: nodes by number, data and control edges in both directions, and the operators' definitions.

A GraphDef spells an edge "node", "node:2" or "^node"; a FunctionDef spells it "node:output_argument:2". `OpDefinitions.outputs` leads
from one to the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .tf_ops import MAX_CONST_BYTES

NodeDef = Any  # tensorflow.core.framework.node_def_pb2.NodeDef
GraphDef = Any


@dataclass(frozen=True)
class Port:
    """One output of one node."""

    node: int
    index: int


@dataclass
class GraphNode:
    """One node. inputs: its data inputs, in the op's order. control: the nodes of its control inputs."""

    index: int
    proto: NodeDef
    inputs: list[Port] = field(default_factory=list)
    control: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The node's name in the graph."""
        return str(self.proto.name)

    @property
    def op(self) -> str:
        """The name of its operator, such as MatMul."""
        return str(self.proto.op)

    @property
    def device_type(self) -> str:
        """The type of its device: "CPU", "GPU", or "" for another device or none."""
        return device_type(str(self.proto.device))


def device_type(device: str) -> str:
    """The type in a device's name ("/job:localhost/.../device:GPU:0"): "CPU", "GPU", or "" for another device or none."""
    kind = device.rpartition("/")[2].upper().removeprefix("DEVICE:").partition(":")[0]
    return kind if kind in ("CPU", "GPU") else ""


class PlacedGraph:
    """A GraphDef with its edges. `graph` is not copied. Raises ValueError if a node reads one that is not in the graph."""

    def __init__(self, graph: GraphDef) -> None:
        self.graph = graph
        self.nodes = [GraphNode(i, proto) for i, proto in enumerate(graph.node)]
        self.by_name = {node.name: node.index for node in self.nodes}
        self.consumers: list[list[tuple[int, int]]] = [[] for _ in self.nodes]
        """For each node, (consumer, index of the output read) of each data edge that leaves it."""
        self.control_consumers: list[list[int]] = [[] for _ in self.nodes]
        for node in self.nodes:
            for text in node.proto.input:
                if text.startswith("^"):
                    source = self._find(text[1:], node)
                    node.control.append(source)
                    self.control_consumers[source].append(node.index)
                    continue
                name, _, output = text.partition(":")
                port = Port(self._find(name, node), int(output or 0))
                node.inputs.append(port)
                self.consumers[port.node].append((node.index, port.index))

    def _find(self, name: str, user: GraphNode) -> int:
        found = self.by_name.get(name)
        if found is None:
            raise ValueError(f"node {user.name} reads {name}, which is not in the graph")
        return found


def is_small_const(graph: PlacedGraph, index: int) -> bool:
    """Whether a node is a constant that clusters copy: at most MAX_CONST_BYTES, without control inputs."""
    node = graph.nodes[index]
    return _is_small(node) and not node.control


def small_constant(graph: PlacedGraph, index: int, operand: int) -> Any | None:
    """The value of an operand as a numpy array; None if it is not a constant of at most MAX_CONST_BYTES.

    The constant may wait for other nodes, as all in a loop's body do: its value is the same when it runs.
    """
    source = graph.nodes[graph.nodes[index].inputs[operand].node]
    if not _is_small(source):
        return None
    from tensorflow.python.framework import tensor_util

    return tensor_util.MakeNdarray(source.proto.attr["value"].tensor)


def _is_small(node: GraphNode) -> bool:
    return node.op == "Const" and node.proto.attr["value"].tensor.ByteSize() <= MAX_CONST_BYTES


class OpDefinitions:
    """Arguments, types and statefulness of operators, from TensorFlow's registry.

    Methods that take a NodeDef raise ValueError if its operator is not registered.
    """

    def __init__(self) -> None:
        from tensorflow.python.framework import op_def_registry

        self._registry = op_def_registry
        self._known: dict[str, Any] = {}

    def find(self, op: str) -> Any | None:
        """The OpDef; None if the operator is not in the registry of TensorFlow's Python API."""
        if op not in self._known:
            self._known[op] = self._registry.get(op)
        return self._known[op]

    def _known_op(self, op: str) -> Any:
        definition = self.find(op)
        if definition is None:
            raise ValueError(f"operator {op} is not registered")
        return definition

    def is_stateful(self, op: str) -> bool:
        """Whether an operator is stateful. One that is not registered counts as stateful."""
        definition = self.find(op)
        return definition is None or bool(definition.is_stateful)

    def outputs(self, node: NodeDef) -> list[tuple[str, int, int]]:
        """(output argument, index within it, DataType number) of each output of a node."""
        definition = self._known_op(node.op)
        return _arguments(node, definition, definition.output_arg)

    def inputs(self, node: NodeDef) -> list[tuple[str, int, int]]:
        """(input argument, index within it, DataType number) of each data input of a node."""
        definition = self._known_op(node.op)
        return _arguments(node, definition, definition.input_arg)

    def add_defaults(self, node: NodeDef) -> None:
        """Gives a NodeDef the default values of the attributes that it does not state. TensorFlow does so when it reads a graph. A
        newer version may have attributes that our passes do not know."""
        for attribute in self._known_op(node.op).attr:
            if attribute.HasField("default_value") and attribute.name not in node.attr:
                node.attr[attribute.name].CopyFrom(attribute.default_value)


def _arguments(node: NodeDef, definition: Any, arguments: Any) -> list[tuple[str, int, int]]:
    found: list[tuple[str, int, int]] = []
    for argument in arguments:
        if argument.type_list_attr:
            types = list(_attribute(node, definition, argument.type_list_attr).list.type)
        else:
            dtype = argument.type or _attribute(node, definition, argument.type_attr).type
            count = int(_attribute(node, definition, argument.number_attr).i) if argument.number_attr else 1
            types = [dtype] * count
        found += [(str(argument.name), i, int(dtype)) for i, dtype in enumerate(types)]
    return found


def _attribute(node: NodeDef, definition: Any, name: str) -> Any:
    """An attribute's value, or its default if the node does not state it: `node.attr[name]` alone would add it, without a value."""
    if name in node.attr:
        return node.attr[name]
    return next(attribute.default_value for attribute in definition.attr if attribute.name == name)
