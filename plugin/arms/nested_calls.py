"""Calls of functions that TensorFlow does not inline (every Keras 2 LSTM and GRU, forward and backward): they get arms of their own.

The kernel of a call node instantiates the function's body with the ConfigProto in the node's attribute `config_proto`, on one of
TensorFlow's threads. In the stitched arm that ConfigProto also names an optimizer of ours that changes nothing and carries a mark
(native/graph/arm_mark.cc): so TensorFlow keeps a body of the stitched arm's beside the user's own, and offers it with its mark. The
plain arm's call nodes stay as they were, and so do the bodies that they call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MARK_OPTIMIZER = "stitchfleet_arm_mark"
"""As native/graph/arm_mark.cc registers it."""
_PARAMETER = "mark"
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")


@dataclass(frozen=True)
class Mark:
    """What a marked body says of itself: its program's name, the generation of the stitched graph, the function's name."""

    program: str
    generation: int
    function: str

    def encode(self) -> str:
        return f"{self.generation}\n{self.function}\n{self.program}"

    @classmethod
    def decode(cls, text: str) -> Mark:
        """Raises ValueError for what `encode` did not make."""
        generation, function, program = text.split("\n", 2)
        return cls(program, int(generation), function)


def mark_calls(graph: Any, program: str, generation: int) -> int:
    """Marks each call node of a GraphDef as the stitched arm's, in place; returns how many changed.

    A function that XLA compiles whole is left alone, and so is a call that has its mark already (TensorFlow offers a graph twice).
    """
    from tensorflow.core.protobuf import config_pb2

    changed = 0
    for node in graph.node:
        if node.op not in _CALLS or ("_XlaMustCompile" in node.attr and node.attr["_XlaMustCompile"].b):
            continue
        config: Any = config_pb2.ConfigProto()
        config.ParseFromString(node.attr["config_proto"].s if "config_proto" in node.attr else b"")
        optimizers = config.graph_options.rewrite_options.custom_optimizers
        if any(optimizer.name == MARK_OPTIMIZER for optimizer in optimizers):
            continue
        mark = Mark(program, generation, node.attr["f"].func.name)
        optimizers.add(name=MARK_OPTIMIZER).parameter_map[_PARAMETER].s = mark.encode().encode()
        node.attr["config_proto"].s = config.SerializeToString(deterministic=True)
        changed += 1
    return changed
