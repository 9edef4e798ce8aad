"""Rewrites a placed GraphDef: each cluster becomes one Stitch op; every other node stays as it is, under its own name."""

from __future__ import annotations

import re
from typing import Any

from .clusters import Cluster
from .placed_graph import OpDefinitions, PlacedGraph, Port

STITCH_OP = "StitchfleetStitch"


def decompose_compositions(graph: Any) -> bool:
    """Replaces `_UnaryOpsComposition` (several unary operators under one name, made by TensorFlow's own optimizer for the CPU, which
    nothing can lower) by the chain that it stands for. Changes `graph`; whether it did.
    """
    fused = [node for node in graph.node if node.op == "_UnaryOpsComposition"]
    for node in fused:
        ops = [op.decode() for op in node.attr["op_names"].list.s]
        dtype = node.attr["T"].type
        control = [name for name in node.input if name.startswith("^")]
        source = node.input[0]
        for position, op in enumerate(ops[:-1]):
            link = graph.node.add(
                name=f"{node.name}/stitchfleet_part_{position}", op=op, device=node.device, input=[source, *control]
            )
            link.attr["T"].type = dtype
            source, control = link.name, []
        node.op = ops[-1]
        del node.input[:]
        node.input.extend([source, *control])
        del node.attr["op_names"]
    return bool(fused)


def apply_clusters(graph: PlacedGraph, definitions: OpDefinitions, clusters: list[Cluster]) -> Any:
    """A new GraphDef with one Stitch op for each cluster. The given graph is not changed."""
    from tensorflow.core.framework import graph_pb2

    owner = {i: cluster for cluster in clusters for i in cluster.members}
    taken = set(graph.by_name)
    names: dict[int, str] = {}
    for cluster in clusters:
        names[id(cluster)] = _unique_name(cluster, taken)
    result_index = {(id(cluster), port): k for cluster in clusters for k, port in enumerate(cluster.results)}

    def data(port: Port) -> str:
        cluster = owner.get(port.node)
        if cluster is None:
            name, index = graph.nodes[port.node].name, port.index
        else:
            name, index = names[id(cluster)], result_index[id(cluster), port]
        return f"{name}:{index}" if index else name

    def control(index: int) -> str:
        cluster = owner.get(index)
        return "^" + (graph.nodes[index].name if cluster is None else names[id(cluster)])

    rewritten: Any = graph_pb2.GraphDef()
    rewritten.versions.CopyFrom(graph.graph.versions)
    rewritten.library.CopyFrom(graph.graph.library)
    for node in graph.nodes:
        if node.index in owner:
            continue
        copy = rewritten.node.add()
        copy.CopyFrom(node.proto)
        if any(port.node in owner for port in node.inputs) or any(source in owner for source in node.control):
            del copy.input[:]
            copy.input.extend([data(port) for port in node.inputs])
            copy.input.extend(dict.fromkeys(control(source) for source in node.control))
    for cluster in clusters:
        stitch = rewritten.node.add(name=names[id(cluster)], op=STITCH_OP)
        stitch.device = graph.nodes[cluster.members[0]].proto.device
        stitch.input.extend(data(port) for port in cluster.arguments)
        stitch.input.extend(
            dict.fromkeys(control(source) for source in cluster.control_inputs if owner.get(source) is not cluster)
        )
        stitch.attr["Tin"].list.type.extend(cluster.argument_types)
        stitch.attr["Tout"].list.type.extend(cluster.result_types)
        stitch.attr["cluster"].s = cluster.name.encode()
        stitch.attr["body"].s = cluster.body
        stitch.attr["value_args"].list.i.extend(cluster.value_arguments)
    return rewritten


def _unique_name(cluster: Cluster, taken: set[str]) -> str:
    """A name that reads well in TensorFlow's profiler: the members' scope, what the cluster is, and its hash."""
    base = "stitchfleet/" + re.sub(r"[^\w./-]", "_", "/".join(part for part in (cluster.scope, cluster.name) if part))
    name, k = base, 0
    while name in taken:
        k += 1
        name = f"{base}_{k}"
    taken.add(name)
    return name
