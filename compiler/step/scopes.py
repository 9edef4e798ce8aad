"""Scope identification: which members of a DAG become one stitch op (AStitch, section 4.1), for any graph.

The paper has two paragraphs on it: a breadth-first search finds connected memory-intensive operators, each connected set is one
stitch op, and *remote stitching* then merges sets without a data dependency; no merge may make a cycle. The order and the caps are
ours, see `identify`.

Cycles are prevented by an incremental topological order (Pearce and Kelly 2006, "A dynamic topological sort algorithm for directed
acyclic graphs"), contracted edge by edge as XLA's GraphCycles does: two sets may merge if no path leaves one and enters the other
through a third.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from ..support.sequences import zip_strict


@dataclass(frozen=True)
class Dag:
    """A DAG with nodes 0..size-1 and directed edges (producer, consumer). Parallel edges count once."""

    size: int
    edges: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Caps:
    """Upper bounds for one stitch op; None means no bound. nodes: bound on its number of nodes."""

    nodes: int | None = None
    remote_nodes: int | None = None
    """Bound on the number of nodes of a set made by remote stitching."""
    remote_distance: int | None = None
    """Bound on how much later one of the merged sets may begin than the other, in nodes of the longest path that leads to it: the
    stitch op waits for the later set, and what the earlier one makes stays in memory meanwhile."""


@dataclass(frozen=True)
class Refusal:
    """Why two adjacent members are in different sets: "cycle", "key", "cap" or "part"."""

    producer: int
    consumer: int
    reason: str


@dataclass
class Scopes:
    """clusters: the members of each set, sorted; the sets are in topological order of the contracted graph. refusals: for adjacent
    members in different sets, the reasons."""

    clusters: list[tuple[int, ...]]
    refusals: list[Refusal] = field(default_factory=list)

    def why(self, producer: int, consumer: int) -> str | None:
        """The reason why an edge between two members was not contracted; None if it was, or if there is no such edge."""
        for refusal in self.refusals:
            if (refusal.producer, refusal.consumer) == (producer, consumer):
                return refusal.reason
        return None


def identify(
    dag: Dag,
    member: Sequence[bool],
    key: Sequence[Hashable] | None = None,
    caps: Caps = Caps(),
    remote: bool = False,
    part: Sequence[Hashable] | None = None,
    pays: Callable[[Sequence[int], Sequence[int]], bool] = lambda first, second: True,
) -> Scopes:
    """The sets of members that each become one stitch op.

    member[i]: whether node i may be in a set. key[i]: only nodes with equal keys may share a set (device, control-flow frame,
    deadness predicate). remote: also merge sets that no path connects. part[i]: connected nodes of different parts stay in
    different sets. pays: whether two sets that no path connects should be merged. Raises ValueError if the graph is not acyclic.
    """
    # The distance between two sets counts all nodes that lead to them; a path between two members has only nodes between members.
    graph = _ContractedGraph(dag, member if caps.remote_distance is None else None)
    keys: Sequence[Hashable] = key if key is not None else [None] * dag.size
    size = [1] * dag.size
    seeds = [i for i in sorted(range(dag.size), key=lambda i: -graph.rank[i]) if member[i]]
    original_producers: list[list[int]] = [[] for _ in range(dag.size)]
    original_consumers: list[list[int]] = [[] for _ in range(dag.size)]
    for producer, consumer in dict.fromkeys(dag.edges):
        original_producers[consumer].append(producer)
        original_consumers[producer].append(consumer)
    # Breadth first in both directions. An edge that was refused is not tried again: merges only add paths.
    visited = [False] * dag.size
    for seed in seeds:
        if visited[seed]:
            continue
        visited[seed] = True
        queue = deque([seed])
        while queue:
            node = queue.popleft()
            for neighbour, is_producer in [(p, True) for p in original_producers[node]] + [
                (c, False) for c in original_consumers[node]
            ]:
                if not member[neighbour] or keys[neighbour] != keys[node]:
                    continue
                if part is not None and part[neighbour] != part[node]:
                    continue
                producer, consumer = (neighbour, node) if is_producer else (node, neighbour)
                a, b = graph.find(producer), graph.find(consumer)
                if a != b:
                    if caps.nodes is not None and size[a] + size[b] > caps.nodes:
                        continue
                    if not graph.contract(a, b):
                        continue
                    size[graph.find(a)] = size[a] + size[b]
                if not visited[neighbour]:
                    visited[neighbour] = True
                    queue.append(neighbour)
    if remote:
        _stitch_remotely(graph, member, keys, size, caps, pays)
    groups: dict[int, list[int]] = {}
    for i in range(dag.size):
        if member[i]:
            groups.setdefault(graph.find(i), []).append(i)
    ordered = sorted(groups.items(), key=lambda item: graph.rank[item[0]])
    parts = part if part is not None else [None] * dag.size
    return Scopes([tuple(nodes) for _, nodes in ordered], _refusals(dag, member, keys, parts, size, caps, graph))


def fewest_sets(dag: Dag, member: Sequence[bool]) -> int:
    """The least number of sets, without a cycle between them, that all members can be put into; keys, caps and costs do not count.

    If a path leads from a member through a non-member to another member, the two must be in different sets, the first one's before
    the other's. So along a path, each return to members needs another set. As many sets as the path with the most returns has are
    also enough: put each member into the set numbered by the most returns on a path to it. Raises ValueError if the graph is not
    acyclic.
    """
    graph = _ContractedGraph(dag)
    sets = [0] * dag.size
    """For a member the number of its set, counted from one; for any other node that of the last set which it waits for."""
    for node in sorted(range(dag.size), key=graph.rank.__getitem__):
        arrived = (sets[p] + (member[node] and not member[p]) for p in graph.producers[node])
        sets[node] = max(arrived, default=int(member[node]))
    return max(sets, default=0)


def _refusals(
    dag: Dag,
    member: Sequence[bool],
    keys: Sequence[Hashable],
    parts: Sequence[Hashable],
    size: list[int],
    caps: Caps,
    graph: _ContractedGraph,
) -> list[Refusal]:
    found = []
    for producer, consumer in dict.fromkeys(dag.edges):
        if not (member[producer] and member[consumer]):
            continue
        a, b = graph.find(producer), graph.find(consumer)
        if a == b:
            continue
        if keys[producer] != keys[consumer]:
            reason = "key"
        elif parts[producer] != parts[consumer]:
            reason = "part"
        elif caps.nodes is not None and size[a] + size[b] > caps.nodes:
            reason = "cap"
        else:
            reason = "cycle"
        found.append(Refusal(producer, consumer, reason))
    return found


def _stitch_remotely(
    graph: _ContractedGraph,
    member: Sequence[bool],
    keys: Sequence[Hashable],
    size: list[int],
    caps: Caps,
    pays: Callable[[Sequence[int], Sequence[int]], bool],
) -> None:
    """Merges sets that no path connects, in topological order: each into the first compatible set before it for which that pays.

    Such a merge cannot make a cycle. Reachability is kept as bit sets, which are recomputed after each merge.
    """
    below = graph.descendants()
    roots = sorted({graph.find(i) for i in range(len(member)) if member[i]}, key=lambda root: graph.rank[root])
    nodes: dict[int, list[int]] = {}
    for i in range(len(member)):
        if member[i]:
            nodes.setdefault(graph.find(i), []).append(i)
    merged: list[int] = []
    bound = caps.remote_nodes if caps.remote_nodes is not None else caps.nodes
    depth = graph.depths()
    distance = caps.remote_distance if caps.remote_distance is not None else len(depth)
    joined_roots = [root for root in graph.roots() if graph.producers[root] or graph.consumers[root]]
    for root in roots:
        for place, host in enumerate(merged):
            if abs(depth[host] - depth[root]) > distance:
                continue
            if keys[host] != keys[root] or (bound is not None and size[host] + size[root] > bound):
                continue
            if below[host] >> root & 1 or below[root] >> host & 1:
                continue
            if not pays(nodes[host], nodes[root]):
                continue
            joined = below[host] | below[root]
            mask = 1 << host | 1 << root
            for node in joined_roots:
                if below[node] & mask:
                    below[node] |= joined | mask
            below[host] = below[root] = joined
            size[host] = size[root] = size[host] + size[root]
            later = max(depth[host], depth[root])
            merged[place] = graph.merge(host, root)
            nodes[merged[place]] = nodes[host] + nodes[root]
            depth[merged[place]] = later
            break
        else:
            merged.append(root)


class _ContractedGraph:
    """A DAG under contraction, with an order that is kept topological.

    member: if given, edges are kept only if they lie on a path from a member to a member.
    """

    def __init__(self, dag: Dag, member: Sequence[bool] | None = None) -> None:
        self.producers: list[set[int]] = [set() for _ in range(dag.size)]
        self.consumers: list[set[int]] = [set() for _ in range(dag.size)]
        for producer, consumer in dag.edges:
            if producer == consumer:
                raise ValueError(f"node {producer} depends on itself")
            self.producers[consumer].add(producer)
            self.consumers[producer].add(consumer)
        self.parent = list(range(dag.size))
        self.rank = self._initial_order(dag.size)
        if member is not None:
            self._keep_between(member)

    def _keep_between(self, member: Sequence[bool]) -> None:
        ordered = sorted(range(len(member)), key=self.rank.__getitem__)
        after, before = list(member), list(member)
        for node in ordered:
            after[node] = after[node] or any(after[p] for p in self.producers[node])
        for node in reversed(ordered):
            before[node] = before[node] or any(before[c] for c in self.consumers[node])
        kept = [a and b for a, b in zip_strict(after, before)]
        for edges in (self.producers, self.consumers):
            for node, others in enumerate(edges):
                edges[node] = {other for other in others if kept[other]} if kept[node] else set()

    def _initial_order(self, size: int) -> list[int]:
        rank = [-1] * size
        waiting = [len(producers) for producers in self.producers]
        ready = deque(i for i in range(size) if waiting[i] == 0)
        position = 0
        while ready:
            i = ready.popleft()
            rank[i] = position
            position += 1
            for consumer in self.consumers[i]:
                waiting[consumer] -= 1
                if waiting[consumer] == 0:
                    ready.append(consumer)
        if position != size:
            raise ValueError("the graph has a cycle")
        return rank

    def find(self, i: int) -> int:
        root = i
        while self.parent[root] != root:
            root = self.parent[root]
        while self.parent[i] != root:
            self.parent[i], i = root, self.parent[i]
        return root

    def roots(self) -> list[int]:
        return [i for i in range(len(self.parent)) if self.parent[i] == i]

    def contract(self, producer: int, consumer: int) -> bool:
        """Merges two connected roots and returns True, unless a path leads from one to the other through a third."""
        if self._reaches_around(producer, consumer):
            return False
        self.consumers[producer].discard(consumer)
        self.producers[consumer].discard(producer)
        self._absorb(producer, consumer)
        return True

    def merge(self, first: int, second: int) -> int:
        """Merges two roots that no path connects. Returns the one that stays a root."""
        return self._absorb(first, second)

    def _reaches_around(self, source: int, target: int) -> bool:
        """Whether a path leads from one root to another through a third. Searched from both ends, the smaller frontier first."""
        first, last = self.rank[source], self.rank[target]

        def between(nodes: Iterable[int]) -> set[int]:
            return {node for node in nodes if first < self.rank[node] < last}

        # If either has none, there is no path: a large set is not looked through for the few neighbours of a small one.
        consumers, producers = self.consumers[source], self.producers[target]
        if len(consumers) < len(producers):
            ahead = between(consumers)
            behind = between(producers) if ahead else set()
        else:
            behind = between(producers)
            ahead = between(consumers) if behind else set()
        below, above = set(ahead), set(behind)
        while ahead and behind:
            if len(ahead) <= len(behind):
                ahead = between(itertools.chain.from_iterable(self.consumers[node] for node in ahead)) - below
                below |= ahead
            else:
                behind = between(itertools.chain.from_iterable(self.producers[node] for node in behind)) - above
                above |= behind
            if not below.isdisjoint(above):
                return True
        return False

    def _absorb(self, kept: int, gone: int) -> int:
        """Joins two roots. The edges of the root with fewer edges move, so that growing a large set is cheap."""
        if len(self.producers[kept]) + len(self.consumers[kept]) < len(self.producers[gone]) + len(
            self.consumers[gone]
        ):
            kept, gone = gone, kept
        self.parent[gone] = kept
        producers, consumers = self.producers[gone], self.consumers[gone]
        self.producers[gone], self.consumers[gone] = set(), set()
        for producer in producers:
            self.consumers[producer].discard(gone)
            self._insert_edge(producer, kept)
        for consumer in consumers:
            self.producers[consumer].discard(gone)
            self._insert_edge(kept, consumer)
        return kept

    def _insert_edge(self, producer: int, consumer: int) -> None:
        if consumer in self.consumers[producer]:
            return
        self.consumers[producer].add(consumer)
        self.producers[consumer].add(producer)
        if self.rank[producer] < self.rank[consumer]:
            return
        forward = self._region(consumer, self.consumers, lambda rank: rank <= self.rank[producer])
        backward = self._region(producer, self.producers, lambda rank: rank >= self.rank[consumer])
        nodes = sorted(backward, key=self.rank.__getitem__) + sorted(forward, key=self.rank.__getitem__)
        places = sorted(self.rank[node] for node in nodes)
        for node, place in zip(nodes, places):
            self.rank[node] = place

    def _region(self, start: int, edges: list[set[int]], within: Callable[[int], bool]) -> set[int]:
        seen = {start}
        stack = [start]
        while stack:
            for following in edges[stack.pop()]:
                if following not in seen and within(self.rank[following]):
                    seen.add(following)
                    stack.append(following)
        return seen

    def depths(self) -> list[int]:
        """For each root, the length of the longest path that leads to it."""
        depth = [0] * len(self.parent)
        for node in sorted(self.roots(), key=lambda i: self.rank[i]):
            for consumer in self.consumers[node]:
                depth[consumer] = max(depth[consumer], depth[node] + 1)
        return depth

    def descendants(self) -> list[int]:
        """For each root, a bit set of the roots below it."""
        below = [0] * len(self.parent)
        for node in sorted(self.roots(), key=lambda i: -self.rank[i]):
            for consumer in self.consumers[node]:
                below[node] |= below[consumer] | 1 << consumer
        return below
