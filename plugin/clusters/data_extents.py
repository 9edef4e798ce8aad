"""Which operators have data-dependent extents: the number of distinct ids in a batch, the number of elements that a mask selects.

A kernel is built for the extents of its operands. If these are new at each step, no kernel is ready in time, and each request for one
costs processor time beside the job. The registry gives such a cluster up, but only after 64 requests. So operators with such extents
stay in TensorFlow from the beginning:

    Unique, Where, DynamicPartition, ...   their results have a data-dependent extent
    an operator that reads such a value    so have its results, unless its extents come from elsewhere: reductions, segment sums of
                                           a known number of segments, products over that extent
    Shape and Size of such a value         data-dependent integers; so are the integers that are computed from them
    Reshape, Fill, ... to such integers    the result has a data-dependent extent

If this cannot be decided (a reduction may keep the data-dependent extent), the operator is treated as an ordinary one, and the
registry's limit applies.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..base.dtypes import INDEX_INTEGERS
from ..graph.batch_products import BATCH_PRODUCT_OP, SUM_OF_PRODUCTS_OP
from ..graph.placed_graph import OpDefinitions, PlacedGraph, Port, small_constant
from ..graph.tf_ops import RULES, rule_of

REASON = "its extents are decided by the data"
_SOURCES: dict[str, tuple[int, ...] | None] = {
    **dict.fromkeys(("Unique", "UniqueV2"), (0,)),
    **dict.fromkeys(("UniqueWithCounts", "UniqueWithCountsV2"), (0, 2)),
    **dict.fromkeys(("Where", "DynamicPartition", "ListDiff", "SparseFillEmptyRows", "NonMaxSuppressionV3"), None),
}
"""Operator -> its outputs with a data-dependent extent; None: all outputs."""
_OWN_EXTENTS = frozenset("Sum Mean Prod Max Min All Any ArgMax ArgMin L2Loss BiasAddGrad Rank".split())
_NAMED_BY = {
    **dict.fromkeys((op for op in RULES if op.startswith("UnsortedSegment")), 2),
    **dict.fromkeys(("ScatterNd",), 2),
    **dict.fromkeys(("TensorScatterAdd", "TensorScatterSub", "TensorScatterUpdate"), 0),
}
"""Operator -> the operand that determines the extents of its result, by its values or by its own extents."""
_PRODUCTS = frozenset(
    ("MatMul", "_FusedMatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", BATCH_PRODUCT_OP, SUM_OF_PRODUCTS_OP)
)


def decided_by_data(graph: PlacedGraph, definitions: OpDefinitions, order: Sequence[int]) -> frozenset[int]:
    """The nodes that read or return a value with a data-dependent extent. order: all nodes, producers first."""
    if not any(node.op in _SOURCES for node in graph.nodes):
        return frozenset()
    extents: set[Port] = set()
    integers: set[Port] = set()
    found: set[int] = set()
    for i in order:
        node = graph.nodes[i]
        if node.op not in _SOURCES and not any(port in extents or port in integers for port in node.inputs):
            continue
        if definitions.find(node.op) is None:
            continue
        outputs = [Port(i, k) for k in range(len(definitions.outputs(node.proto)))]
        decided = _decided_outputs(graph, i, extents, integers)
        extents.update(outputs if decided is None else (outputs[k] for k in decided))
        if any(port in extents for port in (*node.inputs, *outputs)):
            found.add(i)
        counts = node.op in ("Shape", "ShapeN", "Size") and any(port in extents for port in node.inputs)
        if counts or any(port in integers for port in node.inputs):
            types = (dtype for _, _, dtype in definitions.outputs(node.proto))
            integers.update(
                port for port, dtype in zip(outputs, types) if dtype in INDEX_INTEGERS and port not in extents
            )
    return frozenset(found)


def _decided_outputs(graph: PlacedGraph, i: int, extents: set[Port], integers: set[Port]) -> tuple[int, ...] | None:
    """Which of a node's outputs have a data-dependent extent; None: all of them.

    extents: the ports found so far that have such an extent. integers: those that hold data-dependent integers.
    """
    node = graph.nodes[i]
    if node.op in _SOURCES:
        return _SOURCES[node.op]
    if node.op in ("Shape", "ShapeN", "Size"):
        return ()
    if node.op in _OWN_EXTENTS:
        # The data-dependent extent is nearly always the first: a reduction over other axes keeps it.
        axes = small_constant(graph, i, 1) if len(node.inputs) > 1 else None
        return None if axes is not None and axes.size and axes.min() > 0 and node.inputs[0] in extents else ()
    if node.op in _NAMED_BY:
        operand = node.inputs[_NAMED_BY[node.op]]
        return None if operand in integers or operand in extents else ()
    if node.op in _PRODUCTS:
        return None if (node.inputs[0] in extents) != (node.inputs[1] in extents) else ()
    if any(port in extents for port in node.inputs):
        return None
    rule = rule_of(node.proto)
    named = rule.values if rule is not None and node.op != "StridedSlice" else ()
    return None if any(node.inputs[k] in integers for k in named if -len(node.inputs) <= k < len(node.inputs)) else ()
