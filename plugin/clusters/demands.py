"""Demands: what operators require of their operands' values. If one is not met, TensorFlow raises an error; a kernel would go on.

    indices of a gather, labels of a cross-entropy     0 <= i < extent of the axis that they index
    segment ids                                        i < number of segments; negative ids are ignored
    divisors of integers                               not 0
    exponents of integers                              not negative

The compiled body (bodies.py) has the conjunction of its members' demands as an additional scalar result. The kernel computes it,
whether the operands are arguments or come from another member. If it is false, the Stitch op discards the kernel's results and runs
the job's own operators, which raise TensorFlow's error. A cluster with demands writes nothing in place.

On a GPU TensorFlow's operators raise no error. By their documentation, a gather returns zeros for an index out of range, a segment id
beyond the last is ignored as negative ones are, and a cross-entropy is NaN for a label out of range. XLA's operators do the same,
except for the gather, for which the body adds the zeros. The result of integer division and power depends on the hardware: these
operators stay in TensorFlow on a GPU.
"""

from __future__ import annotations

from typing import Any

from ..base.dtypes import DT_BOOL, DT_INT32, INDEX_INTEGERS, INTEGERS
from ..base.op_names import RESOURCE_GATHER
from ..graph.apply_ops import Expressions
from ..graph.placed_graph import NodeDef, PlacedGraph, small_constant

GATHERS = frozenset(("GatherV2", RESOURCE_GATHER))

_DIVISIONS = frozenset("Div FloorDiv FloorMod TruncateDiv TruncateMod Mod".split())
_SEGMENTS = frozenset("UnsortedSegmentSum UnsortedSegmentProd UnsortedSegmentMax UnsortedSegmentMin".split())
_INDEX_TYPE = {
    "GatherV2": "Tindices",
    RESOURCE_GATHER: "Tindices",
    "SparseSoftmaxCrossEntropyWithLogits": "Tlabels",
    **dict.fromkeys(_SEGMENTS, "Tindices"),
}


def has_demand(graph: PlacedGraph, index: int) -> bool:
    """Whether an operator has a demand. Division and power have none if their second operand is a constant that meets it."""
    node = graph.nodes[index].proto
    if node.op in _INDEX_TYPE:
        return True
    if node.op not in _DIVISIONS | {"Pow"} or node.attr["T"].type not in INTEGERS:
        return False
    operand = small_constant(graph, index, 1)
    if operand is None:
        return True
    return bool(((operand < 0) if node.op == "Pow" else (operand == 0)).any())


def why_not(graph: PlacedGraph, index: int) -> str | None:
    """Why the demand of an operator cannot be computed, for people; None if it can, or if the operator has none."""
    node = graph.nodes[index].proto
    if node.op in _INDEX_TYPE and node.attr[_INDEX_TYPE[node.op]].type not in INDEX_INTEGERS:
        return "an element type that its kernel does not have"
    if node.op == "GatherV2" and small_constant(graph, index, 2) is None:
        return "its axis is not a constant"
    return None


def is_defined_on_gpu(graph: PlacedGraph, index: int) -> bool:
    """Whether an operator with a demand has, on a GPU, a documented result if it is not met, which a body can compute too."""
    node = graph.nodes[index].proto
    return node.op in _INDEX_TYPE and (node.op not in GATHERS or batch_dims(node) == 0)


def add_zeros(function: Any, name: str, graph: PlacedGraph, index: int, operands: list[str], gathered: str) -> None:
    """Appends node `name` to a FunctionDef: a gather's result `gathered`, with zeros for each index out of range.

    index: the gather's node in `graph`. operands: names of the gather's operands.
    """
    dtype = _index_type(graph, index)
    counted, axis = _counted(graph, index)
    check = Expressions(function, f"{name}_inside", dtype)
    inside = _is_inside(check, graph, index, operands)
    integers = check.of(DT_INT32)
    shape = _shape(check, operands[0], counted, DT_INT32)

    def ones(begin: int, end: int) -> str:
        """A vector of ones, one for each axis of the indexed operand from `begin` to before `end`."""
        return integers.node("OnesLike", "y", f"{_slice(check, shape, begin, end, DT_INT32).name}:output:0")

    last = (1 << 31) - 1
    parts = [
        ones(0, axis),
        _shape(check, operands[1], dtype, DT_INT32),
        ones(last if axis == -1 else axis + 1, last),
    ]
    spread = check.bare("ConcatV2", *parts, integers.constant(0))
    spread.attr["T"].type, spread.attr["Tidx"].type, spread.attr["N"].i = DT_INT32, DT_INT32, len(parts)
    mask = check.bare("Reshape", inside, f"{spread.name}:output:0")
    mask.attr["T"].type, mask.attr["Tshape"].type = DT_BOOL, DT_INT32
    zeros = check.of(counted).node("ZerosLike", "y", gathered)
    result = function.node_def.add(name=name, op="SelectV2", input=[f"{mask.name}:output:0", gathered, zeros])
    result.attr["T"].type = counted


def add_demand(function: Any, name: str, graph: PlacedGraph, index: int, operands: list[str]) -> str:
    """Appends the nodes that compute a member's demand to a FunctionDef. Returns the name of the result, a bool scalar.

    name: the member's name in the function. index: its node in `graph`. operands: names of its operands.
    """
    node = graph.nodes[index].proto
    if node.op in _INDEX_TYPE:
        dtype = _index_type(graph, index)
        check = Expressions(function, f"{name}_demand", dtype)
        if node.op in _SEGMENTS:
            limit = operands[2]
            given = node.attr["Tnumsegments"].type if "Tnumsegments" in node.attr else DT_INT32
            if given != dtype:
                limit = check.cast(limit, given, dtype)
            holds = check.node("Less", "z", operands[1], limit)
        else:
            holds = _is_inside(check, graph, index, operands)
    else:
        check = Expressions(function, f"{name}_demand", int(node.attr["T"].type))
        holds = check.node("NotEqual" if node.op in _DIVISIONS else "GreaterEqual", "z", operands[1], check.constant(0))
    return _everywhere(check, holds)


def _is_inside(check: Expressions, graph: PlacedGraph, index: int, operands: list[str]) -> str:
    """The name of a bool tensor: which of the indices are in range. check: Expressions of the indices' dtype."""
    counted, axis = _counted(graph, index)
    limit = _extent(check, operands[0], counted, axis, _index_type(graph, index))
    low = check.node("GreaterEqual", "z", operands[1], check.constant(0))
    return both(check, low, check.node("Less", "z", operands[1], limit))


def _index_type(graph: PlacedGraph, index: int) -> int:
    """DataType number of an operator's indices."""
    node = graph.nodes[index].proto
    return int(node.attr[_INDEX_TYPE[node.op]].type)


def _counted(graph: PlacedGraph, index: int) -> tuple[int, int]:
    """(DataType number of the first operand, the axis of it that the second operand indexes)."""
    node = graph.nodes[index].proto
    if node.op == "GatherV2":
        return int(node.attr["Tparams"].type), int(small_constant(graph, index, 2))  # type: ignore[arg-type]  # why_not: constant
    if node.op == RESOURCE_GATHER:
        return int(node.attr["dtype"].type), batch_dims(node)
    return int(node.attr["T"].type), 1


def batch_dims(node: NodeDef) -> int:
    """The attribute batch_dims of a gather; 0 if it has none (reading a missing attribute of a NodeDef would create it)."""
    return int(node.attr["batch_dims"].i) if "batch_dims" in node.attr else 0


def both(expressions: Expressions, first: str, second: str) -> str:
    """The conjunction of two bool tensors."""
    return f"{expressions.bare('LogicalAnd', first, second).name}:z:0"


def _extent(expressions: Expressions, value: str, value_dtype: int, axis: int, dtype: int) -> str:
    """The extent of an axis (negative: from the end) as a scalar of `dtype`."""
    extent = _slice(expressions, _shape(expressions, value, value_dtype, dtype), axis, axis + 1, dtype)
    extent.attr["shrink_axis_mask"].i = 1
    return f"{extent.name}:output:0"


def _shape(expressions: Expressions, value: str, value_dtype: int, dtype: int) -> str:
    """The shape as a vector of `dtype`."""
    node = expressions.bare("Shape", value)
    node.attr["T"].type, node.attr["out_type"].type = value_dtype, dtype
    return f"{node.name}:output:0"


def _slice(expressions: Expressions, vector: str, begin: int, end: int, dtype: int) -> NodeDef:
    """The operator that takes a vector's elements from `begin` to `end`."""
    integers = expressions.of(DT_INT32)
    bounds = (integers.constant([place]) for place in (begin, end, 1))
    node = expressions.bare("StridedSlice", vector, *bounds)
    node.attr["T"].type, node.attr["Index"].type = dtype, DT_INT32
    return node


def _everywhere(expressions: Expressions, holds: str) -> str:
    """A bool scalar: whether all elements of a bool tensor are true."""
    integers = expressions.of(DT_INT32)
    flat = expressions.bare("Reshape", holds, integers.constant([-1]))
    flat.attr["T"].type, flat.attr["Tshape"].type = DT_BOOL, DT_INT32
    all_ = expressions.bare("All", f"{flat.name}:output:0", integers.constant([0]))
    all_.attr["Tidx"].type = DT_INT32
    return f"{all_.name}:output:0"
