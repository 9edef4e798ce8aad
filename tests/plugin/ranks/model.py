"""All that can happen to a few ranks and their store: an explicit-state search over the very Agreement that runs in jobs.

A state is: each rank's Agreement; the store's cells; writes that are under way. From a state any of these may come next:

    a rank becomes ready, refuses, or wants to go back
    a rank begins a step, if its Agreement lets it and every rank has begun the latest step before it that holds a collective (each
    does, or every Nth)
    a rank's write: it arrives and is acknowledged; it arrives and the acknowledgement is lost; it arrives later
    a rank's read is answered, or answered twice
    a rank that waits has waited for as long as it may, and goes on
    a rank leaves: it goes on plain alone; or it joins (hvd.join): it begins no step until all have joined
    all ranks begin anew (an elastic reset)

Acknowledgements that are lost, late writes, repeated answers, waits that end, leaves and resets are bounded. Some need no event. A
request that is lost leaves the state as it is. A rank that is late, stopped or has crashed does nothing while others do, or ever
after:
every beginning of every run is looked at, and what is checked for liveness asks nothing of other ranks.

Checked in every state
    safety     ranks that run the same step run it in the same arm, but for one that has left, or that has not learned the word on
               a round in which it has waited for as long as it may
    liveness   a rank that may not begin its step may do so once its own requests are answered, whatever the others do
    recovery   once requests are answered again, all run in one arm within a few steps
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from stitchfleet.plugin.ranks.agreement import Agreement

OWN_REQUESTS = 6
"""Requests of its own after whose answers no rank may wait any longer."""


class ViolationError(AssertionError):
    """What must never be, with how it came about."""


class State(NamedTuple):
    ranks: tuple[Agreement, ...]
    arms: tuple[bool | None, ...]
    """Of the step that each rank has begun last; None: it may differ from the others' (see `_is_out`)."""
    store: dict[str, str]
    under_way: frozenset[tuple[str, str]]
    faults: int
    """That may still happen."""
    wishes: int
    """Of a rank to go back, that may still come."""
    resets: int
    waits: int
    """That may still end without an answer."""
    leaves: int
    joined: frozenset[int] = frozenset()

    def key(self) -> tuple[Any, ...]:
        oldest = min(rank.round for rank in self.ranks)  # of the rounds before it nobody asks any more
        cells = tuple(
            sorted(
                cell for cell in self.store.items() if not cell[0][0].isdigit() or int(cell[0].split("-")[0]) >= oldest
            )
        )
        ranks = tuple(rank.key() for rank in self.ranks)
        return (ranks, self.arms, cells, self.under_way, *self[4:])


@dataclass(frozen=True)
class Model:
    """What is explored. steps: after which a rank begins no more. machine: the class of the ranks' Agreements."""

    size: int = 3
    steps: int = 5
    faults: int = 1
    wishes: int = 0
    refusals: bool = False
    ready_at_start: bool = True
    """Else each rank becomes so at any time."""
    resets: int = 0
    waits: int = 0
    leaves: int = 0
    joins: bool = False
    every: int = 1
    """The last one of so many steps holds a collective."""
    is_in_step: bool = True
    """Else steps have no collective: ranks begin theirs as they like, and a rank may wait for others."""
    keeps_scope: bool = False
    """A break: after a reset the ranks go on with the cells from before it."""
    begun: int = 0
    """Steps in which all requests are answered at once, before anything else may happen. They come on top of `steps`."""
    machine: type[Agreement] = Agreement

    def start(self) -> State:
        size = self.size
        ranks = tuple(self.machine(rank, size) for rank in range(size))
        if self.ready_at_start:
            for rank in ranks:
                rank.ready("f", (), self.every)
        store: dict[str, str] = {}
        arms = (False,) * size
        for _ in range(self.begun):
            exchange(ranks, store)
            arms = tuple(rank.begin() for rank in ranks)
        limits = (self.faults, self.wishes, self.resets, self.waits, self.leaves)
        return State(ranks, arms, store, frozenset(), *limits)

    # ---- what may come next

    def successors(self, state: State) -> Iterator[tuple[str, State]]:
        for r, rank in enumerate(state.ranks):
            yield from self._wishes(state, r, rank)
            yield from self._steps(state, r, rank)
            yield from self._requests(state, r, rank)
        for key, value in state.under_way:
            arrived = {**state.store, key: value}
            yield (
                f"the late write of {key} arrives",
                state._replace(store=arrived, under_way=state.under_way - {(key, value)}),
            )
        if state.resets:
            yield "reset", self._reset(state)

    def _wishes(self, state: State, r: int, rank: Agreement) -> Iterator[tuple[str, State]]:
        if not rank.vote:
            yield f"rank {r} is ready", _changed(state, r, lambda own: own.ready("f", (), self.every))
            if self.refusals:
                yield f"rank {r} refuses", _changed(state, r, lambda own: own.refuse("no compiler"))
        elif state.leaves and not rank.final:
            yield (
                f"rank {r} leaves",
                _changed(state, r, lambda own: own.leave("alone"))._replace(leaves=state.leaves - 1),
            )
        if self.joins and r not in state.joined:
            joined = _changed(state, r, lambda own: own.leave("join"))
            yield f"rank {r} joins", joined._replace(joined=state.joined | {r})
        if state.wishes and rank.stitched and not rank.want:
            wanting = _changed(state, r, lambda own: own.refuse("the guard"))
            yield f"rank {r} wants to go back", wanting._replace(wishes=state.wishes - 1)

    def _steps(self, state: State, r: int, rank: Agreement) -> Iterator[tuple[str, State]]:
        if not self._may_step(state, r):
            return
        own = rank.copy()
        may = own.may_begin()
        asked = _put(state, r, own)
        if not may:
            if self.is_in_step and not any(_is_out(one) for one in state.ranks):
                self._check_wait(asked, r)
            if own.key() != rank.key():
                yield f"rank {r} waits before step {rank.begun}", asked
            if state.waits:
                tired = _changed(asked, r, lambda own: own.give_up())._replace(waits=state.waits - 1)
                yield f"rank {r} has waited for long enough before step {rank.begun}", tired
            return
        yield self._begin(asked, r)

    def _may_step(self, state: State, r: int) -> bool:
        rank, others = state.ranks[r], [o for o in range(self.size) if o not in state.joined]
        if rank.begun >= self.begun + self.steps:
            return False
        if len(state.joined) == self.size:  # all have joined, and go on
            return True
        if r in state.joined:
            return False
        tied = rank.begun - rank.begun % self.every
        return not self.is_in_step or not any(state.ranks[other].begun < tied for other in others)

    def _begin(self, state: State, r: int) -> tuple[str, State]:
        rank = state.ranks[r]
        own = rank.copy()
        is_out = _is_out(own)
        arm = own.begin()
        begun = _put(state, r, own)._replace(arms=_with(state.arms, r, None if is_out else arm))
        if len(state.joined) == self.size and arm:
            raise ViolationError(f"rank {r} is stitched after all have joined")
        if not state.joined and not is_out:
            self._check_arms(begun, r, arm)
        return f"rank {r} begins step {rank.begun} {'stitched' if arm else 'plain'}", begun

    def _check_arms(self, state: State, r: int, arm: bool) -> None:
        for other in range(self.size):
            is_same_step = state.ranks[other].begun == state.ranks[r].begun
            if is_same_step and state.arms[other] not in (None, arm):
                raise ViolationError(f"in step {state.ranks[r].begun - 1} ranks {r} and {other} run different arms")

    def check_recovery(self, state: State, steps: int = 16) -> None:
        """All requests are answered from now on, and all ranks step."""
        if state.joined:
            return
        free = replace(self, steps=1 << 30)
        state = state._replace(ranks=tuple(rank.copy() for rank in state.ranks))
        for _ in range(steps):
            behind = min(rank.begun for rank in state.ranks)
            arms = set()
            for _ in range(OWN_REQUESTS):  # while the step before runs
                state = free._answered(state)
            for r in range(self.size):
                for _ in range(OWN_REQUESTS):
                    may = state.ranks[r].may_begin()  # of a state that nobody else holds any more
                    state = free._answered(state)
                if not may:
                    raise ViolationError(f"rank {r} waits though all requests are answered")
                if state.ranks[r].begun == behind:
                    arms.add(state.ranks[r].begin())
        if len(arms) > 1:
            raise ViolationError(f"different arms after {steps} steps in which all requests are answered")

    def _answered(self, state: State) -> State:
        for r in range(self.size):
            own, store = state.ranks[r].copy(), dict(state.store)
            answer_all(own, store)
            state = _put(state, r, own)._replace(store=store)
        return state

    def _check_wait(self, state: State, r: int) -> None:
        """What a waiting rank waits for is the answers to its own requests."""
        own, store = state.ranks[r].copy(), dict(state.store)
        for _ in range(OWN_REQUESTS):
            for key, value in own.writes()[:1]:
                store[key] = value
                own.acknowledge(key)
            for key in own.reads()[:1]:
                if key in store:
                    own.receive(key, store[key])
            if own.may_begin():
                return
        raise ViolationError(f"rank {r} waits before step {own.begun} for another rank")

    def _requests(self, state: State, r: int, rank: Agreement) -> Iterator[tuple[str, State]]:
        for key, value in rank.writes():
            if state.store.get(key, value) != value:
                raise ViolationError(f"{key} was {state.store[key]!r} and is given the value {value!r}")
            arrived = {**state.store, key: value}
            yield (
                f"rank {r} writes {key}: {value}",
                _changed(state, r, lambda own, key=key: own.acknowledge(key))._replace(store=arrived),
            )
            if state.faults:
                fewer = state.faults - 1
                yield f"rank {r} writes {key}, and does not learn it", state._replace(store=arrived, faults=fewer)
                under_way = state.under_way | {(key, value)}
                yield f"rank {r} writes {key}, which is late", state._replace(under_way=under_way, faults=fewer)
        for key in rank.reads():
            if key in state.store:  # one after the other, as the job asks
                value = state.store[key]
                answered = _changed(state, r, lambda own, key=key, value=value: own.receive(key, value))
                yield f"rank {r} reads {key}: {value}", answered
                if state.faults:
                    twice = _changed(answered, r, lambda own, key=key, value=value: own.receive(key, value))
                    if twice.key() != answered.key():
                        yield f"rank {r} reads {key} twice", twice._replace(faults=state.faults - 1)
                return

    def _reset(self, state: State) -> State:
        """All ranks begin anew, as after horovod's elastic reset; the store's cells are those of a scope that nobody asks
        any more."""
        fresh = self.start()
        store = dict(state.store) if self.keeps_scope else {}
        under_way = state.under_way if self.keeps_scope else frozenset()
        return fresh._replace(
            store=store,
            under_way=under_way,
            faults=state.faults,
            wishes=state.wishes,
            resets=state.resets - 1,
            waits=state.waits,
            leaves=state.leaves,
        )


def answer_all(own: Agreement, store: dict[str, str]) -> None:
    """All that a rank asks of the store is done at once."""
    for key, value in own.writes():
        store[key] = value
        own.acknowledge(key)
    for key in own.reads():
        if key in store:
            own.receive(key, store[key])


def exchange(ranks: Sequence[Agreement], store: dict[str, str]) -> None:
    """All requests are answered, again and again, until nothing is left to ask."""
    before = None
    while before != (before := [rank.key() for rank in ranks]):
        for rank in ranks:
            answer_all(rank, store)


def _is_out(rank: Agreement) -> bool:
    """It has left, or has waited in vain and does not know the word that it has waited for."""
    knows = rank.go is not None and (not rank.is_leader or f"{rank.round}-go" in rank.acknowledged)
    return rank.left or (rank.gave_up and not knows) or rank.want == "plain alone"


def _with(values: tuple[bool | None, ...], index: int, value: bool | None) -> tuple[bool | None, ...]:
    return (*values[:index], value, *values[index + 1 :])


def _put(state: State, r: int, own: Agreement) -> State:
    return state._replace(ranks=(*state.ranks[:r], own, *state.ranks[r + 1 :]))


def _changed(state: State, r: int, change: Any) -> State:
    own = state.ranks[r].copy()
    change(own)
    return _put(state, r, own)


@dataclass
class Explored:
    """How many states there are, and in how many of them something that must be possible happens."""

    states: int = 0
    stitched: int = 0
    """States in which every rank is in a stitched step."""
    back: int = 0
    """States in which all went back to plain after it."""
    stayed: int = 0
    """States in which a round had no effect."""


def explore(model: Model, recovery: int = 0) -> Explored:
    """Every state that can be reached. recovery: of one in so many states it is checked (0: of none). Raises ViolationError."""
    start = model.start()
    seen = {hash(start.key())}
    waiting = [start]
    found = Explored()
    while waiting:
        state = waiting.pop()
        found.states += 1
        if recovery and found.states % recovery == 0:
            model.check_recovery(state)
        found.stitched += all(state.arms)
        found.back += all(rank.final and rank.vote.startswith("ready") and not rank.says_no for rank in state.ranks)
        found.stayed += any(rank.round and not rank.stitched for rank in state.ranks)
        for _, following in model.successors(state):
            known = hash(following.key())
            if known not in seen:
                seen.add(known)
                waiting.append(following)
    return found


def wander(model: Model, seed: int, most: int) -> tuple[State, list[str]]:
    """One run at random, of at most so many events: where it came to, and how. Raises ViolationError."""
    choose = random.Random(seed)
    state, history = model.start(), []
    for _ in range(most):
        possible = list(model.successors(state))
        if not possible:
            break
        name, state = choose.choice(possible)
        history.append(name)
    return state, history
