"""Makes the step graph (step_graph.py) from a placed graph and its clusters."""

from __future__ import annotations

import collections
from collections.abc import Sequence

from ..graph.control_flow import is_back_edge
from ..graph.placed_graph import PlacedGraph
from ..graph.tf_ops import PRODUCT, UNCOUNTED
from .clusters import Cluster, ClusterPlan
from .step_graph import CLUSTER, PRODUCT_BLOCK, STAYED, StepBlock, StepGraph

MAX_NAMES = 40
"""Most node names that a block of operators that stayed keeps; its counts include all."""


def make_step_graph(graph: PlacedGraph, plan: ClusterPlan, clusters: Sequence[Cluster]) -> StepGraph:
    """The step graph of a placed graph. clusters: the clusters of the plan that become Stitch ops; the members of the other clusters
    must be in `plan.left_out_nodes`. Raises ValueError if the graph has a cycle outside loops."""
    home = list(range(len(graph.nodes)))
    cluster_at: dict[int, Cluster] = {}
    for cluster in clusters:
        cluster_at[cluster.members[0]] = cluster
        for i in cluster.members:
            home[i] = cluster.members[0]
    stayed = plan.left_out_nodes  # without the nodes that a Loop op computes itself
    outside = set(home) - cluster_at.keys()
    reason = {i: stayed[graph.nodes[i].name] for i in outside if graph.nodes[i].name in stayed}
    seen = {i for i in cluster_at.keys() | reason.keys() if i in cluster_at or graph.nodes[i].op not in UNCOUNTED}
    major = {i for i in seen if i in cluster_at or reason[i] == PRODUCT}
    edges = {
        (home[port.node], home[node.index])
        for node in graph.nodes
        for port in node.inputs
        if not is_back_edge(graph, port.node)
    }
    edges = {(a, b) for a, b in edges if a != b and a in seen and b in seen}
    order = _topological_order(seen, edges)
    level = _levels(order, edges, major)

    groups: dict[tuple[int, bool, str, str], list[int]] = {}
    for i in sorted(seen):
        # A node's name scope ends before the last slash.
        scope = graph.nodes[i].name.rpartition("/")[0]
        key = (level[i], True, graph.nodes[i].name, "") if i in major else (level[i], False, scope, reason[i])
        groups.setdefault(key, []).append(i)
    blocks: list[StepBlock] = []
    block_of: dict[int, int] = {}
    for key in sorted(groups):
        for i in groups[key]:
            block_of[i] = len(blocks)
        first = groups[key][0]
        if first in cluster_at:
            blocks.append(_cluster_block(graph, cluster_at[first], level[first]))
        else:
            blocks.append(_stayed_block(graph, groups[key], level[first], reason[first]))
    between = {(block_of[a], block_of[b]) for a, b in edges | _through_what_stayed(order, edges, major)}
    return StepGraph(tuple(blocks), tuple(sorted((a, b) for a, b in between if a != b)))


def _topological_order(nodes: set[int], edges: set[tuple[int, int]]) -> list[int]:
    consumers: dict[int, list[int]] = collections.defaultdict(list)
    waits = dict.fromkeys(nodes, 0)
    for a, b in edges:
        consumers[a].append(b)
        waits[b] += 1
    order = [i for i in sorted(nodes) if not waits[i]]
    for i in order:  # grows while it is walked
        for consumer in consumers[i]:
            waits[consumer] -= 1
            if not waits[consumer]:
                order.append(consumer)
    if len(order) < len(nodes):
        raise ValueError("the graph has a cycle outside loops")
    return order


def _levels(order: list[int], edges: set[tuple[int, int]], major: set[int]) -> dict[int, int]:
    """Level of each node: for a major node, the largest number of major nodes on a path to it; for another, the least level of its
    consumers."""
    consumers: dict[int, list[int]] = collections.defaultdict(list)
    for a, b in edges:
        consumers[a].append(b)
    level = dict.fromkeys(order, 0)
    for i in order:
        for consumer in consumers[i]:
            level[consumer] = max(level[consumer], level[i] + (i in major))
    for i in reversed(order):
        if i not in major and consumers[i]:
            level[i] = min(level[consumer] for consumer in consumers[i])
    return level


def _through_what_stayed(order: list[int], edges: set[tuple[int, int]], major: set[int]) -> set[tuple[int, int]]:
    """(producer, consumer) pairs of major nodes that are connected by a path without other major nodes."""
    producers: dict[int, list[int]] = collections.defaultdict(list)
    for a, b in edges:
        producers[b].append(a)
    found: set[tuple[int, int]] = set()
    behind: dict[int, set[int]] = {}
    for i in order:
        sources = {i} if i in major else set()
        reached: set[int] = set().union(*(behind[producer] for producer in producers[i]))
        if i in major:
            found.update((source, i) for source in reached)
        behind[i] = sources or reached
    return found


def _cluster_block(graph: PlacedGraph, cluster: Cluster, level: int) -> StepBlock:
    names = _without(cluster.scope, [graph.nodes[i].name for i in cluster.members])
    return StepBlock(CLUSTER, cluster.name, cluster.scope, level, dict(cluster.op_counts), names)


def _stayed_block(graph: PlacedGraph, members: list[int], level: int, reason: str) -> StepBlock:
    names = [graph.nodes[i].name for i in members]
    scope = names[0].rpartition("/")[0]
    ops = collections.Counter(graph.nodes[i].op for i in members)
    kind = PRODUCT_BLOCK if reason == PRODUCT else STAYED
    return StepBlock(
        kind,
        names[0] if kind == PRODUCT_BLOCK else "",
        scope,
        level,
        dict(ops.most_common()),
        _without(scope, names)[:MAX_NAMES],
        reason,
    )


def _without(scope: str, names: list[str]) -> tuple[str, ...]:
    return tuple(name.removeprefix(f"{scope}/") if scope else name for name in names)
