"""The schedule of a job's arms: switchback blocks, in pairs, in an order drawn from a seed of the job.

A pair is one plain block and one stitched block of the same length, next to each other in time, so that drift of the machine falls
on both (a switchback experiment). The stitched phase opens with some pairs back to back; later pairs come at the rate that
keeps plain steps at `plain_share` of all. The schedule is a pure function of (seed, step), so every rank of a job draws the same.

A Course follows the schedule for one program. It begins a pair only while no process of ours disturbs the job, and repeats a pair
that was disturbed nevertheless: a job of a few hundred steps has no later pairs to make up for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from .switch import Arm

MOST_TAKES = 8
"""Most attempts at one pair, if it is disturbed each time."""


@dataclass(frozen=True)
class Slot:
    """One step of the stitched phase: its arm, and the pair in which it is measured (None: between pairs).

    first: the first step of a block, which carries over from the other arm and is not counted. offset: steps since the pair began.
    """

    arm: Arm
    pair: int | None
    first: bool
    offset: int = 0


@dataclass(frozen=True)
class Schedule:
    """The plan of the stitched phase.

    seed: any text; it decides the order of the blocks in each pair. block: counted steps of a block, which has one uncounted step
    before them. opening_pairs: number of pairs back to back at the beginning. plain_share: share (0 to 1) of the later steps that
    run plain.
    """

    seed: str
    block: int
    opening_pairs: int
    plain_share: float

    @property
    def pair_steps(self) -> int:
        """Steps of a pair: two blocks, each with its uncounted first step."""
        return 2 * (self.block + 1)

    @property
    def cycle_steps(self) -> int:
        """Steps from the beginning of one later pair to that of the next, so that plain blocks take `plain_share` of the steps;
        at least `pair_steps`."""
        share = max(self.plain_share, 1e-6)
        return max(self.pair_steps, round((self.block + 1) / share))

    def slot(self, step: int) -> Slot:
        """The slot of a step, counted from 0 at the beginning of the stitched phase."""
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
    """A program's position in its schedule, from the beginning of its stitched phase on."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._position = 0
        self._pair: int | None = None
        """Number of the pair in progress; None between pairs."""
        self._begun_at = 0
        self._takes = 0

    def next(self, quiet: bool, is_complete: Callable[[int], bool]) -> Slot:
        """The slot of the next step; call it once per step. quiet: whether no process of ours is at work beside the job; only
        then a pair begins. is_complete(pair): whether a pair has all its counted steps; if not, it is repeated, up to MOST_TAKES
        times in all."""
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
