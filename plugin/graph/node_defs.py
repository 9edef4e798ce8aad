"""Copies NodeDefs, and replaces them if TensorFlow can create the new operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

RefusalOf = Callable[[bytes], str]
"""Maps a serialized NodeDef to the reason why TensorFlow cannot create its operator, "" if it can."""


def copy_of(node: Any) -> Any:
    """A copy of a NodeDef."""
    made = type(node)()
    made.CopyFrom(node)
    return made


def without_inputs(node: Any) -> Any:
    """A copy of a NodeDef without its inputs and without its colocation constraint (attribute `_class`)."""
    made = copy_of(node)
    del made.input[:]
    made.attr.pop("_class", None)
    return made


def serialized(node: Any) -> bytes:
    """A NodeDef as bytes, equal for equal NodeDefs: the attribute from which an op of ours creates the node's kernel."""
    return bytes(node.SerializeToString(deterministic=True))


def replace(node: Any, made: Any, refusal_of: RefusalOf) -> bool:
    """Makes a node of a graph equal to `made`, unless TensorFlow cannot create the operator of `made`. Returns whether it did.
    `made` loses its colocation constraint."""
    made.attr.pop("_class", None)
    if refusal_of(bytes(made.SerializeToString())):
        return False
    node.CopyFrom(made)
    return True
