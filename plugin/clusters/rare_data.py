"""Rare data: where TensorFlow's operator and XLA's lowering of it differ on NaN, on zeros and beyond an integer's range, the compiled
body (bodies.py) has the operator spelled out so that it computes what TensorFlow computes.

One rule decides each case: what TensorFlow's documentation says of that value; where it says nothing, what its CPU kernel computes;
where that depends on where in a vector or in which order elements lie, the documented formula.

    ReluGrad, Relu6Grad          gradients * (features > 0): NaN and Inf times 0 are NaN (documented). XLA selects 0
    EluGrad, SeluGrad            by outputs < 0 (documented): at 0 and NaN the gradient as of positive ones. XLA asks outputs > 0
    SqrtGrad, RsqrtGrad,
    ReciprocalGrad, InvGrad      0 where the incoming gradient is 0 (CPU kernel), whatever y is. XLA has 0 * Inf, NaN
    ArgMax, ArgMin               a NaN is never the largest or the smallest; of equal ones the first; 0 where all are NaN (CPU
                                 kernel). The search begins with the lowest finite number, as which an infinity counts
    Cast of floats to integers   NaN and what is out of range become the smallest integer (documented as undefined; CPU kernel, int32
                                 and int64 alike at all places). Not on a GPU, whose instruction does as XLA: NaN 0, else the nearest
    Sign                         0 at zeros of both signs (documented); stitch_sign in the compiler
    Maximum, Minimum             x > y ? x : y (documented): of zeros the second; NaN where either is; stitch_max in the compiler
    Max, Min, UnsortedSegmentMax,
    UnsortedSegmentMin           NaN where one is, as XLA and Max have it (the documented maximum of all). The CPU kernel of segments
                                 begins anew after each NaN, so that it depends on the order of the rows
    MaxPool                      a NaN is never the largest; the search begins with the lowest finite number, which is the result
                                 where all are NaN (CPU kernel, oneDNN's too, at all places). XLA has NaN where one is
    Softmax                      exp(x) / sum(exp(x)) (documented): a row with a NaN is NaN. The CPU kernel has zeros beside the NaN
                                 in most places of a row and NaN in the others, and only NaN in float64
    Cumsum, Cumprod              in order (CPU kernel): what overflows stays infinite. XLA sums each window for itself; the compiler's
                                 scans are in order (planning/scans.py), but not those of CUDA kernels: there, of floats, they stay
                                 TensorFlow's operators
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ..graph.apply_ops import Expressions
from ..graph.dtypes import DT_BOOL
from ..graph.placed_graph import PlacedGraph

_LARGEST: Final = {1: 3.4028234663852886e38, 2: 1.7976931348623157e308, 14: 3.3895313892515355e38, 19: 65504.0}
"""DataType numbers of the floats, and their largest finite numbers."""
_INTEGER_BITS: Final = {3: 31, 9: 63}


class _Floats:
    """Nodes on floats of one dtype."""

    def __init__(self, function: Any, prefix: str, dtype: int) -> None:
        self.dtype = dtype
        self.nodes = Expressions(function, prefix, dtype)

    def number(self, value: float) -> str:
        """A scalar; halves are made from a float."""
        if self.dtype in (1, 2):
            return self.nodes.constant(value)
        return self._cast(self.nodes.of(1).constant(value), 1, self.dtype)

    def _cast(self, value: str, source: int, target: int) -> str:
        node = self.nodes.bare("Cast", value)
        node.attr["SrcT"].type, node.attr["DstT"].type = source, target
        return f"{node.name}:y:0"

    def op(self, name: str, *operands: str) -> str:
        return self.nodes.node(name, "y" if name == "Abs" else "z", *operands)

    def select(self, condition: str, yes: str, no: str) -> str:
        return self.nodes.node("SelectV2", "output", condition, yes, no)

    def from_truth(self, condition: str) -> str:
        return self._cast(condition, DT_BOOL, self.dtype)


def _relu_grad(f: _Floats, operands: list[str]) -> str:
    gradients, features = operands
    return f.op("Mul", gradients, f.from_truth(f.op("Greater", features, f.number(0.0))))


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
"""Operators that are other nodes in the body: by their operands, the name of the result."""
_SEARCHES: Final = {
    "ArgMax": "Greater",
    "ArgMin": "Less",
    "MaxPool": "Greater",
}
"""Operators that look for an extreme of their first operand: how an element compares with the worst number, as which those count that
do not."""


def has_rule(graph: PlacedGraph, index: int, on_gpu: bool) -> bool:
    """Whether an operator is spelled out in the compiled body."""
    node = graph.nodes[index].proto
    if node.op == "Cast":
        source, target = int(node.attr["SrcT"].type), int(node.attr["DstT"].type)
        return not on_gpu and source in _LARGEST and target in _INTEGER_BITS
    return (node.op in _RESULTS or node.op in _SEARCHES) and int(node.attr["T"].type) in _LARGEST


def spell_out(function: Any, name: str, graph: PlacedGraph, index: int, operands: list[str]) -> str | list[str]:
    """Appends to a FunctionDef what an operator that has a rule needs: the name of its result where other nodes compute it, else the
    operands that the operator itself is to have."""
    node = graph.nodes[index].proto
    prefix = f"{name}_rare"
    if node.op in _RESULTS:
        return _RESULTS[node.op](_Floats(function, prefix, int(node.attr["T"].type)), operands)
    if node.op == "Cast":
        f = _Floats(function, prefix, int(node.attr["SrcT"].type))
        limit = 2.0 ** _INTEGER_BITS[int(node.attr["DstT"].type)]
        inside = f.op("Less", f.op("Abs", operands[0]), f.number(limit))
        return [f.select(inside, operands[0], f.number(-limit))]
    f = _Floats(function, prefix, int(node.attr["T"].type))
    comparison = _SEARCHES[node.op]
    worst = f.number(-_LARGEST[f.dtype] if comparison == "Greater" else _LARGEST[f.dtype])
    return [f.select(f.op(comparison, operands[0], worst), operands[0], worst), *operands[1:]]
