"""Functions whose steps all ranks take together: what a rank decides alone, and what not."""

from __future__ import annotations

from typing import Any

import pytest

from stitchfleet.plugin.arms.schedule import Schedule
from stitchfleet.plugin.arms.switch import Arm
from stitchfleet.plugin.base.settings import Settings
from stitchfleet.plugin.job.lockstep import Lockstep
from stitchfleet.plugin.job.program import Program, ProgramPhase


class ACourier:
    """Says what the test wants, and notes what it is told."""

    def __init__(self) -> None:
        self.stitched = self.bound = False
        self.final = ""
        self.refused: list[str] = []

    def begin(self, function: str) -> bool:
        return self.stitched

    def common(self, function: str) -> frozenset[str]:
        return frozenset({"reduce_1:abc", "optimizer_2:def"})

    def why_plain(self, function: str) -> str:
        return self.final

    def is_bound(self, function: str) -> bool:
        return self.bound

    def refuse(self, function: str, reason: str) -> None:
        self.refused.append(reason)


def program_of(courier: Any) -> Program:
    settings = Settings(block_steps=3, pairs=2, plain_share=0.1)
    program = Program("train", "function", settings)
    program.lockstep = Lockstep("0", courier, Schedule("run/0", 3, 2, 0.1))
    return program


def test_a_rank_that_has_said_it_is_ready_goes_back_with_the_others_only() -> None:
    courier = ACourier()
    courier.bound = True
    program = program_of(courier)
    program.enter(ProgramPhase.STITCHED)
    program.enter(ProgramPhase.PLAIN, "no saving")
    assert program.phase is ProgramPhase.STITCHED
    assert courier.refused == ["no saving"]
    assert program.lockstep is not None
    courier.final = "rank 0: no saving"
    program.lockstep.begin()
    program.enter(ProgramPhase.PLAIN, courier.final)
    assert program.phase is ProgramPhase.PLAIN
    assert program.reason == "rank 0: no saving"


def test_a_rank_that_is_not_ready_yet_may_be_plain_at_once_and_says_so() -> None:
    courier = ACourier()
    program = program_of(courier)
    program.refuse("no kernel could be made")
    assert program.phase is ProgramPhase.PLAIN
    assert courier.refused == ["no kernel could be made"]


@pytest.mark.parametrize("quiet", [False, True])
def test_the_arm_of_a_step_follows_from_its_number_alone(quiet: bool) -> None:
    """Whatever a rank's own compiler does meanwhile, and whether its pairs of blocks are complete."""
    courier = ACourier()
    program = program_of(courier)
    assert program.lockstep is not None
    courier.stitched = True
    program.enter(ProgramPhase.STITCHED)
    arms = []
    for _ in range(60):
        program.lockstep.begin()
        arms.append(program.begin(quiet).arm)
    schedule = Schedule("run/0", 3, 2, 0.1)
    assert arms == [schedule.slot(step).arm for step in range(60)]
    assert set(arms) == {Arm.PLAIN, Arm.STITCHED}
    assert program.lockstep.common == {"reduce_1", "optimizer_2"}
