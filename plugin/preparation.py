"""What a placed graph goes through before its clusters are looked for. What it computes stays as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import loop_invariants, loop_reads, random_streams, rewrite


@dataclass(frozen=True)
class Prepared:
    """What was done: loop variables that became constants of their frames, reads of variables that left their loops."""

    freed_invariants: int
    hoisted_reads: int


def prepare(graph: Any) -> Prepared:
    """Changes `graph`, a placed GraphDef."""
    rewrite.decompose_compositions(graph)
    rewrite.drop_reserve_spaces(graph)
    random_streams.own_streams(graph)
    rewrite.free_constants(graph)
    return Prepared(loop_invariants.free_invariants(graph), loop_reads.hoist_reads(graph))
