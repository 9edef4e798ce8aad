"""How ill-conditioned the framework's results are: by how much they move when their inputs move in the last place.

Two right implementations of a graph may differ by a small multiple (SLACK) of this movement; if they differ by more, they
compute different things. The movement is measured, so it is known even if the oracle's bound is infinite (after a comparison of
nearly equal numbers). Source: Higham, "Accuracy and Stability of Numerical Algorithms", section 1.6.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from ..ir.graph import Array, Graph
from ..ops.errors import UNIT_ROUNDOFF
from ..support.sequences import zip_strict

if TYPE_CHECKING:
    from typing import TypeAlias

Reference: TypeAlias = "Callable[[Sequence[Array]], Sequence[Array]]"
"""The framework's own function from a graph's inputs to its outputs. It may raise RefusedInputsError."""

RUNS: Final = 4
"""Runs on moved inputs. With four runs, the error of a sum of random roundings exceeds SLACK times the largest move with a
probability below 10^-4."""
SLACK: Final = 16.0
"""How many times as far as the largest move two right results may be apart: rounding within the operators adds to what the inputs'
last place does."""


class RefusedInputsError(Exception):
    """The framework's operators raise an error on these inputs (an index out of range, for example). The text is the
    framework's, in one line."""


def largest_moves(
    graph: Graph,
    inputs: Sequence[Array],
    reference: Reference,
    results: Sequence[Array],
    generator: np.random.Generator,
) -> list[npt.NDArray[np.float64]]:
    """For each output, by how much its elements have moved from `results`, the framework's for `inputs`, in RUNS runs in which each
    floating-point input was one unit in its last place larger or smaller. Zeros if the framework refuses the moved inputs."""
    peers = [result.astype(np.float64) for result in results]
    found = [np.zeros(peer.shape) for peer in peers]
    units = [UNIT_ROUNDOFF.get(graph.nodes[i].dtype, 0.0) for i in graph.parameters]
    with np.errstate(all="ignore"), contextlib.suppress(RefusedInputsError):
        for _ in range(RUNS):
            moved = [_moved(value, unit, generator) for value, unit in zip_strict(inputs, units)]
            for number, value in enumerate(reference(moved)):
                far = np.abs(np.asarray(value, np.float64) - peers[number])
                np.maximum(found[number], far, out=found[number])
    return found


def _moved(value: Array, unit: float, generator: np.random.Generator) -> Array:
    """The numbers, each a unit in the last place larger or smaller. unit: the unit roundoff of their dtype; 0 for integers and
    booleans, which stay."""
    if not unit:
        return value
    signs = generator.integers(0, 2, value.shape) * 2 - 1
    return (value.astype(np.float64) * (1.0 + 2.0 * unit * signs)).astype(value.dtype)
