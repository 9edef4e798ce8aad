"""The stitch schemes (AStitch, Table 1, in a CPU's terms): where each op's result lives, and why."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from ..ir.graph import Graph
from .groups import Candidate
from .placement import Placement


class Scheme(enum.Enum):
    """Where a result lives until it is read."""

    LOCAL = "local"  # one-to-one: a register
    REGIONAL = "regional"  # one-to-many within a row: the row's scalars and tiles
    GLOBAL = "global"  # any: memory, and a phase boundary
    OUTPUT = "output"  # memory, because the caller wants it; no other nest reads it


@dataclass(frozen=True)
class OpScheme:
    """A node's scheme, and the reason in words."""

    node: int
    scheme: Scheme
    reason: str


def scheme_of(graph: Graph, candidates: Mapping[int, Candidate], placement: Placement, node: int) -> OpScheme:
    """The scheme of a node's result in `placement`, and the reason."""
    if node not in candidates:
        return OpScheme(node, Scheme.LOCAL, "each element is used where it is made, in a register")
    why = f"{candidates[node].reason}; {placement.reasons.get(node, '')}".rstrip("; ")
    if node in placement.partial:
        return OpScheme(node, Scheme.GLOBAL, f"it spans all rows, every task leaves a partial result; {why}")
    if node in placement.crossing:
        return OpScheme(node, Scheme.GLOBAL, f"another nest reads it; {why}")
    read_inside = any(node in graph.nodes[user].operands for user in range(len(graph.nodes)))
    if node in placement.reductions:
        scheme = Scheme.REGIONAL if read_inside else Scheme.OUTPUT
        return OpScheme(node, scheme, f"row r of it is complete when row r has been read; {why}")
    if node in graph.outputs:
        return OpScheme(node, Scheme.OUTPUT, f"stored; its readers use the register; {why}" if read_inside else why)
    return OpScheme(node, Scheme.LOCAL, f"its readers are in the same nest; {why}")
