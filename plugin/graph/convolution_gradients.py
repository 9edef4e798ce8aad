"""Gradients of convolutions get a second kernel of TensorFlow's; the faster one of the two computes them.

    Conv2DBackpropInput    1x1         the product of the gradient with the transposed filter
                           stride 1    the convolution of the gradient with the turned filter
    Conv2DBackpropFilter   1x1         the product of the transposed input with the gradient

With oneDNN, TensorFlow computes a filter's gradient and that of a bias in one operator (mkl_layout_pass.cc), if both read the same
tensor. Such a pair stays as it is: the bias' gradient would be rounded differently.

XLA lowers the gradients in these ways too (tf2xla/kernels/conv_op_helpers.cc; its algebraic simplifier makes products of 1x1
convolutions). The new op, `Stitchfleet` before TensorFlow's name, has the same operands and attributes. It times both kernels in the
job's steps (native/products/convolution_gradient_op.cc).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..base.dtypes import WIDE_FLOATS
from ..versions.places import is_onednn_on
from .memory_bound import OperandShapes, PartialShape
from .node_defs import RefusalOf, copy_of, replace
from .placed_graph import GraphNode, PlacedGraph, device_type

_PREFIX = "Stitchfleet"
_INPUT, _FILTER, _BIAS = "Conv2DBackpropInput", "Conv2DBackpropFilter", "BiasAddGrad"


def give_second_kernels(graph: Any, refusal_of: RefusalOf, operand_shapes: OperandShapes) -> int:
    """Replaces the gradients of convolutions that two kernels can compute, in a placed GraphDef, in place. Returns their number.

    refusal_of: if it gives a reason, the gradient stays. operand_shapes: what is known of the shapes in the graph as it is given.
    """
    gradients = [node for node in graph.node if node.op in (_INPUT, _FILTER) and _is_plain(node)]
    if not gradients:
        return 0
    shapes = operand_shapes([node.name for node in gradients])
    constants = {node.name: node for node in graph.node if node.op == "Const"}
    joined = set()
    if is_onednn_on():
        joined = {_port(node.input[0]) for node in graph.node if node.op == _BIAS}
    count = 0
    for node in gradients:
        if node.op == _FILTER and _port(node.input[2]) in joined:
            continue
        taps = _constant_taps(constants, node) if node.op == _FILTER else _taps(shapes.get(node.name, ()))
        if taps is not None and _add_second_kernel(changed := copy_of(node), taps):
            count += replace(node, changed, refusal_of)
    return count


def _port(text: str) -> str:
    return text.removesuffix(":0")


def is_joined(graph: PlacedGraph, node: GraphNode) -> bool:
    """Whether a node is the gradient of a bias that TensorFlow computes together with that of a convolution's filter."""
    return (
        node.op == _BIAS
        and node.device_type == "CPU"
        and any(
            graph.nodes[reader].op == _FILTER and graph.nodes[reader].inputs[2] == node.inputs[0]
            for reader, _ in graph.consumers[node.inputs[0].node]
        )
        and is_onednn_on()
    )


def _is_plain(node: Any) -> bool:
    """Whether it is on a CPU, of floats in the layout NHWC, and of a convolution without dilation."""
    attributes = node.attr
    return (
        device_type(node.device) == "CPU"
        and attributes["T"].type in WIDE_FLOATS
        and ("data_format" not in attributes or attributes["data_format"].s == b"NHWC")
        and ("dilations" not in attributes or all(dilation == 1 for dilation in attributes["dilations"].list.i))
    )


def _constant_taps(constants: Mapping[str, Any], node: Any) -> tuple[int, int] | None:
    """Height and width of the filter whose gradient a node is; None if its shape is not a constant."""
    from tensorflow.python.framework import tensor_util

    if node.input[1] not in constants:
        return None
    sizes = [int(size) for size in tensor_util.MakeNdarray(constants[node.input[1]].attr["value"].tensor)]
    return (sizes[0], sizes[1]) if len(sizes) == 4 else None


def _taps(operands: Sequence[PartialShape | None]) -> tuple[int, int] | None:
    """Height and width of the filter of an input's gradient with such operands; None if they are not known."""
    if len(operands) != 3 or operands[1] is None or len(operands[1]) != 4 or min(operands[1][:2]) < 1:
        return None
    return operands[1][0], operands[1][1]


def _add_second_kernel(node: Any, taps: tuple[int, int]) -> bool:
    """Makes a NodeDef of TensorFlow's op one of ours. Returns False, and has not changed it, if there is no second kernel."""
    padding, strides = node.attr["padding"].s.decode(), list(node.attr["strides"].list.i)
    explicit = list(node.attr["explicit_paddings"].list.i)[2:6] if padding == "EXPLICIT" else [0, 0, 0, 0]
    paddings: list[int] = []
    if taps == (1, 1) and not any(explicit):
        by = "product"
    elif node.op == _INPUT and strides == [1, 1, 1, 1]:
        by = "convolution"
        for i, extent in enumerate(taps):
            before, after = explicit[2 * i : 2 * i + 2]
            if padding == "SAME":
                before = (extent - 1) // 2
                after = extent - 1 - before
            paddings += [extent - 1 - before, extent - 1 - after]
        if min(paddings) < 0:
            return False
    else:
        return False
    node.op = _PREFIX + node.op
    node.attr["stitchfleet_by"].s = by.encode()
    node.attr["stitchfleet_paddings"].list.i.extend(paddings)
    return True
