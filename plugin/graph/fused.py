"""Operators that TensorFlow's own optimizer has fused: split into their parts for the compiler, and fused again wherever TensorFlow's
operators run.

    _UnaryOpsComposition   several unary operators in sequence
    _MklSwish              x * sigmoid(x); _MklFusedMish: x * tanh(softplus(x))
    _FusedBatchNormEx      a batch normalization, with a sum and an activation
    _FusedMatMul           a product, with a bias and an activation, if a cluster may have the product
    _MklFusedBatchMatMulV2 a batch of products, with a scale and a mask (attention's), likewise

None can be lowered to HLO, and a cluster may begin or end between their parts. But their kernels round differently from those of
the parts (a composition's exp differs from Exp in the last bit), and until a kernel of ours runs, a job must compute the numbers of
its own graph. So the last part keeps the original operator: a fallback that has all parts uses the original, and so does a stitched
graph outside of its clusters.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..base.edges import control_inputs, data_inputs
from .placed_graph import PlacedGraph, Port, device_type

_ORIGINAL = "_stitchfleet_fused"
"""Attribute of an operator's last part, which has the operator's name: the operator's serialized NodeDef."""
_PARTS = "_stitchfleet_parts"
"""Attribute of the last part: the names of the other parts, in their order."""
_TIMES_OPERAND: Final = {"_MklSwish": ("Sigmoid",), "_MklFusedMish": ("Softplus", "Tanh")}
"""An operator that multiplies its operand by what a sequence of unary operators makes of it -> the sequence."""
_NORMALIZATION_OUTPUTS = range(1, 6)
"""Outputs of _FusedBatchNormEx that are those of the normalization itself: its moments, and the operands of its gradient."""


def take_apart(graph: Any) -> int:
    """Replaces the fused operators of a GraphDef by their parts, in place. Returns the number of operators split. A
    _FusedBatchNormEx is split only on the CPU, with at most one side input, and with Relu or no activation."""
    moved: dict[str, str] = {}
    count = 0
    for node in list(graph.node):
        if node.op == "_UnaryOpsComposition":
            _take_sequence_apart(graph, node, [op.decode() for op in node.attr["op_names"].list.s])
        elif node.op in _TIMES_OPERAND:
            _take_sequence_apart(graph, node, [*_TIMES_OPERAND[node.op], "Mul"])
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


def _take_sequence_apart(graph: Any, node: Any, ops: Sequence[str]) -> None:
    """Splits an operator of one operand into a sequence. A Mul at its end multiplies by the operand."""
    dtype = node.attr["T"].type
    original = node.SerializeToString(deterministic=True)
    control = control_inputs(node)
    operand = source = node.input[0]
    parts = []
    for position, op in enumerate(ops[:-1]):
        part = graph.node.add(
            name=f"{node.name}/stitchfleet_part_{position}", op=op, device=node.device, input=[source, *control]
        )
        part.attr["T"].type = dtype
        source, control = part.name, []
        parts.append(part.name)
    others = [operand] if ops[-1] == "Mul" else []
    _become_last_part(node, ops[-1], [source, *others, *control], original, parts)


def _can_take_normalization_apart(node: Any) -> bool:
    activation = node.attr["activation_mode"].s.decode() or "Identity"
    return (
        activation in ("Identity", "Relu") and node.attr["num_side_inputs"].i <= 1 and device_type(node.device) == "CPU"
    )


def normalization_of(node: Any) -> Any | None:
    """The NodeDef of the _FusedBatchNormEx whose last part a NodeDef is; None if it is not one's."""
    if _ORIGINAL not in node.attr:
        return None
    original = _original(node)
    return original if original.op == "_FusedBatchNormEx" else None


def _original(last_part: Any) -> Any:
    from tensorflow.core.framework import node_def_pb2

    return node_def_pb2.NodeDef.FromString(last_part.attr[_ORIGINAL].s)


def _take_normalization_apart(graph: Any, node: Any) -> str:
    """Splits a _FusedBatchNormEx. Returns the name of the normalization."""
    original = node.SerializeToString(deterministic=True)
    norm = graph.node.add(name=f"{node.name}/stitchfleet_norm", op="FusedBatchNormV3", device=node.device)
    norm.input.extend([*node.input[:5], *control_inputs(node)])
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


FUSED_WITH_PRODUCT: Final = {
    "BiasAdd": "BiasAdd",
    "Add": "AddV2",
    "Mul": "Mul",
    **{op: op for op in ("Relu", "Relu6", "Elu", "Sigmoid", "Tanh")},
}
"""An entry of a fused product's `fused_ops` -> the operator that does the same to the product."""
FUSED_BATCH: Final = "_MklFusedBatchMatMulV2"
_PRODUCT_OF: Final = {
    "_FusedMatMul": ("MatMul", "transpose_a", "transpose_b"),
    FUSED_BATCH: ("BatchMatMulV2", "adj_x", "adj_y"),
}
"""A fused product -> its product, and the attributes that say which operand is transposed."""
_OF_TWO: Final = ("BiasAdd", "Add", "Mul")
"""Those with an operand besides the product."""


def operands_of_fused(product: Any) -> list[tuple[str, list[str]]]:
    """What is fused onto a product, in order: each entry of `fused_ops`, with the input text of its operand besides the product
    (none or one)."""
    others = data_inputs(product)[2:]
    found = []
    for entry in product.attr["fused_ops"].list.s:
        op = entry.decode()
        taken = 1 if op in _OF_TWO else 0
        found.append((op, others[:taken]))
        others = others[taken:]
    return found


def take_product_apart(graph: Any, node: Any) -> Any | None:
    """Splits a fused product of a GraphDef, in place. Returns the NodeDef of its MatMul or BatchMatMulV2; None, and nothing is
    changed, if one of the operators fused onto it is unknown."""
    after = operands_of_fused(node)
    if not after or any(op not in FUSED_WITH_PRODUCT for op, _ in after):
        return None
    original = node.SerializeToString(deterministic=True)
    kind, *turned = _PRODUCT_OF[node.op]
    product = graph.node.add(name=f"{node.name}/stitchfleet_product", op=kind, device=node.device)
    product.input.extend([*node.input[:2], *control_inputs(node)])
    for name in ("T", *turned):
        product.attr[name].CopyFrom(node.attr[name])
    parts = [str(product.name)]
    for position, (op, others) in enumerate(after[:-1]):
        part = graph.node.add(
            name=f"{node.name}/stitchfleet_part_{position}", op=FUSED_WITH_PRODUCT[op], device=node.device
        )
        part.input.extend([parts[-1], *others])
        part.attr["T"].CopyFrom(node.attr["T"])
        parts.append(str(part.name))
    op, others = after[-1]
    _become_last_part(node, FUSED_WITH_PRODUCT[op], [parts[-1], *others], original, parts)
    return product


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
    """A fused operator whose parts are all in a graph.

    original: its NodeDef. last: the part that has its name. parts: the other parts, in order. inputs: the fused operator's operands,
    in its order. moved: output of a part -> its number among the fused operator's outputs.
    """

    original: Any
    last: int
    parts: tuple[int, ...]
    inputs: tuple[Port, ...]
    moved: dict[Port, int]


def find(graph: PlacedGraph, among: Collection[int], leaves: Collection[Port] = ()) -> Iterator[Fused]:
    """Fused operators whose parts are all in `among`, and of which only outputs are read that the fused operator has too.

    among: nodes of the graph. leaves: outputs that are read from outside, whether or not a node of the graph reads them.
    """
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
        original = _original(proto)
        moved = {}
        if original.op == "_FusedBatchNormEx":
            moved = {Port(parts[0], output): output for output in _NORMALIZATION_OUTPUTS}
        if read_outside - moved.keys():
            continue
        first, *others = (*parts, last)
        inputs = [*graph.nodes[first].inputs]
        if original.op not in _TIMES_OPERAND:
            inputs += [port for other in others for port in graph.nodes[other].inputs[1:]]
        yield Fused(original, last, parts, tuple(inputs), {Port(last, 0): 0, **moved})


def restore(graph: Any) -> int:
    """Replaces the parts of each fused operator that are all in a GraphDef by the operator, in place. Returns the number of
    operators."""
    placed = PlacedGraph(graph)
    found = list(find(placed, range(len(placed.nodes))))
    if not found:
        return 0
    gone: set[str] = set()
    renamed: dict[str, str] = {}
    waits: dict[str, str] = {}
    for operator in found:
        node = placed.nodes[operator.last].proto
        members = [placed.nodes[i].proto for i in (*operator.parts, operator.last)]
        inside = {member.name for member in members}
        control = [text for member in members for text in control_inputs(member) if text[1:] not in inside]
        operands = [
            f"{placed.nodes[port.node].name}:{port.index}" if port.index else placed.nodes[port.node].name
            for port in operator.inputs
        ]
        for port, output in operator.moved.items():
            if port.node != operator.last:
                renamed[f"{placed.nodes[port.node].name}:{port.index}"] = f"{node.name}:{output}"
        for part in operator.parts:
            gone.add(placed.nodes[part].name)
            waits[f"^{placed.nodes[part].name}"] = f"^{node.name}"
        device = node.device
        node.CopyFrom(operator.original)
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
