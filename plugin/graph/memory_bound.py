"""Memory-bound matrix products [M, K] [K, N]: M, N or K is 1. A cluster may have them.

    K = 1          an outer product: each element of the result is one product
    M or N = 1     products of matrices with vectors, in a batch: each element of the matrices is read once

TensorFlow's kernels take each matrix of a batch for a product of its own, however small it is. XLA rewrites such products into
multiplications and sums (its algebraic simplifier, "dot strength reduction"); so does the compiler (`compiler.hlo.composites.dot`).
A single product of a matrix with a vector stays: the library's kernel reads memory about as fast as anybody's. Inside a loop it does
not (small_products.py): there the start of the library's kernel counts, and what follows is in the same kernel.

What TensorFlow has fused onto such a batch (the scale and the mask of attention's scores) is taken apart, so that it can be in the
cluster too.

Products are found before the graph runs, by the shapes that TensorFlow infers. An extent that differs from run to run is not
known; a product with such an extent is memory-bound only if another of its extents is known to be 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..base.dtypes import WIDE_FLOATS
from . import fused
from .tf_ops import MEMORY_BOUND

PartialShape = tuple[int, ...]
"""Extents of a tensor. An unknown extent is negative; unknown extents that are certainly equal have the same number below
-1."""
OperandShapes = Callable[[Sequence[str]], Mapping[str, Sequence["PartialShape | None"]]]
"""Maps names of nodes to the shapes of each node's operands (None: unknown rank). Nodes whose shapes TensorFlow cannot infer
are left out."""


def mark(graph: Any, operand_shapes: OperandShapes) -> int:
    """Marks the products of a placed GraphDef that are memory-bound, in place. Returns their number."""
    products = [node for node in graph.node if node.op in _EXTENTS and node.attr["T"].type in WIDE_FLOATS]
    shapes = operand_shapes([node.name for node in products]) if products else {}
    count = 0
    for node in products:
        if not _is_memory_bound(node, shapes.get(node.name, ())[:2]):
            continue
        product = fused.take_product_apart(graph, node) if node.op == fused.FUSED_BATCH else node
        if product is not None:
            product.attr[MEMORY_BOUND].b = True
            count += 1
    return count


@dataclass(frozen=True)
class _Extents:
    """The extents of a product's dimensions: those that both operands and the result have, those of the first and of the second
    operand that the result has, and those that are summed over."""

    batch: PartialShape
    first: PartialShape
    second: PartialShape
    summed: PartialShape


def _is_memory_bound(node: Any, operands: Sequence[PartialShape | None]) -> bool:
    shapes = [shape for shape in operands if shape is not None]
    extents = _EXTENTS[node.op](node, *shapes) if len(shapes) == len(operands) == 2 else None
    if extents is None:
        return False
    if _are_ones(extents.summed):
        return True
    return not _are_ones(extents.batch) and (_are_ones(extents.first) or _are_ones(extents.second))


def _are_ones(extents: PartialShape) -> bool:
    return all(extent == 1 for extent in extents)


def _of_matrices(node: Any, first: PartialShape, second: PartialShape) -> _Extents | None:
    """Of MatMul and BatchMatMul. None if the batches are not surely equal: if one were broadcast, XLA would make one product of
    several."""
    if min(len(first), len(second)) < 2 or first[:-2] != second[:-2] or -1 in first[:-2]:
        return None
    names = ("transpose_a", "transpose_b") if node.op == "MatMul" else ("adj_x", "adj_y")
    turned = [bool(node.attr[name].b) for name in names]
    m, k = (first[-1], first[-2]) if turned[0] else first[-2:]
    n = second[-2] if turned[1] else second[-1]
    return _Extents(first[:-2], (m,), (n,), (k,))


def letters_of(equation: str) -> list[str]:
    """The letters of each operand of an einsum, then those of its result."""
    operands, _, result = equation.replace(" ", "").partition("->")
    return [*operands.split(","), result]


def _of_einsum(node: Any, first: PartialShape, second: PartialShape) -> _Extents | None:
    """Of an Einsum whose every letter is in two of its three lists, once in each."""
    letters = letters_of(node.attr["equation"].s.decode())
    if len(letters) != 3 or any(not word.isalpha() and word for word in letters):
        return None
    x, y, z = map(set, letters)
    once = all(len(word) == len(set(word)) for word in letters)
    if not once or (x ^ y) - z or z - (x | y) or [len(x), len(y)] != [len(first), len(second)]:
        return None
    sizes = [dict(zip(word, shape)) for word, shape in zip(letters, (first, second))]

    def extents(side: int, kept: set[str]) -> PartialShape:
        return tuple(size for letter, size in sizes[side].items() if letter in kept)

    return _Extents(extents(0, x & y & z), extents(0, x - y), extents(1, y - x), extents(0, (x & y) - z))


_EXTENTS: Final[Mapping[str, Callable[[Any, PartialShape, PartialShape], _Extents | None]]] = {
    **dict.fromkeys(("MatMul", "BatchMatMul", "BatchMatMulV2", fused.FUSED_BATCH), _of_matrices),
    "Einsum": _of_einsum,
}
