"""Carries the agreements of a job between its ranks: one thread that talks to the rendezvous store, and a bounded wait before a step.

The trainer's thread calls `begin` before each step of a function that has an Agreement. Nearly always it takes a lock and returns; in
the one or two steps of a round in which the agreement needs an answer, it waits for this thread's requests, Times.wait_s at most and
once a round, far below the 60 s after which Horovod warns of a stalled rank. TensorFlow's own threads never run this code.

The thread asks the store often while a round is open, and seldom while it only checks if a rank wants to go back.

In an elastic job each world has a courier of its own, and its cells are in a scope of their own (epoch.py). If the launcher has
no store, rank 0 keeps one (meeting.py).
"""

from __future__ import annotations

import collections
import math
import statistics
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ..base.containment import HEALTH
from .agreement import LEADER, Agreement
from .epoch import Epoch
from .store import Finder, Known, ScopedStore, StoreError
from .world import World

MIN_LEAD, MAX_LEAD = 8, 100_000
"""Bounds of the lead, in steps."""
SILENT = "runs without stitchfleet, or cannot reach the rendezvous store"


@dataclass(frozen=True)
class Times:
    """How long the courier waits, in seconds.

    wait_s: the longest that a step waits, once a round. lead_s: how far ahead the agreed step lies. period_s, vote_period_s,
    idle_period_s: between two reads of the store while a round is open, while ranks are compiling, and while nothing is expected.
    hello_s: a rank that has not written its hello within this time after this rank was ready is assumed to run without
    stitchfleet. votes_s: how long rank 0 waits for the vote of a rank that has written its hello.
    """

    wait_s: float = 3.0
    lead_s: float = 2.0
    period_s: float = 0.05
    vote_period_s: float = 0.5
    idle_period_s: float = 2.0
    hello_s: float = 30.0
    votes_s: float = 900.0


TIMES = Times()
"""The times of couriers that are given none. The lead is four periods of a rank that is compiling, forty of an open round."""


@dataclass
class _Function:
    agreement: Agreement
    ready_since: float = math.inf
    intervals_s: collections.deque[float] = field(default_factory=lambda: collections.deque(maxlen=16))
    last_begin: float | None = None
    waiting: bool = False
    """Whether a step of it waits for the store."""


class Courier:
    """The agreements of one rank. tell: called with a line for people if something is wrong. finder: how the store is found, if it is
    not the launcher's."""

    def __init__(
        self,
        world: World,
        run_id: str,
        tell: Callable[[str], None],
        times: Times | None = None,
        finder: Finder | None = None,
    ) -> None:
        """Raises ValueError for a world without a store and no other way to find one."""
        self.world, self._tell = world, tell
        self._times = times or TIMES
        self._finder = finder or _of_launcher(world, f"stitchfleet-{run_id}", self._times.votes_s)
        self._lock = threading.Condition()
        self._functions: dict[str, _Function] = {}
        self._heard: set[int] = {world.rank}
        self._said_hello = False
        self._hello = b"hello"
        self._wake = threading.Event()
        self._closed = False
        self.longest_wait_s = 0.0
        """The longest that any step has waited, in seconds."""
        self._thread = threading.Thread(target=self._work, name="stitchfleet-ranks", daemon=True)
        self._thread.start()

    # ---- the trainer's thread

    def begin(self, function: str) -> bool:
        """Begins a step of a function on the trainer's thread. Returns whether it runs stitched. Waits for at most Times.wait_s
        seconds, once a round."""
        with self._lock:
            found = self._of(function)
            now = time.monotonic()
            if found.last_begin is not None:
                found.intervals_s.append(now - found.last_begin)
                found.agreement.lead = lead_steps(found.intervals_s, self._times.lead_s)
            found.last_begin = now
            if not found.agreement.may_begin():
                self._wait(found, now)
                found.last_begin = time.monotonic()
            return found.agreement.begin()

    def _wait(self, found: _Function, since: float) -> None:
        found.waiting = True
        self._wake.set()
        while not found.agreement.may_begin():
            left = since + self._times.wait_s - time.monotonic()
            if left <= 0 or self._closed or not self._thread.is_alive():
                found.agreement.give_up()
                silent = f"the rendezvous store has not answered for {self._times.wait_s:g} s"
                self._tell(f"rank {self.world.rank}: {silent}; it goes on in the arm that it was in")
                break
            self._lock.wait(left)
        found.waiting = False
        self.longest_wait_s = max(self.longest_wait_s, time.monotonic() - since)

    # ---- any thread

    def ready(self, function: str, facts: str, kernels: Iterable[str] = (), every: int = 1) -> None:
        """Says that the function's kernels are verified on this rank (Agreement.ready)."""
        with self._lock:
            found = self._of(function)
            found.agreement.ready(facts, kernels, every)
            found.ready_since = min(found.ready_since, time.monotonic())
        self._wake.set()

    def refuse(self, function: str, reason: str) -> None:
        """Says that this rank cannot run the function stitched, or no longer can (Agreement.refuse)."""
        with self._lock:
            self._of(function).agreement.refuse(reason)
        self._wake.set()

    def leave(self, function: str, reason: str) -> None:
        """Makes this rank plain from its next step of the function on, and tells the others (Agreement.leave)."""
        with self._lock:
            self._of(function).agreement.leave(reason)
            self._lock.notify_all()
        self._wake.set()

    def leave_all(self, reason: str) -> None:
        """`leave` for all functions."""
        with self._lock:
            functions = list(self._functions)
        for function in functions:
            self.leave(function, reason)

    def refuse_all(self, reason: str) -> None:
        """Says that this rank will never run any function stitched."""
        with self._lock:
            self._hello, self._said_hello = f"no {reason}".encode(), False
        self._wake.set()

    def is_bound(self, function: str) -> bool:
        """Whether this rank has said that it is ready, so that it goes back to plain only with the others."""
        with self._lock:
            return self._of(function).agreement.is_bound

    def common(self, function: str) -> frozenset[str]:
        """The kernels of a stitched function that all ranks have."""
        with self._lock:
            return self._of(function).agreement.common

    def why_plain(self, function: str) -> str:
        """Why a function is plain on all ranks for good; empty if it is not."""
        with self._lock:
            return self._of(function).agreement.final

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def close(self) -> None:
        """Ends the thread. Returns within a second or two: it waits for a pending request no longer than its time-out."""
        self._closed = True
        self._finder.close()
        self._wake.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=2.0)

    def _of(self, function: str) -> _Function:
        found = self._functions.get(function)
        if found is None:
            found = self._functions[function] = _Function(Agreement(self.world.rank, self.world.size))
        return found

    # ---- our own thread

    def _work(self) -> None:
        try:
            while not self._closed:
                self._wake.clear()
                reached = self._round_trip()
                self._wake.wait(self._period(reached))
        except Exception as error:
            HEALTH.give_up_for(error, "Courier._work")
        with self._lock:
            self._lock.notify_all()  # no step may wait for a thread that has ended

    def _round_trip(self) -> bool:
        """Does all pending writes and reads once, first for functions with a waiting step. False if the store does not answer."""
        try:
            store = self._finder.store()
            if store is None:
                self._leave_without_store()
                return False
            if not self._said_hello:
                self._said_hello = True
                store.put(f"hello-{self.world.rank}", self._hello)
            with self._lock:
                functions = sorted(self._functions.items(), key=lambda item: not item[1].waiting)
            for name, found in functions:
                self._carry(store, name, found)
        except StoreError:
            self._said_hello = False
            return False
        return True

    def _leave_without_store(self) -> None:
        """Leaves all functions that have waited for too long for rank 0 to name the store, or the epoch."""
        with self._lock:
            functions = list(self._functions.items())
        for name, found in functions:
            if time.monotonic() - found.ready_since >= self._times.hello_s:
                self.leave(name, f"rank {LEADER} {SILENT}")

    def _carry(self, store: ScopedStore, name: str, found: _Function) -> None:
        """Does the pending writes and reads of one function. Raises StoreError."""
        agreement = found.agreement
        with self._lock:
            writes = agreement.writes()
        for key, value in writes:
            store.put(f"{name}-{key}", value.encode())
            with self._lock:
                agreement.acknowledge(key)
                self._lock.notify_all()
        with self._lock:
            reads = agreement.reads()
        for key in reads:
            value_read = store.get(f"{name}-{key}")
            if value_read is not None:
                with self._lock:
                    agreement.receive(key, value_read.decode("utf-8", "replace"))
                    self._lock.notify_all()
        if agreement.is_leader:
            self._look_for_missing(store, found)
        elif LEADER not in self._heard:
            self._look_for_leader(store, name, found)

    def _look_for_missing(self, store: ScopedStore, found: _Function) -> None:
        """Rank 0: ends the vote, all ranks plain, if a rank has not voted for too long. Raises StoreError."""
        with self._lock:
            agreement = found.agreement
            if agreement.final or agreement.led_to or agreement.at is not None:
                return
            missing = [rank for rank in range(1, self.world.size) if rank not in agreement.votes]
        waited = time.monotonic() - found.ready_since
        if not missing or waited < self._times.hello_s:
            return
        for rank in [rank for rank in missing if rank not in self._heard]:
            if why := self._why_missing(store, rank):
                self._give_up_on(found, why)
                return
            self._heard.add(rank)
        if waited >= self._times.votes_s:
            self._give_up_on(found, f"the kernels of rank {missing[0]} were not ready within {self._times.votes_s:g} s")

    def _look_for_leader(self, store: ScopedStore, name: str, found: _Function) -> None:
        """Other ranks: leaves if rank 0 will not take part, since there is no agreement without it. Raises StoreError."""
        if time.monotonic() - found.ready_since < self._times.hello_s:
            return
        if why := self._why_missing(store, LEADER):
            self.leave(name, why)
        else:
            self._heard.add(LEADER)

    def _why_missing(self, store: ScopedStore, rank: int) -> str:
        """Why a rank will not take part; empty if it may. Raises StoreError."""
        said = store.get(f"hello-{rank}")
        if said is None:
            return f"rank {rank} {SILENT}"
        words = said.decode("utf-8", "replace")
        return f"rank {rank}: {words[3:]}" if words.startswith("no ") else ""

    def _give_up_on(self, found: _Function, reason: str) -> None:
        with self._lock:
            found.agreement.stop_waiting_for_votes(reason)
        self._wake.set()

    def _period(self, reached: bool) -> float:
        with self._lock:
            agreements = [found.agreement for found in self._functions.values()]
            is_waiting = any(found.waiting for found in self._functions.values())
            if is_waiting or any(agreement.at is not None for agreement in agreements):
                return self._times.period_s
            if not reached or any(agreement.writes() for agreement in agreements):
                return self._times.vote_period_s
            if any(not agreement.stitched and agreement.reads() for agreement in agreements):
                return (
                    self._times.vote_period_s
                    if any(agreement.vote for agreement in agreements)
                    else self._times.idle_period_s
                )
            return self._times.idle_period_s


def _of_launcher(world: World, scope: str, longest_s: float) -> Finder:
    """Finds the cells in the launcher's store: in an elastic job those of this world. Raises ValueError if there is no store."""
    if world.store is None:
        raise ValueError("the ranks' launcher has no rendezvous store")
    return Epoch(world, scope, longest_s) if world.is_elastic else Known(ScopedStore(*world.store, scope))


def lead_steps(intervals_s: collections.deque[float], lead_s: float) -> int:
    """The number of steps in lead_s by the median interval, within [MIN_LEAD, MAX_LEAD]. intervals_s: seconds between steps."""
    typical = statistics.median(intervals_s)
    return min(MAX_LEAD, max(MIN_LEAD, math.ceil(lead_s / max(typical, 1e-6))))
