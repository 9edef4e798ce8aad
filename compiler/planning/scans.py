"""Windows that are prefixes: if all windows of a reduce_window begin at the first element (or all end at the last), it is a scan.

    tf.cumsum, jax.lax.cumsum:   reduce_window(x, size=n pad=n-1_0) -> scan(x), n additions instead of n * n / 2

XLA has no operator for scans: TensorFlow's lowering of Cumsum, Cumprod and Unique and JAX's of cumsum and cummax are such windows.
Each result is computed from the same elements; only the amount of work changes. On a CPU, a sum or product of floats that
overflows in order, as TensorFlow's operators compute it, is infinite from there on in a scan too, whatever the scan's own
order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from ..ir.graph import Graph, GraphBuilder, Literal, Node, Shape
from ..ops.attributes import window_of
from ..ops.reference import prefix_of, reduce_identity
from ..ops.table import build
from ..passes.simplify import replace_nodes
from ..targets.targets import GpuTarget, Target

SHORTEST_SCAN = 16
"""For shorter dimensions windows are cheaper: they are written out, and fused with what reads them."""
IDEMPOTENT = ("max", "min", "and", "or")
"""Kinds for which combining the initial value more than once changes nothing: a window contains it once per element of padding."""
SPLIT_ELEMENTS = 1 << 18
"""A scan with at least this many elements is split into parts: the elements are read twice, but several threads scan."""
BUSY_ROWS = 8
"""On a CPU, a scan over at least this many rows is not split: the rows keep the threads busy."""
PART = 1 << 15
"""Elements of a part."""


class _Scan(NamedTuple):
    """The attributes of a scan of `x`."""

    dimension: int
    kind: str
    reverse: bool
    exclusive: bool


def find_scans(graph: Graph, target: Target) -> Graph:
    """An equal graph, up to rounding, in which each reduce_window whose windows are prefixes has become a `scan`. Long scans are
    split into parts if the target gains by it."""
    if not any(node.op in ("reduce_window", "scan") for node in graph.nodes):
        return graph

    def replacement(builder: GraphBuilder, i: int, renamed: Sequence[int]) -> int | None:
        node = graph.nodes[i]
        operands = tuple(renamed[operand] for operand in node.operands)
        if node.op == "reduce_window":
            return _scan_of(builder, node, operands, target)
        if node.op == "slice" and (windows := _without_last(graph, node)) is not None:
            inputs = graph.nodes[node.operands[0]].operands
            return _scan_of(builder, windows, tuple(renamed[operand] for operand in inputs), target)
        if node.op == "scan":
            return _parted(builder, operands[0], operands[1], _attributes(node), target)
        return None

    return replace_nodes(graph, replacement)


def _without_last(graph: Graph, node: Node) -> Node | None:
    """TensorFlow's exclusive sums are windows with one result more than there are elements, which a slice removes. Returns the
    windows without that result; None for any other slice."""
    source = graph.nodes[node.operands[0]]
    prefix = None
    if source.op == "reduce_window":
        prefix = prefix_of(graph.nodes[source.operands[0]].shape, window_of(source), source.shape)
    if prefix is None or prefix.first != 0:
        return None
    start, limit = [0] * len(node.shape), list(source.shape)
    if prefix.reverse:
        start[prefix.dimension] = 1
    else:
        limit[prefix.dimension] -= 1
    strides = (1,) * len(node.shape)
    if (node.attributes["start"], node.attributes["limit"], node.attributes["strides"]) != (
        tuple(start),
        tuple(limit),
        strides,
    ):
        return None
    items = list(window_of(source))
    item = items[prefix.dimension]
    kept = (
        (item.padding_low, item.padding_high - 1) if not prefix.reverse else (item.padding_low - 1, item.padding_high)
    )
    items[prefix.dimension] = replace(item, padding_low=kept[0], padding_high=kept[1])
    attributes = MappingProxyType({**source.attributes, "window": tuple(items)})
    return replace(source, shape=node.shape, attributes=attributes)


def _attributes(node: Node) -> _Scan:
    dimension, kind, reverse, exclusive = (node.attributes[key] for key in _Scan._fields)
    assert isinstance(dimension, int)
    return _Scan(dimension, str(kind), bool(reverse), bool(exclusive))


def _scan_of(builder: GraphBuilder, node: Node, operands: tuple[int, ...], target: Target) -> int | None:
    x, init = operands
    source = builder.nodes[x]
    kind, prefix = str(node.attributes["kind"]), prefix_of(source.shape, window_of(node), node.shape)
    in_order = node.dtype.is_float and kind in ("sum", "product")
    if prefix is None or (source.shape[prefix.dimension] < SHORTEST_SCAN and not in_order):
        return None
    start = builder.nodes[init].attributes.get("literal")
    identity = reduce_identity(kind, node.dtype)
    is_identity = isinstance(start, Literal) and np.array_equal(start.value.reshape(()), identity)
    if kind not in IDEMPOTENT and not is_identity:
        return None
    dimension, extent = prefix.dimension, source.shape[prefix.dimension]
    exclusive = prefix.first == 0 and node.shape[dimension] == extent
    starts = _spread(builder, init, _without(source.shape, dimension))
    made = _parted(builder, x, starts, _Scan(dimension, kind, prefix.reverse, exclusive), target)
    if exclusive or (prefix.first == 1 and node.shape == source.shape):
        return made
    # Results before the first element are the start; results that are not needed are left out.
    before, after = 1 - prefix.first, node.shape[dimension] - extent - (1 - prefix.first)
    low, high, none = ([0] * len(source.shape) for _ in range(3))
    low[dimension], high[dimension] = (after, before) if prefix.reverse else (before, after)
    return build(builder, "pad", (made, init), low=tuple(low), high=tuple(high), interior=tuple(none))


def _without(shape: Shape, dimension: int) -> Shape:
    return shape[:dimension] + shape[dimension + 1 :]


def _spread(builder: GraphBuilder, scalar: int, shape: Shape) -> int:
    return build(builder, "broadcast", (scalar,), shape=shape, dimensions=()) if shape else scalar


def _parted(builder: GraphBuilder, x: int, starts: int, scan: _Scan, target: Target) -> int:
    """The scan; a long one is scanned in parts. The totals of the parts are scanned first and give the starts of the parts' own
    scans. This is not done for a sum or product of floats on a CPU, which might overflow in order but not in parts."""
    source = builder.nodes[x]
    on_gpu = isinstance(target, GpuTarget)
    in_order = source.dtype.is_float and scan.kind in ("sum", "product") and not on_gpu
    shape, dimension = source.shape, scan.dimension
    extent = shape[dimension]
    rows = source.element_count // max(extent, 1)
    count = min(source.element_count // PART, extent // SHORTEST_SCAN)
    parts = next((parts for parts in range(count, count // 2, -1) if extent % parts == 0), 1)
    busy_rows = target.row_slots // 2 if on_gpu else BUSY_ROWS
    if (
        in_order
        or source.element_count < SPLIT_ELEMENTS
        or _rows_of(shape, dimension) >= busy_rows
        or parts < 2
        or not rows
    ):
        return build(builder, "scan", (x, starts), **scan._asdict())
    apart = (*shape[:dimension], parts, extent // parts, *shape[dimension + 1 :])
    split = build(builder, "reshape", (x,), shape=apart)
    totals = build(builder, "reduce", (split,), dimensions=(dimension + 1,), kind=scan.kind)
    firsts = build(builder, "scan", (totals, starts), **scan._replace(exclusive=True)._asdict())
    inner = build(builder, "scan", (split, firsts), **scan._replace(dimension=dimension + 1)._asdict())
    return build(builder, "reshape", (inner,), shape=shape)


def _rows_of(shape: Shape, dimension: int) -> int:
    """Rows that threads could share: the elements before the dimension, times the cache lines after it."""
    rows = int(np.prod(shape[:dimension], dtype=np.int64))
    return rows * max(1, int(np.prod(shape[dimension + 1 :], dtype=np.int64)) // 16)
