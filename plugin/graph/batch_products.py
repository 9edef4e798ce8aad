"""Batches of matrix products that are one product of larger matrices; the faster of both computes them.

    BatchMatMulV2(x[..., M, K], W[K, N])                      the rows of all batches times W
    Sum over the batches of BatchMatMulV2(x, y, adj_x=True)   one product that sums over the rows of all batches

The first is a dense layer on sequences, and the gradient of its input; the second is the gradient of W. Keras 3 has both in each
Dense and EinsumDense layer. TensorFlow's kernel rearranges W once for each batch, and writes the product of each batch before they
are added up. XLA merges them in the same way. The new ops, `Stitchfleet` before TensorFlow's name, time both in the job's steps
(native/products/batch_product_op.cc).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from ..base.dtypes import PRODUCT_FLOATS
from ..base.edges import control_inputs, data_inputs
from .memory_bound import OperandShapes, PartialShape
from .node_defs import RefusalOf, copy_of, replace, serialized, without_inputs
from .placed_graph import GraphNode, PlacedGraph, Port, small_constant
from .tf_ops import MEMORY_BOUND

BATCH_PRODUCT_OP: Final = "StitchfleetBatchMatMulV2"
SUM_OF_PRODUCTS_OP: Final = "StitchfleetBatchMatMulSum"
_PRODUCT = "BatchMatMulV2"
LEAST_OPERATIONS: Final = 1 << 20
"""A batch with fewer multiply-adds stays, if its extents are known: it takes some ten microseconds."""


def give_second_kernels(
    graph: Any, refusal_of: RefusalOf, operand_shapes: OperandShapes, preserve: Collection[str]
) -> int:
    """Replaces the batches of products that one product can compute, in a placed GraphDef, in place. Returns their number.

    refusal_of: if it gives a reason, the batch stays. operand_shapes: what is known of the shapes in the graph as it is given.
    preserve: names of nodes that must stay.
    """
    if not any(node.op == _PRODUCT for node in graph.node):
        return 0
    placed = PlacedGraph(graph)
    products = [node for node in placed.nodes if node.op == _PRODUCT and _is_plain(node)]
    shapes = operand_shapes([node.name for node in products])
    count = 0
    vanished: set[int] = set()
    for node in products:
        operands = shapes.get(node.name, ())
        if len(operands) != 2 or operands[0] is None or operands[1] is None:
            continue
        first, second = operands[0], operands[1]
        if _is_small(node, first, second):
            continue
        if node.proto.attr["adj_x"].b:
            total = _sum_over_batches(placed, node, first, second, preserve)
            if total is not None and _replace_sum(node, total, refusal_of):
                vanished.add(node.index)
                count += 1
        elif len(first) >= 3 and len(second) <= len(first) and all(extent == 1 for extent in second[:-2]):
            made = copy_of(node.proto)
            made.op = BATCH_PRODUCT_OP
            made.attr["product"].s = serialized(without_inputs(node.proto))
            for name in ("grad_x", "grad_y"):  # attributes of newer versions of TensorFlow
                made.attr.pop(name, None)
            count += replace(node.proto, made, refusal_of)
    for index in sorted(vanished, reverse=True):
        del graph.node[index]
    return count


def _is_plain(node: GraphNode) -> bool:
    attributes = node.proto.attr
    return node.device_type == "CPU" and attributes["T"].type in PRODUCT_FLOATS and MEMORY_BOUND not in attributes


def _is_small(node: GraphNode, first: PartialShape, second: PartialShape) -> bool:
    """Whether it surely has less than LEAST_OPERATIONS multiply-adds. `second` is a matrix, or has the batches of `first`."""
    if len(first) < 2 or len(second) < 2 or min((*first, *second)) < 0:
        return False
    operations = second[-2] if node.proto.attr["adj_y"].b else second[-1]
    for extent in first:
        operations *= extent
    return operations < LEAST_OPERATIONS


def _sum_over_batches(
    placed: PlacedGraph, node: GraphNode, first: PartialShape, second: PartialShape, preserve: Collection[str]
) -> GraphNode | None:
    """The Sum over all batches that alone reads a product whose operands have the same batches and rows; None if there is none."""
    if node.proto.attr["adj_y"].b or len(first) < 3 or first[:-1] != second[:-1] or -1 in first[:-1]:
        return None
    consumers = placed.consumers[node.index]
    if len(consumers) != 1 or placed.control_consumers[node.index] or node.name in preserve:
        return None
    total = placed.nodes[consumers[0][0]]
    if total.op != "Sum" or total.inputs[0] != Port(node.index, 0) or total.proto.attr["keep_dims"].b:
        return None
    axes = small_constant(placed, total.index, 1)
    if axes is None or axes.dtype.name != "int32":
        return None
    batches = [axis % len(first) for axis in axes.reshape(-1).tolist()]
    return total if batches == list(range(len(first) - 2)) else None


def _replace_sum(product: GraphNode, total: GraphNode, refusal_of: RefusalOf) -> bool:
    """Makes a Sum one of our ops, which reads the operands of the product that it read. Returns whether it did."""
    made = copy_of(total.proto)
    made.op = SUM_OF_PRODUCTS_OP
    data = data_inputs(product.proto)
    control = [*control_inputs(product.proto), *control_inputs(total.proto)]
    axes = data_inputs(total.proto)[1]
    del made.input[:]
    made.input.extend([*data, axes, *dict.fromkeys(control)])
    for name in ("Tidx", "keep_dims"):
        made.attr.pop(name, None)
    made.attr["product"].s = serialized(without_inputs(product.proto))
    made.attr["sum"].s = serialized(without_inputs(total.proto))
    return replace(total.proto, made, refusal_of)
