"""Max pooling and its gradient on a CPU.

oneDNN's MaxPoolGrad reads what its MaxPool has kept: which element of each window was the largest (mkl_layout_pass.cc). Without that
pooling in the same graph TensorFlow has another kernel, which takes five to ten times as long and adds up windows that overlap in
another order. So a gradient that is computed without its pooling, in a fallback, gets one; and a pooling whose gradient stays in
TensorFlow stays, too.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any, Final

from ..versions.places import is_onednn_on
from .placed_graph import GraphNode, PlacedGraph

POOLING, GRADIENT = "MaxPool", "MaxPoolGrad"
MOST_TAPS: Final = 32
"""Elements of the largest window that the compiler takes (`compiler.hlo.selections`)."""
_ATTRIBUTES: Final = ("T", "ksize", "strides", "padding", "explicit_paddings", "data_format")


def is_too_large(node: Any) -> bool:
    """Whether a NodeDef is a gradient of larger windows."""
    return bool(node.op == GRADIENT and math.prod(node.attr["ksize"].list.i) > MOST_TAPS)


def gradients_of(graph: PlacedGraph, node: GraphNode) -> list[int]:
    """The gradients that oneDNN computes from what a pooling has kept."""
    if node.op != POOLING or node.device_type != "CPU" or not is_onednn_on():
        return []
    return [reader for reader, _ in graph.consumers[node.index] if graph.nodes[reader].op == GRADIENT]


def lacks_pooling(graph: PlacedGraph, index: int, members: Collection[int]) -> bool:
    """Whether a node is a gradient that oneDNN would compute from what its pooling has kept, and the pooling is not one of
    `members`."""
    node = graph.nodes[index]
    return node.op == GRADIENT and node.device_type == "CPU" and node.inputs[1].node not in members and is_onednn_on()


def pool_again(function: Any, name: str, node: Any, source: str) -> str:
    """Appends to a FunctionDef the pooling of a gradient. name: the gradient's in the function. node: its NodeDef. source: what was
    pooled. Returns the name of the result."""
    pooled = function.node_def.add(name=f"{name}_pooled", op=POOLING, input=[source])
    for key in _ATTRIBUTES:
        if key in node.attr:
            pooled.attr[key].CopyFrom(node.attr[key])
    return f"{pooled.name}:output:0"
