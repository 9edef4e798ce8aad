"""A fingerprint of the model that a job trains: a short text that is the same in all its processes and submissions.

It is computed from what does not depend on the batch: the types and shapes of the model's variables, and the set of its operators.
For a graph without variables (a frozen model) the large constants take the place of the variables.
"""

from __future__ import annotations

import hashlib
from typing import Any

from stitchfleet.telemetry.pod.recording import GRAPH

from ..base.dtypes import FLOATS
from ..base.op_names import VARIABLES


def model_fingerprint(graph: Any) -> str:
    """The fingerprint of a GraphDef, as TensorFlow offers it for optimization: recording.GRAPH and 16 hexadecimal digits."""
    operators = sorted({node.op for node in graph.node if not node.op.startswith("_")})
    weights = sorted(text for node in graph.node for text in _variables(node))
    if not weights:
        weights = sorted(text for node in graph.node for text in _large_constants(node))
    return GRAPH + hashlib.sha256("\n".join([*operators, "", *weights]).encode()).hexdigest()[:16]


def _variables(node: Any) -> list[str]:
    """Types and shapes of the variables of a node. In a function's graph variables are arguments, in a session's operators."""
    if node.op == "_Arg" and "_handle_shapes" in node.attr and "_handle_dtypes" in node.attr:
        types, shapes = node.attr["_handle_dtypes"].list.type, node.attr["_handle_shapes"].list.shape
        return [_words(dtype, shape) for dtype, shape in zip(types, shapes)]
    if node.op in VARIABLES and "shape" in node.attr:
        return [_words(node.attr["dtype"].type, node.attr["shape"].shape)]
    return []


def _large_constants(node: Any) -> list[str]:
    if node.op != "Const" or "value" not in node.attr:
        return []
    value = node.attr["value"].tensor
    shape = value.tensor_shape
    return [_words(value.dtype, shape)] if value.dtype in FLOATS and len(shape.dim) >= 2 else []


def _words(dtype: int, shape: Any) -> str:
    return f"{dtype} {'?' if shape.unknown_rank else 'x'.join(str(dim.size) for dim in shape.dim)}"
