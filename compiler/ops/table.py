"""The one op table. What an operation means is written here once, and read by the verifier (`infer`), the interpreter
(`numpy`), the C++ backend (`cpp`, `libm`), the CUDA backend (`cuda`), the planner and cost model (`cost`), the judge
of numbers (`ulps`) and the tests.

A row's columns are written in modules of their own, one idea each: shapes and dtypes in `ops_infer`, numpy references
in `ops_numpy`, C++ text in `ops_text`, error rules in `ops_error`. `build` adds a node with inferred shape and dtype
to a builder:

Rare data. A row means what HLO's operation semantics say; where these leave a result open, one rule decides: what TensorFlow's
documentation says of the value, else what its CPU kernel computes.

    maximum, minimum   NaN where either is (HLO); of zeros of both signs the second operand (x > y ? x : y, documented)
    sign               0 at zeros of both signs (documented), NaN at NaN
    convert            of floats to integers: towards zero, out of range the nearest end, NaN 0 (HLO)
    divide, remainder  of integers by zero: all bits one, and the dividend (XLA)
    reduce             max and min: NaN where one is. Sums in any order: what overflows on the way may be infinite or not

Where TensorFlow's operator is something else than XLA's lowering of it, the plugin spells the operator out before it is lowered
(its clusters/rare_data.py has the whole table). The self-check compares each kernel with the framework's own operators on such data
(random_inputs.RARE).

    builder = GraphBuilder("double")
    x = build(builder, "parameter", (), number=0, shape=(8, 128), dtype=DType.F32)
    y = build(builder, "add", (x, x))
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import numpy as np

from ..ir.graph import Attribute, DType, GraphBuilder, Shape
from . import infer as infer
from . import reference as reference
from .c_text import (
    LIBM,
    REGISTER_TYPE,
    STORAGE_TYPE,
    TEXT,
    DTypeClass,
    cpp_combine,
    cpp_expression,
    libm_functions,
    literal_text,
    load_text,
    round_text,
    store_text,
)
from .errors import ERRORS, ErrorRule, exact
from .infer import GraphError, Request, Rule
from .reference import Reference, direct, reduce_identity

__all__ = [
    "OPS",
    "REGISTER_TYPE",
    "STORAGE_TYPE",
    "Cost",
    "DTypeClass",
    "GraphError",
    "OpRow",
    "build",
    "cpp_combine",
    "cpp_expression",
    "infer_node",
    "libm_functions",
    "literal_text",
    "load_text",
    "reduce_identity",
    "round_text",
    "store_text",
]


class Cost(enum.Enum):
    """What an op is to the planner and the cost model (AStitch section 2: light and expensive element-wise, reduce,
    movement)."""

    LIGHT = "light"  # element-wise, a few cycles
    EXPENSIVE = "expensive"  # element-wise, a library call or as much: not worth doing twice
    REDUCE = "reduce"
    MOVEMENT = (
        "movement"  # each result element is one operand element (or a padding value) at an index known when compiling
    )
    LEAF = "leaf"
    OPAQUE = (
        "opaque"  # indices come from data, or a window of elements is read: a loop nest of its own or an indexed load
    )


ELEMENTWISE: Final = (Cost.LIGHT, Cost.EXPENSIVE)


@dataclass(frozen=True)
class OpRow:
    """One op. `ulps` is the error of its result that a right implementation may make beyond what its operands' errors
    cause, in units in the last place of the result: 0 exact, 0.5 correctly rounded, of an elementary function the
    larger one of what kernel_math.h states (without fused multiply-adds) and of CUDA's (CUDA C++ Programming Guide,
    mathematical functions)."""

    name: str
    arity: int | None  # None: any number of operands, checked by `infer`
    cost: Cost
    infer: Rule
    numpy: Reference | None  # None: the interpreter itself handles it (parameter, reduce_general)
    error: ErrorRule = exact  # how the operands' errors reach the result
    ulps: float = 0.0
    cpp: Mapping[DTypeClass, str] = field(default_factory=lambda: MappingProxyType({}))  # see ops_text.cpp_expression
    libm: str | None = None  # C library function that `cpp` calls (double's name), to be declared
    cuda: Mapping[DTypeClass, str] | None = None  # the CUDA backend fills it

    @property
    def elementwise(self) -> bool:
        return self.cost in ELEMENTWISE


def _elementwise_rows() -> Iterable[OpRow]:
    """Rows of the ops whose operands have one shape and, but for select, one dtype."""
    floats = infer.elementwise(infer.is_float, "a float dtype")
    numbers = infer.elementwise(infer.is_number, "a number")
    anything = infer.elementwise(infer.is_any, "any dtype")
    integers = infer.elementwise(infer.is_integer, "an integer dtype")
    logical = infer.elementwise(infer.is_logical, "pred or an integer dtype")
    light, expensive = Cost.LIGHT, Cost.EXPENSIVE
    table: list[tuple[str, int, Cost, Rule, Reference, float]] = [
        # name, arity, cost, infer, numpy, ulps
        ("abs", 1, light, numbers, direct(np.abs), 0),
        ("negate", 1, light, numbers, direct(np.negative), 0),
        ("sign", 1, light, numbers, direct(np.sign), 0),
        ("exp", 1, expensive, floats, direct(np.exp), 1.25),
        ("expm1", 1, expensive, floats, direct(np.expm1), 2),
        ("log", 1, expensive, floats, direct(np.log), 1.1),
        ("log1p", 1, expensive, floats, direct(np.log1p), 1.5),
        ("sqrt", 1, light, floats, direct(np.sqrt), 0.5),
        ("rsqrt", 1, light, floats, direct(reference.rsqrt), 2),
        ("cbrt", 1, expensive, floats, direct(np.cbrt), 1.5),
        ("sin", 1, expensive, floats, direct(np.sin), 2.3),
        ("cos", 1, expensive, floats, direct(np.cos), 2.3),
        ("tan", 1, expensive, floats, direct(np.tan), 4),
        ("tanh", 1, expensive, floats, direct(np.tanh), 2.75),
        ("logistic", 1, expensive, floats, direct(reference.logistic), 2.75),  # an exp, an addition, a division
        ("erf", 1, expensive, floats, direct(reference.erf), 2),
        ("floor", 1, light, floats, direct(np.floor), 0),
        ("ceil", 1, light, floats, direct(np.ceil), 0),
        ("round_nearest_even", 1, light, floats, direct(np.rint), 0),
        ("round_nearest_afz", 1, light, floats, direct(reference.round_away), 0),
        ("is_finite", 1, light, infer.elementwise(infer.is_float, "a float dtype", DType.PRED), direct(np.isfinite), 0),
        ("not", 1, light, logical, direct(np.invert), 0),
        ("popcnt", 1, light, integers, direct(reference.popcount), 0),
        ("clz", 1, light, integers, direct(reference.count_leading_zeros), 0),
        ("copy", 1, light, anything, direct(np.array), 0),
        ("convert", 1, light, infer.convert, reference.convert, 0.5),
        ("bitcast_convert", 1, light, infer.bitcast_convert, reference.bitcast_convert, 0),
        ("reduce_precision", 1, light, infer.reduce_precision, reference.reduce_precision, 0),
        ("add", 2, light, numbers, direct(np.add), 0.5),
        ("subtract", 2, light, numbers, direct(np.subtract), 0.5),
        ("multiply", 2, light, numbers, direct(np.multiply), 0.5),
        ("divide", 2, light, numbers, direct(reference.divide), 0.5),
        ("remainder", 2, expensive, numbers, direct(reference.remainder), 0),
        ("maximum", 2, light, anything, direct(np.maximum), 0),
        ("minimum", 2, light, anything, direct(np.minimum), 0),
        ("power", 2, expensive, numbers, direct(reference.power), 4),
        ("atan2", 2, expensive, floats, direct(np.arctan2), 3),
        ("and", 2, light, logical, direct(np.bitwise_and), 0),
        ("or", 2, light, logical, direct(np.bitwise_or), 0),
        ("xor", 2, light, logical, direct(np.bitwise_xor), 0),
        ("shift_left", 2, light, integers, direct(reference.shift_left), 0),
        ("shift_right_arithmetic", 2, light, integers, direct(reference.shift_right_arithmetic), 0),
        ("shift_right_logical", 2, light, integers, direct(reference.shift_right_logical), 0),
        ("compare", 2, light, infer.compare, reference.compare, 0),
        ("select", 3, light, infer.select, direct(np.where), 0),
        ("clamp", 3, light, numbers, direct(reference.clamp), 0),
        ("philox", 4, expensive, infer.elementwise(infer.is_u64, "u64", DType.U32), direct(reference.philox), 0),
    ]
    for name, arity, cost, rule, numpy, ulps in table:
        text = MappingProxyType(dict(TEXT.get(name, {})))
        yield OpRow(name, arity, cost, rule, numpy, ERRORS[name], ulps, text, LIBM.get(name))


def _other_rows() -> Iterable[OpRow]:
    yield OpRow("parameter", 0, Cost.LEAF, infer.parameter, None)
    yield OpRow("constant", 0, Cost.LEAF, infer.constant, reference.constant)
    yield OpRow("iota", 0, Cost.LEAF, infer.iota, reference.iota, ERRORS["iota"], 0.5)
    yield OpRow("reduce_general", None, Cost.REDUCE, infer.reduce_general, None)
    table: list[tuple[str, int | None, Cost, Rule, Reference, float]] = [
        ("broadcast", 1, Cost.MOVEMENT, infer.broadcast, reference.broadcast, 0),
        ("reshape", 1, Cost.MOVEMENT, infer.reshape, reference.reshape, 0),
        ("transpose", 1, Cost.MOVEMENT, infer.transpose, reference.transpose, 0),
        ("slice", 1, Cost.MOVEMENT, infer.slice_, reference.slice_, 0),
        ("pad", 2, Cost.MOVEMENT, infer.pad, reference.pad, 0),
        ("concatenate", None, Cost.MOVEMENT, infer.concatenate, reference.concatenate, 0),
        ("reverse", 1, Cost.MOVEMENT, infer.reverse, reference.reverse, 0),
        ("reduce", 1, Cost.REDUCE, infer.reduce, reference.reduce, 0.5),
        ("reduce_window", 2, Cost.OPAQUE, infer.reduce_window, reference.reduce_window, 0.5),
        ("scan", 2, Cost.OPAQUE, infer.scan, reference.scan, 0.5),
        ("gather", 2, Cost.OPAQUE, infer.gather, reference.gather, 0),
        ("scatter", 3, Cost.OPAQUE, infer.scatter, reference.scatter, 0.5),
        ("dynamic_slice", None, Cost.OPAQUE, infer.dynamic_slice, reference.dynamic_slice, 0),
        ("dynamic_update_slice", None, Cost.OPAQUE, infer.dynamic_update_slice, reference.dynamic_update_slice, 0),
    ]
    for name, arity, cost, rule, numpy, ulps in table:
        yield OpRow(name, arity, cost, rule, numpy, ERRORS[name], ulps)


OPS: Final[Mapping[str, OpRow]] = MappingProxyType({row.name: row for row in (*_elementwise_rows(), *_other_rows())})


def infer_node(request: Request) -> tuple[Shape, DType]:
    """The shape and dtype that the table gives the request. Raises GraphError where it breaks the op's rules."""
    row = OPS.get(request.op)
    if row is None:
        raise GraphError(f"op {request.op!r} is not in the op table")
    if row.arity is not None and len(request.operands) != row.arity:
        raise request.fail(f"{len(request.operands)} operands", f"{row.arity}")
    return row.infer(request)


def build(
    builder: GraphBuilder,
    op: str,
    operands: Iterable[int] = (),
    *,
    shape: Shape | None = None,
    dtype: DType | None = None,
    name: str = "",
    **attributes: Attribute,
) -> int:
    """Appends a node with inferred shape and dtype to `builder` and returns its index.

    `shape` and `dtype` are for the ops whose result its operands do not determine: parameter and iota (both),
    broadcast and reshape (shape), convert and bitcast_convert (dtype). Raises GraphError, naming what was given and
    expected.
    """
    indices = tuple(operands)
    if any(not 0 <= index < len(builder.nodes) for index in indices):
        raise GraphError(f"{op}: given operands {indices}, expected indices below {len(builder.nodes)}")
    nodes = tuple(builder.nodes[index] for index in indices)
    found_shape, found_dtype = infer_node(Request(op, nodes, attributes, shape, dtype))
    return builder.add(op, indices, found_shape, found_dtype, name, **attributes)
