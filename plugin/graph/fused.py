"""Operators that TensorFlow's own optimizer has made of several: taken apart for the compiler, and put together again wherever
TensorFlow's operators run.

    _UnaryOpsComposition   several unary operators under one name
    _FusedBatchNormEx      a batch normalization with a sum and an activation

Nothing can lower them, and a cluster may begin or end between their parts. But their kernels round otherwise than the parts' (a
composition's exp is not Exp's in the last bit), and until a kernel of ours runs, a job's numbers are its own graph's. So each
last part remembers what it comes from: a fallback with all parts has the operator itself, and so has a stitched graph outside of
its clusters.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from .placed_graph import PlacedGraph, Port, device_type

_ORIGINAL = "_stitchfleet_fused"
"""Of an operator's last part, which bears its name: the operator's serialized NodeDef."""
_PARTS = "_stitchfleet_parts"
"""Of the same: the other parts' names, in their order."""
_NORMALIZATION_OUTPUTS = range(1, 6)
"""Those that the normalization hands over itself: its moments, and what its gradient reads."""


def take_apart(graph: Any) -> int:
    """Replaces each such operator of a GraphDef, in place, by its parts; returns how many."""
    moved: dict[str, str] = {}
    count = 0
    for node in list(graph.node):
        if node.op == "_UnaryOpsComposition":
            _take_composition_apart(graph, node)
        elif node.op == "_FusedBatchNormEx" and _can_take_normalization_apart(node):
            norm = _take_normalization_apart(graph, node)
            moved.update({f"{node.name}:{output}": f"{norm}:{output}" for output in _NORMALIZATION_OUTPUTS})
        else:
            continue
        count += 1
    for node in graph.node if moved else ():
        for position, name in enumerate(node.input):
            if name in moved:
                node.input[position] = moved[name]
    return count


def _take_composition_apart(graph: Any, node: Any) -> None:
    ops = [op.decode() for op in node.attr["op_names"].list.s]
    dtype = node.attr["T"].type
    original = node.SerializeToString(deterministic=True)
    control = [name for name in node.input if name.startswith("^")]
    source = node.input[0]
    parts = []
    for position, op in enumerate(ops[:-1]):
        part = graph.node.add(
            name=f"{node.name}/stitchfleet_part_{position}", op=op, device=node.device, input=[source, *control]
        )
        part.attr["T"].type = dtype
        source, control = part.name, []
        parts.append(part.name)
    _become_last_part(node, ops[-1], [source, *control], original, parts)


def _can_take_normalization_apart(node: Any) -> bool:
    activation = node.attr["activation_mode"].s.decode() or "Identity"
    return (
        activation in ("Identity", "Relu") and node.attr["num_side_inputs"].i <= 1 and device_type(node.device) == "CPU"
    )


def _take_normalization_apart(graph: Any, node: Any) -> str:
    """Returns the normalization's name."""
    original = node.SerializeToString(deterministic=True)
    norm = graph.node.add(name=f"{node.name}/stitchfleet_norm", op="FusedBatchNormV3", device=node.device)
    norm.input.extend([*node.input[:5], *(name for name in node.input if name.startswith("^"))])
    for name in ("T", "U", "epsilon", "exponential_avg_factor", "data_format", "is_training"):
        if name in node.attr:
            norm.attr[name].CopyFrom(node.attr[name])
    parts = [norm.name]
    if node.attr["num_side_inputs"].i:
        total = graph.node.add(name=f"{node.name}/stitchfleet_sum", op="AddV2", device=node.device)
        total.input.extend([norm.name, node.input[5]])
        total.attr["T"].CopyFrom(node.attr["T"])
        parts.append(total.name)
    _become_last_part(node, node.attr["activation_mode"].s.decode() or "Identity", [parts[-1]], original, parts)
    return str(norm.name)


def _become_last_part(node: Any, op: str, inputs: list[str], original: bytes, parts: list[str]) -> None:
    dtype = node.attr["T"].type
    node.op = op
    del node.input[:]
    node.input.extend(inputs)
    node.attr.clear()
    node.attr["T"].type = dtype
    node.attr[_ORIGINAL].s = original
    node.attr[_PARTS].list.s.extend(name.encode() for name in parts)


@dataclass(frozen=True)
class Fused:
    """One such operator whose parts are all in a graph. last: the part that bears its name; parts: the others, the first one first.

    inputs: its operands, in its own order. moved: outputs of parts that are outputs of its own -> their number there.
    """

    original: Any
    last: int
    parts: tuple[int, ...]
    inputs: tuple[Port, ...]
    moved: dict[Port, int]


def find(graph: PlacedGraph, among: Collection[int], leaves: Collection[Port] = ()) -> Iterator[Fused]:
    """Those whose parts are all `among` the nodes of a graph and hand nothing to others that the operator would not.

    leaves: outputs that are read from outside, whether a node of the graph reads them or not.
    """
    from tensorflow.core.framework import node_def_pb2

    for last in among:
        proto = graph.nodes[last].proto
        if _ORIGINAL not in proto.attr:
            continue
        names = [name.decode() for name in proto.attr[_PARTS].list.s]
        parts = tuple(graph.by_name[name] for name in names if name in graph.by_name)
        if len(parts) != len(names) or not all(part in among for part in parts):
            continue
        group = {*parts, last}
        read_outside = {Port(part, k) for part in parts for reader, k in graph.consumers[part] if reader not in group}
        read_outside.update(port for port in leaves if port.node in parts)
        original: Any = node_def_pb2.NodeDef.FromString(proto.attr[_ORIGINAL].s)
        moved = {}
        if original.op == "_FusedBatchNormEx":
            moved = {Port(parts[0], output): output for output in _NORMALIZATION_OUTPUTS}
        if read_outside - moved.keys():
            continue
        inputs = list(graph.nodes[(parts or (last,))[0]].inputs)
        if len(parts) == 2 and moved:
            inputs.append(graph.nodes[parts[1]].inputs[1])
        yield Fused(original, last, parts, tuple(inputs), {Port(last, 0): 0, **moved})


def restore(graph: Any) -> int:
    """Puts the operators of a GraphDef together again whose parts are all there, in place; returns how many."""
    placed = PlacedGraph(graph)
    found = list(find(placed, range(len(placed.nodes))))
    if not found:
        return 0
    gone: set[str] = set()
    renamed: dict[str, str] = {}
    waits: dict[str, str] = {}
    for one in found:
        node = placed.nodes[one.last].proto
        members = [placed.nodes[i].proto for i in (*one.parts, one.last)]
        inside = {member.name for member in members}
        control = [
            text for member in members for text in member.input if text.startswith("^") and text[1:] not in inside
        ]
        operands = [
            f"{placed.nodes[port.node].name}:{port.index}" if port.index else placed.nodes[port.node].name
            for port in one.inputs
        ]
        for port, output in one.moved.items():
            if port.node != one.last:
                renamed[f"{placed.nodes[port.node].name}:{port.index}"] = f"{node.name}:{output}"
        for part in one.parts:
            gone.add(placed.nodes[part].name)
            waits[f"^{placed.nodes[part].name}"] = f"^{node.name}"
        device = node.device
        node.CopyFrom(one.original)
        node.device = device
        del node.input[:]
        node.input.extend([*operands, *dict.fromkeys(control)])
    kept = [node for node in graph.node if node.name not in gone]
    for node in kept:
        for position, text in enumerate(node.input):
            node.input[position] = renamed.get(text, waits.get(text, text))
    remaining = type(graph)()
    remaining.node.extend(kept)
    del graph.node[:]
    graph.node.extend(remaining.node)
    return len(found)
