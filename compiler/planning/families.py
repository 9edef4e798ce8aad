"""Families: independent element-wise components of a graph that do the same with tensors of different sizes.

An optimizer's step over all variables consists of hundreds of such components, which share a learning rate. They are planned
once: one component stays in the graph that is planned, and the others become *instances* of its nest, which differ in size and
in the memory that they read and write. So a thousand tensors plan and compile like one. Their elements are laid end to end and
cut into tasks of equal work (AStitch's remote stitching and horizontal packing, sections 3.3 and 4.1).

A component qualifies if all its tensors have the same number of elements, above 1, and its ops work on each element by itself:
element-wise ops, reshapes, and broadcast scalars. Its scalars may be its own parameters or shared with other components; a scalar
that is the result of a reduction must be the same for all components.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..ir.graph import Graph, Literal, Node
from ..ops.table import OPS
from ..passes.simplify import prune
from ..support.sequences import zip_strict
from ..support.union_find import UnionFind
from .groups import carriers
from .mapping import LANE_ALIGNMENT


@dataclass(frozen=True)
class Component:
    """One component of a family. `size`: number of elements of each of its tensors. `inputs`, `outputs`: map each input and output
    number of the family's representative to that of this component. `alone`: its inputs that nothing else reads."""

    size: int
    inputs: Mapping[int, int]
    outputs: Mapping[int, int]
    alone: frozenset[int]


@dataclass(frozen=True)
class Family:
    """Components that compute the same with tensors of different sizes; the representative's instance comes first."""

    instances: tuple[Component, ...]

    @property
    def representative(self) -> Component:
        """The instance whose component stays in the planned graph."""
        return self.instances[0]

    @property
    def starts(self) -> tuple[int, ...]:
        """First row of each instance if all are laid end to end, each starting at a multiple of LANE_ALIGNMENT."""
        lengths = (-(-instance.size // LANE_ALIGNMENT) * LANE_ALIGNMENT for instance in self.instances)
        return tuple(itertools.accumulate(lengths, initial=0))[:-1]

    @property
    def rows(self) -> int:
        """Number of rows of all instances laid end to end."""
        return self.starts[-1] + -(-self.instances[-1].size // LANE_ALIGNMENT) * LANE_ALIGNMENT

    @property
    def elements(self) -> int:
        """Number of elements of all instances."""
        return sum(instance.size for instance in self.instances)


@dataclass(frozen=True)
class ReducedGraph:
    """The result of `reduce_families`. `graph`: has one component of each family. `output_numbers`: the numbers that its outputs have
    in the whole graph. `ops_left_out`: number of ops of the components that were removed."""

    graph: Graph
    families: tuple[Family, ...]
    output_numbers: tuple[int, ...]
    ops_left_out: int


@dataclass(frozen=True)
class _Component:
    """Nodes in canonical order, so that the nodes of equal components correspond. Components are equal if their `key`s are."""

    nodes: tuple[int, ...]
    leaving: frozenset[int]
    size: int
    key: tuple[object, ...]


def reduce_families(graph: Graph) -> ReducedGraph:
    """Finds the families of `graph` and removes all of their components except the largest of each. All parameters stay: their
    numbers are the kernel's signature."""
    families: dict[object, list[_Component]] = {}
    for component in _components(graph):
        families.setdefault(component.key, []).append(component)
    numbers: dict[int, list[int]] = {}
    for number, node in enumerate(graph.outputs):
        numbers.setdefault(node, []).append(number)
    users = graph.users()
    found: list[Family] = []
    dropped: set[int] = set()
    left_out = 0
    for alike in families.values():
        if len(alike) < 2:
            continue
        alike.sort(key=lambda component: -component.size)
        first = alike[0]
        found.append(Family(tuple(_instance(graph, users, numbers, first, component) for component in alike)))
        for component in alike[1:]:
            dropped.update(number for i in component.leaving for number in numbers[i])
            left_out += sum(
                graph.nodes[i].element_count > 1 and not OPS[graph.nodes[i].op].is_leaf for i in component.nodes
            )
    kept = tuple(number for number in range(len(graph.outputs)) if number not in dropped)
    if not found:
        return ReducedGraph(graph, (), kept, 0)
    rest = Graph(graph.name, graph.nodes, tuple(graph.outputs[number] for number in kept))
    return ReducedGraph(prune(rest), tuple(found), kept, left_out)


def _instance(
    graph: Graph,
    users: Sequence[Sequence[int]],
    numbers: Mapping[int, Sequence[int]],
    representative: _Component,
    component: _Component,
) -> Component:
    inputs: dict[int, int] = {}
    outputs: dict[int, int] = {}
    for theirs, ours in zip_strict(representative.nodes, component.nodes):
        if graph.nodes[theirs].op == "parameter":
            inputs[_number(graph.nodes[theirs])] = _number(graph.nodes[ours])
        if theirs in representative.leaving:
            outputs.update(zip_strict(numbers[theirs], numbers[ours]))
    inside = frozenset(component.nodes)
    alone = frozenset(
        _number(graph.nodes[i])
        for i in component.nodes
        if graph.nodes[i].op == "parameter" and inside.issuperset(users[i])
    )
    return Component(component.size, inputs, outputs, alone)


def _number(node: Node) -> int:
    number = node.attributes["number"]
    assert isinstance(number, int)
    return number


def _components(graph: Graph) -> list[_Component]:
    """The components that may belong to a family. A node that carries no tensor's data, such as a constant broadcast to some shape,
    connects nothing: every component has its own. A parameter may also be read outside the component (a gradient, by the norm of all
    gradients); a computed node may not."""
    carrying = carriers(graph)
    needed = _needed_elementwise(graph, carrying)
    sets = UnionFind(len(graph.nodes))
    unfit: set[int] = set()
    for i in needed:
        for operand in graph.nodes[i].operands:
            if operand in needed:
                sets.union(i, operand)
    for i, node in enumerate(graph.nodes):
        if i in needed and not _fits(graph, node):
            unfit.add(i)
        if i not in needed:
            unfit.update(o for o in node.operands if o in needed and graph.nodes[o].op != "parameter")
    bad = {sets.find(i) for i in unfit}
    leaving: dict[int, dict[int, None]] = {}
    for i in graph.outputs:
        if i in needed:
            leaving.setdefault(sets.find(i), {})[i] = None
    repeats = Counter(graph.outputs)
    found = (_canonical(graph, list(some), repeats) for home, some in leaving.items() if home not in bad)
    return [component for component in found if component is not None]


def _needed_elementwise(graph: Graph, carrying: frozenset[int]) -> dict[int, None]:
    """The tensors that outputs are computed from, element by element, in topological order."""
    found = {i for i in graph.outputs if i in carrying and graph.nodes[i].element_count > 1}
    for i in range(len(graph.nodes) - 1, -1, -1):
        if i in found and _fits(graph, graph.nodes[i]):
            found.update(o for o in graph.nodes[i].operands if o in carrying and graph.nodes[o].element_count > 1)
    return dict.fromkeys(sorted(found))


def _fits(graph: Graph, node: Node) -> bool:
    """Whether each element of a tensor node is computed from the same element of its operands, or from scalars."""
    if node.op in ("parameter", "reshape") or OPS[node.op].elementwise:
        return True
    return node.op == "broadcast" and graph.nodes[node.operands[0]].element_count == 1


def _canonical(graph: Graph, leaving: Sequence[int], repeats: Mapping[int, int]) -> _Component | None:
    """Nodes in depth-first order from the outputs, which are ordered by what they compute. None if the sizes differ or an op does not
    fit. `leaving`: the component's outputs; `repeats`: how many outputs of the graph each node is."""
    digests: dict[int, str] = {}
    for i in _post_order(graph, leaving):
        text = repr((_head(graph, i), *(digests[operand] for operand in _operands(graph.nodes[i]))))
        digests[i] = hashlib.blake2s(text.encode()).hexdigest()
    nodes = _post_order(graph, sorted(leaving, key=lambda i: (digests[i], i)))
    tensors = [graph.nodes[i] for i in nodes if graph.nodes[i].element_count > 1]
    if len({node.element_count for node in tensors}) != 1 or not all(_fits(graph, node) for node in tensors):
        return None
    place = {i: number for number, i in enumerate(nodes)}
    key = tuple(
        (
            _head(graph, i),
            tuple(place[operand] for operand in _operands(graph.nodes[i])),
            repeats[i] if i in leaving else 0,
        )
        for i in nodes
    )
    return _Component(tuple(nodes), frozenset(leaving), tensors[0].element_count, key)


def _operands(node: Node) -> tuple[int, ...]:
    """The operands that the walk over a component follows. It stops at a scalar that a reduction computes."""
    return node.operands if _is_inside(node) else ()


def _is_inside(node: Node) -> bool:
    return node.element_count > 1 or OPS[node.op].elementwise or node.op in ("reshape", "broadcast", "constant")


def _head(graph: Graph, i: int) -> tuple[object, ...]:
    """What members of a family share of a node, its operands excepted. Sizes do not count."""
    node = graph.nodes[i]
    tensor = node.element_count > 1
    if node.op == "parameter":
        return ("parameter", node.dtype, tensor)
    if not _is_inside(node):
        return ("scalar", i)
    if node.op in ("reshape", "broadcast"):
        return (node.op, node.dtype, tensor)
    attributes = tuple(
        sorted((k, v.digest if isinstance(v, (Literal, Graph)) else repr(v)) for k, v in node.attributes.items())
    )
    return (node.op, node.dtype, tensor, attributes)


def _post_order(graph: Graph, roots: Sequence[int]) -> list[int]:
    """All nodes that `roots` depend on, and `roots`, operands before users, each once; without recursion."""
    found: dict[int, None] = {}
    stack: list[tuple[int, bool]] = [(root, False) for root in reversed(roots)]
    opened: set[int] = set()
    while stack:
        i, done = stack.pop()
        if done:
            found[i] = None
        elif i not in opened:
            opened.add(i)
            stack.append((i, True))
            stack.extend((operand, False) for operand in reversed(_operands(graph.nodes[i])))
    return list(found)
