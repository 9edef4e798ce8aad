"""Quantiles of Student's t distribution, so that the training process needs no statistics package for an interval."""

from __future__ import annotations

import functools
import math

_MAX_TERMS = 400
_EPSILON = 1e-15


def _beta_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function by Lentz's method (Numerical Recipes, 3rd ed., section 6.4)."""
    tiny = 1e-300
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1.0)
    d = 1.0 / (d if abs(d) > tiny else tiny)
    value = d
    for m in range(1, _MAX_TERMS):
        for factor in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 + factor * d
            d = 1.0 / (d if abs(d) > tiny else tiny)
            c = 1.0 + factor / c
            c = c if abs(c) > tiny else tiny
            value *= d * c
        if abs(d * c - 1.0) < _EPSILON:
            break
    return value


def regularized_beta(a: float, b: float, x: float) -> float:
    """I_x(a, b), the regularized incomplete beta function, for a, b > 0 and 0 <= x <= 1."""
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _beta_fraction(a, b, x) / a
    return 1.0 - front * _beta_fraction(b, a, 1.0 - x) / b


def two_sided_tail(t: float, degrees: float) -> float:
    """P(|T| > t) for Student's T with `degrees` > 0 degrees of freedom, which may be fractional."""
    return regularized_beta(degrees / 2.0, 0.5, degrees / (degrees + t * t))


def density(t: float, degrees: float) -> float:
    """The density of Student's t at `t`."""
    front = math.lgamma((degrees + 1.0) / 2.0) - math.lgamma(degrees / 2.0) - math.log(degrees * math.pi) / 2.0
    return math.exp(front - (degrees + 1.0) / 2.0 * math.log1p(t * t / degrees))


@functools.lru_cache(maxsize=4096)
def two_sided_quantile(confidence: float, degrees: float) -> float:
    """The t with P(|T| <= t) = confidence, by Newton's method to about 1e-12 relative.

    Raises ValueError for a confidence outside (0, 1) or degrees of freedom that are not above 0.
    """
    if not 0.0 < confidence < 1.0 or not degrees > 0.0:
        raise ValueError(f"no t quantile for confidence {confidence} and {degrees} degrees of freedom")
    tail = 1.0 - confidence
    t, above = 0.0, 1.0
    while two_sided_tail(above, degrees) > tail:
        t, above = above, above * 2.0
    # the tail is convex and decreasing: starting where it is too large, steps approach the root and never pass it
    for _ in range(60):
        step = (two_sided_tail(t, degrees) - tail) / (2.0 * density(t, degrees))
        if step <= 1e-13 * t:
            break
        t += step
    return t
