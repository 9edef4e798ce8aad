"""Demands: what operators require of their operands' values. If one is not met, TensorFlow raises an error; a kernel would go on.

    indices of a gather, labels of a cross-entropy     0 <= i < extent of the axis that they index
    index vectors of GatherNd and ScatterNd            0 <= i[k] < extent of axis k
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
_LAST = (1 << 31) - 1
"""As the end of a slice: that of the vector."""
_OF_VECTORS = ("GatherNd", "ScatterNd")
_INDEX_TYPE = {
    "GatherV2": "Tindices",
    RESOURCE_GATHER: "Tindices",
    **dict.fromkeys(_OF_VECTORS, "Tindices"),
    "SparseSoftmaxCrossEntropyWithLogits": "Tlabels",
    **dict.fromkeys(_SEGMENTS, "Tindices"),
}

_REFUSING = (b"", b"DEFAULT", b"ERROR")
"""Values of the attribute bad_indices_policy, which newer versions of TensorFlow have, with which the processor raises an error."""


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
    if (
        node.op in _OF_VECTORS
        and "bad_indices_policy" in node.attr
        and node.attr["bad_indices_policy"].s not in _REFUSING
    ):
        return "its policy for indices out of range is not an error"
    return None


def is_defined_on_gpu(graph: PlacedGraph, index: int) -> bool:
    """Whether an operator with a demand has, on a GPU, a documented result if it is not met, which a body can compute too."""
    node = graph.nodes[index].proto
    if node.op not in GATHERS:
        return node.op in _INDEX_TYPE and node.op != "GatherNd"
    return batch_dims(node) == 0 and _counted(graph, index)[1] is not None


def add_zeros(function: Any, name: str, graph: PlacedGraph, index: int, operands: list[str], gathered: str) -> None:
    """Appends node `name` to a FunctionDef: a gather's result `gathered`, with zeros for each index out of range.

    index: the gather's node in `graph`. operands: names of the gather's operands.
    """
    dtype = _index_type(graph, index)
    counted, axis = _counted(graph, index)
    if axis is None:
        raise ValueError("the gather's axis is not a constant")  # is_defined_on_gpu
    check = Expressions(function, f"{name}_inside", dtype)
    inside = _is_inside(check, graph, index, operands)
    integers = check.of(DT_INT32)
    shape = check.of(counted).shape(operands[0], DT_INT32)

    def ones(begin: int, end: int) -> str:
        """A vector of ones, one for each axis of the indexed operand from `begin` to before `end`."""
        return integers.node("OnesLike", "y", f"{_slice(check, shape, begin, end, DT_INT32).name}:output:0")

    parts = [
        ones(0, axis),
        check.of(dtype).shape(operands[1], DT_INT32),
        ones(_LAST if axis == -1 else axis + 1, _LAST),
    ]
    spread = check.bare("ConcatV2", *parts, integers.constant(0))
    spread.attr["T"].type, spread.attr["Tidx"].type, spread.attr["N"].i = DT_INT32, DT_INT32, len(parts)
    mask = check.of(DT_BOOL).reshape(inside, f"{spread.name}:output:0")
    zeros = check.of(counted).node("ZerosLike", "y", gathered)
    result = function.node_def.add(name=name, op="SelectV2", input=[mask, gathered, zeros])
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
        elif node.op in _OF_VECTORS:
            holds = _are_inside(check, node, operands)
        else:
            holds = _is_inside(check, graph, index, operands)
    else:
        check = Expressions(function, f"{name}_demand", int(node.attr["T"].type))
        holds = check.node("NotEqual" if node.op in _DIVISIONS else "GreaterEqual", "z", operands[1], check.constant(0))
    return _everywhere(check, holds)


def _is_inside(check: Expressions, graph: PlacedGraph, index: int, operands: list[str]) -> str:
    """The name of a bool tensor: which of the indices are in range. check: Expressions of the indices' dtype."""
    counted, axis = _counted(graph, index)
    shape = check.of(counted).shape(operands[0], _index_type(graph, index))
    if axis is not None:
        limit = _slice(check, shape, axis, axis + 1, _index_type(graph, index))
    else:
        limit = _element(
            check, shape, operands[2], graph.nodes[index].proto.attr["Taxis"].type, _index_type(graph, index)
        )
    limit.attr["shrink_axis_mask"].i = 1
    low = check.node("GreaterEqual", "z", operands[1], check.constant(0))
    return both(check, low, check.node("Less", "z", operands[1], f"{limit.name}:output:0"))


def _are_inside(check: Expressions, node: NodeDef, operands: list[str]) -> str:
    """The name of a bool tensor: which of the elements of index vectors are in range. check: Expressions of the indices' dtype."""
    dtype = int(node.attr["Tindices"].type)
    if node.op == "ScatterNd":
        indices, extents = operands[0], operands[2]
    else:
        indices, extents = operands[1], check.of(int(node.attr["Tparams"].type)).shape(operands[0], dtype)
    count = _slice(check, check.of(dtype).shape(indices, DT_INT32), -1, _LAST, DT_INT32)
    limits = _between(check, extents, check.of(DT_INT32).constant([0]), f"{count.name}:output:0", DT_INT32, dtype)
    low = check.node("GreaterEqual", "z", indices, check.constant(0))
    return both(check, low, check.node("Less", "z", indices, f"{limits.name}:output:0"))


def _index_type(graph: PlacedGraph, index: int) -> int:
    """DataType number of an operator's indices."""
    node = graph.nodes[index].proto
    return int(node.attr[_INDEX_TYPE[node.op]].type)


def _counted(graph: PlacedGraph, index: int) -> tuple[int, int | None]:
    """(DataType number of the first operand, the axis of it that the second operand indexes). The axis is None if the graph does not
    say it: a function takes it as an argument if it was made from an eager tensor outside. Then it is known when the job runs."""
    node = graph.nodes[index].proto
    if node.op == "GatherV2":
        axis = small_constant(graph, index, 2)
        return int(node.attr["Tparams"].type), None if axis is None else int(axis)
    if node.op == RESOURCE_GATHER:
        return int(node.attr["dtype"].type), batch_dims(node)
    return int(node.attr["T"].type), 1


def batch_dims(node: NodeDef) -> int:
    """The attribute batch_dims of a gather; 0 if it has none (reading a missing attribute of a NodeDef would create it)."""
    return int(node.attr["batch_dims"].i) if "batch_dims" in node.attr else 0


def both(expressions: Expressions, first: str, second: str) -> str:
    """The conjunction of two bool tensors."""
    return f"{expressions.bare('LogicalAnd', first, second).name}:z:0"


def _slice(expressions: Expressions, vector: str, begin: int, end: int, dtype: int) -> NodeDef:
    """The operator that takes a vector's elements from `begin` to `end`."""
    integers = expressions.of(DT_INT32)
    return _between(expressions, vector, integers.constant([begin]), integers.constant([end]), DT_INT32, dtype)


def _between(expressions: Expressions, vector: str, begin: str, end: str, place_dtype: int, dtype: int) -> NodeDef:
    """The operator that takes a vector's elements between two places, each a vector of one element of `place_dtype`."""
    node = expressions.bare("StridedSlice", vector, begin, end, expressions.of(place_dtype).constant([1]))
    node.attr["T"].type, node.attr["Index"].type = dtype, place_dtype
    return node


def _element(expressions: Expressions, vector: str, place: str, place_dtype: int, dtype: int) -> NodeDef:
    """The operator that takes the element at `place`, a scalar of `place_dtype` (negative: from the end), as a vector of one."""
    places = expressions.of(place_dtype)
    begin = places.reshape(place, expressions.of(DT_INT32).constant([1]))
    end = places.node("AddV2", "z", begin, places.constant([1]))
    return _between(expressions, vector, begin, end, place_dtype, dtype)


def _everywhere(expressions: Expressions, holds: str) -> str:
    """A bool scalar: whether all elements of a bool tensor are true."""
    integers = expressions.of(DT_INT32)
    flat = expressions.of(DT_BOOL).reshape(holds, integers.constant([-1]))
    all_ = expressions.bare("All", flat, integers.constant([0]))
    all_.attr["Tidx"].type = DT_INT32
    return f"{all_.name}:output:0"
