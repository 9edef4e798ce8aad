"""Moves transposes behind the reductions that read them, so that a reduction walks its tensor as it lies in memory.

    reduce(relu(transpose(x)), 2)        reads x across memory, one element a cache line
    transpose(reduce(relu(x), 1))        reads x in order; what is transposed is as small as the result

A transpose moves behind an element-wise op if all other operands of that op are transposed alike or can be made in any order: a
broadcast, an iota, or element-wise ops of such. It moves behind any reduce. It stays in front of what needs the elements in order
(reshape, slice, product, an output), and where it leaves pieces of a cache line and more together, which can be read as well in
either order.

Every result is the same up to the order in which a reduction takes its terms. A graph in which no transpose would move behind a
reduce stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from ..ir.graph import Attribute, Graph, GraphBuilder, Node, Shape
from ..ops.attributes import attribute, integers
from ..ops.table import OPS
from ..support.sequences import zip_strict
from .simplify import prune

CACHE_LINE_BYTES: Final = 64


def transposes_last(graph: Graph) -> Graph:
    """An equal graph, up to the order of a reduction's terms, in which transposes are behind reduces where possible."""
    if not any(node.op == "transpose" for node in graph.nodes) or not any(node.op == "reduce" for node in graph.nodes):
        return graph
    mover = _Mover(graph)
    outputs = [mover.in_order(output) for output in graph.outputs]
    return prune(mover.builder.finish(outputs)) if mover.has_moved_behind_a_reduce else graph


def _in_memory_order(shape: Shape, order: tuple[int, ...]) -> Shape:
    """The shape of a tensor of which transpose(., order) has shape `shape`."""
    found = [0] * len(shape)
    for extent, to in zip_strict(shape, order):
        found[to] = extent
    return tuple(found)


class _Mover:
    """Rebuilds a graph. Node i of `graph` is transpose(base[i], order[i]); such a transpose is added where it is needed. Of a node
    that can be made in any order neither is known: it is made where it is needed, in the order that is needed."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.builder = GraphBuilder(graph.name)
        self.has_moved_behind_a_reduce = False
        self.any_order: list[bool] = []
        self.order: list[tuple[int, ...]] = []
        self.base: list[int] = []
        self._made: dict[tuple[int, tuple[int, ...]], int] = {}
        for i, node in enumerate(graph.nodes):
            self.any_order.append(self._can_have_any_order(node))
            base, order = (-1, ()) if self.any_order[i] else self._rebuilt(node)
            self.base.append(base)
            self.order.append(order)

    def in_order(self, i: int, order: tuple[int, ...] | None = None) -> int:
        """The index in the new graph of a tensor of which transpose(., order) is node i. None: of node i itself."""
        node = self.graph.nodes[i]
        wanted = tuple(range(len(node.shape))) if order is None else order
        if (i, wanted) not in self._made:
            make = self._anew if self.any_order[i] else self._transposed
            self._made[i, wanted] = make(i, wanted)
        return self._made[i, wanted]

    def _transposed(self, i: int, wanted: tuple[int, ...]) -> int:
        place = {to: k for k, to in enumerate(wanted)}
        permutation = tuple(self.order[i][place[k]] for k in range(len(wanted)))
        if permutation == tuple(range(len(permutation))):
            return self.base[i]
        source = self.builder.nodes[self.base[i]]
        shape = tuple(source.shape[k] for k in permutation)
        return self.builder.add("transpose", (self.base[i],), shape, source.dtype, permutation=permutation)

    def _anew(self, i: int, wanted: tuple[int, ...]) -> int:
        node = self.graph.nodes[i]
        shape = _in_memory_order(node.shape, wanted)
        if node.op == "iota":
            return self._like(node, (), shape, dimension=wanted[attribute(node, "dimension", int)])
        if node.op == "broadcast":
            to = tuple(wanted[k] for k in integers(node, "dimensions"))
            rank = sorted(to)
            source = self.in_order(node.operands[0], tuple(rank.index(k) for k in to))
            return self._like(node, (source,), shape, dimensions=tuple(rank))
        return self._elementwise(node, wanted)

    def _elementwise(self, node: Node, order: tuple[int, ...]) -> int:
        operands = [
            self.in_order(operand, order if self.graph.nodes[operand].shape == node.shape else None)
            for operand in node.operands
        ]
        return self._like(node, operands, _in_memory_order(node.shape, order), **node.attributes)

    def _can_have_any_order(self, node: Node) -> bool:
        if node.op in ("broadcast", "iota"):
            return True
        if not OPS[node.op].elementwise or not node.operands:
            return False
        return all(self.any_order[k] or not self.graph.nodes[k].shape for k in node.operands) and bool(node.shape)

    def _rebuilt(self, node: Node) -> tuple[int, tuple[int, ...]]:
        """base and order of a node that is not made in any order."""
        unmoved = tuple(range(len(node.shape)))
        if node.op == "transpose" and not _leaves_cache_lines(node, self.graph.nodes[node.operands[0]]):
            (source,) = node.operands
            base = self.in_order(source) if self.any_order[source] else self.base[source]
            inner = unmoved if self.any_order[source] else self.order[source]
            return base, tuple(inner[k] for k in integers(node, "permutation"))
        if OPS[node.op].elementwise and node.operands:
            orders = {
                self.order[k]
                for k in node.operands
                if not self.any_order[k] and self.graph.nodes[k].shape == node.shape
            }
            order = orders.pop() if len(orders) == 1 else unmoved
            return self._elementwise(node, order), order
        if node.op == "reduce" and not self.any_order[node.operands[0]]:
            return self._reduced(node)
        operands = [self.in_order(operand) for operand in node.operands]
        return self._like(node, operands, node.shape, **node.attributes), unmoved

    def _reduced(self, node: Node) -> tuple[int, tuple[int, ...]]:
        (source,) = node.operands
        order, gone = self.order[source], integers(node, "dimensions")
        dimensions = tuple(sorted(order[k] for k in gone))
        kept = [order[k] for k in range(len(order)) if k not in gone]
        rank = sorted(kept)
        whole = self.builder.nodes[self.base[source]]
        shape = tuple(whole.shape[k] for k in rank)
        if order != tuple(range(len(order))):
            self.has_moved_behind_a_reduce = True
        attributes = {**node.attributes, "dimensions": dimensions}
        return self._like(node, (self.base[source],), shape, **attributes), tuple(rank.index(k) for k in kept)

    def _like(self, node: Node, operands: Sequence[int], shape: Shape, **attributes: Attribute) -> int:
        return self.builder.add(node.op, operands, shape, node.dtype, node.name, **attributes)


def _leaves_cache_lines(node: Node, source: Node) -> bool:
    """Whether a transpose moves pieces of at least a cache line of its operand."""
    permutation = integers(node, "permutation")
    rank = len(permutation)
    fixed = next((k for k in range(rank) if permutation[rank - 1 - k] != rank - 1 - k), rank)
    return math.prod(source.shape[rank - fixed :]) * source.dtype.size_bytes >= CACHE_LINE_BYTES
