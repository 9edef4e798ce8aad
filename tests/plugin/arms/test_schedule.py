"""The switchback schedule: balanced pairs, the asked-for share of plain steps, the same for every rank."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from stitchfleet.plugin.arms.schedule import MOST_TAKES, Course, Schedule
from stitchfleet.plugin.arms.switch import Arm

schedules = st.builds(
    Schedule,
    seed=st.text(max_size=8),
    block=st.integers(1, 40),
    opening_pairs=st.integers(0, 10),
    plain_share=st.floats(0.005, 0.5),
)


@given(schedules)
def test_each_pair_has_one_block_of_each_arm_and_each_block_one_uncounted_first_step(schedule: Schedule) -> None:
    steps = schedule.opening_pairs * schedule.pair_steps + 2 * schedule.cycle_steps
    counted: Counter[tuple[int, Arm]] = Counter()
    firsts: Counter[tuple[int, Arm]] = Counter()
    for step in range(steps):
        slot = schedule.slot(step)
        if slot.pair is not None:
            (firsts if slot.first else counted)[slot.pair, slot.arm] += 1
    pairs = {pair for pair, _ in counted}
    assert pairs == set(range(schedule.opening_pairs + 2))
    for pair in pairs:
        for arm in Arm:
            assert counted[pair, arm] == schedule.block
            assert firsts[pair, arm] == 1


@given(schedules)
def test_the_share_of_plain_steps_after_the_opening_is_what_was_asked_for(schedule: Schedule) -> None:
    opening = schedule.opening_pairs * schedule.pair_steps
    cycle = [schedule.slot(opening + step).arm for step in range(schedule.cycle_steps)]
    share = cycle.count(Arm.PLAIN) / len(cycle)
    exact = (schedule.block + 1) / schedule.cycle_steps
    assert share == exact
    assert share <= max(schedule.plain_share * 1.02 + 1 / schedule.cycle_steps, 0.5)


def test_the_order_within_pairs_is_drawn_and_depends_on_the_seed_alone() -> None:
    schedule = Schedule("run", 5, 64, 0.02)
    orders = [schedule.slot(pair * schedule.pair_steps).arm for pair in range(64)]
    assert 16 < orders.count(Arm.PLAIN) < 48
    assert orders == [Schedule("run", 5, 64, 0.02).slot(pair * schedule.pair_steps).arm for pair in range(64)]
    assert orders != [Schedule("other", 5, 64, 0.02).slot(pair * schedule.pair_steps).arm for pair in range(64)]


class Steps:
    """A program on its course: `take(quiet, counts)` runs a step, which `counts` says is one to be counted."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule, self.course = schedule, Course(schedule)
        self.complete: list[int] = []
        self.plain = 0
        self._counted: Counter[Arm] = Counter()

    def take(self, quiet: bool, counts: bool) -> None:
        slot = self.course.next(quiet, lambda pair: pair in self.complete)
        self.plain += slot.arm is Arm.PLAIN
        if slot.pair is None:
            return
        if slot.offset == 0:
            assert quiet, "a pair begins while something disturbs the job"
            self._counted.clear()
        if counts and not slot.first:
            self._counted[slot.arm] += 1
        if slot.offset == self.schedule.pair_steps - 1 and set(self._counted.values()) == {self.schedule.block}:
            self.complete.append(slot.pair)


@given(schedules, st.lists(st.booleans(), max_size=40))
def test_on_a_quiet_machine_the_course_is_the_schedule(schedule: Schedule, quiet: list[bool]) -> None:
    course = Course(schedule)
    taken = [course.next(True, lambda pair: True) for _ in range(3 * schedule.pair_steps)]
    assert taken == [schedule.slot(step) for step in range(len(taken))]


@given(schedules, st.lists(st.integers(1, 60), max_size=12))
def test_opening_pairs_that_are_disturbed_are_taken_again_until_they_are_complete(
    schedule: Schedule, disturbed_for: list[int]
) -> None:
    """Quiet and disturbed stretches by turns, then quiet: each opening pair is there, in its order."""
    steps = Steps(schedule)
    stretch = schedule.pair_steps // 2 + 1
    for length in disturbed_for[: MOST_TAKES - 1]:
        for _ in range(stretch):
            steps.take(True, True)
        for _ in range(length):
            steps.take(False, False)
    for _ in range((schedule.opening_pairs + 2) * schedule.pair_steps):
        steps.take(True, True)
    assert steps.complete[: schedule.opening_pairs] == list(range(schedule.opening_pairs))


def test_a_pair_that_something_always_disturbs_is_given_up() -> None:
    steps = Steps(Schedule("run", 5, 3, 0.02))
    for _ in range(40 * steps.schedule.pair_steps):
        steps.take(True, False)
    assert steps.complete == []
    assert steps.plain <= (3 * MOST_TAKES + 2 * MOST_TAKES) * 6
