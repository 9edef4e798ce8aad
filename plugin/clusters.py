"""Clusters of a placed TensorFlow graph: which operators become one Stitch op, and why the others do not.

    placed graph -> candidates (operator table, dtypes, preserved nodes) -> scopes (compiler.scopes: connected, cycle-safe, one
    frame and one deadness predicate, one device) -> trimmed at the border -> Cluster with canonical body

A body is canonical: members renamed n0, n1, ... in an order that depends on structure alone, arguments a0, a1, ... So equal
structures have equal bodies, equal names and one kernel, over layers, runs and ranks.
"""

from __future__ import annotations

import collections
import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from stitchfleet.compiler import scopes

from . import control_flow
from .placed_graph import OpDefinitions, PlacedGraph, Port
from .tf_ops import KERNEL_DTYPES, MAX_CONST_BYTES, RULES, why_not

MAX_ARGUMENTS = 512


@dataclass(frozen=True)
class Cluster:
    """One Stitch op to be: members of the graph, ports that enter and leave, and the function that is its fallback."""

    name: str
    """label_hash: the hash is of the body, so it is the same wherever the structure is."""
    members: tuple[int, ...]
    arguments: tuple[Port, ...]
    argument_types: tuple[int, ...]
    results: tuple[Port, ...]
    result_types: tuple[int, ...]
    value_arguments: tuple[int, ...]
    control_inputs: tuple[int, ...]
    body: bytes
    """A serialized FunctionDefLibrary of one function."""
    scope: str
    """The longest name scope that all members share, for people."""
    op_counts: dict[str, int]


@dataclass
class ClusterPlan:
    """The clusters of one graph and what stayed out: reason -> operator -> count."""

    clusters: list[Cluster] = field(default_factory=list)
    left_out: dict[str, collections.Counter[str]] = field(default_factory=dict)
    refusals: list[str] = field(default_factory=list)

    def leave_out(self, reason: str, op: str) -> None:
        self.left_out.setdefault(reason, collections.Counter())[op] += 1


def find_clusters(
    graph: PlacedGraph,
    definitions: OpDefinitions,
    preserve: Collection[str],
    min_ops: int = 2,
    excluded_ops: Collection[str] = (),
    remote: bool = False,
) -> ClusterPlan:
    """The clusters of a placed graph.

    preserve: names of nodes that must stay. excluded_ops: operators that could not be lowered before. remote: also merge
    clusters that no path connects.
    """
    plan = ClusterPlan()
    liveness = control_flow.analyse(graph)
    candidate = [False] * len(graph.nodes)
    for node in graph.nodes:
        reason = _reason_to_stay(graph, node.index, definitions, preserve, excluded_ops)
        if reason is None:
            candidate[node.index] = True
        elif node.op not in ("Const", "_Arg", "_Retval", "NoOp"):
            plan.leave_out(reason, node.op)
    edges = [
        (port.node, node.index) for node in graph.nodes for port in node.inputs if not _is_back_edge(graph, port.node)
    ]
    edges += [
        (source, node.index) for node in graph.nodes for source in node.control if not _is_back_edge(graph, source)
    ]
    found = scopes.identify(
        scopes.Dag(len(graph.nodes), tuple(edges)),
        member=[*candidate],
        key=[(node.proto.device, *liveness.key(node.index)) for node in graph.nodes],
        remote=remote,
    )
    for members in found.clusters:
        cluster = _make_cluster(graph, definitions, members, min_ops, plan)
        if cluster is not None:
            plan.clusters.append(cluster)
    return plan


def _is_back_edge(graph: PlacedGraph, source: int) -> bool:
    return graph.nodes[source].op in ("NextIteration", "RefNextIteration")


def _reason_to_stay(
    graph: PlacedGraph, index: int, definitions: OpDefinitions, preserve: Collection[str], excluded_ops: Collection[str]
) -> str | None:
    node = graph.nodes[index]
    rule = RULES.get(node.op)
    if rule is None:
        return why_not(node.op, definitions.is_stateful(node.op))
    if node.op in excluded_ops:
        return "cannot be lowered to a kernel"
    if node.name in preserve:
        return "fetched, fed or otherwise preserved"
    if "CPU" not in str(node.proto.device).upper():
        return "not placed on the CPU"
    types = definitions.outputs(node.proto)
    if not rule.shape_only:
        types = types + definitions.inputs(node.proto)
    if any(dtype not in KERNEL_DTYPES for _, _, dtype in types):
        return "an element type that kernels do not have"
    if not node.inputs:
        return "has no input"
    if not graph.consumers[index]:
        return "its results are not used"
    return None


def _is_copied_const(graph: PlacedGraph, index: int) -> bool:
    node = graph.nodes[index]
    return node.op == "Const" and not node.control and node.proto.attr["value"].tensor.ByteSize() <= MAX_CONST_BYTES


def _make_cluster(
    graph: PlacedGraph, definitions: OpDefinitions, members: Iterable[int], min_ops: int, plan: ClusterPlan
) -> Cluster | None:
    inside = _trim(graph, set(members))
    weight = sum(RULES[graph.nodes[i].op].weight for i in inside)
    if weight < min_ops:
        for i in inside:
            plan.leave_out("too little work for a kernel of its own", graph.nodes[i].op)
        return None
    results = sorted(
        {Port(i, output) for i in inside for consumer, output in graph.consumers[i] if consumer not in inside},
        key=lambda port: (graph.nodes[port.node].name, port.index),
    )
    order = _canonical_order(graph, inside, results)
    arguments: dict[Port, int] = {}
    copied: dict[int, str] = {}
    body = _Body(graph, definitions)
    names = {i: f"n{position}" for position, i in enumerate(order)}
    for i in order:
        for port in graph.nodes[i].inputs:
            if port.node in inside or port in arguments or port.node in copied:
                continue
            if _is_copied_const(graph, port.node):
                copied[port.node] = f"c{len(copied)}"
            else:
                arguments[port] = len(arguments)
    if not arguments or not results or len(arguments) > MAX_ARGUMENTS:
        for i in inside:
            plan.leave_out("depends on nothing that changes" if not arguments else "too many inputs", graph.nodes[i].op)
        return None
    argument_types = tuple(_output_type(graph, definitions, port) for port in arguments)
    result_types = tuple(_output_type(graph, definitions, port) for port in results)
    values = _value_arguments(graph, inside, arguments)
    library = body.function(order, names, copied, arguments, argument_types, results, result_types)
    digest = hashlib.sha256(library + repr(values).encode()).hexdigest()[:10]
    counts = collections.Counter(graph.nodes[i].op for i in order)
    control = sorted({source for i in inside for source in graph.nodes[i].control if source not in inside})
    return Cluster(
        name=f"{_label(counts)}_{digest}",
        members=tuple(sorted(inside)),
        arguments=tuple(arguments),
        argument_types=argument_types,
        results=tuple(results),
        result_types=result_types,
        value_arguments=values,
        control_inputs=tuple(control),
        body=library,
        scope=_common_scope([graph.nodes[i].name for i in order]),
        op_counts=dict(counts),
    )


def _trim(graph: PlacedGraph, inside: set[int]) -> set[int]:
    """Takes renamings of buffers and shape arithmetic off the cluster's lower border, where they would only add a copy.

    A member whose consumers are all outside can leave without making the rest non-convex.
    """
    waiting = list(inside)
    while waiting:
        i = waiting.pop()
        if i not in inside or any(consumer in inside for consumer, _ in graph.consumers[i]):
            continue
        rule = RULES[graph.nodes[i].op]
        if rule.free or rule.weight == 0:
            inside.discard(i)
            waiting += [port.node for port in graph.nodes[i].inputs if port.node in inside]
    return inside


def _canonical_order(graph: PlacedGraph, inside: set[int], results: list[Port]) -> list[int]:
    """Members in depth-first post-order from the results: producers first, depending on structure and the results' order only."""
    order: list[int] = []
    seen: set[int] = set()
    for port in results:
        stack = [(port.node, False)]
        while stack:
            i, expanded = stack.pop()
            if expanded:
                order.append(i)
                continue
            if i in seen:
                continue
            seen.add(i)
            stack.append((i, True))
            stack += [
                (p.node, False) for p in reversed(graph.nodes[i].inputs) if p.node in inside and p.node not in seen
            ]
    return order


def _output_type(graph: PlacedGraph, definitions: OpDefinitions, port: Port) -> int:
    return definitions.outputs(graph.nodes[port.node].proto)[port.index][2]


def _value_arguments(graph: PlacedGraph, inside: set[int], arguments: dict[Port, int]) -> tuple[int, ...]:
    """Arguments whose values lowering needs: those that reach a value operand other than through a shape."""
    waiting: list[Port] = []
    for i in inside:
        node = graph.nodes[i]
        waiting += [node.inputs[position] for position in RULES[node.op].values]
    needed: set[int] = set()
    seen: set[int] = set()
    while waiting:
        port = waiting.pop()
        if port in arguments:
            needed.add(arguments[port])
        if port.node not in inside or port.node in seen:
            continue
        seen.add(port.node)
        if not RULES[graph.nodes[port.node].op].shape_only:
            waiting += graph.nodes[port.node].inputs
    return tuple(sorted(needed))


def _label(counts: collections.Counter[str]) -> str:
    """A word or two that tell people what a cluster is; the hash behind it makes it unique."""
    have = counts.keys()
    if "Softmax" in have or ("SoftmaxCrossEntropyWithLogits" in have):
        return "softmax"
    if "SparseSoftmaxCrossEntropyWithLogits" in have:
        return "cross_entropy"
    if have & {"Rsqrt", "FusedBatchNormV3"} and have & {"Mean", "FusedBatchNormV3"}:
        return "normalization"
    if have & {"RsqrtGrad", "FusedBatchNormGradV3"} or ("Rsqrt" in have and "Sum" in have):
        return "normalization_gradient"
    if have & {"Erf", "Tanh"}:
        return "gelu" if "Erf" in have else "activation"
    if "Sqrt" in have and "Square" in have:
        return "optimizer"
    if have & {"Sum", "Mean", "Max", "Min", "BiasAddGrad", "Prod"}:
        return "reduce"
    if have & {"Transpose", "ConcatV2", "Pack", "Split", "Slice", "StridedSlice"}:
        return "movement"
    return "elementwise"


def _common_scope(names: list[str]) -> str:
    parts = [name.split("/")[:-1] for name in names]
    shared: list[str] = []
    for level in zip(*parts):
        if len(set(level)) > 1:
            break
        shared.append(level[0])
    return "/".join(shared)


class _Body:
    """Builds a cluster's FunctionDef."""

    def __init__(self, graph: PlacedGraph, definitions: OpDefinitions) -> None:
        self.graph = graph
        self.definitions = definitions

    def function(
        self,
        order: list[int],
        names: dict[int, str],
        copied: dict[int, str],
        arguments: dict[Port, int],
        argument_types: tuple[int, ...],
        results: list[Port],
        result_types: tuple[int, ...],
    ) -> bytes:
        from tensorflow.core.framework import function_pb2

        library: Any = function_pb2.FunctionDefLibrary()
        function = library.function.add()
        function.signature.name = "stitchfleet_body"
        for position, dtype in enumerate(argument_types):
            function.signature.input_arg.add(name=f"a{position}", type=dtype)
        for position, dtype in enumerate(result_types):
            function.signature.output_arg.add(name=f"r{position}", type=dtype)
        for i, name in copied.items():
            self._copy_node(function.node_def.add(), self.graph.nodes[i].proto, name)
        for i in order:
            node = function.node_def.add()
            self._copy_node(node, self.graph.nodes[i].proto, names[i])
            for port in self.graph.nodes[i].inputs:
                if port.node in names:
                    node.input.append(self._tensor_name(names[port.node], port))
                elif port.node in copied:
                    node.input.append(f"{copied[port.node]}:output:0")
                else:
                    node.input.append(f"a{arguments[port]}")
        for position, port in enumerate(results):
            function.ret[f"r{position}"] = self._tensor_name(names[port.node], port)
        return bytes(library.SerializeToString(deterministic=True))

    def _tensor_name(self, name: str, port: Port) -> str:
        argument, index, _ = self.definitions.outputs(self.graph.nodes[port.node].proto)[port.index]
        return f"{name}:{argument}:{index}"

    @staticmethod
    def _copy_node(target: Any, source: Any, name: str) -> None:
        target.name = name
        target.op = source.op
        for key, value in source.attr.items():
            if not key.startswith("_"):  # _class, _output_shapes and what other passes left
                target.attr[key].CopyFrom(value)
