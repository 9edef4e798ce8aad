"""The passes over a placed graph before its clusters are found. They do not change what the graph computes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from ..arms import random_streams
from ..clusters import resizes, rewrite
from ..graph import batch_products, constants, convolution_gradients, einsums, fused, memory_bound, small_products
from ..graph.node_defs import RefusalOf
from ..while_loops import invariants, products, reads


@dataclass(frozen=True)
class LoopChanges:
    """What the passes on loops changed, as numbers of nodes.

    freed_invariants: loop variables that became constants of their frames. hoisted_reads, hoisted_products: reads of variables and
    matrix products that were moved out of their loops.
    """

    freed_invariants: int
    hoisted_reads: int
    hoisted_products: int


def prepare(
    graph: Any,
    refusal_of: RefusalOf,
    operand_shapes: memory_bound.OperandShapes,
    preserve: Collection[str],
    products_in_kernels: str = "loops",
) -> LoopChanges:
    """Runs all passes on a placed GraphDef, in place.

    refusal_of: maps a serialized NodeDef to the reason why TensorFlow cannot create its operator, "" if it can. operand_shapes: what
    is known of the shapes in the graph as it is given. preserve: names of nodes that must stay. products_in_kernels: the setting
    `products`.
    """
    if products_in_kernels != "0":
        memory_bound.mark(graph, operand_shapes)
    convolution_gradients.give_second_kernels(graph, refusal_of, operand_shapes)
    batch_products.give_second_kernels(graph, refusal_of, operand_shapes, preserve)
    resizes.mark(graph, operand_shapes)
    einsums.expand(graph, refusal_of)
    fused.take_apart(graph)
    rewrite.drop_reserve_spaces(graph)
    random_streams.own_streams(graph)
    constants.free_constants(graph)
    freed = invariants.free_invariants(graph)
    hoisted = reads.hoist_reads(graph)
    rows = products.hoist_products(graph, refusal_of)
    if products_in_kernels != "0":
        small_products.mark(graph, operand_shapes, everywhere=products_in_kernels == "all")
    return LoopChanges(freed, hoisted, rows)
