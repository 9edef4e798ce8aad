"""What operators demand of their operands' values: where TensorFlow raises an error, a kernel would compute something.

    indices of a gather, labels of a cross-entropy     0 <= i < the extent that they count
    segments                                           i < their number; negative ones are left out
    divisors of integers                               not 0
    exponents of integers                              not negative

The compiled body (bodies.py) has the conjunction of its members' demands as one more result, a scalar, computed in the kernel itself
whether its operands come from outside or from another member. Where it is false the Stitch op throws the kernel's results away and
runs the job's own operators, which raise their error in TensorFlow's words. Nothing of such a cluster is written in place.

On a GPU TensorFlow's operators raise nothing: a gather's row without its index is zeros, a segment beyond the last is left out as
negative ones are, a cross-entropy without its label is NaN, their documentation says. XLA's operators do the same but for the gather,
whose zeros the body adds. Divisors and exponents give what the hardware gives: these operators stay TensorFlow's there.
"""

from __future__ import annotations

from typing import Any

from ..graph.apply_ops import Expressions
from ..graph.dtypes import DT_BOOL, DT_INT32, DT_INT64
from ..graph.placed_graph import NodeDef, PlacedGraph, small_constant

INTEGERS = frozenset((3, 4, 5, 6, 9, 17, 22, 23))
RESOURCE_GATHER = "ResourceGather"
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
    """Whether it depends on its operands' values that the operator works."""
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
    """Why the demand of an operator cannot be computed, where it cannot; for people."""
    node = graph.nodes[index].proto
    if node.op in _INDEX_TYPE and node.attr[_INDEX_TYPE[node.op]].type not in (DT_INT32, DT_INT64):
        return "an element type that its kernel does not have"
    if node.op == "GatherV2" and small_constant(graph, index, 2) is None:
        return "its axis is not a constant"
    return None


def is_defined_on_gpu(graph: PlacedGraph, index: int) -> bool:
    """Whether an operator that demands something has a documented result on a GPU without it, which a body can have too."""
    node = graph.nodes[index].proto
    return node.op in _INDEX_TYPE and (node.op not in GATHERS or batch_dims(node) == 0)


def add_zeros(function: Any, name: str, graph: PlacedGraph, index: int, operands: list[str], gathered: str) -> None:
    """Appends to a FunctionDef, as `name`, a gather's result with zeros where there is no such index. operands: the gather's."""
    dtype = _index_type(graph, index)
    counted, axis = _counted(graph, index)
    check = Expressions(function, f"{name}_inside", dtype)
    inside = _is_inside(check, graph, index, operands)
    integers = check.of(DT_INT32)
    shape = _shape(check, operands[0], counted, DT_INT32)

    def ones(begin: int, end: int) -> str:
        """As many as the counted operand has axes from `begin` to `end`."""
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
    """Appends to a FunctionDef what computes a member's demand; returns the scalar's name. operands: the member's, by name."""
    node = graph.nodes[index].proto
    if node.op in _INDEX_TYPE:
        dtype = _index_type(graph, index)
        check = Expressions(function, f"{name}_demand", dtype)
        if node.op in _SEGMENTS:
            limit = operands[2]
            given = node.attr["Tnumsegments"].type if "Tnumsegments" in node.attr else DT_INT32
            if given != dtype:
                limit = _cast(check, limit, given, dtype)
            holds = check.node("Less", "z", operands[1], limit)
        else:
            holds = _is_inside(check, graph, index, operands)
    else:
        check = Expressions(function, f"{name}_demand", int(node.attr["T"].type))
        holds = check.node("NotEqual" if node.op in _DIVISIONS else "GreaterEqual", "z", operands[1], check.constant(0))
    return _everywhere(check, holds)


def _is_inside(check: Expressions, graph: PlacedGraph, index: int, operands: list[str]) -> str:
    """Which of the indices are of places that there are. check: of their dtype."""
    counted, axis = _counted(graph, index)
    limit = _extent(check, operands[0], counted, axis, _index_type(graph, index))
    low = check.node("GreaterEqual", "z", operands[1], check.constant(0))
    return both(check, low, check.node("Less", "z", operands[1], limit))


def _index_type(graph: PlacedGraph, index: int) -> int:
    """DataType number of an operator's indices."""
    node = graph.nodes[index].proto
    return int(node.attr[_INDEX_TYPE[node.op]].type)


def _counted(graph: PlacedGraph, index: int) -> tuple[int, int]:
    """DataType number of the first operand, and its axis whose places the second one's indices are."""
    node = graph.nodes[index].proto
    if node.op == "GatherV2":
        return int(node.attr["Tparams"].type), int(small_constant(graph, index, 2))  # type: ignore[arg-type]  # why_not
    if node.op == RESOURCE_GATHER:
        return int(node.attr["dtype"].type), batch_dims(node)
    return int(node.attr["T"].type), 1


def batch_dims(node: NodeDef) -> int:
    """A gather's; 0 where it has no such attribute (asking a NodeDef for an attribute would make one)."""
    return int(node.attr["batch_dims"].i) if "batch_dims" in node.attr else 0


def both(expressions: Expressions, one: str, other: str) -> str:
    """The conjunction of two tensors of bool."""
    return f"{expressions.bare('LogicalAnd', one, other).name}:z:0"


def _cast(expressions: Expressions, value: str, source: int, target: int) -> str:
    node = expressions.bare("Cast", value)
    node.attr["SrcT"].type, node.attr["DstT"].type = source, target
    return f"{node.name}:y:0"


def _extent(expressions: Expressions, value: str, value_dtype: int, axis: int, dtype: int) -> str:
    """The extent of an axis (negative: from the end) as a scalar of `dtype`."""
    one = _slice(expressions, _shape(expressions, value, value_dtype, dtype), axis, axis + 1, dtype)
    one.attr["shrink_axis_mask"].i = 1
    return f"{one.name}:output:0"


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
    """Whether a tensor of bool is true in every place."""
    integers = expressions.of(DT_INT32)
    flat = expressions.bare("Reshape", holds, integers.constant([-1]))
    flat.attr["T"].type, flat.attr["Tshape"].type = DT_BOOL, DT_INT32
    all_ = expressions.bare("All", f"{flat.name}:output:0", integers.constant([0]))
    all_.attr["Tidx"].type = DT_INT32
    return f"{all_.name}:output:0"
