"""The texts by which a NodeDef names what it reads (`node`, `node:1`) and what it waits for (`^node`)."""

from __future__ import annotations

from typing import Any


def node_of(edge: str) -> str:
    """The name of the node that an edge comes from, or that makes a tensor with this name."""
    return edge.removeprefix("^").partition(":")[0]


def data_inputs(node: Any) -> list[str]:
    """The edges of a NodeDef that carry a tensor, in order."""
    return [edge for edge in node.input if not edge.startswith("^")]


def control_inputs(node: Any) -> list[str]:
    """The edges of a NodeDef that only make it wait, in order."""
    return [edge for edge in node.input if edge.startswith("^")]
