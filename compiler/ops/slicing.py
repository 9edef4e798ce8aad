"""What a slice of a node needs of its operands, the same slice or the whole operand: op by op, the column `slicing` of its row.

A slice is a range of indices of a node's leading dimensions (check/slices.py). An op without a rule is computed as a whole.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from ..ir.graph import Graph, Node
from ..support.sequences import zip_strict
from .attributes import attribute, gather_numbers, integers

if TYPE_CHECKING:
    from typing import TypeAlias


class Need(NamedTuple):
    """What a slice of a node needs. `sliced`: for each operand, True if the same slice of it is enough, False if all of it is
    needed. `deepest`, `operand_deepest`: how many leading dimensions of the node and of the sliced operands may be cut."""

    sliced: tuple[bool, ...]
    deepest: int
    operand_deepest: int


Slicing: TypeAlias = "Callable[[Graph, Node], Need | None]"


def _leading(flags: Iterable[bool]) -> int:
    """How many of `flags` are true before the first that is false."""
    return len(list(itertools.takewhile(bool, flags)))


def _alike(node: Node, operand_count: int, deepest: int) -> Need | None:
    return Need((True,) * operand_count, deepest, deepest) if deepest else None


def elementwise(graph: Graph, node: Node) -> Need | None:
    """The same slice of each operand; all of a scalar, which is read with each element."""
    shapes = [graph.nodes[operand].shape for operand in node.operands]
    if any(shape not in (node.shape, ()) for shape in shapes):
        return None
    return Need(tuple(shape == node.shape for shape in shapes), len(node.shape), len(node.shape))


def broadcast(graph: Graph, node: Node) -> Need | None:
    """The same slice as far as the operand has the leading dimensions too."""
    dimensions, shape = integers(node, "dimensions"), graph.nodes[node.operands[0]].shape
    shared = _leading(d == i and shape[i] == node.shape[i] for i, d in enumerate(dimensions))
    if not shared:
        return None  # constant along the leading dimension: the whole is a view, which costs nothing
    # If all dimensions of the operand are shared, a deeper cut lets several slices share one element of it.
    return Need((True,), len(node.shape) if shared == len(shape) else shared, shared)


def reshape(graph: Graph, node: Node) -> Need | None:
    """The same range of elements, whatever the dimensions are; nothing can be cut of a scalar."""
    shape = graph.nodes[node.operands[0]].shape
    return Need((True,), len(node.shape), len(shape)) if shape else None


def transpose(graph: Graph, node: Node) -> Need | None:
    """The same slice, as deep as the leading dimensions keep their places."""
    return _alike(node, 1, _leading(i == d for i, d in enumerate(integers(node, "permutation"))))


def slice_(graph: Graph, node: Node) -> Need | None:
    """The same slice, as deep as the leading dimensions are taken whole."""
    strides, shape = integers(node, "strides"), graph.nodes[node.operands[0]].shape
    uncut = _leading(a == b and s == 1 for a, b, s in zip_strict(node.shape, shape, strides))
    return _alike(node, 1, uncut)


def pad(graph: Graph, node: Node) -> Need | None:
    """The same slice, as deep as the leading dimensions are not padded, and all of the padding value."""
    sides = zip_strict(*(integers(node, key) for key in ("low", "high", "interior")))
    uncut = _leading(not any(side) for side in sides)
    return Need((True, False), uncut, uncut) if uncut else None


def concatenate(graph: Graph, node: Node) -> Need | None:
    """The same slice of each operand in the dimensions before the joined one."""
    return _alike(node, len(node.operands), attribute(node, "dimension", int))


def reverse(graph: Graph, node: Node) -> Need | None:
    """The same slice in the dimensions before the first that is reversed."""
    return _alike(node, 1, min(integers(node, "dimensions"), default=len(node.shape)))


def patches(graph: Graph, node: Node) -> Need | None:
    """The same slice in the dimensions before the first that has windows."""
    return _alike(node, 1, integers(node, "dimensions")[0])


def reduce(graph: Graph, node: Node) -> Need | None:
    """The same slice of the inputs in the dimensions before the first that is reduced, and all of the initial values."""
    kept = min(integers(node, "dimensions"), default=len(node.shape))
    inputs = max(len(node.operands) // 2, 1)
    return Need(tuple(k < inputs for k in range(len(node.operands))), kept, kept) if kept else None


def dot(graph: Graph, node: Node) -> Need | None:
    """The same rows of the left operand and all of the right one or, of a batch of products, the same products."""
    del graph
    batch = len(node.shape) - 2
    return Need((True, True), batch, batch) if batch else Need((True, False), 1, 1)


def gather(graph: Graph, node: Node) -> Need | None:
    """All of the operand, and the same slice of the indices in the leading batch dimensions."""
    numbers = gather_numbers(node)
    batch = min((*numbers.offset_dims, numbers.index_vector_dim), default=len(node.shape))
    return Need((False, True), batch, batch) if batch else None
