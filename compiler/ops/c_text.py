"""C++ text of the element-wise ops: the `expression` column of the op table, and the C++ types and literals around it.

In a template, `{0}`, `{1}`, `{2}` are the operands, each a name or a literal (a template may repeat them). Further fields
are filled in by dtype: `{f}` the suffix of C library functions (`f` for float, nothing for double), `{T}` the C++ type in
registers, `{A}` the unsigned type in which arithmetic on T wraps. f16 and bf16 are float in registers and are rounded once
after each op that is not exact, as HLO defines. Helpers named `stitch_...` are in kernel_prelude.h; the elementary
functions among them are in kernel_math.h, kernel_trigonometry.h and kernel_tables.h.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from ..ir.graph import DType, Node

if TYPE_CHECKING:
    from typing import TypeAlias


class DTypeClass(enum.Enum):
    """Groups of dtypes that share a template."""

    PRED = "pred"
    SIGNED = "signed"
    UNSIGNED = "unsigned"
    FLOAT = "float"

    @classmethod
    def of(cls, dtype: DType) -> DTypeClass:
        """The class of `dtype`."""
        if dtype.is_float:
            return cls.FLOAT
        if dtype.is_signed:
            return cls.SIGNED
        return cls.UNSIGNED if dtype.is_unsigned else cls.PRED


STORAGE_TYPE: Final[Mapping[DType, str]] = {
    DType.PRED: "unsigned char",
    DType.S8: "signed char",
    DType.S16: "short",
    DType.S32: "int",
    DType.S64: "long long",
    DType.U8: "unsigned char",
    DType.U16: "unsigned short",
    DType.U32: "unsigned int",
    DType.U64: "unsigned long long",
    DType.F16: "StitchHalfBits",
    DType.BF16: "StitchHalfBits",
    DType.F32: "float",
    DType.F64: "double",
}
"""C++ type of an element in memory. A pred is a byte of 0 or 1: gcc does not vectorise loads of `bool`."""

REGISTER_TYPE: Final[Mapping[DType, str]] = {
    **STORAGE_TYPE,
    DType.PRED: "bool",
    DType.F16: "float",
    DType.BF16: "float",
}
"""C++ type of an element in an expression."""


_P, _S, _U, _F = DTypeClass.PRED, DTypeClass.SIGNED, DTypeClass.UNSIGNED, DTypeClass.FLOAT


def _integers(signed: str, unsigned: str | None = None) -> dict[DTypeClass, str]:
    return {_S: signed, _U: signed if unsigned is None else unsigned}


_ARITHMETIC: Final = "({T})(({A}){0} %s ({A}){1})"

TEXT: Final[Mapping[str, Mapping[DTypeClass, str]]] = {
    # Unary.
    "abs": {_F: "__builtin_fabs{f}({0})", **_integers("({T})({0} < 0 ? 0 - ({A}){0} : ({A}){0})", "{0}")},
    "negate": {_F: "(-({0}))", **_integers("({T})(0 - ({A}){0})")},
    "sign": {_F: "stitch_sign({0})", **_integers("({T})(({0} > 0) - ({0} < 0))", "({T})({0} != 0)")},
    "exp": {_F: "stitch_exp({0})"},
    "expm1": {_F: "stitch_expm1({0})"},
    "log": {_F: "stitch_log({0})"},
    "log1p": {_F: "stitch_log1p({0})"},
    "sqrt": {_F: "__builtin_sqrt{f}({0})"},
    "rsqrt": {_F: "(1 / __builtin_sqrt{f}({0}))"},
    "cbrt": {_F: "stitch_cbrt({0})"},
    "sin": {_F: "stitch_sin({0})"},
    "cos": {_F: "stitch_cos({0})"},
    "tan": {_F: "stitch_tan({0})"},
    "tanh": {_F: "stitch_tanh({0})"},
    "logistic": {_F: "stitch_logistic({0})"},
    "erf": {_F: "stitch_erf({0})"},
    "floor": {_F: "__builtin_floor{f}({0})"},
    "ceil": {_F: "__builtin_ceil{f}({0})"},
    "round_nearest_even": {_F: "__builtin_rint{f}({0})"},
    "round_nearest_afz": {_F: "stitch_round_away({0})"},
    "is_finite": {_F: "(__builtin_fabs{f}({0}) < __builtin_inf{f}())"},
    "not": {_P: "(!{0})", **_integers("({T})~{0}")},
    "popcnt": _integers("stitch_popcount<{T}>({0})"),
    "clz": _integers("stitch_count_leading_zeros<{T}>({0})"),
    "copy": dict.fromkeys(DTypeClass, "{0}"),
    # Binary.
    "add": {_F: "({0} + {1})", **_integers(_ARITHMETIC % "+")},
    "subtract": {_F: "({0} - {1})", **_integers(_ARITHMETIC % "-")},
    "multiply": {_F: "({0} * {1})", **_integers(_ARITHMETIC % "*")},
    "divide": {_F: "({0} / {1})", **_integers("stitch_divide<{T}>({0}, {1})")},
    "remainder": {_F: "fmod{f}({0}, {1})", **_integers("stitch_remainder<{T}>({0}, {1})")},
    "maximum": {_P: "(bool)({0} | {1})", _F: "stitch_max({0}, {1})", **_integers("({0} > {1} ? {0} : {1})")},
    "minimum": {_P: "(bool)({0} & {1})", _F: "stitch_min({0}, {1})", **_integers("({0} < {1} ? {0} : {1})")},
    "power": {_F: "stitch_pow({0}, {1})", **_integers("stitch_integer_power<{T}>({0}, {1})")},
    "atan2": {_F: "stitch_atan2({0}, {1})"},
    "and": {_P: "(bool)({0} & {1})", **_integers("({T})({0} & {1})")},
    "or": {_P: "(bool)({0} | {1})", **_integers("({T})({0} | {1})")},
    "xor": {_P: "({0} != {1})", **_integers("({T})({0} ^ {1})")},
    "shift_left": _integers("stitch_shift_left<{T}>({0}, {1})"),
    "shift_right_arithmetic": _integers("stitch_shift_right_arithmetic<{T}>({0}, {1})"),
    "shift_right_logical": _integers("stitch_shift_right_logical<{T}>({0}, {1})"),
    # Ternary.
    "select": dict.fromkeys(DTypeClass, "({0} ? {1} : {2})"),
    "clamp": {
        _F: "stitch_min(stitch_max({0}, {1}), {2})",
        **_integers("stitch_min<{T}>(stitch_max<{T}>({0}, {1}), {2})"),
    },
    "philox": {_U: "stitch_philox({0}, {1}, {2}, {3})"},
}
"""Op -> dtype class of the *last* operand -> template. `compare` and the conversions have no row: their text depends on more
than the dtype class."""

EXACT_OPS: Final = frozenset(
    (
        *("abs", "negate", "sign", "copy", "maximum", "minimum", "clamp", "select"),
        *("floor", "ceil", "round_nearest_even", "round_nearest_afz"),
    )
)
"""Ops that give an f16 or bf16 value, computed in float, if their operands are f16 or bf16 values: no rounding follows them."""

_ARITHMETIC_OPS: Final = frozenset(("add", "subtract", "multiply", "divide", "sqrt"))
"""Ops that are one instruction: if the operands are bf16 values, the lower half of a NaN result is 0, or it is a GPU's NaN."""
_POWER_OF_TWO: Final = re.compile(r"\(?-?0x1\.0*p[-+]\d+f\)?")
"""A literal that scales a bf16 value without rounding it, but for subnormals, which kernels may flush."""

_COMPARE: Final = {"EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="}
_ROUND: Final = {DType.F16: "stitch_round_f16", DType.BF16: "stitch_round_bf16"}


def load_text(dtype: DType, element: str) -> str:
    """The register value of the memory element `element` (an lvalue such as `p[i]`)."""
    if dtype in _ROUND:
        return f"stitch_from_{dtype.value}({element})"
    return f"({element} != 0)" if dtype is DType.PRED else element


def store_text(dtype: DType, value: str) -> str:
    """What to assign to a memory element for the register value `value`, which must be rounded to `dtype` already."""
    if dtype in _ROUND:
        return f"stitch_to_{dtype.value}({value})"
    return f"(unsigned char)({value})" if dtype is DType.PRED else value


def round_text(dtype: DType, value: str) -> str:
    """`value` (of dtype's register type) rounded to `dtype`. Only f16 and bf16 need it, for example after a sum that was
    accumulated in float."""
    return f"{_ROUND[dtype]}({value})" if dtype in _ROUND else value


def literal_text(dtype: DType, value: object) -> str:
    """A C++ literal of dtype's register type with exactly the value `value`, a Python or numpy scalar."""
    if dtype is DType.PRED:
        return "true" if bool(value) else "false"
    if dtype.is_float:
        number = float(np.asarray(value).astype(dtype.numpy).astype(np.float64))
        suffix = "" if dtype is DType.F64 else "f"
        if math.isnan(number):
            return f'__builtin_nan{suffix}("")'
        if math.isinf(number):
            return f"{'-' if number < 0 else ''}__builtin_inf{suffix}()"
        text = f"{number.hex()}{suffix}"
        return f"({text})" if text.startswith("-") else text
    integer = int(np.asarray(value).astype(dtype.numpy))
    if dtype is DType.S64:
        # The smallest s64 has no literal of its own: C++ would negate a number that does not fit.
        return f"({integer + 1}ll - 1)" if integer < 0 else f"{integer}ll"
    if dtype is DType.U64:
        return f"{integer}ull"
    return f"({STORAGE_TYPE[dtype]}){integer}ll"


def _convert_text(source: DType, target: DType, value: str) -> str:
    if source is target:
        return value
    if target is DType.PRED:
        return f"({value} != 0)"
    if source is DType.PRED:  # gcc vectorises a choice between two constants, but not a cast of bool
        return f"({value} ? {literal_text(target, 1)} : {literal_text(target, 0)})"
    if target.is_float:
        return round_text(target, f"({REGISTER_TYPE[target]}){value}")
    if source.is_float:
        return f"stitch_to_integer<{REGISTER_TYPE[target]}>({value})"
    return f"({REGISTER_TYPE[target]}){value}"


def _bitcast_text(source: DType, target: DType, value: str) -> str:
    bits = f"stitch_bits<{STORAGE_TYPE[target]}>({store_text(source, value)})"
    return load_text(target, bits)


Expression: TypeAlias = Callable[[Node, Sequence[DType], Sequence[str]], str]
"""Returns a C++ expression for one element of an element-wise node, of the node's register type and rounded to its dtype. Takes the
node, the operands' dtypes, and the operands as names or literals (they may be repeated) of those dtypes' register types. Raises
KeyError if the op has no text for the last operand's dtype."""


def _by_template(node: Node, operand_dtypes: Sequence[DType], operands: Sequence[str]) -> str:
    source = operand_dtypes[-1]
    text = TEXT[node.op][DTypeClass.of(source)].format(
        *operands,
        f="" if source is DType.F64 else "f",
        T=REGISTER_TYPE[source],
        A="unsigned long long" if source.size_bytes == 8 else "unsigned int",
    )
    if node.op in EXACT_OPS:
        return text
    if node.dtype is DType.BF16 and node.op in _ARITHMETIC_OPS:
        is_scaled = node.op == "multiply" and any(_POWER_OF_TWO.fullmatch(operand) for operand in operands)
        return text if is_scaled else f"stitch_round_bf16_result({text})"
    return round_text(node.dtype, text)


def _convert(node: Node, operand_dtypes: Sequence[DType], operands: Sequence[str]) -> str:
    return _convert_text(operand_dtypes[-1], node.dtype, operands[0])


def _bitcast_convert(node: Node, operand_dtypes: Sequence[DType], operands: Sequence[str]) -> str:
    return _bitcast_text(operand_dtypes[-1], node.dtype, operands[0])


def _compare(node: Node, operand_dtypes: Sequence[DType], operands: Sequence[str]) -> str:
    del operand_dtypes
    keys = [f"stitch_total_order({x})" for x in operands] if node.attributes.get("total_order") else operands
    return f"({keys[0]} {_COMPARE[str(node.attributes['direction'])]} {keys[1]})"


def _reduce_precision(node: Node, operand_dtypes: Sequence[DType], operands: Sequence[str]) -> str:
    del operand_dtypes
    bits = f"{node.attributes['exponent_bits']}, {node.attributes['mantissa_bits']}"
    return round_text(node.dtype, f"stitch_reduce_precision({operands[0]}, {bits})")


EXPRESSIONS: Final[Mapping[str, Expression]] = {
    **dict.fromkeys(TEXT, _by_template),
    "convert": _convert,
    "bitcast_convert": _bitcast_convert,
    "compare": _compare,
    "reduce_precision": _reduce_precision,
}
"""Element-wise op -> the function that writes its text."""


def cpp_combine(kind: str, dtype: DType, left: str, right: str) -> str:
    """The C++ expression of one step of a reduction of `kind` (graph.REDUCE_KINDS) in dtype's register type.

    The result is not rounded: a sum of f16 or bf16 is accumulated in float and rounded once, at its end, by `round_text`.
    """
    op = {"sum": "add", "product": "multiply", "min": "minimum", "max": "maximum", "and": "and", "or": "or"}[kind]
    wide = DType.F32 if dtype in _ROUND else dtype
    return _by_template(Node(op, (), (), wide), (wide, wide), (left, right))


LIBM: Final[Mapping[str, str]] = {"remainder": "fmod"}
"""Op -> the C library's double function that its text calls (the float version has an `f` at its end). fmod is exact, so all
versions of it agree; its long division cannot be written without branches, so the loop around it stays scalar."""
