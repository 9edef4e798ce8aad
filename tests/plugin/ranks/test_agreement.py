"""The agreement of a job's ranks: every run of a few ranks, random runs of many, and that each part of it is needed."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stitchfleet.plugin.ranks.agreement import MOST_ROUNDS, Agreement

from ...marks import ALL, slow
from .model import Model, ViolationError, exchange, explore, wander


@pytest.mark.parametrize(
    ("model", "recovery"),
    [
        pytest.param(Model(2, steps=4, ready_at_start=False, faults=0), 20, id="two ranks"),
        pytest.param(Model(2, steps=6, faults=0, wishes=1), 100, id="two ranks, back to plain"),
        pytest.param(Model(2, steps=4, faults=0, waits=1), 50, id="two ranks, a wait without an answer"),
        pytest.param(Model(2, steps=4, faults=0, is_in_step=False), 0, id="two ranks, steps without collectives"),
        pytest.param(
            Model(2, steps=5, faults=0, every=2, ready_at_start=False),
            50,
            id="two ranks, a collective in every other step",
        ),
        slow(Model(2, steps=4, faults=1, ready_at_start=False, refusals=True), 20),
        slow(Model(2, steps=5, faults=0, leaves=1), 20),
        slow(Model(2, steps=4, faults=0, joins=True), 0),
        slow(Model(3, steps=3, faults=0, ready_at_start=False), 100),
        slow(Model(3, steps=4, faults=0), 200),
        slow(Model(3, steps=3, faults=1), 500),
        slow(Model(3, steps=3, faults=0, resets=1), 500),
        slow(Model(3, steps=3, faults=0, wishes=2, begun=3), 500),
        slow(Model(3, steps=4, faults=0, every=3), 200),
        slow(Model(2, steps=4, faults=0, wishes=1, every=2, begun=5), 100),
        slow(Model(3, steps=4, faults=0, wishes=1, begun=3), 500),
    ],
)
def test_in_every_run_ranks_are_of_one_arm_and_wait_for_nobody(model: Model, recovery: int) -> None:
    found = explore(model, recovery)
    print(f"{model}: {found}")
    assert found.stitched, "that is what it is for"
    if model.wishes:
        assert found.back
    if model.begun + model.steps > 3:
        assert found.stayed


class NoAgreement(Agreement):
    """Each rank switches as soon as its own kernels are there."""

    def begin(self) -> bool:
        super().begin()
        self.stitched = self.vote.startswith("ready")
        return self.stitched


class NoTimeOut(Agreement):
    """Rank 0 waits until all are in time."""

    def may_begin(self) -> bool:
        if self.is_leader and self.at is not None and self.begun >= self.at - 1 and self.go is None:
            return False
        return super().may_begin()


class NoWaiting(Agreement):
    """Whoever does not know the word when the agreed step begins goes on as before."""

    def may_begin(self) -> bool:
        return (self.is_leader and super().may_begin()) or not self.is_leader


class NoAcknowledgement(Agreement):
    """Rank 0 begins the step before the agreed one without knowing whether its word is in the store."""

    def may_begin(self) -> bool:
        super().may_begin()
        return True if self.is_leader else super().may_begin()


class NoSeen(Agreement):
    """Rank 0 does not ask who knows of the step."""

    def _propose(self, target: bool, reason: str) -> None:
        super()._propose(target, reason)
        self.go = True


class OneCell(Agreement):
    """Rank 0 changes its mind about a step that it has written down."""

    def _next_round(self) -> None:
        super()._next_round()
        self.round = 0


class UnwrittenStep(Agreement):
    """Rank 0 ends a round before the others can find its step."""

    def _finish_stay(self) -> None:
        if self.go is False:
            self._next_round()


class AnyStep(Agreement):
    """Rank 0 picks a step before which no collective holds the others back."""

    def ready(self, facts: str, kernels: Iterable[str] = (), every: int = 1) -> None:
        super().ready(facts, kernels)


BROKEN = {
    "a step behind no collective": (Model(2, 5, 0, every=2, ready_at_start=False, machine=AnyStep), "for another rank"),
    "a step that nobody finds": (Model(2, 4, 0, machine=UnwrittenStep), "waits though all requests are answered"),
    "no agreement": (Model(3, 3, 0, ready_at_start=False, machine=NoAgreement), "different arms"),
    "no time-out": (Model(3, 3, 0, machine=NoTimeOut), "for another rank"),
    "forgotten on reset": (
        Model(2, 4, 0, resets=1, keeps_scope=True),
        "different arms|is given the value|for another rank",
    ),
    "no waiting": (Model(2, 4, 0, machine=NoWaiting), "different arms"),
    "no waiting on the way back": (Model(3, 3, 0, wishes=1, begun=3, machine=NoWaiting), "different arms"),
    "nobody asked who knows of the way back": (Model(3, 3, 0, wishes=1, begun=3, machine=NoSeen), "different arms"),
    "no acknowledgement": (Model(2, 4, 0, machine=NoAcknowledgement), "different arms|for another rank"),
    "nobody asked who knows": (Model(2, 4, 0, machine=NoSeen), "different arms"),
    "cells that change": (Model(2, 5, 0, machine=OneCell), "is given the value|different arms|for another rank"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_each_part_of_the_protocol_is_needed(name: str) -> None:
    model, words = BROKEN[name]
    with pytest.raises(ViolationError, match=words):
        explore(model, recovery=1 if model.machine is UnwrittenStep else 0)


@pytest.mark.parametrize("seed", range(40 if ALL else 3))
def test_sixteen_ranks_at_random(seed: int) -> None:
    model = Model(16, steps=12, faults=4, wishes=1, ready_at_start=bool(seed % 2), refusals=seed % 5 == 4)
    state, history = wander(model, seed, 3000)
    assert history
    assert len({arm for rank, arm in zip(state.ranks, state.arms) if rank.begun == state.ranks[0].begun}) == 1


def by_hand(size: int = 2) -> list[Agreement]:
    return [Agreement(rank, size) for rank in range(size)]


def run(ranks: list[Agreement], store: dict[str, str], steps: int) -> list[list[bool]]:
    """The arms of so many steps in which all requests are answered."""
    arms = []
    for _ in range(steps):
        exchange(ranks, store)
        assert all(rank.may_begin() for rank in ranks)
        arms.append([rank.begin() for rank in ranks])
    return arms


def test_all_switch_at_one_step_and_back_at_one() -> None:
    ranks, store = by_hand(3), dict[str, str]()
    assert run(ranks, store, 2) == [[False] * 3] * 2
    for rank in ranks:
        rank.ready("abc")
    arms = run(ranks, store, 5)
    assert arms == [[False] * 3] * 2 + [[True] * 3] * 3
    ranks[2].refuse("cluster x reverted")
    assert run(ranks, store, 4) == [[True] * 3] * 2 + [[False] * 3] * 2
    assert {rank.final for rank in ranks} == {"rank 2: cluster x reverted"}
    assert all(not rank.reads() and not rank.writes() for rank in ranks)


@pytest.mark.parametrize("who", [0, 1])
def test_one_rank_that_cannot_keeps_all_plain(who: int) -> None:
    ranks, store = by_hand(), dict[str, str]()
    for rank in ranks:
        (rank.refuse if rank.rank == who else rank.ready)("no kernel could be made")
    assert run(ranks, store, 6) == [[False] * 2] * 6
    assert {rank.final for rank in ranks} == {f"rank {who}: no kernel could be made"}


def test_ranks_with_different_programs_stay_plain() -> None:
    ranks, store = by_hand(3), dict[str, str]()
    for rank in ranks:
        rank.ready(f"stitchfleet=1,function={'b' if rank.rank == 2 else 'a'}")
    assert run(ranks, store, 6) == [[False] * 3] * 6
    assert {rank.final for rank in ranks} == {"rank 2 differs from rank 0 in function (a, b)"}


def test_the_kernels_that_all_have_are_agreed_on() -> None:
    ranks, store = by_hand(3), dict[str, str]()
    for rank, kernels in zip(ranks, (["x:1", "y:1", "z:1"], ["y:1", "z:2", "x:1"], ["x:1", "y:1"])):
        rank.ready("a", kernels)
    assert run(ranks, store, 4)[-1] == [True] * 3
    assert {rank.common for rank in ranks} == {frozenset({"x:1", "y:1"})}


def test_ranks_without_a_common_kernel_stay_plain() -> None:
    """Their processors differ, say."""
    ranks, store = by_hand(), dict[str, str]()
    for rank in ranks:
        rank.ready("a", [f"x:{rank.rank}"])
    assert run(ranks, store, 6) == [[False] * 2] * 6
    assert all("no kernel is the same on all ranks" in rank.final for rank in ranks)


def test_a_revert_between_vote_and_step_keeps_all_plain() -> None:
    ranks, store = by_hand(), dict[str, str]()
    for rank in ranks:
        rank.ready("a", ["x:1"])
    ranks[1].refuse("x reverted")
    assert run(ranks, store, 6) == [[False] * 2] * 6
    assert {rank.final for rank in ranks} == {"rank 1: x reverted"}


def test_who_has_begun_the_step_already_says_so() -> None:
    """Without a collective in each step a rank may be ahead of the others."""
    leader, other = by_hand()
    store: dict[str, str] = {}
    leader.ready("a")
    other.ready("a")
    for _ in range(3):
        other.begin()
    exchange([leader, other], store)
    assert store["0-seen-1"] == "late 3"
    assert store["0-go"] == "stay"


@pytest.mark.parametrize("who", [0, 1])
def test_a_rank_that_leaves_takes_the_others_with_it(who: int) -> None:
    ranks, store = by_hand(), dict[str, str]()
    for rank in ranks:
        rank.ready("a")
    assert run(ranks, store, 5)[-1] == [True] * 2
    ranks[who].leave("hvd.join")
    assert not ranks[who].begin()
    assert ranks[1 - who].begin()
    assert run(ranks, store, 5)[-1] == [False] * 2
    assert all("hvd.join" in rank.final for rank in ranks)


def test_a_rank_that_never_says_anything_keeps_all_plain() -> None:
    ranks, store = by_hand(3), dict[str, str]()
    ranks[0].ready("a")
    ranks[1].ready("a")
    run(ranks, store, 3)
    ranks[0].stop_waiting_for_votes("rank 2 runs without stitchfleet")
    assert run(ranks, store, 3) == [[False] * 3] * 3
    assert ranks[1].final == "rank 2 runs without stitchfleet"


def test_who_has_waited_long_enough_goes_on_and_takes_the_word_when_it_comes() -> None:
    ranks, store = by_hand(), dict[str, str]()
    for rank in ranks:
        rank.ready("a")
    exchange(ranks, store)
    leader, other = ranks
    other.go = None  # the word is in the store, and it has not read it
    for _ in range(2):
        assert leader.begin() == other.begin() == False  # noqa: E712
    assert not other.may_begin()
    other.give_up()
    assert other.may_begin()
    assert leader.begin()
    assert not other.begin(), "in the arm that it was in"
    exchange(ranks, store)
    assert leader.begin()
    assert other.begin()


def test_nobody_waits_twice_in_a_round() -> None:
    leader = Agreement(0, 2)
    leader.ready("a")
    leader.receive("vote-1", "ready a")
    waits = 0
    for _ in range(20):
        if not leader.may_begin():
            waits += 1
            leader.give_up()
        assert not leader.begin()
    assert waits == 1


def test_ranks_that_are_always_late_stay_plain_in_the_end() -> None:
    leader = Agreement(0, 2)
    leader.ready("a")
    leader.receive("vote-1", "ready a")
    for _ in range(MOST_ROUNDS):
        leader.acknowledge(f"{leader.round}-at")
        while leader.may_begin():
            leader.begin()
        assert leader.go is False
        leader.acknowledge(f"{leader.round}-go")
    assert "too late" in leader.final


KEYS = [key for rank in (0, 1) for key in (f"vote-{rank}", f"want-{rank}", f"0-seen-{rank}")] + [
    "0-at",
    "0-go",
    "1-at",
    "x",
    "",
]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(KEYS),
            st.text(max_size=30) | st.sampled_from(["at x", "at 5", "at -1 stitched", "no", "go!"]),
        )
    )
)
def test_whatever_stands_in_the_store_nobody_fails_or_waits(cells: list[tuple[str, str]]) -> None:
    """Anybody on the network may write there."""
    for rank in by_hand():
        rank.ready("a")
        for key, text in cells:
            rank.receive(key, text)
            if not rank.may_begin():
                rank.give_up()
            assert rank.begin() in (False, True)
