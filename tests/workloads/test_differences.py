"""The comparison of single steps finds what is wrong, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from .differences import ALLOWED, RARE, Differences, compare

SIZES = {"kernel": 64, "bias": 8, "dead": 4}
STEPS, PLAIN_STEPS = 200, 50
ULP = 2.0**-23


def states(error: float = 0.0, of: slice = slice(0, 0), at: slice = slice(0, 0)) -> Differences:
    """Three runs that round otherwise; `error` relative, added to the elements `of` the stitched one in the steps `at`."""
    draw = np.random.default_rng(0)
    plain = draw.uniform(0.5, 1.0, (STEPS, sum(SIZES.values())))
    plain[:, -4:] = 0.0
    rounded = [plain * (1 + ULP * draw.choice([-1, 0, 1], plain.shape)) for _ in range(2)]
    rounded[0][at, of] *= 1 + error
    rounded[0][:PLAIN_STEPS] = plain[:PLAIN_STEPS]
    return compare(SIZES, *(run.astype(np.float32) for run in (rounded[0], plain, rounded[1])))


def test_rounding_is_within_the_bound_and_plain_steps_do_not_count() -> None:
    found = states()
    assert (found.first, found.steps) == (PLAIN_STEPS, STEPS - PLAIN_STEPS)
    assert found.worst <= ALLOWED / 2
    assert found.jumps == 0.0


@pytest.mark.parametrize("of", [slice(0, 64), slice(3, 4), slice(64, 65)])
def test_one_element_off_by_a_millionth_is_found(of: slice) -> None:
    found = states(1e-6, of, slice(0, STEPS))
    assert found.worst > ALLOWED
    assert found.variable == ("bias" if of.start == 64 else "kernel")


def test_an_error_in_few_steps_is_a_jump() -> None:
    assert states(1e-3, slice(3, 4), slice(100, 101)).jumps < RARE
    assert states(1e-3, slice(3, 4), slice(100, 105)).jumps > RARE


def test_a_number_that_is_none_is_found() -> None:
    assert states(float("nan"), slice(3, 4), slice(0, STEPS)).worst > ALLOWED
