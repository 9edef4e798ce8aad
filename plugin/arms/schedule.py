"""When a job runs which arm: switchback blocks, in pairs, in an order drawn from the job's own random numbers.

A pair is one plain block and one stitched block of the same length, next to each other in time, so that drift of the machine falls
on both (a switchback experiment). The stitched phase opens with some pairs back to back; later pairs come at the rate that
keeps plain steps at `plain_share` of all. The schedule is a pure function of (seed, step), so every rank of a job draws the same.

A Course goes through the schedule for one program. It begins a pair only while nothing of ours disturbs the job, and takes a pair
that was disturbed all the same again: a job of a few hundred steps has no later pairs to make up for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from .switch import Arm

MOST_TAKES = 8
"""Of one pair, where something disturbs it every time."""


@dataclass(frozen=True)
class Slot:
    """What one step of the stitched phase is: its arm, and the pair it is measured in (None: between pairs).

    first: the first step of a block, which carries over from the other arm and is not counted. offset: steps since the pair began.
    """

    arm: Arm
    pair: int | None
    first: bool
    offset: int = 0


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
        half, step = divmod(position, self.block + 1)
        plain_first = hashlib.sha256(f"{self.seed}/{pair}".encode()).digest()[0] & 1 == 0
        arm = Arm.PLAIN if (half == 0) == plain_first else Arm.STITCHED
        return Slot(arm, pair, step == 0, position)


class Course:
    """Where a program is in its schedule; step by step, from the beginning of its stitched phase on."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._position = 0
        self._pair: int | None = None
        """The pair that is being taken."""
        self._begun_at = 0
        self._takes = 0

    def next(self, quiet: bool, is_complete: Callable[[int], bool]) -> Slot:
        """What the next step is. quiet: nothing of ours is at work beside the job. is_complete: whether a pair has all its
        steps."""
        slot = self._schedule.slot(self._position)
        if self._pair is not None and slot.pair != self._pair:  # it has ended
            if is_complete(self._pair) or self._takes >= MOST_TAKES:
                self._pair = None
            else:
                self._position = self._begun_at
                slot = self._schedule.slot(self._position)
        if slot.pair is not None and slot.offset == 0:
            if not quiet:
                return Slot(Arm.STITCHED, None, False)
            self._takes = self._takes + 1 if slot.pair == self._pair else 1
            self._pair, self._begun_at = slot.pair, self._position
        self._position += 1
        return slot
