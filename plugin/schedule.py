"""When a job runs which arm: switchback blocks, in pairs, in an order drawn from the job's own random numbers.

A pair is one plain block and one stitched block of the same length, next to each other in time, so that drift of the machine falls
on both (research: switchback experiments). The stitched phase opens with some pairs back to back; later pairs come at the rate that
keeps plain steps at `plain_share` of all. The schedule is a pure function of (seed, step), so every rank of a job draws the same.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from .switch import Arm


@dataclass(frozen=True)
class Slot:
    """What one step of the stitched phase is: its arm, and the pair it is measured in (None: between pairs).

    first: the first step of a block, which carries over from the other arm and is not counted.
    """

    arm: Arm
    pair: int | None
    first: bool


@dataclass(frozen=True)
class Schedule:
    """The stitched phase's plan. `block` counts the steps of a block without its uncounted first."""

    seed: str
    block: int
    opening_pairs: int
    plain_share: float

    @property
    def pair_steps(self) -> int:
        return 2 * (self.block + 1)

    @property
    def cycle_steps(self) -> int:
        """Steps from one later pair to the next: as many as make its plain block the given share."""
        share = max(self.plain_share, 1e-6)
        return max(self.pair_steps, round((self.block + 1) / share))

    def slot(self, step: int) -> Slot:
        """What step 0, 1, ... of the stitched phase is."""
        opening = self.opening_pairs * self.pair_steps
        if step < opening:
            return self._in_pair(step // self.pair_steps, step % self.pair_steps)
        cycle, position = divmod(step - opening, self.cycle_steps)
        quiet = self.cycle_steps - self.pair_steps
        if position < quiet:
            return Slot(Arm.STITCHED, None, False)
        return self._in_pair(self.opening_pairs + cycle, position - quiet)

    def _in_pair(self, pair: int, position: int) -> Slot:
        half, offset = divmod(position, self.block + 1)
        plain_first = hashlib.sha256(f"{self.seed}/{pair}".encode()).digest()[0] & 1 == 0
        arm = Arm.PLAIN if (half == 0) == plain_first else Arm.STITCHED
        return Slot(arm, pair, offset == 0)
