"""Task splitting (AStitch, section 3.3): a few long rows keep only a few blocks busy, so each row is split among several blocks.

A reduction over rows of `length` elements becomes one over `rows x parts` chunks, whose partial results are combined afterwards:

    reduce(x[rows, length]) -> combine(reduce(x as [rows, parts, chunk]))

If there are few parts, every reader combines them for itself, element by element, without a further phase; many parts are reduced
once more. The parts depend on shapes and the device alone, and nothing is added up by atomics, so a result is the same in every
run. The paper splits if there are fewer rows than blocks that run at once, and rows are longer than 1024; we also require that
splitting saves more than the phase that it adds costs. Long columns are split as well if one group of threads, or one block,
would go down several of them in order: the columns of variadic reductions, and columns that are too many for one task.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ..ir.graph import DType, Graph, GraphBuilder, Literal, Node
from ..ops.reference import reduce_identity
from ..ops.table import build
from ..passes.simplify import replace_nodes
from ..support.sequences import zip_strict
from ..targets.targets import Target

LONG_REDUCTION: Final = 1024
"""A row with more elements may be split [AStitch section 3.3]."""
CHUNK_ALIGNMENT: Final = 32
"""If a row must be padded, a chunk's length is a multiple of this: the threads of a warp."""
MOST_COMBINED: Final = 8
"""With at most this many parts, readers combine them for themselves: that many loads per task."""
COLUMNS_OF_GROUP: Final = 64
"""Neighbouring columns of a variadic reduction per group of threads: two for each thread of a warp."""
GROUPS_OF_BLOCK: Final = 8
"""Warps of a usual block."""
COMBINE: Final = {"sum": "add", "product": "multiply", "max": "maximum", "min": "minimum", "and": "and", "or": "or"}


@dataclass(frozen=True)
class SplitDecision:
    """Whether a row reduction was split (`parts` above 1), and the reason in words."""

    node: str
    parts: int
    reason: str


def split_long_rows(graph: Graph, target: Target) -> tuple[Graph, tuple[SplitDecision, ...]]:
    """An equal graph (up to rounding) in which long rows are split, and the decision about each reduction of long rows."""
    decisions: dict[int, SplitDecision] = {}
    if not target.row_slots:
        return graph, ()
    for i, node in enumerate(graph.nodes):
        name, operand = f"%{i} {node.op} {node.type_text}", graph.nodes[node.operands[0]] if node.operands else node
        rows, columns, tall = _rows(graph, node), _columns(graph, node), _tall(graph, node, target)
        if rows is not None:
            decisions[i] = _decide(name, *rows, operand, target)
        elif columns is not None:
            decisions[i] = _decide_columns(name, *columns, operand, target)
        elif tall is not None:
            decisions[i] = _decide_tall(name, *tall, operand, target)
    if not any(decision.parts > 1 for decision in decisions.values()):
        return graph, tuple(decisions.values())

    def replacement(builder: GraphBuilder, i: int, renamed: Sequence[int]) -> int | None:
        node, parts = graph.nodes[i], decisions[i].parts if i in decisions else 1
        operands = tuple(renamed[operand] for operand in node.operands)
        return _Splitter(builder, node, operands, parts).result() if parts > 1 else None

    return replace_nodes(graph, replacement), tuple(decisions.values())


def _rows(graph: Graph, node: Node) -> tuple[int, int] | None:
    """(rows, length) of a reduction whose rows are long and consecutive in memory; else None."""
    if node.op not in ("reduce", "reduce_general"):
        return None
    dimensions = node.attributes["dimensions"]
    assert isinstance(dimensions, tuple)
    shape = graph.nodes[node.operands[0]].shape
    first = len(shape) - len(dimensions)
    if set(dimensions) != set(range(first, len(shape))):
        return None
    rows, length = math.prod(shape[:first]), math.prod(shape[first:])
    # A full reduction by a kind is cut into tasks anyway, each of which stores a partial result.
    alone = rows == 1 and node.op == "reduce"
    return (rows, length) if length > LONG_REDUCTION and rows and not alone else None


def _columns(graph: Graph, node: Node) -> tuple[int, int] | None:
    """(length, columns) of a variadic reduction of neighbouring columns, else None."""
    return _length_and_columns(graph, node) if node.op == "reduce_general" else None


def _tall(graph: Graph, node: Node, target: Target) -> tuple[int, int] | None:
    """(length, columns) of a reduction of neighbouring columns by a kind, if there are too many columns for one task; else it is cut
    into tasks anyway, each of which stores a partial result."""
    found = _length_and_columns(graph, node) if node.op == "reduce" else None
    return found if found is not None and found[1] * 4 > target.tile_bytes // 2 else None


def _length_and_columns(graph: Graph, node: Node) -> tuple[int, int] | None:
    dimensions = node.attributes["dimensions"]
    assert isinstance(dimensions, tuple)
    shape, first = graph.nodes[node.operands[0]].shape, len(dimensions)
    if set(dimensions) != set(range(first)) or first == len(shape):
        return None
    length, columns = math.prod(shape[:first]), math.prod(shape[first:])
    return (length, columns) if length > 1 and columns else None


def _decide_columns(name: str, length: int, columns: int, operand: Node, target: Target) -> SplitDecision:
    """A group of threads goes down some columns: first down one part of them, then over the parts' results. All parts have the same
    length: padding with the initial value is not allowed, since it need not leave other values unchanged in a variadic reduction."""
    groups, slots = -(-columns // COLUMNS_OF_GROUP), target.row_slots * GROUPS_OF_BLOCK
    numbers = f"{columns} columns of {length} on {slots} groups of threads"
    most = min(slots // groups, math.isqrt(length))
    parts = next((count for count in range(most, most // 4, -1) if count > 1 and length % count == 0), 1)
    if parts == 1:
        return SplitDecision(name, 1, f"{numbers}: no number of parts up to {most} divides them")
    alone_ns = length * COLUMNS_OF_GROUP * operand.dtype.size_bytes / (target.block_bytes_per_ns / GROUPS_OF_BLOCK)
    saved, cost = alone_ns * (1 - 1 / parts - parts / length), target.barrier_ns
    numbers = f"{numbers}: {parts} parts would save {saved / 1e3:.1f} us"
    if saved <= cost:
        return SplitDecision(name, 1, f"{numbers}, less than a phase's {cost / 1e3:.1f} us")
    return SplitDecision(name, parts, f"{numbers}, a phase costs {cost / 1e3:.1f} us")


def _decide_tall(name: str, length: int, columns: int, operand: Node, target: Target) -> SplitDecision:
    """A block goes down a run of columns: first down one part of them, then over the parts' results."""
    run = target.tile_bytes // 32  # as mapping_choice cuts them
    blocks, slots = -(-columns // run), target.row_slots
    numbers = f"{columns} columns of {length} on {slots} blocks"
    if 2 * blocks > slots:
        return SplitDecision(name, 1, f"{numbers}: {blocks} runs of columns keep them busy")
    most = min(slots, math.isqrt(length))
    parts = next((count for count in range(most, most // 4, -1) if count > 1 and length % count == 0), 1)
    if parts == 1:
        return SplitDecision(name, 1, f"{numbers}: no number of parts up to {most} divides them")
    alone_ns = length * min(run, columns) * operand.dtype.size_bytes / target.block_bytes_per_ns
    # besides the barrier, few blocks start anew to go down the parts' results
    saved, cost = alone_ns * (1 - 1 / parts - parts / length), 2 * target.barrier_ns
    numbers = f"{numbers}: {parts} parts would save {saved / 1e3:.1f} us"
    if saved <= cost:
        return SplitDecision(name, 1, f"{numbers}, less than a phase's {cost / 1e3:.1f} us")
    return SplitDecision(name, parts, f"{numbers}, a phase costs {cost / 1e3:.1f} us")


def _decide(name: str, rows: int, length: int, operand: Node, target: Target) -> SplitDecision:
    slots = target.row_slots
    if rows >= slots:
        return SplitDecision(name, 1, f"{rows} rows keep {slots} blocks busy")
    most = min(slots // rows, math.ceil(length / LONG_REDUCTION))
    if most < 2:
        return SplitDecision(name, 1, f"{slots} blocks are not two for each of {rows} rows")
    parts = next((count for count in range(most, most // 2, -1) if length % count == 0), most)
    alone_ns = length * operand.dtype.size_bytes / target.block_bytes_per_ns
    saved, cost = alone_ns * (1 - 1 / parts), target.barrier_ns
    numbers = f"{rows} rows of {length} on {slots} blocks: {parts} parts would save {saved / 1e3:.1f} us"
    if saved <= cost:
        return SplitDecision(name, 1, f"{numbers}, less than a phase's {cost / 1e3:.1f} us")
    return SplitDecision(name, parts, f"{numbers}, a phase costs {cost / 1e3:.1f} us")


class _Splitter:
    """Replaces one reduction by two."""

    def __init__(self, builder: GraphBuilder, node: Node, operands: tuple[int, ...], parts: int) -> None:
        self.builder, self.node, self.parts = builder, node, parts
        count = len(operands) // 2 if node.op == "reduce_general" else 1
        self.inputs, self.inits = operands[:count], operands[count:]
        shape = builder.nodes[operands[0]].shape
        dimensions = node.attributes["dimensions"]
        assert isinstance(dimensions, tuple)
        self.of_columns = 0 in dimensions and len(dimensions) < len(shape) and len(shape) - 1 not in dimensions
        self.rows = math.prod(node.shape)
        self.length = math.prod(shape) // self.rows
        self.chunk = -(-self.length // parts)
        if self.chunk * parts != self.length:
            self.chunk = -(-self.chunk // CHUNK_ALIGNMENT) * CHUNK_ALIGNMENT
            self.parts = -(-self.length // self.chunk)

    def build(self, op: str, *operands: int, **attributes: object) -> int:
        return build(self.builder, op, operands, **attributes)  # type: ignore[arg-type]

    def result(self) -> int:
        if self.node.op == "reduce_general":
            return self._general()
        kind, dtype = str(self.node.attributes["kind"]), self.node.dtype
        wide = dtype in (DType.F16, DType.BF16) and kind in ("sum", "product")
        (x,) = self.inputs
        if wide:  # partial results are not rounded to f16 or bf16
            x = self.build("convert", x, dtype=DType.F32)
        identity = reduce_identity(kind, self.builder.nodes[x].dtype)
        if self.of_columns:
            x = self.build("reshape", x, shape=(self.parts, self.chunk, self.rows))
            total = self.build(
                "reduce", self.build("reduce", x, dimensions=(1,), kind=kind), dimensions=(0,), kind=kind
            )
            total = self.build("reshape", total, shape=self.node.shape)
            return self.build("convert", total, dtype=dtype) if wide else total
        x = self._chunks(x, self.build("constant", literal=Literal(identity)))
        partial = self.build("reduce", x, dimensions=(2,), kind=kind)
        if self.parts <= MOST_COMBINED:
            total = self._tree(list(self._columns(partial)), COMBINE[kind])
        else:
            total = self.build("reduce", partial, dimensions=(1,), kind=kind)
        total = self.build("reshape", total, shape=self.node.shape)
        return self.build("convert", total, dtype=dtype) if wide else total

    def _general(self) -> int:
        body, number = self.node.attributes["body"], self.node.attributes["result"]
        if self.of_columns:
            return self._general_of_columns(body, number)
        x = [self._chunks(each, init) for each, init in zip_strict(self.inputs, self.inits)]
        partial = [
            self.build("reduce_general", *x, *self.inits, dimensions=(2,), body=body, result=k) for k in range(len(x))
        ]
        total = self.build("reduce_general", *partial, *self.inits, dimensions=(1,), body=body, result=number)
        return self.build("reshape", total, shape=self.node.shape)

    def _general_of_columns(self, body: object, number: object) -> int:
        shape = (self.parts, self.chunk, self.rows)
        x = [self.build("reshape", each, shape=shape) for each in self.inputs]
        partial = [
            self.build("reduce_general", *x, *self.inits, dimensions=(1,), body=body, result=k) for k in range(len(x))
        ]
        total = self.build("reduce_general", *partial, *self.inits, dimensions=(0,), body=body, result=number)
        return self.build("reshape", total, shape=self.node.shape)

    def _chunks(self, x: int, fill: int) -> int:
        """`x` as [rows, parts, chunk]; the last chunk of a row is padded with `fill`."""
        missing = self.parts * self.chunk - self.length
        if missing:
            x = self.build("reshape", x, shape=(self.rows, self.length))
            x = self.build("pad", x, fill, low=(0, 0), high=(0, missing), interior=(0, 0))
        return self.build("reshape", x, shape=(self.rows, self.parts, self.chunk))

    def _columns(self, partial: int) -> Iterator[int]:
        for k in range(self.parts):
            column = self.build("slice", partial, start=(0, k), limit=(self.rows, k + 1), strides=(1, 1))
            yield self.build("reshape", column, shape=(self.rows,))

    def _tree(self, values: list[int], op: str) -> int:
        while len(values) > 1:
            pairs = [self.build(op, a, b) for a, b in zip(values[::2], values[1::2])]
            values = pairs + values[len(pairs) * 2 :]
        return values[0]
