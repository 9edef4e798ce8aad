"""Cleans up a graph. It removes what a lowering leaves behind (identity reshapes and converts, broadcasts of broadcasts,
constants that are converted at run time, duplicates, dead code) and changes nothing else.

TensorFlow's lowering wraps each broadcast in two reshapes and each reduce in two converts; the planner should see a reduce
that is broadcast. Every rule is exact, that is, it gives the same bits, with two exceptions: integer powers of floats become
products (each rounds within half a unit in the last place; a pow may err by more), and erf that was written out becomes the
op erf (`written_out`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from ..ir.graph import Array, Attribute, Graph, GraphBuilder, Literal, Node
from ..ops.attributes import attribute, integers
from ..ops.interpreter import native_value
from ..ops.table import OPS
from ..support.sequences import pairwise, zip_strict
from .written_out import erf_argument

_FOLDABLE: Final = ("broadcast", "reshape", "transpose")
"""Ops that, like element-wise ops, are folded if their operands are constants of one element."""

MOST_JOINED: Final = 100
"""The most ops, one after the other, on parts that are joined. The rule calls itself for each."""


def simplify(graph: Graph) -> Graph:
    """An equal graph (see the module for two exceptions) without needless nodes. Parameters and outputs keep their numbers and
    order."""
    rewriter = _Rewriter(graph.name)
    for node in graph.nodes:
        rewriter.add(node)
    return prune(rewriter.builder.finish(rewriter.renamed[output] for output in graph.outputs))


def prune(graph: Graph) -> Graph:
    """`graph` without the nodes that no output needs. Parameters stay: their numbers are the kernel's signature."""
    needed = set(graph.outputs) | {i for i, node in enumerate(graph.nodes) if node.op == "parameter"}
    for i in range(len(graph.nodes) - 1, -1, -1):
        if i in needed:
            needed.update(graph.nodes[i].operands)
    renamed: dict[int, int] = {}
    builder = GraphBuilder(graph.name)
    for i in sorted(needed):
        node = graph.nodes[i]
        operands = tuple(renamed[operand] for operand in node.operands)
        renamed[i] = builder.add(node.op, operands, node.shape, node.dtype, node.name, **node.attributes)
    return builder.finish(renamed[output] for output in graph.outputs)


def replace_nodes(graph: Graph, replacement: Callable[[GraphBuilder, int, Sequence[int]], int | None]) -> Graph:
    """The graph with some nodes replaced, without those that no output needs afterwards. replacement(builder, i, renamed): adds to
    `builder` what stands for node i, and returns its index, or None if the node stays; `renamed` has the new index of each node
    before it."""
    builder = GraphBuilder(graph.name)
    renamed: list[int] = []
    for i, node in enumerate(graph.nodes):
        made = replacement(builder, i, renamed)
        if made is None:
            operands = tuple(renamed[operand] for operand in node.operands)
            made = builder.add(node.op, operands, node.shape, node.dtype, node.name, **node.attributes)
        renamed.append(made)
    return prune(builder.finish(renamed[output] for output in graph.outputs))


class _Rewriter:
    """Rebuilds a graph node by node. A rule may replace a node by an existing node, or by an op to build instead."""

    def __init__(self, name: str) -> None:
        self.builder = GraphBuilder(name)
        self.renamed: list[int] = []
        self.known: dict[tuple[object, ...], int] = {}
        """What was emitted, and the node that stands for it."""
        self.joining = 0
        """How deep the rule of joined ops (`_op_of_joined`) is in the ops that the joined ones read."""

    def add(self, node: Node) -> None:
        operands = tuple(self.renamed[operand] for operand in node.operands)
        self.renamed.append(self.emit(Node(node.op, operands, node.shape, node.dtype, node.attributes, node.name)))

    def emit(self, node: Node) -> int:
        """The index of a node equal to `node` (whose operands are indices of the new graph)."""
        if node.op == "parameter":
            return self.builder.add(node.op, (), node.shape, node.dtype, node.name, **node.attributes)
        key = (node.op, node.operands, node.shape, node.dtype, _key(node.attributes))
        if key not in self.known:
            rule = _RULES.get(node.op)
            replaced = rule(self, node) if rule is not None else None
            if replaced is None:
                replaced = self.fold(node)
            if replaced is None:
                replaced = self.builder.add(
                    node.op, node.operands, node.shape, node.dtype, node.name, **node.attributes
                )
            self.known[key] = replaced
        return self.known[key]

    def make(self, op: str, operands: tuple[int, ...], like: Node, **attributes: Attribute) -> int:
        """Emits an op with the shape, dtype and name of `like`, and returns its index."""
        return self.emit(Node(op, operands, like.shape, like.dtype, MappingProxyType(attributes), like.name))

    def source(self, node: Node, position: int = 0) -> Node:
        return self.builder.nodes[node.operands[position]]

    def constant_of(self, index: int) -> Array | None:
        """The value that all elements of a node share, as an array of shape (); None if it is not known."""
        node = self.builder.nodes[index]
        while node.op in ("broadcast", "reshape"):
            node = self.builder.nodes[node.operands[0]]
        literal = node.attributes.get("literal")
        if not isinstance(literal, Literal) or literal.value.size != 1:
            return None
        return literal.value.reshape(())

    def scalar_of(self, index: int) -> int | None:
        """The node of shape () that a node repeats for all its elements; None if there is none."""
        node = self.builder.nodes[index]
        while node.op in ("broadcast", "reshape") and node.shape:
            index = node.operands[0]
            node = self.builder.nodes[index]
        return None if node.shape else index

    def fold(self, node: Node) -> int | None:
        """Evaluates an op on constants of one element: the index of the constant, or None if the op cannot be folded."""
        row = OPS[node.op]
        if not node.operands or node.element_count != 1 or row.numpy is None:
            return None
        if not (row.elementwise or node.op in _FOLDABLE):
            return None
        sources = [self.builder.nodes[operand] for operand in node.operands]
        if any(source.op != "constant" or source.element_count != 1 for source in sources):
            return None
        literals = [attribute(source, "literal", Literal) for source in sources]
        value = native_value(node, sources, [literal.value for literal in literals])
        return self.make("constant", (), node, literal=Literal(value))


def _key(attributes: Mapping[str, Attribute]) -> tuple[object, ...]:
    """Attributes as a hashable key that compares by content."""
    items = []
    for name, value in sorted(attributes.items()):
        items.append((name, value.digest if isinstance(value, (Literal, Graph)) else value))
    return tuple(items)


# ---- rules: each returns the index of the node's replacement, or None to keep the node ------------------------------


def _reshape(rewriter: _Rewriter, node: Node) -> int | None:
    """reshape to the same shape: its operand. reshape of a reshape: one reshape. reshape of a splat: a smaller broadcast."""
    source = rewriter.source(node)
    if source.shape == node.shape:
        return node.operands[0]
    if source.op == "reshape":
        return rewriter.make("reshape", source.operands, node)
    if source.op == "broadcast" and rewriter.source(source).element_count == 1:
        scalar = rewriter.builder.nodes[source.operands[0]]
        if scalar.shape == ():
            return rewriter.make("broadcast", source.operands, node, dimensions=())
    return None


def _convert(rewriter: _Rewriter, node: Node) -> int | None:
    """convert to the same dtype: its operand. convert of a splat: a splat of the converted value."""
    source = rewriter.source(node)
    if source.dtype is node.dtype:
        return node.operands[0]
    if source.op == "broadcast" and rewriter.source(source).op == "constant":
        inner = rewriter.source(source)
        converted = rewriter.emit(Node("convert", source.operands, inner.shape, node.dtype, MappingProxyType({}), ""))
        return rewriter.make("broadcast", (converted,), node, **source.attributes)
    return None


def _copy(rewriter: _Rewriter, node: Node) -> int | None:
    """copy: its operand."""
    del rewriter
    return node.operands[0]


def _broadcast(rewriter: _Rewriter, node: Node) -> int | None:
    """broadcast that repeats nothing: a reshape. broadcast of a broadcast: one broadcast. broadcast of a reshape that only
    adds or removes dimensions of extent 1: a broadcast of the reshape's operand."""
    source = rewriter.source(node)
    if source.shape == node.shape:
        return node.operands[0]
    if source.element_count == node.element_count:
        return rewriter.make("reshape", node.operands, node)
    dimensions = integers(node, "dimensions")
    if source.op == "broadcast":
        inner = tuple(dimensions[to] for to in integers(source, "dimensions"))
        return rewriter.make("broadcast", source.operands, node, dimensions=inner)
    if source.op == "reshape" and source.element_count:
        inner_shape = rewriter.source(source).shape
        real = [(extent, to) for extent, to in zip_strict(source.shape, dimensions) if extent != 1]
        if [extent for extent in inner_shape if extent != 1] == [extent for extent, _ in real]:
            if all(extent != 1 for extent in inner_shape):
                return rewriter.make("broadcast", source.operands, node, dimensions=tuple(to for _, to in real))
            return None
    if 1 in source.shape and source.op != "reshape":
        # Dimensions of extent 1 carry no data. They are left out, so that equal broadcasts look equal.
        kept = [(extent, to) for extent, to in zip_strict(source.shape, dimensions) if extent != 1]
        small = Node(
            "reshape", node.operands, tuple(extent for extent, _ in kept), node.dtype, MappingProxyType({}), ""
        )
        return rewriter.make("broadcast", (rewriter.emit(small),), node, dimensions=tuple(to for _, to in kept))
    return None


def _transpose(rewriter: _Rewriter, node: Node) -> int | None:
    """transpose that moves nothing: its operand, or a reshape if only dimensions of extent 1 move. transpose of a transpose: one
    transpose."""
    source = rewriter.source(node)
    permutation = integers(node, "permutation")
    if permutation == tuple(range(len(permutation))):
        return node.operands[0]
    real = [i for i in permutation if source.shape[i] != 1]
    if real == sorted(real):
        return rewriter.make("reshape", node.operands, node)
    if source.op == "transpose":
        inner = integers(source, "permutation")
        return rewriter.make("transpose", source.operands, node, permutation=tuple(inner[i] for i in permutation))
    return None


def _slice(rewriter: _Rewriter, node: Node) -> int | None:
    """slice of everything: its operand. slice of one element of a constant: that element."""
    source = rewriter.source(node)
    if source.shape == node.shape:
        return node.operands[0]
    literal = source.attributes.get("literal")
    if node.element_count != 1 or not isinstance(literal, Literal):
        return None
    element = literal.value[integers(node, "start")].reshape(node.shape)
    return rewriter.make("constant", (), node, literal=Literal(element))


def _dynamic_slice(rewriter: _Rewriter, node: Node) -> int | None:
    """dynamic_slice whose starts are constants (`tf.roll` by a constant): a slice, its starts clamped as HLO's semantics say."""
    starts = [rewriter.constant_of(operand) for operand in node.operands[1:]]
    if any(start is None for start in starts):
        return None
    room = [whole - extent for whole, extent in zip_strict(rewriter.source(node).shape, node.shape)]
    first = tuple(min(max(int(start), 0), most) for start, most in zip_strict(starts, room) if start is not None)
    limit = tuple(start + extent for start, extent in zip_strict(first, node.shape))
    return rewriter.make("slice", node.operands[:1], node, start=first, limit=limit, strides=(1,) * len(first))


def _pad(rewriter: _Rewriter, node: Node) -> int | None:
    """pad by nothing: its operand."""
    del rewriter
    nothing = not any((*integers(node, "low"), *integers(node, "high"), *integers(node, "interior")))
    return node.operands[0] if nothing else None


def _concatenate(rewriter: _Rewriter, node: Node) -> int | None:
    """concatenate of one operand: that operand. concatenate of the slices of one tensor, in their order: that tensor, or a slice of
    it. If each slice is there several times in a row (`tf.keras.backend.repeat_elements`), a broadcast of it. If equal slices
    are joined along another dimension than they were cut (heads: `tf.concat(tf.split(x, 8, axis=2), axis=0)`), or are stacked (each
    is of extent 1, as `tf.stack` of `tf.split` does): a transpose of it. If what is joined is computed from such slices by one op:
    that op on what the slices are (the gradient of `repeat_elements`)."""
    if len(node.operands) == 1:
        return node.operands[0]
    whole = _op_of_joined(rewriter, node)
    if whole is None:
        whole = _strided(rewriter, node)
    if whole is not None:
        return whole
    distinct = [operand for operand, _ in itertools.groupby(node.operands)]
    times = len(node.operands) // len(distinct)
    parts = [rewriter.builder.nodes[operand] for operand in distinct]
    stacked = [part.op == "reshape" for part in parts]
    slices = [rewriter.source(part) if part.op == "reshape" else part for part in parts]
    if len(parts) == 1 or any(s.op != "slice" or s.operands != slices[0].operands for s in slices):
        return None
    if len(set(stacked)) > 1 or node.operands != tuple(operand for operand in distinct for _ in range(times)):
        return None
    axis = _axis_of_a_split(slices)
    if axis is None:
        return None
    first, last = integers(slices[0], "start"), integers(slices[-1], "limit")
    extents = tuple(end - begin for begin, end in zip_strict(first, last))
    to, each = attribute(node, "dimension", int), slices[0].shape[axis]
    kept = [i for i in range(len(extents)) if i != axis]
    if stacked[0]:
        # Where the stacked dimension goes among those kept, whatever dimensions of extent 1 are beside it.
        outer, inner = (_without_ones(part) for part in (node.shape[:to], node.shape[to + 1 :]))
        if any(s.shape[axis] != 1 for s in slices) or _without_ones(extents[i] for i in kept) != outer + inner:
            return None
        to = next(at for at in range(len(kept) + 1) if len(_without_ones(extents[i] for i in kept[:at])) == len(outer))
    elif (to != axis or times > 1) and any(s.shape[axis] != each for s in slices):
        return None

    def emit(op: str, operand: int, shape: Sequence[int], **attributes: Attribute) -> int:
        return rewriter.emit(Node(op, (operand,), tuple(shape), node.dtype, MappingProxyType(attributes), node.name))

    whole = emit("slice", slices[0].operands[0], extents, start=first, limit=last, strides=(1,) * len(extents))
    if to == axis and times == 1 and not stacked[0]:
        return whole
    # The slices' number as a dimension of its own, before their extent, goes where they are joined.
    cut = (*extents[:axis], len(slices), *([each] if each > 1 else []), *extents[axis + 1 :])
    to -= not stacked[0] and each == 1 and to > axis
    order = [i for i in range(len(cut)) if i != axis]
    order.insert(to, axis)
    moved = emit("transpose", emit("reshape", whole, cut), [cut[i] for i in order], permutation=tuple(order))
    spread = (*(cut[i] for i in order[: to + 1]), times, *(cut[i] for i in order[to + 1 :]))
    places = tuple(i for i in range(len(spread)) if i != to + 1)
    return rewriter.make("reshape", (emit("broadcast", moved, spread, dimensions=places),), node)


def _op_of_joined(rewriter: _Rewriter, node: Node) -> int | None:
    """concatenate of what one element-wise op makes of several operands, perhaps stacked: the op on the joined operands, if each
    of those is something else than a concatenate again."""
    parts = [rewriter.builder.nodes[operand] for operand in node.operands]
    made = [rewriter.source(part) if part.op == "reshape" else part for part in parts]
    first = made[0]
    if not OPS[first.op].elementwise or any(_form(one) != _form(first) for one in made):
        return None
    if rewriter.joining == MOST_JOINED:
        return None
    rewriter.joining += 1
    joined = _joined_operands(rewriter, node, parts, made)
    rewriter.joining -= 1
    return None if joined is None else rewriter.make(first.op, joined, node, **first.attributes)


def _joined_operands(
    rewriter: _Rewriter, node: Node, parts: Sequence[Node], made: Sequence[Node]
) -> tuple[int, ...] | None:
    """The operands of the ops `made`, joined as `node` joins the `parts`; None if one would be a concatenate."""
    joined = []
    for operands in zip_strict(*(one.operands for one in made)):
        dtype = rewriter.builder.nodes[operands[0]].dtype
        if any(rewriter.builder.nodes[operand].dtype is not dtype for operand in operands):
            return None
        scalar = rewriter.scalar_of(operands[0])
        if len(set(operands)) == 1 and scalar is not None:
            whole = Node("broadcast", (scalar,), node.shape, dtype, MappingProxyType({"dimensions": ()}), node.name)
        else:
            shaped = tuple(
                rewriter.emit(Node("reshape", (operand,), part.shape, dtype, MappingProxyType({}), node.name))
                for operand, part in zip_strict(operands, parts)
            )
            whole = Node("concatenate", shaped, node.shape, dtype, node.attributes, node.name)
        joined.append(rewriter.emit(whole))
        if rewriter.builder.nodes[joined[-1]].op == "concatenate":
            return None
    return tuple(joined)


def _form(node: Node) -> tuple[object, ...]:
    """What two nodes have in common if they compute the same of their operands, whose extents may differ."""
    return (node.op, node.dtype, len(node.operands), _key(node.attributes))


def _strided(rewriter: _Rewriter, node: Node) -> int | None:
    """concatenate of slices of one tensor, each of extent 1 and as far behind the one before: a slice with a stride."""
    parts = [rewriter.builder.nodes[operand] for operand in node.operands]
    axis = attribute(node, "dimension", int)
    first = parts[0]
    if any(part.op != "slice" or part.operands != first.operands or part.shape != first.shape for part in parts):
        return None
    starts = [integers(part, "start") for part in parts]
    step = starts[1][axis] - starts[0][axis]
    strides = integers(first, "strides")
    if first.shape[axis] != 1 or step < 1 or any(integers(part, "strides") != strides for part in parts):
        return None
    if any(start != _replaced(starts[0], axis, starts[0][axis] + i * step) for i, start in enumerate(starts)):
        return None
    limit = _replaced(integers(first, "limit"), axis, starts[-1][axis] + 1)
    return rewriter.make(
        "slice", first.operands, node, start=starts[0], limit=limit, strides=_replaced(strides, axis, step)
    )


def _axis_of_a_split(slices: Sequence[Node]) -> int | None:
    """The dimension along which slices of one tensor follow each other without a gap; None if they do not."""
    starts, limits = ([integers(s, name) for s in slices] for name in ("start", "limit"))
    moving = [i for i, (one, other) in enumerate(zip_strict(starts[0], starts[1])) if one != other]
    if len(moving) != 1 or any(stride != 1 for s in slices for stride in integers(s, "strides")):
        return None
    (axis,) = moving
    for before, after in pairwise(range(len(slices))):
        begins_there = starts[after] == _replaced(starts[before], axis, limits[before][axis])
        if not begins_there or limits[after] != _replaced(limits[before], axis, limits[after][axis]):
            return None
    return axis


def _replaced(place: tuple[int, ...], axis: int, value: int) -> tuple[int, ...]:
    return (*place[:axis], value, *place[axis + 1 :])


def _without_ones(extents: Iterable[int]) -> list[int]:
    return [extent for extent in extents if extent != 1]


def _reverse(rewriter: _Rewriter, node: Node) -> int | None:
    """reverse of dimensions of extent 1: its operand."""
    del rewriter
    return node.operands[0] if all(node.shape[i] == 1 for i in integers(node, "dimensions")) else None


def _reduce(rewriter: _Rewriter, node: Node) -> int | None:
    """reduce over dimensions of extent 1: a reshape."""
    source = rewriter.source(node)
    if all(source.shape[i] == 1 for i in integers(node, "dimensions")):
        return rewriter.make("reshape", node.operands, node)
    return None


def _multiply(rewriter: _Rewriter, node: Node) -> int | None:
    """multiply by one: the other operand."""
    for factor, other in (node.operands, node.operands[::-1]):
        value = rewriter.constant_of(factor)
        if value is not None and value == 1:
            return other
    return None


def _divide(rewriter: _Rewriter, node: Node) -> int | None:
    """divide by one: the dividend. divide by a power of two, whose reciprocal is exact: a multiply by the reciprocal. A quotient that
    is erf, written out: erf."""
    argument = erf_argument(rewriter.builder.nodes, rewriter.constant_of, node)
    if argument is not None:
        return rewriter.make("erf", (argument,), node)
    value = rewriter.constant_of(node.operands[1])
    if value is None:
        return None
    number = float(value)
    if number == 1:
        return node.operands[0]
    if node.dtype.is_float and np.isfinite(number) and number:
        mantissa, exponent = np.frexp(number)
        if abs(mantissa) == 0.5 and abs(int(exponent)) < 14:  # within f16's normal numbers
            literal = Literal(np.array(1 / number).astype(node.dtype.numpy))
            scalar = rewriter.emit(Node("constant", (), (), node.dtype, MappingProxyType({"literal": literal}), ""))
            if node.shape:
                scalar = rewriter.make("broadcast", (scalar,), node, dimensions=())
            return rewriter.make("multiply", (node.operands[0], scalar), node)
    return None


def _power(rewriter: _Rewriter, node: Node) -> int | None:
    """power of a float by 1, 2 or 3: products."""
    value = rewriter.constant_of(node.operands[1])
    if value is None or not node.dtype.is_float or float(value) not in (1.0, 2.0, 3.0):
        return None
    base = node.operands[0]
    result = base
    for _ in range(int(value) - 1):
        result = rewriter.make("multiply", (result, base), node)
    return result


def _select(rewriter: _Rewriter, node: Node) -> int | None:
    """select with a known predicate, or between two equal operands: the selected operand."""
    value = rewriter.constant_of(node.operands[0])
    if value is not None:
        return node.operands[1] if bool(value) else node.operands[2]
    return node.operands[1] if node.operands[1] == node.operands[2] else None


def _constant(rewriter: _Rewriter, node: Node) -> int | None:
    """A constant of many equal elements: a broadcast scalar."""
    literal = node.attributes["literal"]
    assert isinstance(literal, Literal)
    if literal.value.size < 2:
        return None
    bits: Any = np.ascontiguousarray(literal.value).reshape(-1).view(f"u{literal.value.dtype.itemsize}")
    if not (bits == bits[0]).all():
        return None
    first = Literal(literal.value.reshape(-1)[0].reshape(()))
    scalar = rewriter.emit(Node("constant", (), (), node.dtype, MappingProxyType({"literal": first}), node.name))
    return rewriter.make("broadcast", (scalar,), node, dimensions=())


_RULES: Final[Mapping[str, Callable[[_Rewriter, Node], int | None]]] = {
    "reshape": _reshape,
    "convert": _convert,
    "copy": _copy,
    "broadcast": _broadcast,
    "transpose": _transpose,
    "slice": _slice,
    "dynamic_slice": _dynamic_slice,
    "pad": _pad,
    "concatenate": _concatenate,
    "reverse": _reverse,
    "reduce": _reduce,
    "multiply": _multiply,
    "divide": _divide,
    "power": _power,
    "select": _select,
    "constant": _constant,
}
