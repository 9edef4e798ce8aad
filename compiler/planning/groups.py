"""Dominants, sub-dominants and groups: which ops of a stitch op share one schedule (AStitch section 4.3, step 1).

Candidates end a group: all reductions, expensive element-wise ops whose result is broadcast, concatenations of many tensors that are
broadcast, element-wise ops whose results are read so often that computing them each time takes longer than storing them, and the
outputs. Two candidates belong to one group if ops of
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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..ir.graph import Graph, Node, Shape
from ..ops.attributes import integers, window_of
from ..ops.table import ELEMENTWISE, OPS, Cost
from ..support.union_find import UnionFind

MANY_PARTS: Final = 4
"""A broadcast concatenation of at least this many tensors is worth storing. Otherwise as many comparisons per element find the
element's part, and every part is computed for each element, used or not."""
MANY_TIMES: Final = 4
SEVERAL_TIMES: Final = 2
STORING: Final = 8
"""Light ops on an element, times readings, from which storing it pays. Measured on a Zen 4: a normalization with Relu, 7 ops on
each of a million elements, read 2.25 times by a pooling, took 580 us with both in one nest and 280 us with the Relu in memory."""
LONG_INSTRUCTIONS: Final = ("divide", "remainder", "sqrt", "rsqrt")
"""Ops that are light to the planner, but that occupy the processor as long as five to ten additions, as a rounding to bf16 does."""
KEEP_LIGHT_OPS: Final = 6
"""Recomputing this many light ops takes longer than a store to L1 and a load from it."""
EXPENSIVE: Final = 20
"""Light ops that an expensive one takes as long as."""
LARGE: Final = 1024
"""Elements of a tensor that is not computed once for all rows."""
_ELSEWHERE: Final = ("patches", "reduce_window", "pad")
_LONE: Final = ("scatter", "scan")
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
    by_rows: bool = False  # although it is apart, the nest that computes it may keep its slice of a row for them
    is_long: bool = False  # computing an element again would take longer than reading it back from a row's slice


def find_candidates(graph: Graph, forced: Iterable[int] = (), moved: Collection[int] = ()) -> Mapping[int, Candidate]:
    """The candidates by node, in topological order. `forced`: nodes that must be in memory because inlining them would multiply
    work. `moved`: those that should be before a transpose moves them (stored_first.py)."""
    users = graph.users()
    outputs, wanted, factors = frozenset(graph.outputs), frozenset((*forced, *moved)), _right_factors(graph)
    often = _often_read(graph, users, {*wanted, *factors})
    often = {**often, **_read_by_lone_nests(graph, users, {*wanted, *factors, *often})}
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
        elif i in often:
            reason = f"it is read at several places, and takes {often[i]} ops"
            again, _ = _cost_of(graph, i, {*wanted, *factors, *often} - {i}, of_long=KEEP_LIGHT_OPS)
            spread = not any(user.op in _ELSEWHERE for _, user in _readings(graph, users, i, _MOVING))
            found[i] = Candidate(reason, True, apart=True, by_rows=spread, is_long=again >= KEEP_LIGHT_OPS)
        elif i in factors:
            found[i] = Candidate("each row of a matrix product reads all of it", True, apart=True)
        elif i in moved:
            found[i] = Candidate("loops that read it across memory would take longer", True, apart=True)
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


def _readings(
    graph: Graph, users: Sequence[Sequence[int]], i: int, through: Collection[str]
) -> Iterator[tuple[Node, Node]]:
    """Each node that reads node i or what ops of `through` make of it, after the node that it reads; each once."""
    waiting, seen = [i], {i}
    while waiting:
        current = waiting.pop()
        for user in users[current]:
            if user in seen:
                continue
            seen.add(user)
            yield graph.nodes[current], graph.nodes[user]
            if graph.nodes[user].op in through:
                waiting.append(user)


def _is_repeated(graph: Graph, users: Sequence[Sequence[int]], i: int) -> bool:
    """Whether node i, its elements perhaps moved, is broadcast to MANY_TIMES as many elements and more."""
    return any(
        node.op == "broadcast" and node.element_count >= MANY_TIMES * source.element_count
        for source, node in _readings(graph, users, i, _MOVING)
    )


def _often_read(graph: Graph, users: Sequence[Sequence[int]], known: Collection[int]) -> Mapping[int, int]:
    """Element-wise nodes that should be in memory, because they are read several times at other places: by overlapping windows, under
    several paddings, or after a broadcast. Each is mapped to the number of ops that it saves. known: nodes whose values are there,
    other than outputs.

    If such a node can be computed from an output with few ops, the output is taken instead: it is in memory anyway."""
    found: dict[int, int] = {}
    outputs = frozenset(graph.outputs)
    for i, node in enumerate(graph.nodes):
        if not OPS[node.op].elementwise or not node.element_count:
            continue
        times = _times_read(graph, users, i)
        if times < SEVERAL_TIMES:
            continue
        cost, _ = _cost_of(graph, i, {*known, *found})
        if cost * times < STORING:
            continue
        rest, sources = _cost_of(graph, i, {*known, *found, *outputs} - {i})
        large = [source for source in sources & outputs if graph.nodes[source].element_count == node.element_count]
        if large and rest * times < STORING:
            found |= dict.fromkeys(large, cost - rest)
        else:
            found[i] = cost
    return found


def _read_by_lone_nests(graph: Graph, users: Sequence[Sequence[int]], known: Collection[int]) -> Mapping[int, int]:
    """Element-wise nodes that should be in memory, because several scatters or scans compute with them: each has a nest of its own,
    which would compute them again. Each is mapped to the number of ops that it saves. known: nodes whose values are there."""
    found: dict[int, int] = {}
    reached: list[Mapping[int, int]] = [{}] * len(graph.nodes)
    """For each node, the nests that compute with it, and how many of its elements each reads: fewer behind a slice."""
    for i in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[i]
        if i in known or OPS[node.op].cost not in (*ELEMENTWISE, Cost.MOVEMENT):
            continue
        own, nests, is_parted = node.element_count, dict[int, int](), False
        for user in users[i]:
            theirs = {user: own} if graph.nodes[user].op in _LONE else reached[user]
            is_parted = is_parted or (user != users[i][0] and theirs.keys() != nests.keys())
            for nest, elements in theirs.items():
                nests[nest] = min(own, max(elements, nests.get(nest, 0)))
        times = sum(nests.values()) / max(own, 1)
        if is_parted and times >= SEVERAL_TIMES and OPS[node.op].elementwise and own > 1:
            cost, _ = _cost_of(graph, i, known)
            if cost * times >= STORING:
                found[i] = cost
                continue
        reached[i] = nests
    return found


def _times_read(graph: Graph, users: Sequence[Sequence[int]], i: int) -> float:
    """How often an element of node i is read at other places than its own, its elements perhaps moved or padded."""
    times, paddings = 0.0, 0
    own = graph.nodes[i].element_count
    for _, node in _readings(graph, users, i, (*_MOVING, "pad")):
        if node.op == "patches":
            times += node.element_count / own
        elif node.op == "reduce_window":
            times += node.element_count * math.prod(item.size for item in window_of(node)) / own
        elif node.op == "broadcast" and own >= LARGE and _innermost(node.shape) in integers(node, "dimensions"):
            times += node.element_count / own
        paddings += node.op == "pad"
    return times + max(0, paddings - 1)  # under one padding it is read at one place


def _innermost(shape: Shape) -> int:
    """The last dimension of more than one element."""
    return max((i for i, extent in enumerate(shape) if extent > 1), default=-1)


def _cost_of(graph: Graph, i: int, known: Collection[int], of_long: int = 1) -> tuple[int, set[int]]:
    """How many light ops computing an element of node i takes, and the nodes whose elements it is computed from. known: nodes whose
    values are there. of_long: what one of LONG_INSTRUCTIONS counts. What has far fewer elements is computed once for many of the
    node's."""
    cost, waiting, seen, sources = 0, [i], {i}, set()
    while waiting:
        current = waiting.pop()
        node = graph.nodes[current]
        is_small = node.element_count * MANY_TIMES <= graph.nodes[i].element_count
        if current in known or is_small or OPS[node.op].cost not in (*ELEMENTWISE, Cost.MOVEMENT):
            sources.add(current)
            continue
        light = of_long if node.op in LONG_INSTRUCTIONS else 1
        cost += {Cost.LIGHT: light, Cost.EXPENSIVE: EXPENSIVE, Cost.MOVEMENT: 0}[OPS[node.op].cost]
        waiting += [operand for operand in node.operands if operand not in seen]
        seen.update(node.operands)
    return cost, sources


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
