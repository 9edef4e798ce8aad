"""Typed access to the attributes of nodes that the verifier has passed: each attribute is present and of the right type."""

from __future__ import annotations

from typing import TypeVar

from ..ir.graph import GatherDimensions, Node, WindowDimension

_T = TypeVar("_T")


def attribute(node: Node, key: str, kind: type[_T]) -> _T:
    """Attribute `key` of `node`, which must be of type `kind` (AssertionError otherwise)."""
    value = node.attributes[key]
    assert isinstance(value, kind), f"{node.op}.{key}"
    return value


def integers(node: Node, key: str) -> tuple[int, ...]:
    """Attribute `key` of `node` as a tuple of integers: dimensions, extents or offsets. AssertionError if it is no tuple."""
    return attribute(node, key, tuple)


def window_of(node: Node) -> tuple[WindowDimension, ...]:
    """The window of a reduce_window, one entry per dimension."""
    return attribute(node, "window", tuple)


def gather_numbers(node: Node) -> GatherDimensions:
    """The dimension numbers of a gather or a scatter: which dimensions are indexed, and by which parts of the index tensor."""
    return attribute(node, "gather" if node.op == "gather" else "scatter", GatherDimensions)
