"""Divisors of integers."""

from __future__ import annotations

import math


def divisor_near(number: int, wanted: int) -> int:
    """The largest divisor of `number` (at least 1) that is at most `wanted`; 1 if `wanted` is below 1."""
    best = 1
    for candidate in range(1, math.isqrt(number) + 1):
        if number % candidate == 0:
            for divisor in (candidate, number // candidate):
                if best < divisor <= wanted:
                    best = divisor
    return best
