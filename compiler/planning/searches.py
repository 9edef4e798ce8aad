"""The position of the largest or smallest element of a row, as two reductions instead of one.

HLO writes argmax as a variadic reduction of pairs (value, position). Computed in order, a row is a chain of comparisons, each of
which waits for the one before: 0.8 ns an element. On a CPU a row becomes

    m = reduce max (x)                      in lanes
    reduce min (select(x == m, iota, last)) in lanes; the row is still in the cache

The position is the same, ties included, if no element is NaN; a graph in which one may be keeps the variadic reduction (for a job's
ArgMax none is: plugin/clusters/rare_data.py). So does a search along a dimension that is not the last one, whose results are side by
side and are computed as lanes already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from ..ir.graph import DType, Graph, GraphBuilder, Literal, Node
from ..ops.attributes import attribute, integers
from ..ops.reference import reduce_identity
from ..ops.table import build
from ..passes.simplify import replace_nodes
from ..targets.targets import GpuTarget, Target

NO_POSITION: Final = np.iinfo(np.int32).max - 1
"""Stands for a position where an element is not the extreme. It is not the largest integer, from which the minimum starts: of a
minimum with that g++ 12 makes a branch, and no vectors."""
_MIRRORED: Final = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "EQ": "EQ", "NE": "NE"}
"""A comparison with its operands the other way round."""


def searches_as_reductions(graph: Graph, target: Target) -> Graph:
    """An equal graph in which positions of extremes of rows are found by two reductions each. A GPU's graph stays."""
    if isinstance(target, GpuTarget) or not any(node.op == "reduce_general" for node in graph.nodes):
        return graph

    # Where the extreme itself is wanted too, both come from one pass.
    with_value = {
        node.operands for node in graph.nodes if node.op == "reduce_general" and attribute(node, "result", int) != 1
    }

    def replacement(builder: GraphBuilder, i: int, renamed: Sequence[int]) -> int | None:
        node = graph.nodes[i]
        kind = None if node.operands in with_value else _searched(graph, node)
        return None if kind is None else _as_reductions(builder, node, renamed[node.operands[0]], kind)

    return replace_nodes(graph, replacement)


def _searched(graph: Graph, node: Node) -> str | None:
    """ "max" or "min" if `node` is the position of the first extreme of each row; else None."""
    if node.op != "reduce_general" or len(node.operands) != 4 or attribute(node, "result", int) != 1:
        return None
    values, positions, first_value, first_position = (graph.nodes[operand] for operand in node.operands)
    (*dimensions,) = integers(node, "dimensions")
    last = len(values.shape) - 1
    if dimensions != [last] or positions.op != "iota" or attribute(positions, "dimension", int) != last:
        return None
    if not node.dtype.is_integer or _may_be_nan(graph, node.operands[0]) or values.shape[last] > NO_POSITION:
        return None
    kind = _kind_of(attribute(node, "body", Graph))
    if kind is None or not _is_constant(first_position, 0):
        return None
    return kind if _is_constant(first_value, reduce_identity(kind, values.dtype)) else None


def _is_constant(node: Node, value: object) -> bool:
    return node.op == "constant" and bool(np.all(attribute(node, "literal", Literal).value == value))


def _kind_of(body: Graph) -> str | None:
    """Which pair the scalar graph of (value, position) twice returns, for values that are not NaN: "max" if the larger one, "min" if
    the smaller one, the first of equal ones."""
    larger, smaller, equal = (_cases(body, order) for order in (1, -1, 0))
    if equal is None or equal[1] != "first position":
        return None
    first, second = ("first value", "first position"), ("second value", "second position")
    if (larger, smaller) == (first, second):
        return "max"
    return "min" if (larger, smaller) == (second, first) else None


def _cases(body: Graph, order: int) -> tuple[object, ...] | None:
    """What the scalar graph returns, in names of its parameters, if the first value is larger than the second (order 1), smaller (-1)
    or equal (0), and the first position is not behind the second; None if that depends on more."""
    names = ("first value", "first position", "second value", "second position")
    found: list[object] = []
    for node in body.nodes:
        operands = [found[operand] for operand in node.operands]
        if any(operand is None for operand in operands):
            found.append(None)
        elif node.op == "parameter":
            found.append(names[attribute(node, "number", int)])
        elif node.op == "select":
            found.append(operands[1] if operands[0] is True else operands[2] if operands[0] is False else None)
        elif node.op in ("and", "or", "not") and all(isinstance(operand, bool) for operand in operands):
            rules: dict[str, Callable[[list[object]], bool]] = {
                "and": all,
                "or": any,
                "not": lambda given: not given[0],
            }
            found.append(rules[node.op](operands))
        elif node.op == "compare":
            found.append(_compared(operands, attribute(node, "direction", str), order))
        elif node.op == "minimum" and set(operands) <= {"first position", "second position"}:
            found.append("first position" if "first position" in operands else "second position")
        else:
            found.append(None)
    outputs = tuple(found[output] for output in body.outputs)
    return None if None in outputs else outputs


def _compared(operands: Sequence[object], direction: str, order: int) -> bool | None:
    """The result of a comparison of parameters; None if it is not known."""
    left, right = operands
    if left == right and isinstance(left, str):
        return direction in ("EQ", "LE", "GE")
    if operands == ["second value", "first value"]:
        direction = _MIRRORED[direction]
    elif operands != ["first value", "second value"]:
        return None
    holds = {"LT": order < 0, "LE": order <= 0, "GT": order > 0, "GE": order >= 0, "EQ": order == 0, "NE": order != 0}
    return holds[direction]


def _may_be_nan(graph: Graph, i: int) -> bool:
    """False if no element of a node is NaN, whatever the parameters hold."""
    node = graph.nodes[i]
    if not node.dtype.is_float:
        return False
    if node.op in ("broadcast", "reshape", "transpose", "copy"):
        return _may_be_nan(graph, node.operands[0])
    if node.op == "constant":
        return bool(np.isnan(attribute(node, "literal", Literal).value.astype(np.float64)).any())
    if node.op == "convert":
        return _may_be_nan(graph, node.operands[0])
    if node.op == "select":
        condition, chosen, other = node.operands
        compare = graph.nodes[condition]
        is_ordered = compare.op == "compare" and attribute(compare, "direction", str) != "NE"
        if is_ordered and not compare.attributes.get("total_order") and chosen in compare.operands:
            return _may_be_nan(graph, other)  # no comparison with a NaN holds
        return _may_be_nan(graph, chosen) or _may_be_nan(graph, other)
    return True


def _as_reductions(builder: GraphBuilder, node: Node, values: int, kind: str) -> int:
    whole = builder.nodes[values].shape
    last = len(whole) - 1
    extreme = build(builder, "reduce", (values,), dimensions=(last,), kind=kind)
    beside = build(builder, "broadcast", (extreme,), shape=whole, dimensions=tuple(range(last)))
    is_extreme = build(builder, "compare", (values, beside), direction="EQ", total_order=False)
    positions = build(builder, "iota", shape=whole, dtype=DType.S32, dimension=last)
    none = build(builder, "constant", literal=Literal(np.array(NO_POSITION, np.int32)))
    beyond = build(builder, "broadcast", (none,), shape=whole, dimensions=())
    candidates = build(builder, "select", (is_extreme, positions, beyond))
    found = build(builder, "reduce", (candidates,), dimensions=(last,), kind="min")
    return found if node.dtype is DType.S32 else build(builder, "convert", (found,), dtype=node.dtype)
