"""Gives calls of functions that TensorFlow does not inline (every Keras 2 LSTM and GRU, forward and backward) their own arms.

The kernel of a call node instantiates the function's body with the ConfigProto in the node's attribute `config_proto`, on one of
TensorFlow's threads. In the stitched arm that ConfigProto also names an optimizer of ours that changes nothing and carries a mark
(native/graph/arm_mark.cc). So TensorFlow keeps a second body for the stitched arm beside the user's own, and offers it with its mark.
The plain arm's call nodes are unchanged, and so are the bodies that they call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..graph.tf_ops import is_compiled_by_xla
from ..native.library import PASSES
from .passes import passes_of

MARK_OPTIMIZER = "stitchfleet_arm_mark"
"""The optimizer's name, as native/graph/arm_mark.cc registers it."""
_PARAMETER = "mark"
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")


@dataclass(frozen=True)
class Mark:
    """The mark of a body: the program's name, the generation of the stitched graph, the function's name, and in how many passes
    TensorFlow optimizes the body (passes.py)."""

    program: str
    generation: int
    function: str
    passes: int = PASSES

    def encode(self) -> str:
        """The mark as text of four lines, which `decode` reads."""
        return f"{self.generation}\n{self.passes}\n{self.function}\n{self.program}"

    @classmethod
    def decode(cls, text: str) -> Mark:
        """The mark that `encode` wrote as `text`. Raises ValueError for any other text."""
        generation, passes, function, program = text.split("\n", 3)
        return cls(program, int(generation), function, int(passes))


def mark_calls(graph: Any, program: str, generation: int) -> int:
    """Marks each call node of a GraphDef as the stitched arm's, in place. Returns the number of nodes changed.

    Functions that XLA compiles as a whole are left alone, and so are calls that are already marked.
    """
    from tensorflow.core.protobuf import config_pb2

    changed = 0
    for node in graph.node:
        if node.op not in _CALLS or is_compiled_by_xla(node.attr):
            continue
        config: Any = config_pb2.ConfigProto()
        config.ParseFromString(node.attr["config_proto"].s if "config_proto" in node.attr else b"")
        optimizers = config.graph_options.rewrite_options.custom_optimizers
        if any(optimizer.name == MARK_OPTIMIZER for optimizer in optimizers):
            continue
        mark = Mark(program, generation, node.attr["f"].func.name, passes_of(config))
        optimizers.add(name=MARK_OPTIMIZER).parameter_map[_PARAMETER].s = mark.encode().encode()
        node.attr["config_proto"].s = config.SerializeToString(deterministic=True)
        changed += 1
    return changed
