"""What the tests of ops with two kernels share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

CALLS = 12
"""Two that compare, eight that time, and two of the kernel that has been chosen."""


def values(*shape: int, dtype: str = "float32") -> Any:
    import tensorflow as tf

    return tf.constant(np.random.default_rng(3).standard_normal(shape), dtype)


def assert_rounding_alone(expected: Sequence[Sequence[Any]], actual: Sequence[Sequence[Any]], rounding: float) -> None:
    """Results call by call, plain and stitched: the first two calls, whose values are TensorFlow's, are equal to the bit; the others
    differ by at most `rounding` relative to the largest number."""
    for number, (one, other) in enumerate(zip(expected, actual, strict=True)):
        for mine, own in zip(other, one, strict=True):
            assert mine.shape == own.shape
            if number < 2:
                np.testing.assert_array_equal(mine, own)
            np.testing.assert_allclose(mine, own, rtol=0, atol=rounding * np.max(np.abs(own)))
