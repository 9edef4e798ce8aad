"""Computes the polynomial coefficients of compiler/codegen/c/kernel_*.h and prints them with the error of each polynomial; or the
rows of the tables of kernel_tables.h.

    pip install mpmath; python scripts/minimax.py [NAME ...]     # mpmath is not a dependency of the project
    python scripts/minimax.py erf_rows log_rows

Method: Remez' exchange in 60 digits (Cheney, Introduction to Approximation Theory, chapter 3). The coefficients are then rounded to
the working precision, lowest first, with a new exchange over the others after each, so that these compensate the rounding (Brisebarre
and Chevillard, Efficient polynomial L-infinity approximations, 2007, use lattices; one by one is enough here). Errors are relative to
the function that the polynomial is a part of, in powers of two.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath
from mpmath import mp, mpf

mp.dps = 60
Function = Callable[[Any], Any]
GRID = 1500


def power(x: Any, k: int) -> Any:
    return x**k


@dataclass(frozen=True)
class Fit:
    """An approximation of `function` on [low, high] by a polynomial. weight: factor of its error at a point. bits: of the
    coefficients' significands, 24 or 53. term: (x, k) -> what coefficient `k` is a factor of, if that is not a power of x."""

    name: str
    function: Function
    weight: Function
    low: Any
    high: Any
    degree: int
    bits: int
    term: Callable[[Any, int], Any] = power

    def value(self, coefficients: list[Any], x: Any) -> Any:
        return mpmath.fdot(coefficients, [self.term(x, k) for k in range(len(coefficients))])


def rounded(value: Any, bits: int) -> Any:
    """The float (bits = 24) or double (bits = 53) nearest to `value`, as an mpf."""
    if bits == 24:
        return mpf(struct.unpack("f", struct.pack("f", float(value)))[0])
    return mpf(float(value))


def points(low: Any, high: Any, count: int) -> list[Any]:
    """The `count` extrema of the Chebyshev polynomial of degree `count` - 1 on [low, high], in increasing order."""
    return [(low + high) / 2 + (high - low) / 2 * mpmath.cos(mp.pi * i / (count - 1)) for i in range(count)][::-1]


def exchange(fit: Fit, fixed: list[Any]) -> tuple[list[Any], Any]:
    """Remez' exchange: (coefficients, error). `fixed`: the lowest coefficients, which are given. `coefficients`: the others, lowest
    first, which minimize the largest weighted error."""
    start, free = len(fixed), fit.degree + 1 - len(fixed)

    def residue(x: Any) -> Any:
        return fit.function(x) - fit.value(fixed, x)

    grid = points(fit.low, fit.high, GRID)
    targets = [residue(x) for x in grid]
    weights = [fit.weight(x) for x in grid]
    powers = [[fit.term(x, start + k) for k in range(free)] for x in grid]
    chosen = [round(i * (GRID - 1) / free) for i in range(free + 1)]
    coefficients: list[Any] = []
    worst = mpf(0)
    for _ in range(30):
        rows, right = [], []
        for number, at in enumerate(chosen):
            w = weights[at]
            rows.append([w * p for p in powers[at]] + [mpf((-1) ** number)])
            right.append(w * targets[at])
        solved = mpmath.lu_solve(mpmath.matrix(rows), mpmath.matrix(right))
        coefficients = [solved[k] for k in range(free)]
        level = abs(solved[free])
        errors = [w * (t - mpmath.fdot(coefficients, p)) for w, t, p in zip(weights, targets, powers, strict=True)]
        worst = max(abs(e) for e in errors)
        if worst <= level * mpf("1.0005"):
            break
        # The largest error of each run of one sign. Of the two ends the smaller one is removed until free + 1 are left.
        peaks: list[int] = []
        for at, error in enumerate(errors):
            if peaks and (error > 0) == (errors[peaks[-1]] > 0):
                if abs(error) > abs(errors[peaks[-1]]):
                    peaks[-1] = at
            else:
                peaks.append(at)
        if len(peaks) < free + 1:
            break
        while len(peaks) > free + 1:
            peaks.pop(0 if abs(errors[peaks[0]]) < abs(errors[peaks[-1]]) else -1)
        chosen = peaks
    return coefficients, worst


def solve(fit: Fit) -> tuple[list[Any], Any]:
    """(all coefficients, lowest first, rounded; the largest weighted error of the polynomial). If 0 is inside the interval, all
    coefficients are rounded after the first exchange: the powers x, x^2, ... have a common zero there, so no alternation is
    guaranteed for the later exchanges."""
    fixed: list[Any] = []
    within = fit.low < 0 < fit.high
    while len(fixed) < fit.degree + 1:
        coefficients, _ = exchange(fit, fixed)
        fixed += [rounded(value, fit.bits) for value in (coefficients if within else coefficients[:1])]
    grid = points(fit.low, fit.high, 4 * GRID + 1)
    worst = max(abs(fit.weight(x) * (fit.function(x) - fit.value(fixed, x))) for x in grid)
    return fixed, worst


def text(value: Any, bits: int) -> str:
    """`value` as a hexadecimal literal of C: a float's if `bits` is 24, else a double's."""
    mantissa, exponent = float(value).hex().split("p")
    head, _, digits = mantissa.partition(".")
    digits = digits.rstrip("0")
    return f"{head}{'.' + digits if digits else ''}p{exponent}{'f' if bits == 24 else ''}"


HALF_LN2 = mpmath.log(2) / 2
ROOT = mpmath.sqrt(2)


def _near_zero(formula: Function, coefficient: Callable[[int], Any], terms: int = 60) -> Function:
    """`formula`, but for |x| <= 1/16 the power series with the coefficients `coefficient(k)`."""

    def function(x: Any) -> Any:
        if abs(x) > mpf(1) / 16:
            return formula(x)
        return mpmath.fsum(coefficient(k) * x**k for k in range(terms))

    return function


def exp_tail(r: Any) -> Any:
    return _near_zero(lambda x: (mpmath.exp(x) - 1 - x) / x**2, lambda k: 1 / mpmath.factorial(k + 2))(r)


def log_tail(f: Any) -> Any:
    """(log(1 + f) - f + f^2 / 2) / f^3."""
    return _near_zero(lambda x: (mpmath.log1p(x) - x + x**2 / 2) / x**3, lambda k: mpf((-1) ** k) / (k + 3))(f)


def log_odd(skip: int) -> Function:
    """The series log((1 + s) / (1 - s)) = 2 s (1 + z / 3 + z^2 / 5 + ...), z = s^2, from term `skip` on, divided by s^(2 skip +
    1)."""
    return lambda z: mpmath.fsum(2 * z**k / (2 * (k + skip) + 1) for k in range(60))


def log2_odd(z: Any) -> Any:
    return log_odd(0)(z) / mpmath.log(2)


def sin_tail(z: Any) -> Any:
    """(sin r - r) / r^3 as a function of z = r^2."""
    return mpmath.fsum(mpf((-1) ** (k + 1)) * z**k / mpmath.factorial(2 * k + 3) for k in range(25))


def root_tail(power: Any) -> Function:
    """((1 - e)^-power - 1) / e, as a function of e."""
    return _near_zero(lambda e: ((1 - e) ** -power - 1) / e, lambda k: (-1) ** (k + 1) * mpmath.binomial(-power, k + 1))


def root_weight(power: Any) -> Function:
    return lambda e: abs(e) * (1 - e) ** power


def tan_ratio(z: Any) -> Any:
    """tan r / r as a function of z = r^2."""
    return mpmath.tan(mpmath.sqrt(z)) / mpmath.sqrt(z) if z else mpf(1)


def tan_tail(z: Any) -> Any:
    """(tan r / r - 1) / z."""
    return (tan_ratio(z) - 1) / z if z > mpf("1e-20") else mpf(1) / 3


def tan_term(above: int) -> Callable[[Any, int], Any]:
    """The terms of the equation A(z) - tan_ratio(z) B(z) = tan_tail(z), which (1 + z A(z)) / (1 + z B(z)) = tan_ratio(z) becomes. A
    has `above` coefficients. Those of the two take turns, A's first, then the rest of B's."""

    def term(z: Any, k: int) -> Any:
        if k >= 2 * above:
            return -tan_ratio(z) * z ** (k - above)
        return -tan_ratio(z) * z ** (k // 2) if k % 2 else z ** (k // 2)

    return term


def tan_weight(z: Any) -> Any:
    """The relative weight of an error in that equation. The lower polynomial is here what it is about."""
    return z / tan_ratio(z) / (1 - mpf("0.43") * z + mpf("0.01") * z**2)


def atan_tail(z: Any) -> Any:
    """(atan q - q) / q^3 as a function of z = q^2."""
    return _near_zero(
        lambda x: (mpmath.atan(mpmath.sqrt(x)) - mpmath.sqrt(x)) / mpmath.sqrt(x) ** 3,
        lambda k: mpf((-1) ** (k + 1)) / (2 * k + 3),
    )(z)


def erf_tail(z: Any) -> Any:
    """erf(x) / x - 1 as a function of z = x^2."""
    return (
        mpmath.fsum(
            2 / mpmath.sqrt(mp.pi) * mpf((-1) ** k) * z**k / mpmath.factorial(k) / (2 * k + 1) for k in range(60)
        )
        - 1
    )


def log_erfc(x: Any) -> Any:
    return mpmath.log(mpmath.erfc(x))


def _odd(function: Function, inner: Function) -> Function:
    """The relative weight of a tail in z = r^2: inner(r), the factor of the tail in the function, divided by function(r)."""
    return lambda z: (
        inner(mpmath.sqrt(z)) / function(mpmath.sqrt(z)) if z else inner(mpf("1e-20")) / function(mpf("1e-20"))
    )


HALF_PI2 = (mp.pi / 2 + mpf("0.008")) ** 2
QUARTER_PI2 = (mp.pi / 4 + mpf("0.004")) ** 2
S2 = ((ROOT - 1) / (ROOT + 1)) ** 2 * mpf("1.0005")
LOW_F, HIGH_F = ROOT / 2 - 1, ROOT - 1
NEAR_1 = mpf("0.0046")
GUESS = mpf("0.1027")
ERF_SPLIT = mpf(1)

FITS = [
    Fit("exp", exp_tail, lambda r: r**2 / mpmath.exp(r), -HALF_LN2, HALF_LN2, 4, 24),
    Fit("exp", exp_tail, lambda r: r**2 / mpmath.exp(r), -HALF_LN2, HALF_LN2, 9, 53),
    Fit("expm1", exp_tail, lambda r: abs(r**2 / mpmath.expm1(r)) if r else mpf(0), -HALF_LN2, HALF_LN2, 5, 24),
    Fit("expm1", exp_tail, lambda r: abs(r**2 / mpmath.expm1(r)) if r else mpf(0), -HALF_LN2, HALF_LN2, 10, 53),
    Fit("log", log_tail, lambda f: abs(f**3 / mpmath.log1p(f)) if f else mpf(0), LOW_F, HIGH_F, 7, 24),
    Fit("log_odd", log_odd(1), lambda z: z / log_odd(0)(z), mpf(0), S2, 6, 53),
    Fit("log2_odd", log2_odd, lambda z: 1 / log2_odd(z), mpf(0), S2, 5, 53),
    Fit("inverse", lambda f: 1 / (1 + f), lambda f: 1 + f, LOW_F, HIGH_F, 3, 53),
    Fit("log_near_1", log_tail, lambda f: abs(f**3 / mpmath.log1p(f)) if f else mpf(0), -NEAR_1, NEAR_1, 5, 53),
    Fit("exp2", lambda g: mpmath.power(2, g), lambda g: mpmath.power(2, -g), mpf("-0.5"), mpf("0.5"), 7, 53),
    Fit("sin", sin_tail, _odd(mpmath.sin, lambda r: r**3), mpf(0), QUARTER_PI2, 2, 24),
    Fit("sin", sin_tail, _odd(mpmath.sin, lambda r: r**3), mpf(0), QUARTER_PI2, 5, 53),
    Fit("tan", tan_tail, tan_weight, mpf(0), QUARTER_PI2, 2, 24, tan_term(1)),
    Fit("tan", tan_tail, tan_weight, mpf(0), QUARTER_PI2, 5, 53, tan_term(3)),
    Fit("sin_wide", sin_tail, _odd(mpmath.sin, lambda r: r**3), mpf(0), HALF_PI2, 3, 24),
    Fit("sin_wide", sin_tail, _odd(mpmath.sin, lambda r: r**3), mpf(0), HALF_PI2, 8, 53),
    Fit("cube_root", root_tail(mpf(2) / 3), root_weight(mpf(2) / 3), -GUESS, GUESS, 5, 24),
    Fit("inverse_cube_root", root_tail(mpf(1) / 3), root_weight(mpf(1) / 3), -GUESS, GUESS, 1, 53),
    Fit("atan", atan_tail, _odd(mpmath.atan, lambda q: q**3), mpf(0), mpf(1), 8, 24),
    Fit("atan", atan_tail, _odd(mpmath.atan, lambda q: q**3), mpf(0), mpf(1), 18, 53),
    Fit("erf_near", erf_tail, _odd(mpmath.erf, lambda x: x), mpf(0), ERF_SPLIT**2, 6, 24),
    Fit("erf_far", log_erfc, lambda x: mpmath.erfc(x) / mpmath.erf(x), ERF_SPLIT, mpf("4.0"), 6, 24),
]


def erf_rows() -> list[tuple[Any, Any]]:
    """erf and its derivative at k / 64, up to where erf is 1."""
    return [(mpmath.erf(mpf(k) / 64), 2 / mpmath.sqrt(mp.pi) * mpmath.exp(-((mpf(k) / 64) ** 2))) for k in range(379)]


def log_rows() -> list[tuple[Any, Any]]:
    """-log(k / 256) for k / 256 from sqrt(1/2) to sqrt(2), in two parts: a multiple of 2^-42, and the rest."""
    rows = []
    for k in range(181, 364):
        value = -mpmath.log(mpf(k) / 256)
        high = mpmath.nint(value * 2**42) / mpf(2**42)
        rows.append((high, value - high))
    return rows


TABLES = {"erf_rows": erf_rows, "log_rows": log_rows}


def main(names: list[str]) -> None:
    for name in TABLES:
        if name in names:
            print(name)
            for row in TABLES[name]():
                print("  {" + ", ".join(text(value, 53) for value in row) + "},")
    for fit in FITS:
        if names and fit.name not in names:
            continue
        coefficients, worst = solve(fit)
        print(
            f"{fit.name} {'float' if fit.bits == 24 else 'double'}, degree {fit.degree}: 2^{float(mpmath.log(worst, 2)):.2f}"
        )
        print("  " + ", ".join(text(c, fit.bits) for c in coefficients), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
