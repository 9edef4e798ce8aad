"""Agreements carried between the ranks by a store that answers, answers late, refuses, or is answered by nobody."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest

from stitchfleet.plugin.ranks import courier as module
from stitchfleet.plugin.ranks.courier import Courier, Times
from stitchfleet.plugin.ranks.store import Finder
from stitchfleet.plugin.ranks.world import World

from .rendezvous import Rendezvous

Train = Callable[..., list[list[bool]]]


@pytest.fixture
def rendezvous() -> Iterator[Rendezvous]:
    with Rendezvous() as server:
        yield server


SWIFT = Times(lead_s=0.1, period_s=0.002, vote_period_s=0.005, idle_period_s=0.005)
"""Steps of these jobs take milliseconds, and so do the periods; the lead is 50 of them, a little more than in jobs (40)."""


class Job:
    """So many ranks, each with a thread that trains: no rank ends a step before all have begun it, as a collective has it.

    rendezvous: the launcher's store; or None, and `finders` say how each rank finds another. of: the world's size, if only the first
    `size` of its ranks have a courier."""

    def __init__(
        self,
        rendezvous: Rendezvous | None,
        size: int,
        times: Times = SWIFT,
        is_elastic: bool = False,
        finders: Sequence[Finder | None] = (),
        of: int = 0,
    ) -> None:
        self.lines: list[str] = []
        address = rendezvous.address if rendezvous is not None else None
        worlds = [World(rank, of or size, store=address, is_elastic=is_elastic) for rank in range(size)]
        finders = finders or [None] * size
        self.couriers = [
            Courier(world, "run", self.lines.append, times, finder) for world, finder in zip(worlds, finders)
        ]
        self.arms: list[list[bool]] = [[] for _ in worlds]
        self._collective = threading.Barrier(size)

    def train(self, steps: int, at: Callable[[int, int], None] = lambda rank, step: None) -> None:
        """at(rank, step): called before a rank begins a step."""

        def rank_trains(rank: int) -> None:
            for _ in range(steps):
                at(rank, len(self.arms[rank]))
                self.arms[rank].append(self.couriers[rank].begin("train"))
                self._collective.wait()
                time.sleep(0.002)

        threads = [threading.Thread(target=rank_trains, args=(rank,)) for rank in range(len(self.couriers))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def train_until(self, stitched: bool) -> None:
        """Trains until the ranks have gone to that arm, however slow the machine is: at most for 4,000 steps."""
        for _ in range(100):
            self.train(40)
            if self.arms[0][-1] is stitched:
                return

    @property
    def steps(self) -> list[set[bool]]:
        """The arms of each step, over the ranks."""
        return [set(arms) for arms in zip(*self.arms)]

    def close(self) -> None:
        for courier in self.couriers:
            courier.close()


@pytest.mark.parametrize("size", [2, 5])
def test_ranks_switch_together_and_go_back_together(rendezvous: Rendezvous, size: int) -> None:
    job = Job(rendezvous, size)
    for courier in job.couriers:
        courier.ready("train", "f")
    job.train_until(True)
    job.couriers[-1].refuse("train", "cluster x reverted")
    job.train_until(False)
    job.close()
    assert all(len(arms) == 1 for arms in job.steps)
    flat = [arms.pop() for arms in job.steps]
    assert [arm for arm, _ in itertools.groupby(flat)] == [False, True, False]
    assert {courier.why_plain("train") for courier in job.couriers} == {f"rank {size - 1}: cluster x reverted"}
    assert job.lines == []


def test_a_rank_that_is_late_with_its_kernels_is_waited_for(rendezvous: Rendezvous) -> None:
    job = Job(rendezvous, 3)

    def at(rank: int, step: int) -> None:
        if step == 40 * rank:
            job.couriers[rank].ready("train", "f")

    job.train(200, at)
    job.close()
    assert all(len(arms) == 1 for arms in job.steps)
    assert job.steps[80] == {False}
    assert job.steps[-1] == {True}


@pytest.mark.parametrize("heard", [False, True])
def test_a_rank_that_never_votes_keeps_all_plain(rendezvous: Rendezvous, heard: bool) -> None:
    job = Job(rendezvous, 2, replace(SWIFT, hello_s=0.05, votes_s=0.1))
    if not heard:
        job.couriers[1].close()
        rendezvous.values = {path: value for path, value in rendezvous.values.items() if "hello-1" not in path}
    job.couriers[0].ready("train", "f")
    job.train(200)
    job.close()
    assert set().union(*job.steps) == {False}
    words = "were not ready within" if heard else "runs without stitchfleet"
    assert words in job.couriers[0].why_plain("train")


def test_a_store_that_refuses_leaves_all_plain_and_delays_nothing(rendezvous: Rendezvous) -> None:
    rendezvous.status = 503
    job = Job(rendezvous, 2)
    for courier in job.couriers:
        courier.ready("train", "f")
    job.train(100)
    job.close()
    assert set().union(*job.steps) == {False}
    assert max(courier.longest_wait_s for courier in job.couriers) == 0.0


def test_a_store_that_is_late_is_waited_for_and_the_arms_stay_equal(rendezvous: Rendezvous) -> None:
    rendezvous.delay_s = 0.03
    job = Job(rendezvous, 2)
    for courier in job.couriers:
        courier.ready("train", "f")
    job.train(200)
    job.close()
    assert all(len(arms) == 1 for arms in job.steps)


def test_a_step_waits_once_and_no_longer_than_it_may(rendezvous: Rendezvous) -> None:
    """The store is silent from the moment at which rank 0 has picked a step."""
    job = Job(rendezvous, 2, replace(SWIFT, wait_s=0.2))
    for courier in job.couriers:
        courier.ready("train", "f")

    def at(rank: int, step: int) -> None:
        if any(path.endswith("0-at") for path in rendezvous.values):
            rendezvous.delay_s = 30.0

    start = time.monotonic()
    job.train(150, at)
    took = time.monotonic() - start
    waits = [courier.longest_wait_s for courier in job.couriers]
    assert 0.2 <= max(waits) < 0.4
    assert took < 150 * 0.01 + 2 * 0.4
    assert all(len(arms) == 1 for arms in job.steps)
    assert all("has not answered" in line for line in job.lines)
    job.close()


def test_each_world_of_an_elastic_job_agrees_by_cells_of_its_own(rendezvous: Rendezvous) -> None:
    """Though the store still has the cells of an earlier world: of its votes, of its round, and of what it has decided."""
    for size in (1, 3, 2):
        job = Job(rendezvous, size, is_elastic=True)
        for courier in job.couriers:
            courier.ready("train", f"size={size}")
        job.train(120)
        job.close()
        assert all(len(arms) == 1 for arms in job.steps)
        assert job.steps[0] == {False}
        assert job.steps[-1] == {True}
    scopes = {path.split("/")[1] for path in rendezvous.values if path.endswith("0-at")}
    assert len(scopes) == 3


def test_ranks_whose_rank_0_names_no_world_are_plain_for_good(rendezvous: Rendezvous) -> None:
    world = World(1, 2, store=rendezvous.address, is_elastic=True)
    courier = Courier(world, "run", print, replace(SWIFT, hello_s=0.05))
    courier.ready("train", "f")
    end = time.monotonic() + 10
    while not courier.why_plain("train") and time.monotonic() < end:
        assert courier.begin("train") is False
        time.sleep(0.005)
    courier.close()
    assert "rank 0 runs without stitchfleet" in courier.why_plain("train")


def test_the_agreed_step_lies_some_time_ahead() -> None:
    from collections import deque

    assert module.lead_steps(deque([0.1] * 5), 2.0) == 20
    assert module.lead_steps(deque([5.0]), 2.0) == module.MIN_LEAD
    assert module.lead_steps(deque([0.0]), 2.0) == module.MAX_LEAD
