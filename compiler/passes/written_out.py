"""Recognises functions that a lowering has written out in primitive ops.

If XLA's HLO has no op `erf` (TensorFlow 2.15), erf is lowered to a rational function of the clamped argument (`ErfImpl32` in
xla/client/lib/math.cc of openxla/xla). Computed op by op in float, it is off by up to 2^-23 where erf is 1, so that an exact
GELU's x (1 + erf(x / sqrt 2)) is -5e-6 at -88 and -6e30 at -1e38, where TensorFlow's own kernel (Eigen) gives 0. The rule:
ops that have exactly the form of XLA's erf become the op `erf`, whose result is 1 exactly where 1 is the nearest number
(kernel_math.h).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from ..ir.graph import Array, DType, Node

if TYPE_CHECKING:
    from typing import TypeAlias

CLAMP: Final = 3.7439211627767994
NUMERATOR: Final = (
    1.128379143519084,
    0.18520832239976145,
    0.050955695062380861,
    0.0034082910107109506,
    0.00022905065861350646,
)
DENOMINATOR: Final = (
    *(1.0, 0.49746925110067538, 0.11098505178285362, 0.014070470171167667, 0.0010179625278914885),
    *(0.000023547966471313185, -1.1791602954361697e-7),
)
"""Coefficients of x^0, x^2, x^4, ... in ErfImpl32; a float keeps their first 24 bits."""

ConstantOf: TypeAlias = "Callable[[int], Array | None]"


def erf_argument(nodes: Sequence[Node], constant_of: ConstantOf, node: Node) -> int | None:
    """The index of the node x if the quotient `node` is erf(x) written out as XLA does for f32; else None. constant_of: returns the
    value that all elements of a node share, as an array of shape (), or None."""
    if node.op != "divide" or node.dtype is not DType.F32:
        return None
    product = nodes[node.operands[0]]
    if product.op != "multiply":
        return None
    for clamped, polynomial in (product.operands, product.operands[::-1]):
        clamp = nodes[clamped]
        if clamp.op != "clamp" or not _is(constant_of(clamp.operands[0]), -CLAMP):
            continue
        if not _is(constant_of(clamp.operands[2]), CLAMP):
            continue
        numerator = _coefficients(nodes, constant_of, polynomial, clamped, len(NUMERATOR))
        denominator = _coefficients(nodes, constant_of, node.operands[1], clamped, len(DENOMINATOR))
        if numerator == _floats(NUMERATOR) and denominator == _floats(DENOMINATOR):
            return clamp.operands[1]
    return None


def _floats(values: Sequence[float]) -> list[float]:
    return [float(np.float32(value)) for value in values]


def _is(value: Array | None, expected: float) -> bool:
    return value is not None and float(value) == float(np.float32(expected))


def _coefficients(
    nodes: Sequence[Node], constant_of: ConstantOf, at: int, variable: int, most: int
) -> list[float] | None:
    """The coefficients of Horner's rule in the square of `variable`, lowest first; None if node `at` has another form."""
    found: list[float] = []
    while len(found) < most:
        value = constant_of(at)
        if value is not None:
            return [*found, float(value)]
        terms = nodes[at].operands
        if nodes[at].op != "add":
            return None
        constants = [constant_of(term) for term in terms]
        place = next((k for k, constant in enumerate(constants) if constant is not None), None)
        if place is None:
            return None
        last = constants[place]
        assert last is not None
        found.append(float(last))
        product = nodes[terms[1 - place]]
        if product.op != "multiply":
            return None
        rest = [factor for factor in product.operands if not _is_square(nodes[factor], variable)]
        if len(rest) != 1:
            return None
        at = rest[0]
    return None


def _is_square(node: Node, of: int) -> bool:
    return node.op == "multiply" and node.operands == (of, of)
