"""Rare data: NaN, infinities, zeros, values out of an integer's range and shifts beyond its width, on which XLA's lowering differs
from TensorFlow's operator.

For such an operator the compiled body (bodies.py) uses other nodes, or other operands, so that it computes what TensorFlow computes.
That is, in this order: what TensorFlow's documentation says of the value; if it says nothing, what the CPU kernel computes; if that
depends on an element's position in a vector or on the order of elements, the documented formula, or without one the vector's result.

    ReluGrad, Relu6Grad          gradients * (features > 0): NaN * 0 and Inf * 0 are NaN (documented). XLA selects 0
    Relu of a _FusedBatchNormEx  NaN becomes 0 in inference (CPU kernel, at all positions), and in training if the number of channels
                                 is a multiple of 8 (oneDNN's kernel of vectors, from AVX2 on, at all positions). Else it is the
                                 documented maximum, as in XLA
    EluGrad, SeluGrad            test outputs < 0 (documented): the gradient at 0 and NaN is that of positive outputs. XLA tests
                                 outputs > 0
    SqrtGrad, RsqrtGrad,
    ReciprocalGrad, InvGrad      0 if the incoming gradient is 0, for any y (CPU kernel). XLA computes 0 * Inf, which is NaN. The sign
                                 of RsqrtGrad's zero at y = 0 is that of dy * -0.5 * y^3 (documented); the CPU kernel's depends on the
                                 position
    ArgMax, ArgMin               a NaN is never the largest or the smallest; the first of equal elements; 0 if all are NaN (CPU
                                 kernel). The search starts from the lowest finite number (ArgMin: the largest), and an infinity of
                                 that sign counts as equal to it
    Cast of floats to integers   of NaN and values out of range (documented as undefined). Not on a GPU, whose instruction does the
                                 same as XLA: NaN becomes 0, other values the nearest integer
      int32, int64               NaN and values out of range become the smallest integer (CPU kernel, at all positions)
      uint64                     2^64 is added to a negative number; NaN and values out of range become 2^63 (CPU kernel, at all
                                 positions)
      uint32                     2^32 is added to a negative number; NaN and what neither int32 nor uint32 holds become 2^31 (CPU
                                 kernel in whole vectors; a tensor's last elements get the lowest bits of the int64)
      int8, uint8, int16, uint16 the int32, cut to the range (CPU kernel in whole vectors of float32; a tensor's last elements get the
                                 lowest bits of the int32). The self-check's framework does the same at all positions, for uint32
                                 too (service/framework.py): what depends on the position says nothing of a kernel
    LeftShift, RightShift        the amount is cut to 0 and the operand's width - 1 (documented as undefined; CPU and GPU kernels, at
                                 all positions). XLA shifts all bits out
    Sign                         0 at zeros of both signs (documented); stitch_sign in the compiler
    Maximum, Minimum             x > y ? x : y (documented): the second of two zeros; NaN if either is; stitch_max in the compiler
    Max, Min, UnsortedSegmentMax,
    UnsortedSegmentMin           NaN if any element is, as in XLA and Max (the documented maximum of all). The CPU kernel of segments
                                 starts again after each NaN, so its result depends on the order of the rows. The self-check takes
                                 such a segment of the framework's for NaN too (service/framework.py): the gradient decides by it
    MaxPool, MaxPoolGrad         a NaN is never the largest. The search starts from the lowest finite number, which is the result if
                                 all are NaN (CPU kernel, also oneDNN's, at all positions). XLA returns NaN if any element is NaN.
                                 The gradient goes to the first of a window's largest elements (oneDNN's kernel, at all positions;
                                 the other CPU kernel gives it to a NaN if that is the window's first element)
                                 Of equal zeros of both signs either is the result: which one the CPU kernel returns depends on the
                                 tensor's size
    Softmax                      exp(x) / sum(exp(x)) (documented): a row with a NaN is NaN. The CPU kernel returns zeros beside the
                                 NaN at most positions of a row and NaN at the others; in float64 only NaN. The self-check takes
                                 such a row of the framework's for NaN too (service/framework.py): an ArgMax decides by it
    Cumsum, Cumprod              in order (CPU kernel): a sum that has overflowed stays infinite. XLA sums each window separately. The
                                 compiler's scans are in order (planning/scans.py), except those of CUDA kernels: there Cumsum and
                                 Cumprod of floats stay in TensorFlow
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ..base.dtypes import (
    DT_BFLOAT16,
    DT_BOOL,
    DT_DOUBLE,
    DT_FLOAT,
    DT_HALF,
    DT_INT8,
    DT_INT16,
    DT_INT32,
    DT_INT64,
    DT_UINT8,
    DT_UINT16,
    DT_UINT32,
    DT_UINT64,
    WIDE_FLOATS,
)
from ..graph import fused
from ..graph.apply_ops import Expressions
from ..graph.placed_graph import PlacedGraph

_LARGEST: Final = {
    DT_FLOAT: 3.4028234663852886e38,
    DT_DOUBLE: 1.7976931348623157e308,
    DT_BFLOAT16: 3.3895313892515355e38,
    DT_HALF: 65504.0,
}
"""DataType number of a floating-point type -> its largest finite number."""
_VECTOR_CHANNELS: Final = 8
"""oneDNN's kernel of vectors is for tensors whose number of channels is a multiple of this."""
_WIDTHS: Final = {
    DT_INT8: 8,
    DT_UINT8: 8,
    DT_INT16: 16,
    DT_UINT16: 16,
    DT_INT32: 32,
    DT_UINT32: 32,
    DT_INT64: 64,
    DT_UINT64: 64,
}
"""DataType number of an integer type -> its width in bits."""
_SIGNED: Final = {DT_UINT32: DT_INT32, DT_UINT64: DT_INT64}
"""An unsigned integer type whose casts wrap negative numbers -> the signed type of its width."""
_SHIFTS: Final = ("LeftShift", "RightShift")


class _Floats:
    """Appends nodes on floats of one dtype to a FunctionDef; each method returns the name of its result."""

    def __init__(self, function: Any, prefix: str, dtype: int) -> None:
        self.dtype = dtype
        self.nodes = Expressions(function, prefix, dtype)

    def number(self, value: float) -> str:
        """A scalar constant; one of 16 bits is cast from float32."""
        if self.dtype in WIDE_FLOATS:
            return self.nodes.constant(value)
        return self.nodes.cast(self.nodes.of(DT_FLOAT).constant(value), DT_FLOAT, self.dtype)

    def op(self, name: str, *operands: str) -> str:
        """The binary operator `name`, or Abs."""
        return self.nodes.node(name, "y" if name == "Abs" else "z", *operands)

    def select(self, condition: str, yes: str, no: str) -> str:
        return self.nodes.node("SelectV2", "output", condition, yes, no)

    def from_truth(self, condition: str) -> str:
        """A bool tensor as ones and zeros."""
        return self.nodes.cast(condition, DT_BOOL, self.dtype)


def _relu_grad(f: _Floats, operands: list[str]) -> str:
    gradients, features = operands
    return f.op("Mul", gradients, f.from_truth(f.op("Greater", features, f.number(0.0))))


def _relu_without_nan(f: _Floats, operands: list[str]) -> str:
    (features,) = operands
    zero = f.number(0.0)
    return f.select(f.op("Greater", features, zero), features, zero)


def _relu_in_training(channel_dimension: int) -> Callable[[_Floats, list[str]], str]:
    """The Relu that oneDNN applies together with a batch normalization. The number of channels is known when the body is lowered."""

    def made(f: _Floats, operands: list[str]) -> str:
        (features,) = operands
        integers = f.nodes.of(DT_INT32)
        shape = f.nodes.shape(features)
        bounds = integers.constant([channel_dimension]), integers.constant([1])
        channels = integers.bare("Slice", shape, *bounds)
        channels.attr["T"].type = channels.attr["Index"].type = DT_INT32
        rest = integers.node("FloorMod", "z", f"{channels.name}:output:0", integers.constant(_VECTOR_CHANNELS))
        in_vectors = integers.node("Equal", "z", rest, integers.constant(0))
        return f.select(in_vectors, _relu_without_nan(f, operands), f.nodes.node("Relu", "activations", features))

    return made


def _relu6_grad(f: _Floats, operands: list[str]) -> str:
    gradients, features = operands
    above, below = f.op("Greater", features, f.number(0.0)), f.op("Less", features, f.number(6.0))
    inside = f.nodes.bare("LogicalAnd", above, below)
    return f.op("Mul", gradients, f.from_truth(f"{inside.name}:z:0"))


def _elu_grad(f: _Floats, operands: list[str]) -> str:
    gradients, outputs = operands
    below = f.op("Mul", gradients, f.op("AddV2", outputs, f.number(1.0)))
    return f.select(f.op("Less", outputs, f.number(0.0)), below, gradients)


_SELU_SCALE, _SELU_SCALED_ALPHA = 1.0507009873554804934, 1.7580993408473768599


def _selu_grad(f: _Floats, operands: list[str]) -> str:
    gradients, outputs = operands
    below = f.op("Mul", gradients, f.op("AddV2", outputs, f.number(_SELU_SCALED_ALPHA)))
    return f.select(f.op("Less", outputs, f.number(0.0)), below, f.op("Mul", gradients, f.number(_SELU_SCALE)))


def _zero_without_gradient(op: str) -> Callable[[_Floats, list[str]], str]:
    def made(f: _Floats, operands: list[str]) -> str:
        y, gradients = operands
        zero = f.number(0.0)
        return f.select(f.op("Equal", gradients, zero), zero, f.nodes.node(op, "z", y, gradients))

    return made


_RESULTS: Final[dict[str, Callable[[_Floats, list[str]], str]]] = {
    "ReluGrad": _relu_grad,
    "Relu6Grad": _relu6_grad,
    "EluGrad": _elu_grad,
    "SeluGrad": _selu_grad,
    **{op: _zero_without_gradient(op) for op in ("SqrtGrad", "RsqrtGrad", "ReciprocalGrad", "InvGrad")},
}
"""Operators that are replaced by other nodes. The function appends these, and maps the operands' names to the result's."""
_SEARCHES: Final = {
    "ArgMax": "Greater",
    "ArgMin": "Less",
    "MaxPool": "Greater",
    "MaxPoolGrad": "Greater",
}
"""Operators that search an extreme of their first operand -> the comparison that an element must pass against the worst finite
number; elements that do not pass are replaced by it."""


def has_rule(graph: PlacedGraph, index: int, on_gpu: bool) -> bool:
    """Whether the compiled body has other nodes or other operands for an operator."""
    node = graph.nodes[index].proto
    if node.op == "Cast":
        return not on_gpu and int(node.attr["SrcT"].type) in _LARGEST and int(node.attr["DstT"].type) in _WIDTHS
    if node.op in _SHIFTS:
        return True
    return (_result_of(node) is not None or node.op in _SEARCHES) and int(node.attr["T"].type) in _LARGEST


def is_cast_by_position(node: Any) -> bool:
    """Whether a NodeDef is a cast of floats for which an element's position decides what TensorFlow's CPU kernel makes of NaN and
    values out of range."""
    if node.op != "Cast" or int(node.attr["SrcT"].type) not in _LARGEST:
        return False
    return int(node.attr["DstT"].type) in (DT_INT8, DT_UINT8, DT_INT16, DT_UINT16, DT_UINT32)


def _result_of(node: Any) -> Callable[[_Floats, list[str]], str] | None:
    """What appends the nodes that compute an operator's result instead of the operator; None if it does so itself."""
    if node.op == "Relu":
        normalization = fused.normalization_of(node)
        if normalization is None:
            return None
        if not normalization.attr["is_training"].b:
            return _relu_without_nan
        return _relu_in_training(normalization.attr["data_format"].s.decode().index("C"))
    return _RESULTS.get(node.op)


def _within(f: _Floats, target: int, operand: str) -> str:
    """The operand of a cast to integers, with the smallest int64 or else int32 instead of NaN and all that this type cannot hold. XLA
    cuts it to the range of a smaller type."""
    limit = 2.0 ** (63 if target == DT_INT64 else 31)
    inside = f.op("Less", f.op("Abs", operand), f.number(limit))
    return f.select(inside, operand, f.number(-limit))


def _wrapped(f: _Floats, target: int, operand: str) -> str:
    """The result of a cast to uint32 or uint64."""
    cast, integers, width, signed = f.nodes.cast, f.nodes.of(target), _WIDTHS[target], _SIGNED[target]
    is_negative = f.op("Less", operand, f.number(0.0))
    wrapped = cast(cast(operand, f.dtype, signed), signed, target)
    found = integers.node("SelectV2", "output", is_negative, wrapped, cast(operand, f.dtype, target))
    above = f.op("Greater", operand, f.number(-(2.0 ** (width - 1))))
    inside = f.nodes.bare("LogicalAnd", above, f.op("Less", operand, f.number(2.0**width)))
    return integers.node("SelectV2", "output", f"{inside.name}:z:0", found, integers.constant(1 << (width - 1)))


def cast_at_all_positions(function: Any, name: str, node: Any, operand: str) -> str:
    """Appends nodes of which TensorFlow's CPU kernels compute the table's result of a cast, one of `is_cast_by_position`, at all
    positions. name: the operator's. Returns the name of the result."""
    target = int(node.attr["DstT"].type)
    f = _Floats(function, f"{name}_rare", int(node.attr["SrcT"].type))
    if target in _SIGNED:
        return _wrapped(f, target, operand)
    most = (1 << (_WIDTHS[target] - (target in (DT_INT8, DT_INT16)))) - 1
    least = -most - 1 if target in (DT_INT8, DT_INT16) else 0
    integers = f.nodes.of(DT_INT32)
    number = f.nodes.cast(_within(f, DT_INT32, operand), f.dtype, DT_INT32)
    number = integers.node("Minimum", "z", number, integers.constant(most))
    return f.nodes.cast(integers.node("Maximum", "z", number, integers.constant(least)), DT_INT32, target)


def _amount(nodes: Expressions, amount: str) -> str:
    """The amount of a shift, cut to 0 and the width - 1."""
    below = nodes.node("Minimum", "z", amount, nodes.constant(_WIDTHS[nodes.dtype] - 1))
    return nodes.node("Maximum", "z", below, nodes.constant(0))


def spell_out(function: Any, name: str, graph: PlacedGraph, index: int, operands: list[str]) -> str | list[str]:
    """Appends the nodes of an operator with a rule to a FunctionDef. name: the operator's there. operands: names of its operands.

    Returns the name of the result if other nodes compute it, else the list of operands that the operator itself must get.
    """
    node = graph.nodes[index].proto
    prefix = f"{name}_rare"
    if (result := _result_of(node)) is not None:
        return result(_Floats(function, prefix, int(node.attr["T"].type)), operands)
    if node.op == "Cast":
        f, target = _Floats(function, prefix, int(node.attr["SrcT"].type)), int(node.attr["DstT"].type)
        return _wrapped(f, target, operands[0]) if target in _SIGNED else [_within(f, target, operands[0])]
    if node.op in _SHIFTS:
        number, amount = operands
        return [number, _amount(Expressions(function, prefix, int(node.attr["T"].type)), amount)]
    f = _Floats(function, prefix, int(node.attr["T"].type))
    comparison = _SEARCHES[node.op]
    worst = f.number(-_LARGEST[f.dtype] if comparison == "Greater" else _LARGEST[f.dtype])
    return [f.select(f.op(comparison, operands[0], worst), operands[0], worst), *operands[1:]]
