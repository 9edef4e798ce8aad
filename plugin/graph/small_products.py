"""Small matrix products inside loops, which a cluster may have.

A recurrent layer multiplies its state by a matrix of a few thousand elements in each iteration. TensorFlow's kernel takes longer to
start than to compute (some 7 us for 64 x 36 x 72, of which 2 to 3 are arithmetic), and separates what lies before and after it. In a
cluster a gate's product, its bias and activation, and the next product are one kernel, row by row (compiler/lowering/product.py).
Which products are small enough is decided by `compiler.hlo.small_products`; the number of rows, a batch, need not be known. A product
of a single row, if that is known, may have a large matrix.

What TensorFlow has fused onto such a product (a bias, an activation) is taken apart, so that it can be in the cluster too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stitchfleet.compiler.hlo.small_products import is_small

from ..base.dtypes import WIDE_FLOATS
from . import fused
from .control_flow import analyse
from .memory_bound import OperandShapes, PartialShape
from .placed_graph import PlacedGraph, device_type
from .tf_ops import MEMORY_BOUND

_PRODUCTS = ("MatMul", "_FusedMatMul")


def mark(graph: Any, operand_shapes: OperandShapes, everywhere: bool = False) -> int:
    """Marks the products of a placed GraphDef that are small and in a loop, or anywhere if `everywhere`, in place. Returns their
    number. operand_shapes: what is known of the shapes in the graph."""
    products = {node.name for node in graph.node if node.op in _PRODUCTS and _is_plain(node)}
    if not products or not (everywhere or any(node.op == "Enter" for node in graph.node)):
        return 0
    placed = PlacedGraph(graph)
    asked = [node for node in placed.nodes if node.name in products]
    if not everywhere:
        frames = analyse(placed).frame
        asked = [node for node in asked if frames[node.index]]
    shapes = operand_shapes([node.name for node in asked]) if asked else {}
    count = 0
    for node in asked:
        if not _is_small(node.proto, shapes.get(node.name, ())):
            continue
        if node.op == "_FusedMatMul":
            product = fused.take_product_apart(graph, node.proto)
            if product is None:
                continue
        else:
            product = node.proto
        product.attr[MEMORY_BOUND].b = True
        count += 1
    return count


def _is_plain(node: Any) -> bool:
    return (
        device_type(node.device) == "CPU"
        and node.attr["T"].type in WIDE_FLOATS
        and MEMORY_BOUND not in node.attr
        and not node.attr["transpose_a"].b
    )


def _is_small(node: Any, operands: Sequence[PartialShape | None]) -> bool:
    if len(operands) < 2 or operands[0] is None or operands[1] is None:
        return False
    first, second = operands[0], operands[1]
    if len(first) != 2 or len(second) != 2 or min(second) <= 0:
        return False
    columns, terms = second if node.attr["transpose_b"].b else second[::-1]
    return is_small(first[0] if first[0] > 0 else None, terms, columns)
