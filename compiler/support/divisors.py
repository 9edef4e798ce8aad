"""Divisors of integers."""

from __future__ import annotations

import math


def divisor_near(number: int, wanted: int) -> int:
    """The greatest divisor of `number` that is not above `wanted`."""
    best = 1
    for candidate in range(1, math.isqrt(number) + 1):
        if number % candidate == 0:
            for divisor in (candidate, number // candidate):
                if best < divisor <= wanted:
                    best = divisor
    return best
