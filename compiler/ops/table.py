"""The one op table. What an operation means is written here once. The verifier reads it (`infer`), the interpreter (`numpy`), both
backends (`expression`, `libm`), the planner and the lowering (`cost`, `propagation`), the oracle (`error`, `ulps`, `slicing`,
`moves`), the judge of numbers (`condition`), the drawing of the self-check's inputs (`moves`), and the tests.

Each column is written in a module of its own: shapes and dtypes in `infer`, numpy's results in `reference`, C++ text in `c_text`,
error bounds in `errors`, the elements that a result is computed from in `propagation`, what a slice of it needs in `slicing`.
`build` adds a node with inferred shape and dtype to a builder (see the example at the end).

Rare data. A row means what HLO's operation semantics say. If these leave a result open, one rule decides: what TensorFlow's
documentation says of the value, else what its CPU kernel computes.

    maximum, minimum   NaN if either operand is (HLO); of zeros of both signs the second operand (x > y ? x : y, documented)
    sign               0 at zeros of both signs (documented), NaN at NaN
    convert            of floats to integers: towards zero, out of range the nearest end, NaN to 0 (HLO)
    divide, remainder  of integers by zero: all bits one, and the dividend (XLA)
    reduce             max and min: NaN if any element is. Sums may be in any order: if one overflows on the way, it may be infinite

If TensorFlow's operator differs from XLA's lowering of it, the plugin spells the operator out before it is lowered (its
clusters/rare_data.py has the whole table). The self-check compares each kernel with the framework's own operators on such data
(random_inputs.RARE).

    builder = GraphBuilder("double")
    x = build(builder, "parameter", (), number=0, shape=(8, 128), dtype=DType.F32)
    y = build(builder, "add", (x, x))
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np

from ..ir.graph import Attribute, DType, GraphBuilder, Node, Shape
from . import infer, propagation, reference, slicing
from .c_text import EXPRESSIONS, LIBM, Expression
from .errors import CONDITION, ERRORS, ErrorRule, exact
from .infer import GraphError, NewNode, Rule
from .propagation import Propagation
from .reference import NumpyRule, direct
from .slicing import Slicing


class Cost(enum.Enum):
    """The cost class of an op for the planner and the cost model (AStitch section 2: light and expensive element-wise, reduce,
    movement)."""

    LIGHT = "light"  # element-wise, a few cycles
    EXPENSIVE = "expensive"  # element-wise, as costly as a library call: not worth computing twice
    REDUCE = "reduce"
    MOVEMENT = "movement"  # each result element is one operand element (or padding), at an index known at compile time
    LEAF = "leaf"
    OPAQUE = "opaque"  # data-dependent indices, or a window of elements: a loop nest of its own or an indexed load


ELEMENTWISE: Final = (Cost.LIGHT, Cost.EXPENSIVE)


FIRST_OPERAND: Final = slice(0, 1)
FIRST_TWO_OPERANDS: Final = slice(0, 2)
ALL_OPERANDS: Final = slice(None)


@dataclass(frozen=True)
class OpRow:
    """One op. If a column may be None, its comment says what None means."""

    name: str
    arity: int | None  # None: any number of operands, checked by `infer`
    cost: Cost
    infer: Rule
    numpy: NumpyRule | None  # None: the interpreter handles it itself (parameter, reduce_general)
    propagation: Propagation | None  # which operand elements a result element is computed from; None: is_reduction
    slicing: Slicing | None  # what a slice of the result needs, for the oracle; None: it is computed as a whole
    moves: slice | None = None  # the operands whose elements the result consists of, unchanged; None: it computes
    error: ErrorRule = exact  # how the operands' errors reach the result
    ulps: float = 0.0
    """The error, in units in the last place of the result, that a correct implementation may make beyond what its operands' errors
    cause: 0 exact, 0.5 correctly rounded. For an elementary function it is the larger of what kernel_math.h states (without fused
    multiply-adds) and what CUDA states (CUDA C++ Programming Guide, mathematical functions)."""
    condition: float = 1.0  # the factor by which the op multiplies the relative error of an operand of ordinary size
    expression: Expression | None = None  # the C++ text of one element
    libm: str | None = None  # C library function that the text calls (double's name), to be declared

    @property
    def elementwise(self) -> bool:
        """Whether each result element depends on the same element of each operand only."""
        return self.cost in ELEMENTWISE

    @property
    def is_leaf(self) -> bool:
        """Whether the op has no operands, so that its elements can be computed anywhere."""
        return self.cost is Cost.LEAF

    @property
    def is_reduction(self) -> bool:
        """Whether the op is a reduction, or is computed like one in a loop nest of its own (reduce_window, scan, scatter): its
        elements are never computed inline, but read from memory."""
        return self.propagation is None


def _elementwise_rows() -> Iterable[OpRow]:
    """Rows of the ops whose operands have one shape and, except for select, one dtype."""
    floats = infer.elementwise(infer.is_float, "a float dtype")
    numbers = infer.elementwise(infer.is_number, "a number")
    anything = infer.elementwise(infer.is_any, "any dtype")
    integers = infer.elementwise(infer.is_integer, "an integer dtype")
    logical = infer.elementwise(infer.is_logical, "pred or an integer dtype")
    light, expensive = Cost.LIGHT, Cost.EXPENSIVE
    table: list[tuple[str, int, Cost, Rule, NumpyRule, float]] = [
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
    moves = {"copy": FIRST_OPERAND, "select": slice(1, 3)}
    for name, arity, cost, rule, numpy, ulps in table:
        yield OpRow(
            name,
            arity,
            cost,
            rule,
            numpy,
            propagation.elementwise,
            slicing.elementwise,
            moves.get(name),
            ERRORS[name],
            ulps,
            CONDITION.get(name, 1.0),
            EXPRESSIONS[name],
            LIBM.get(name),
        )


def _other_rows() -> Iterable[OpRow]:
    leaf, movement, opaque = Cost.LEAF, Cost.MOVEMENT, Cost.OPAQUE
    yield OpRow("parameter", 0, leaf, infer.parameter, None, propagation.parameter, None)
    yield OpRow("constant", 0, leaf, infer.constant, reference.constant, propagation.constant, None)
    yield OpRow("iota", 0, leaf, infer.iota, reference.iota, propagation.iota, None, None, ERRORS["iota"], 0.5)
    yield OpRow("reduce_general", None, Cost.REDUCE, infer.reduce_general, None, None, slicing.reduce)
    moving: list[tuple[str, int | None, Cost, Rule, NumpyRule, Propagation, Slicing | None, slice]] = [
        # name, arity, cost, infer, numpy, propagation, slicing, moves
        (
            "broadcast",
            1,
            movement,
            infer.broadcast,
            reference.broadcast,
            propagation.broadcast,
            slicing.broadcast,
            FIRST_OPERAND,
        ),
        ("reshape", 1, movement, infer.reshape, reference.reshape, propagation.reshape, slicing.reshape, FIRST_OPERAND),
        (
            "transpose",
            1,
            movement,
            infer.transpose,
            reference.transpose,
            propagation.transpose,
            slicing.transpose,
            FIRST_OPERAND,
        ),
        ("slice", 1, movement, infer.slice_, reference.slice_, propagation.slice_, slicing.slice_, FIRST_OPERAND),
        ("pad", 2, movement, infer.pad, reference.pad, propagation.pad, slicing.pad, FIRST_TWO_OPERANDS),
        (
            "concatenate",
            None,
            movement,
            infer.concatenate,
            reference.concatenate,
            propagation.concatenate,
            slicing.concatenate,
            ALL_OPERANDS,
        ),
        ("reverse", 1, movement, infer.reverse, reference.reverse, propagation.reverse, slicing.reverse, FIRST_OPERAND),
        ("patches", 1, movement, infer.patches, reference.patches, propagation.patches, slicing.patches, FIRST_OPERAND),
        ("gather", 2, opaque, infer.gather, reference.gather, propagation.gather, slicing.gather, FIRST_OPERAND),
        (
            "dynamic_slice",
            None,
            opaque,
            infer.dynamic_slice,
            reference.dynamic_slice,
            propagation.dynamic_slice,
            None,
            FIRST_OPERAND,
        ),
        (
            "dynamic_update_slice",
            None,
            opaque,
            infer.dynamic_update_slice,
            reference.dynamic_update_slice,
            propagation.dynamic_update_slice,
            None,
            FIRST_TWO_OPERANDS,
        ),
    ]
    for name, arity, cost, rule, numpy, found, cut, moves in moving:
        yield OpRow(name, arity, cost, rule, numpy, found, cut, moves, ERRORS[name])
    combining: list[tuple[str, int, Cost, Rule, NumpyRule, Slicing | None]] = [
        # name, arity, cost, infer, numpy, slicing
        ("reduce", 1, Cost.REDUCE, infer.reduce, reference.reduce, slicing.reduce),
        ("dot", 2, Cost.REDUCE, infer.dot, reference.dot, slicing.dot),
        ("reduce_window", 2, opaque, infer.reduce_window, reference.reduce_window, None),
        ("scan", 2, opaque, infer.scan, reference.scan, None),
        ("scatter", 3, opaque, infer.scatter, reference.scatter, None),
    ]
    for name, arity, cost, rule, numpy, cut in combining:
        yield OpRow(name, arity, cost, rule, numpy, None, cut, None, ERRORS[name], 0.5)


_ROWS: Final = {row.name: row for row in (*_elementwise_rows(), *_other_rows())}
OPS: Final[Mapping[str, OpRow]] = MappingProxyType(_ROWS)


def cpp_expression(node: Node, operand_dtypes: Sequence[DType], operands: Sequence[str]) -> str:
    """The C++ expression of an element-wise `node` on `operands` (c_text.Expression). Raises KeyError if the op has no element-wise
    text, or none for this dtype."""
    expression = OPS[node.op].expression
    if expression is None:
        raise KeyError(node.op)
    return expression(node, operand_dtypes, operands)


def libm_functions(op: str, dtype: DType) -> tuple[str, ...]:
    """The C library functions that the text of `op` calls for operands of `dtype`: `("fmodf",)`, `("fmod",)` or none."""
    name = OPS[op].libm
    return (name + ("" if dtype is DType.F64 else "f"),) if name is not None and dtype.is_float else ()


def infer_node(request: NewNode) -> tuple[Shape, DType]:
    """The shape and dtype that the op's row infers. Raises GraphError if the request breaks the row's rules."""
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

    `shape` and `dtype` are for the ops whose operands do not determine the result: parameter and iota (both), broadcast and
    reshape (shape), convert and bitcast_convert (dtype). Raises GraphError, which names what was given and what was
    expected.
    """
    indices = tuple(operands)
    if any(not 0 <= index < len(builder.nodes) for index in indices):
        raise GraphError(f"{op}: given operands {indices}, expected indices below {len(builder.nodes)}")
    nodes = tuple(builder.nodes[index] for index in indices)
    found_shape, found_dtype = infer_node(NewNode(op, nodes, attributes, shape, dtype))
    return builder.add(op, indices, found_shape, found_dtype, name, **attributes)
