"""Rewrites a placed GraphDef: each cluster becomes one Stitch op; every other node stays as it is, under its own name."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ..base.dtypes import DT_RESOURCE
from ..base.edges import data_inputs
from ..graph import fused
from ..graph.control_flow import topological_order
from ..graph.placed_graph import PlacedGraph, Port, device_type
from .clusters import Cluster

STITCH_OP = "StitchfleetStitch"
UPDATE_OP = "StitchfleetUpdate"
"""A Stitch op with variables: it takes their handles, reads them and may write them."""
LOOP_OP = "StitchfleetLoop"
"""An op that runs all operators of a while loop (while_loops/fold.py)."""
OUR_OPS = frozenset((STITCH_OP, UPDATE_OP, LOOP_OP))


def drop_reserve_spaces(graph: Any) -> int:
    """Replaces the operand `reserve_space_3` of batch normalization gradients on the CPU, which do not read it. Changes `graph` in
    place; returns the number of nodes changed.

    The forward operator's last output is scratch of cuDNN. Elsewhere it holds nothing, and its shape depends on the implementation
    (a scalar, or empty under oneDNN and XLA), so that a kernel's output could not be compared with TensorFlow's.
    """
    forward = {node.name for node in graph.node if node.op == "FusedBatchNormV3"}
    dropped = 0
    for node in graph.node:
        if node.op != "FusedBatchNormGradV3" or device_type(node.device) != "CPU" or len(node.input) < 6:
            continue
        name, _, output = node.input[5].partition(":")
        if name in forward and output == "5":
            node.input[5] = node.input[3]  # reserve_space_1, of the same dtype
            dropped += 1
    return dropped


def apply_clusters(graph: PlacedGraph, clusters: list[Cluster], preserve: Collection[str] = ()) -> Any:
    """A new GraphDef with one Stitch op for each cluster. The given graph is not changed. Raises ValueError if the new graph has a
    cycle, because a cluster is not convex.

    preserve: names that TensorFlow looks up afterwards (a function's control outputs, a session's targets). A member with such a name
    is there for its effect (an assign, a variable's read, a random operator), and its result is not fetched. A NoOp after the Stitch
    op takes its name; without it TensorFlow's pruner fails with an error in the job's log.
    """
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

    rewritten = copy_without(graph, {i: names[id(cluster)] for i, cluster in owner.items()}, data, preserve)
    for cluster in clusters:
        stitch = rewritten.node.add(name=names[id(cluster)], op=UPDATE_OP if cluster.handles else STITCH_OP)
        stitch.device = graph.nodes[cluster.members[0]].proto.device
        stitch.input.extend(data(port) for port in cluster.arguments)
        stitch.input.extend(
            dict.fromkeys(control(source) for source in cluster.control_inputs if owner.get(source) is not cluster)
        )
        types = [DT_RESOURCE if k in cluster.handles else dtype for k, dtype in enumerate(cluster.argument_types)]
        stitch.attr["Thost"].list.type.extend(types[: cluster.host_arguments])
        stitch.attr["Tin"].list.type.extend(types[cluster.host_arguments :])
        stitch.attr["Tout"].list.type.extend(cluster.result_types)
        stitch.attr["cluster"].s = cluster.name.encode()
        stitch.attr["fallback"].s = cluster.fallback
        stitch.attr["value_args"].list.i.extend(cluster.value_arguments)
        stitch.attr["demands"].b = cluster.demands
        if cluster.demands:
            stitch.attr["member_names"].list.s.extend(graph.nodes[i].name.encode() for i in cluster.order)
        if cluster.handles:
            stitch.attr["variable_args"].list.i.extend(cluster.handles)
            stitch.attr["written_args"].list.i.extend(cluster.written)
    fused.restore(rewritten)
    topological_order(PlacedGraph(rewritten))
    return rewritten


def copy_without(
    graph: PlacedGraph, owner: Mapping[int, str], data: Callable[[Port], str], preserve: Collection[str]
) -> Any:
    """A copy of a GraphDef without the nodes that an op of ours replaces. The caller adds that op.

    owner: replaced node -> the op's name. data: the input text that now names an output of such a node. Control inputs from a
    replaced node become control inputs from its op. A replaced node whose name is in `preserve` becomes a NoOp.
    """
    from tensorflow.core.framework import graph_pb2

    copied: Any = graph_pb2.GraphDef()
    copied.versions.CopyFrom(graph.graph.versions)
    copied.library.CopyFrom(graph.graph.library)
    for node in graph.nodes:
        if node.index in owner:
            if node.name in preserve:
                copied.node.add(name=node.name, op="NoOp", device=node.proto.device, input=[f"^{owner[node.index]}"])
            continue
        copy = copied.node.add()
        copy.CopyFrom(node.proto)
        if any(port.node in owner for port in node.inputs) or any(source in owner for source in node.control):
            texts = data_inputs(node.proto)
            del copy.input[:]
            copy.input.extend(data(port) if port.node in owner else text for port, text in zip(node.inputs, texts))
            copy.input.extend(
                dict.fromkeys(f"^{owner.get(source, graph.nodes[source].name)}" for source in node.control)
            )
    return copied


def _unique_name(cluster: Cluster, taken: set[str]) -> str:
    """A node name for people who read TensorFlow's profiler: the members' scope, the cluster's label and its hash. Added to
    `taken`."""
    base = "stitchfleet/" + re.sub(r"[^\w./-]", "_", "/".join(part for part in (cluster.scope, cluster.name) if part))
    name, k = base, 0
    while name in taken:
        k += 1
        name = f"{base}_{k}"
    taken.add(name)
    return name
