"""The switchback schedule: balanced pairs, the asked-for share of plain steps, the same for every rank."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from stitchfleet.plugin.schedule import Schedule
from stitchfleet.plugin.switch import Arm

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
