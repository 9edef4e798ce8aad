"""The passes over a placed graph before its clusters are found. They do not change what the graph computes."""

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
    """What the passes changed.

    freed_invariants: loop variables that became constants of their frames. hoisted_reads, hoisted_products: reads of variables and
    matrix products that were moved out of their loops.
    """

    freed_invariants: int
    hoisted_reads: int
    hoisted_products: int


def prepare(graph: Any, refusal: Callable[[bytes], str]) -> Prepared:
    """Runs all passes on a placed GraphDef, in place.

    refusal: maps a serialized NodeDef to the reason why TensorFlow cannot create its operator, "" if it can.
    """
    fused.take_apart(graph)
    rewrite.drop_reserve_spaces(graph)
    random_streams.own_streams(graph)
    rewrite.free_constants(graph)
    freed = invariants.free_invariants(graph)
    hoisted = reads.hoist_reads(graph)
    return Prepared(freed, hoisted, products.hoist_products(graph, refusal))
