"""Dominants, sub-dominants and groups: which ops of a stitch op share one schedule (AStitch section 4.3, step 1).

Candidates end a group: all reductions, expensive element-wise ops whose result is broadcast, concatenations of many tensors that are
broadcast, element-wise ops whose results overlapping windows read, and the outputs. Two candidates belong to one group if ops of
local scheme alone connect them, in either direction, also through a shared parameter. One candidate
becomes the group's dominant, whose thread mapping all others follow. Other groups (or a later segment of the same group) read a
candidate's result by a regional or a global edge. Nothing here depends on a device.

Our reading of the paper where it is silent:
(a) two reductions share a group through a parameter only if they run over the same number of elements: without a common
    element space there is no common mapping, and dropping the parameter edge costs a reload, never correctness;
(b) a group consists of *segments*: a candidate with the local ops that compute it. An edge between two segments of one
    group still has a scheme;
(c) an output that is light and is also read inside is stored, but its readers keep using the register: it does not end a
    group.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..ir.graph import Graph
from ..ops.attributes import window_of
from ..ops.table import ELEMENTWISE, OPS, Cost
from ..support.union_find import UnionFind

MANY_PARTS: Final = 4
"""A broadcast concatenation of at least this many tensors is worth storing. Otherwise as many comparisons per element find the
element's part, and every part is computed for each element, used or not."""
MANY_TIMES: Final = 4
OVERLAPPING: Final = 2
"""If windows read each element at least this many times on average, computing the element once per window takes longer than
storing and loading it."""
MANY_PADDINGS: Final = 3
_IN_ORDER: Final = ("reshape", "copy", "slice")
_MOVING: Final = ("reshape", "transpose", "slice", "copy", "reverse")


@dataclass(frozen=True)
class Group:
    """One group. `dominant` and `sub_dominants` are its candidates; `ops` are all its nodes, including parameters and
    constants."""

    dominant: int
    sub_dominants: tuple[int, ...]
    ops: tuple[int, ...]

    @property
    def candidates(self) -> tuple[int, ...]:
        """The dominant and the sub-dominants, sorted."""
        return tuple(sorted((self.dominant, *self.sub_dominants)))


@dataclass(frozen=True)
class Candidate:
    """A node that ends a segment. `reason`: why, in words. `cuts`: whether its readers are in another group unless something else
    connects them; False for a light output that is also read inside (see (c) of the module)."""

    reason: str
    cuts: bool
    apart: bool = False  # its readers must read it from memory, because inlining it would multiply its work


def find_candidates(graph: Graph, forced: Iterable[int] = ()) -> Mapping[int, Candidate]:
    """The candidates by node, in topological order. `forced`: nodes that must be in memory because inlining them would multiply
    work."""
    users = graph.users()
    outputs, wanted, factors = frozenset(graph.outputs), frozenset(forced), _right_factors(graph)
    found: dict[int, Candidate] = {}
    for i, node in enumerate(graph.nodes):
        cost = OPS[node.op].cost
        if not node.element_count:
            continue  # an output without elements: nothing to compute
        if OPS[node.op].is_reduction:
            found[i] = Candidate(f"{node.op} is a reduction", True)
        elif cost is Cost.EXPENSIVE and any(graph.nodes[user].op == "broadcast" for user in users[i]):
            found[i] = Candidate(f"{node.op} is expensive and its result is broadcast", True)
        elif node.op == "concatenate" and len(node.operands) >= MANY_PARTS and _is_repeated(graph, users, i):
            found[i] = Candidate(f"it joins {len(node.operands)} tensors and is broadcast", True, apart=True)
        elif cost in ELEMENTWISE and _is_in_windows(graph, users, i):
            found[i] = Candidate("the windows that read it overlap", True, apart=True)
        elif i in factors:
            found[i] = Candidate("each row of a matrix product reads all of it", True, apart=True)
        elif i in wanted:
            found[i] = Candidate("inlining it into all its uses would multiply its work", True, apart=True)
        elif i in outputs:
            light = cost is not Cost.EXPENSIVE
            found[i] = Candidate("it is an output", not (light and users[i]))
    return found


def _right_factors(graph: Graph) -> frozenset[int]:
    """The right operands of matrix products that would have to be computed, or whose columns are not neighbours in memory."""
    found = set()
    for node in graph.nodes:
        if node.op == "dot":
            factor = node.operands[1]
            while graph.nodes[factor].op in _IN_ORDER:
                factor = graph.nodes[factor].operands[0]
            if graph.nodes[factor].op != "parameter" and not OPS[graph.nodes[factor].op].is_reduction:
                found.add(node.operands[1])
    return frozenset(found)


def _is_repeated(graph: Graph, users: Sequence[Sequence[int]], i: int) -> bool:
    """Whether node i, its elements perhaps moved, is broadcast to MANY_TIMES as many elements and more."""
    waiting, seen = [i], {i}
    while waiting:
        current = waiting.pop()
        for user in users[current]:
            node = graph.nodes[user]
            if node.op == "broadcast" and node.element_count >= MANY_TIMES * graph.nodes[current].element_count:
                return True
            if node.op in _MOVING and user not in seen:
                seen.add(user)
                waiting.append(user)
    return False


def _is_in_windows(graph: Graph, users: Sequence[Sequence[int]], i: int) -> bool:
    """Whether node i, its elements perhaps moved or padded, is read by overlapping windows. Paddings of one tensor by different
    widths are such windows too: each reads it at another place."""
    waiting, seen, paddings = [i], {i}, 0
    while waiting:
        for user in users[waiting.pop()]:
            node = graph.nodes[user]
            paddings += node.op == "pad" and user not in seen
            if paddings >= MANY_PADDINGS:
                return True
            if node.op in ("patches", "reduce_window"):
                terms = node.element_count
                if node.op == "reduce_window":
                    terms *= math.prod(item.size for item in window_of(node))
                if terms >= OVERLAPPING * graph.nodes[node.operands[0]].element_count:
                    return True
            elif node.op in (*_MOVING, "pad") and user not in seen:
                seen.add(user)
                waiting.append(user)
    return False


def work_of(graph: Graph, i: int) -> int:
    """Number of elements over which the computation of node i runs: the terms of all sums of a dot, the operand's elements of any
    other reduction, else its own."""
    node = graph.nodes[i]
    if node.op == "dot":
        return node.element_count * graph.nodes[node.operands[0]].shape[-1]
    if OPS[node.op].is_reduction and node.operands:
        node = graph.nodes[node.operands[0]]
    return node.element_count


def carriers(graph: Graph) -> frozenset[int]:
    """Nodes that carry a tensor's data: parameters of more than one element, and what is computed from them. The others (a constant,
    or a learning rate that is broadcast to every shape of a step) do not show which of their readers belong together."""
    found: set[int] = set()
    for i, node in enumerate(graph.nodes):
        if node.op == "parameter":
            if node.element_count > 1:
                found.add(i)
        elif any(operand in found for operand in node.operands):
            found.add(i)
    return frozenset(found)


def find_groups(graph: Graph, candidates: Mapping[int, Candidate] | None = None) -> tuple[Group, ...]:
    """The groups, ordered by their dominants. `candidates`: those of `find_candidates(graph)` by default. Nodes that no candidate
    depends on are dead and in no group."""
    candidates = find_candidates(graph) if candidates is None else candidates
    sets, users = UnionFind(len(graph.nodes)), graph.users()
    spaces: list[set[int]] = [
        {work_of(graph, i)} if OPS[node.op].is_reduction else set() for i, node in enumerate(graph.nodes)
    ]

    def join(producer: int, consumer: int) -> None:
        first, second = spaces[sets.find(producer)], spaces[sets.find(consumer)]
        spaces[sets.union(producer, consumer)] = first | second

    carrying = carriers(graph)
    shared: list[tuple[int, int]] = []
    for consumer, node in enumerate(graph.nodes):
        for producer in node.operands:
            if graph.nodes[producer].op == "parameter":
                shared.append((producer, consumer))
            elif producer in candidates and candidates[producer].cuts:
                continue
            elif producer in carrying or len(users[producer]) == 1:
                join(producer, consumer)
    for producer, consumer in shared:
        if producer not in carrying:
            continue
        first, second = spaces[sets.find(producer)], spaces[sets.find(consumer)]
        if not first or not second or first == second:  # guard (a)
            join(producer, consumer)

    members: dict[int, list[int]] = {}
    for i in range(len(graph.nodes)):
        members.setdefault(sets.find(i), []).append(i)
    groups = []
    for ops in members.values():
        closing = [i for i in ops if i in candidates]
        if closing:
            dominant = max(closing, key=lambda i: (OPS[graph.nodes[i].op].is_reduction, work_of(graph, i), -i))
            groups.append(Group(dominant, tuple(i for i in closing if i != dominant), tuple(ops)))
    return tuple(sorted(groups, key=lambda group: group.dominant))
