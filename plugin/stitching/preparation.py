"""What a placed graph goes through before its clusters are looked for. What it computes stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..arms import random_streams
from ..clusters import rewrite
from ..graph import fused
from ..while_loops import invariants, products, reads


@dataclass(frozen=True)
class Prepared:
    """What was done: loop variables that became constants of their frames; variable reads, and products, that left their loops."""

    freed_invariants: int
    hoisted_reads: int
    hoisted_products: int


def prepare(graph: Any, refusal: Callable[[bytes], str]) -> Prepared:
    """Changes `graph`, a placed GraphDef. refusal: why TensorFlow cannot make the operator of a serialized NodeDef, "" where it
    can."""
    fused.take_apart(graph)
    rewrite.drop_reserve_spaces(graph)
    random_streams.own_streams(graph)
    rewrite.free_constants(graph)
    freed = invariants.free_invariants(graph)
    hoisted = reads.hoist_reads(graph)
    return Prepared(freed, hoisted, products.hoist_products(graph, refusal))
