"""TensorFlow's fused optimizer operators as arithmetic: one row each, with the formula of tensorflow/core/kernels/training_ops.cc.

The formulas are those of the CPU kernels, in the same order of operations, so that a stitched update differs from the operator's
result by rounding at most.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..base.dtypes import (
    DT_DOUBLE,
    DT_FLOAT,
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

_VALUES = {
    DT_FLOAT: "float_val",
    DT_DOUBLE: "double_val",
    DT_INT64: "int64_val",
    DT_UINT32: "uint32_val",
    DT_UINT64: "uint64_val",
    **dict.fromkeys((DT_INT8, DT_INT16, DT_INT32, DT_UINT8, DT_UINT16), "int_val"),
}
"""DataType number -> the field of a TensorProto that holds its elements."""


class Expressions:
    """Appends the nodes of an expression to a FunctionDef. Tensors are given and returned by name.

    prefix: beginning of the nodes' names; a number follows. dtype: DataType number of all operands, unless a method says otherwise.
    """

    def __init__(self, function: Any, prefix: str, dtype: int) -> None:
        self._function, self._prefix, self.dtype = function, prefix, dtype
        self._numbers = itertools.count()

    def of(self, dtype: int) -> Expressions:
        """Expressions for operands of another dtype, with the same prefix and numbering."""
        other = Expressions(self._function, self._prefix, dtype)
        other._numbers = self._numbers
        return other

    def bare(self, op: str, *inputs: str) -> Any:
        """Appends a node and returns its NodeDef. The caller sets its attributes."""
        return self._function.node_def.add(name=f"{self._prefix}_{next(self._numbers)}", op=op, input=inputs)

    def node(self, op: str, output: str, *inputs: str) -> str:
        """Appends a node with attribute T. output: name of the operator's output argument. Returns the name of the result."""
        node = self.bare(op, *inputs)
        node.attr["T"].type = self.dtype
        return f"{node.name}:{output}:0"

    def cast(self, value: str, source: int, target: int) -> str:
        """Appends a Cast from DataType `source` to `target`. Returns the name of the result."""
        node = self.bare("Cast", value)
        node.attr["SrcT"].type, node.attr["DstT"].type = source, target
        return f"{node.name}:y:0"

    def shape(self, value: str, out_type: int = DT_INT32) -> str:
        """Appends a Shape. Returns the name of the result, a vector of DataType `out_type`."""
        node = self.bare("Shape", value)
        node.attr["T"].type, node.attr["out_type"].type = self.dtype, out_type
        return f"{node.name}:output:0"

    def reshape(self, value: str, shape: str) -> str:
        """Appends a Reshape. shape: name of a vector of int32. Returns the name of the result."""
        node = self.bare("Reshape", value, shape)
        node.attr["T"].type, node.attr["Tshape"].type = self.dtype, DT_INT32
        return f"{node.name}:output:0"

    def constant(self, value: float | list[int] | list[float]) -> str:
        """Appends a constant: a scalar, or a vector if `value` is a list. Raises ValueError for a dtype without a field here."""
        if self.dtype not in _VALUES:
            raise ValueError(f"no constant of DataType {self.dtype} here")
        node = self.bare("Const")
        node.attr["dtype"].type = self.dtype
        tensor = node.attr["value"].tensor
        tensor.dtype = self.dtype
        tensor.tensor_shape.SetInParent()
        elements = value if isinstance(value, list) else [value]
        if isinstance(value, list):
            tensor.tensor_shape.dim.add(size=len(value))
        getattr(tensor, _VALUES[self.dtype]).extend(
            elements if self.dtype in WIDE_FLOATS else [int(element) for element in elements]
        )
        return f"{node.name}:output:0"


@dataclass(frozen=True)
class Operand:
    """A tensor of a FunctionDef; Python's operators on it append nodes."""

    expressions: Expressions
    name: str

    def _binary(self, op: str, left: Operand | float, right: Operand | float) -> Operand:
        names = [x.name if isinstance(x, Operand) else self.expressions.constant(x) for x in (left, right)]
        return Operand(self.expressions, self.expressions.node(op, "z", *names))

    def __add__(self, other: Operand | float) -> Operand:
        return self._binary("AddV2", self, other)

    def __sub__(self, other: Operand | float) -> Operand:
        return self._binary("Sub", self, other)

    def __rsub__(self, other: float) -> Operand:
        return self._binary("Sub", other, self)

    def __mul__(self, other: Operand | float) -> Operand:
        return self._binary("Mul", self, other)

    def __truediv__(self, other: Operand | float) -> Operand:
        return self._binary("RealDiv", self, other)

    def maximum(self, other: Operand) -> Operand:
        """The element-wise maximum of two operands."""
        return self._binary("Maximum", self, other)

    def unary(self, op: str) -> Operand:
        """The result of the unary TensorFlow operator `op`, whose output argument must be called "y"."""
        return Operand(self.expressions, self.expressions.node(op, "y", self.name))

    def sqrt(self) -> Operand:
        """The element-wise square root."""
        return self.unary("Sqrt")

    def rsqrt(self) -> Operand:
        """The element-wise reciprocal square root."""
        return self.unary("Rsqrt")

    def square(self) -> Operand:
        """The element-wise square."""
        return self.unary("Square")

    def abs(self) -> Operand:
        """The element-wise absolute value."""
        return self.unary("Abs")


Operands = dict[str, Operand]
Flags = dict[str, bool]


@dataclass(frozen=True)
class ApplyRule:
    """One fused optimizer operator.

    variables: names of its inputs that are variables' handles. formula: a function of (input's name -> value, flag -> value) that
    returns the new values of the variables that the operator writes, by the input's name. flags: names of the bool attributes
    that the formula reads.
    """

    variables: tuple[str, ...]
    formula: Callable[[Operands, Flags], Operands]
    flags: tuple[str, ...] = ()


def _gradient_descent(x: Operands, flags: Flags) -> Operands:
    return {"var": x["var"] - x["delta"] * x["alpha"]}


def _momentum(x: Operands, flags: Flags) -> Operands:
    accum = x["accum"] * x["momentum"] + x["grad"]
    if flags["use_nesterov"]:
        return {"accum": accum, "var": x["var"] - (x["grad"] * x["lr"] + accum * x["momentum"] * x["lr"])}
    return {"accum": accum, "var": x["var"] - accum * x["lr"]}


def _keras_momentum(x: Operands, flags: Flags) -> Operands:
    accum = x["accum"] * x["momentum"] - x["grad"] * x["lr"]
    if flags["use_nesterov"]:
        return {"accum": accum, "var": x["var"] + (accum * x["momentum"] - x["grad"] * x["lr"])}
    return {"accum": accum, "var": x["var"] + accum}


def _adam_moments(x: Operands) -> tuple[Operand, Operand, Operand]:
    """(step size, first moment, second moment)."""
    alpha = x["lr"] * (1.0 - x["beta2_power"]).sqrt() / (1.0 - x["beta1_power"])
    m = x["m"] + (x["grad"] - x["m"]) * (1.0 - x["beta1"])
    v = x["v"] + (x["grad"].square() - x["v"]) * (1.0 - x["beta2"])
    return alpha, m, v


def _adam(x: Operands, flags: Flags) -> Operands:
    alpha, m, v = _adam_moments(x)
    direction = x["grad"] * (1.0 - x["beta1"]) + x["beta1"] * m if flags["use_nesterov"] else m
    return {"m": m, "v": v, "var": x["var"] - (direction * alpha) / (v.sqrt() + x["epsilon"])}


def _adam_amsgrad(x: Operands, flags: Flags) -> Operands:
    alpha, m, v = _adam_moments(x)
    vhat = x["vhat"].maximum(v)
    return {"m": m, "v": v, "vhat": vhat, "var": x["var"] - (m * alpha) / (vhat.sqrt() + x["epsilon"])}


def _adamax(x: Operands, flags: Flags) -> Operands:
    m = x["m"] + (x["grad"] - x["m"]) * (1.0 - x["beta1"])
    v = (x["beta2"] * x["v"]).maximum(x["grad"].abs())
    return {"m": m, "v": v, "var": x["var"] - x["lr"] / (1.0 - x["beta1_power"]) * (m / (v + x["epsilon"]))}


def _adagrad(x: Operands, flags: Flags) -> Operands:
    accum = x["accum"] + x["grad"].square() if flags["update_slots"] else x["accum"]
    return {"accum": accum, "var": x["var"] - x["grad"] * x["lr"] * accum.rsqrt()}


def _adagrad_v2(x: Operands, flags: Flags) -> Operands:
    accum = x["accum"] + x["grad"].square() if flags["update_slots"] else x["accum"]
    return {"accum": accum, "var": x["var"] - x["grad"] * x["lr"] / (accum.sqrt() + x["epsilon"])}


def _adadelta(x: Operands, flags: Flags) -> Operands:
    accum = x["accum"] * x["rho"] + x["grad"].square() * (1.0 - x["rho"])
    update = (x["accum_update"] + x["epsilon"]).sqrt() * (accum + x["epsilon"]).rsqrt() * x["grad"]
    total = x["accum_update"] * x["rho"] + update.square() * (1.0 - x["rho"])
    return {"accum": accum, "accum_update": total, "var": x["var"] - update * x["lr"]}


def _rmsprop(x: Operands, flags: Flags) -> Operands:
    ms = x["ms"] + (x["grad"].square() - x["ms"]) * (1.0 - x["rho"])
    mom = x["mom"] * x["momentum"] + (x["grad"] * x["lr"]) / (ms + x["epsilon"]).sqrt()
    return {"ms": ms, "mom": mom, "var": x["var"] - mom}


def _centered_rmsprop(x: Operands, flags: Flags) -> Operands:
    ms = x["ms"] + (x["grad"].square() - x["ms"]) * (1.0 - x["rho"])
    mg = x["mg"] + (x["grad"] - x["mg"]) * (1.0 - x["rho"])
    mom = x["mom"] * x["momentum"] + (x["grad"] * x["lr"]) / (ms + x["epsilon"] - mg.square()).sqrt()
    return {"ms": ms, "mg": mg, "mom": mom, "var": x["var"] - mom}


APPLY: dict[str, ApplyRule] = {
    "ResourceApplyGradientDescent": ApplyRule(("var",), _gradient_descent),
    "ResourceApplyMomentum": ApplyRule(("var", "accum"), _momentum, ("use_nesterov",)),
    "ResourceApplyKerasMomentum": ApplyRule(("var", "accum"), _keras_momentum, ("use_nesterov",)),
    "ResourceApplyAdam": ApplyRule(("var", "m", "v"), _adam, ("use_nesterov",)),
    "ResourceApplyAdamWithAmsgrad": ApplyRule(("var", "m", "v", "vhat"), _adam_amsgrad),
    "ResourceApplyAdaMax": ApplyRule(("var", "m", "v"), _adamax),
    "ResourceApplyAdagrad": ApplyRule(("var", "accum"), _adagrad, ("update_slots",)),
    "ResourceApplyAdagradV2": ApplyRule(("var", "accum"), _adagrad_v2, ("update_slots",)),
    "ResourceApplyAdadelta": ApplyRule(("var", "accum", "accum_update"), _adadelta),
    "ResourceApplyRMSProp": ApplyRule(("var", "ms", "mom"), _rmsprop),
    "ResourceApplyCenteredRMSProp": ApplyRule(("var", "mg", "ms", "mom"), _centered_rmsprop),
}
APPLY_DTYPES = WIDE_FLOATS
"""DataType numbers for which the formulas hold: in half precision TensorFlow's kernels round intermediate values, and ours do not."""
