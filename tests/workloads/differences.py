"""Whether single steps, each from the same state, differ by more than rounding: three runs' states and losses, compared by variable.

The yardstick is measured beside: plain, from the same states with each weight one unit in the last place off. Per variable, the
largest difference over its elements is taken of each step, and of these the TYPICAL quantile over the steps. In the Transformer of
CASES (130 variables, 480 stitched steps; two nudged runs, 4 windows of 60 to 240 steps) the worst variable of the stitched run has
1.0 to 1.6 times what the nudged run has, and one nudged run 1.6 to 2.0 times what another has. ALLOWED is twice that.
In the first 180 of these steps, an error of 1e-5 of a gradient's largest element would be found in 40 of the 43 weights; the other
3 have no gradient but rounding's.

The maximum over the steps is no yardstick: where a number beside the kink of a ReLU is rounded to its other side, a gradient jumps.
In 960 nudged steps that was seen once (5,400 times the typical difference). It is allowed in the share RARE of the steps, besides as
many as the yardstick's: in a convolutional net 0.6 to 1.2% of the steps, stitched and nudged alike.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

TYPICAL = 0.95
ALLOWED = 4.0
JUMP = 100.0
"""Times the yardstick: more is a jump, not rounding."""
RARE = 0.02


@dataclass(frozen=True)
class Differences:
    """first: the first step that is not plain's bit for bit. steps: how many are not. worst: largest ratio to the yardstick, of
    the variable `variable`. jumps: share of these steps in which a variable is beyond JUMP yardsticks."""

    first: int
    steps: int
    worst: float
    variable: str
    jumps: float
    yardsticks_jumps: float

    def __str__(self) -> str:
        return (
            f"{self.steps} steps from step {self.first} on differ; {self.variable} by {self.worst:.2f} of what one unit in the last "
            f"place of the weights does to it; {self.jumps:.1%} of the steps jump, {self.yardsticks_jumps:.1%} of the yardstick's"
        )


def read_states(path: Path) -> tuple[dict[str, int], np.ndarray]:
    """(size of each variable, float32 [steps, all elements])."""
    sizes: dict[str, int] = json.loads(path.with_suffix(".json").read_text())
    states = np.memmap(path, np.float32, "r")
    whole = len(states) // sum(sizes.values())
    return sizes, states[: whole * sum(sizes.values())].reshape(whole, -1)


def compare(sizes: dict[str, int], stitched: np.ndarray, plain: np.ndarray, nudged: np.ndarray) -> Differences:
    """Of states float32 [steps, elements]. Row k is what the variables held after step k, which all three began from stitched[k - 1],
    `nudged` one unit in the last place off."""
    count = min(len(stitched), len(plain), len(nudged))
    starts = np.cumsum([0, *sizes.values()])[:-1]

    def largest_of_each(elements: np.ndarray) -> np.ndarray:
        return np.asarray(np.maximum.reduceat(np.abs(elements), starts))

    def by_variable(states: np.ndarray) -> np.ndarray:
        """[steps, variables]; NaN and infinity count as the largest number. A whole run is not held in memory."""
        rows = [largest_of_each(states[k] - plain[k]) for k in range(count)]
        most = np.finfo(np.float32).max
        return np.nan_to_num(np.stack(rows).astype(np.float64), nan=most, posinf=most)

    ours, yardstick = by_variable(stitched), by_variable(nudged)
    differ = np.flatnonzero(ours.any(axis=1))
    if not len(differ):
        return Differences(count, 0, 0.0, "", 0.0, 0.0)
    # A result is rounded in any case, so that less than a unit in the last place of the largest element is never more than rounding.
    # That element is the step's own: a moving variance begins at 1, and was 22 at the end of a run.
    largest = np.stack([largest_of_each(plain[step]) for step in differ])
    least = np.maximum(largest * np.finfo(np.float32).eps, np.finfo(np.float32).tiny)
    unit = np.maximum(np.quantile(yardstick[differ], TYPICAL, axis=0), least)
    ratios = np.quantile(ours[differ] / unit, TYPICAL, axis=0)
    worst = int(np.argmax(ratios))
    jumps, of_yardstick = (float((each[differ] > JUMP * unit).any(axis=1).mean()) for each in (ours, yardstick))
    return Differences(int(differ[0]), len(differ), float(ratios[worst]), list(sizes)[worst], jumps, of_yardstick)
