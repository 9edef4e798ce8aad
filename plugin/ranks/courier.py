"""Carries the agreements of a job between its ranks: one thread, which asks the rendezvous store, and a bounded wait before a step.

The trainer's thread calls `begin` before each step of a function that has an Agreement. Nearly always it takes a lock and returns; in
the one or two steps of a round in which the agreement has to know more, it waits for this thread's requests, WAIT_S at most and once
a round, far below the 60 s after which Horovod warns of a stalled rank. TensorFlow's own threads never come here.

The store is asked often while a round is open, and seldom while there is nothing but a rank's wish to go back to look for.
"""

from __future__ import annotations

import collections
import math
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ..base.containment import HEALTH
from .agreement import LEADER, Agreement
from .store import Store, StoreError
from .world import World

_TIME = float(os.environ.get("STITCHFLEET_TEST_RANKS_TIME", "1"))
"""Jobs of tests end within seconds: all times are so much of what they are."""
WAIT_S = 3.0
"""The longest that a step waits, once a round."""
LEAD_S = 2.0 * _TIME
"""The agreed step lies so far ahead: four looks of a rank that waits for nothing else, and forty once it knows of it."""
MIN_LEAD, MAX_LEAD = 8, 100_000
"""In steps."""
PERIOD_S, IDLE_PERIOD_S = 0.05 * _TIME, 2.0 * _TIME
"""Between two looks at the store while a round is open, and while nothing is to be expected."""
VOTE_PERIOD_S = 0.5 * _TIME
"""While ranks are compiling."""
HELLO_S = 30.0 * _TIME
"""So long after rank 0 is ready a rank that has never been heard of is one that runs without us."""
VOTES_S = 900.0 * _TIME
"""So long rank 0 waits for a rank that is there and whose kernels are not."""


@dataclass
class _Function:
    agreement: Agreement
    ready_since: float = math.inf
    intervals_s: collections.deque[float] = field(default_factory=lambda: collections.deque(maxlen=16))
    last_begin: float | None = None
    waiting: bool = False
    """A step of it waits for the store."""


class Courier:
    """The agreements of one rank. tell: gets a line for people if something is not as it should be."""

    def __init__(
        self,
        world: World,
        run_id: str,
        tell: Callable[[str], None],
        epoch: int = 0,
        wait_s: float = WAIT_S,
        hello_s: float = HELLO_S,
        votes_s: float = VOTES_S,
    ) -> None:
        """epoch: counts Horovod's resets; cells of another epoch are never seen. Raises ValueError for a world without a store."""
        if world.store is None:
            raise ValueError("the ranks' launcher has no rendezvous store")
        self.world, self._tell = world, tell
        self._store = Store(*world.store, f"stitchfleet-{run_id}-{epoch}")
        self._wait_s, self._hello_s, self._votes_s = wait_s, hello_s, votes_s
        self._lock = threading.Condition()
        self._functions: dict[str, _Function] = {}
        self._heard: set[int] = {world.rank}
        self._said_hello = False
        self._hello = b"hello"
        self._wake = threading.Event()
        self._closed = False
        self.longest_wait_s = 0.0
        """Of any step."""
        self._thread = threading.Thread(target=self._work, name="stitchfleet-ranks", daemon=True)
        self._thread.start()

    # ---- the trainer's thread

    def begin(self, function: str) -> bool:
        """A step of a function begins: whether it runs stitched. Waits for WAIT_S at most, once a round."""
        with self._lock:
            found = self._of(function)
            now = time.monotonic()
            if found.last_begin is not None:
                found.intervals_s.append(now - found.last_begin)
                found.agreement.lead = _lead(found.intervals_s)
            found.last_begin = now
            if not found.agreement.may_begin():
                self._wait(found, now)
                found.last_begin = time.monotonic()
            return found.agreement.begin()

    def _wait(self, found: _Function, since: float) -> None:
        found.waiting = True
        self._wake.set()
        while not found.agreement.may_begin():
            left = since + self._wait_s - time.monotonic()
            if left <= 0 or self._closed or not self._thread.is_alive():
                found.agreement.give_up()
                silent = f"the rendezvous store has not answered for {self._wait_s:g} s"
                self._tell(f"rank {self.world.rank}: {silent}; it goes on in the arm that it was in")
                break
            self._lock.wait(left)
        found.waiting = False
        self.longest_wait_s = max(self.longest_wait_s, time.monotonic() - since)

    # ---- any thread

    def ready(self, function: str, facts: str, kernels: Iterable[str] = ()) -> None:
        """The function's kernels are verified on this rank (Agreement.ready)."""
        with self._lock:
            found = self._of(function)
            found.agreement.ready(facts, kernels)
            found.ready_since = min(found.ready_since, time.monotonic())
        self._wake.set()

    def refuse(self, function: str, reason: str) -> None:
        """This rank cannot run the function stitched, or not any longer."""
        with self._lock:
            self._of(function).agreement.refuse(reason)
        self._wake.set()

    def leave(self, function: str, reason: str) -> None:
        """This rank is plain from its next step of the function on; the others are told."""
        with self._lock:
            self._of(function).agreement.leave(reason)
            self._lock.notify_all()
        self._wake.set()

    def leave_all(self, reason: str) -> None:
        """The same of all functions."""
        with self._lock:
            functions = list(self._functions)
        for function in functions:
            self.leave(function, reason)

    def refuse_all(self, reason: str) -> None:
        """This rank will run nothing stitched, whatever comes."""
        with self._lock:
            self._hello, self._said_hello = f"no {reason}".encode(), False
        self._wake.set()

    def is_bound(self, function: str) -> bool:
        """Whether this rank has said that it is ready, and goes back to plain only with the others."""
        with self._lock:
            return self._of(function).agreement.is_bound

    def common(self, function: str) -> frozenset[str]:
        """The kernels that all ranks have, of a function that is stitched."""
        with self._lock:
            return self._of(function).agreement.common

    def why_plain(self, function: str) -> str:
        """Why a function is plain on all ranks for good; empty: it is not."""
        with self._lock:
            return self._of(function).agreement.final

    def close(self) -> None:
        """Returns within a second or two: a request that is under way is not waited for longer than its time-out."""
        self._closed = True
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
            self._lock.notify_all()  # nobody waits for a thread that has ended

    def _round_trip(self) -> bool:
        """Asks the store once for all that is to be written and read, what a step waits for first. False: it does not answer."""
        try:
            if not self._said_hello:
                self._said_hello = True
                self._store.put(f"hello-{self.world.rank}", self._hello)
            with self._lock:
                functions = sorted(self._functions.items(), key=lambda item: not item[1].waiting)
            for name, found in functions:
                self._carry(name, found)
        except StoreError:
            self._said_hello = False
            return False
        return True

    def _carry(self, name: str, found: _Function) -> None:
        """Raises StoreError."""
        agreement = found.agreement
        with self._lock:
            writes = agreement.writes()
        for key, value in writes:
            self._store.put(f"{name}-{key}", value.encode())
            with self._lock:
                agreement.acknowledge(key)
                self._lock.notify_all()
        with self._lock:
            reads = agreement.reads()
        for key in reads:
            value_read = self._store.get(f"{name}-{key}")
            if value_read is not None:
                with self._lock:
                    agreement.receive(key, value_read.decode("utf-8", "replace"))
                    self._lock.notify_all()
        if agreement.is_leader:
            self._look_for_missing(found)
        elif LEADER not in self._heard:
            self._look_for_leader(name, found)

    def _look_for_missing(self, found: _Function) -> None:
        """Rank 0: who has not voted for too long keeps all plain. Raises StoreError."""
        with self._lock:
            agreement = found.agreement
            if agreement.final or agreement.led_to or agreement.at is not None:
                return
            missing = [rank for rank in range(1, self.world.size) if rank not in agreement.votes]
        waited = time.monotonic() - found.ready_since
        if not missing or waited < self._hello_s:
            return
        for rank in [rank for rank in missing if rank not in self._heard]:
            if why := self._why_missing(rank):
                self._give_up_on(found, why)
                return
            self._heard.add(rank)
        if waited >= self._votes_s:
            self._give_up_on(found, f"the kernels of rank {missing[0]} were not ready within {self._votes_s:g} s")

    def _look_for_leader(self, name: str, found: _Function) -> None:
        """Another rank: without rank 0 there is no agreement. Raises StoreError."""
        if time.monotonic() - found.ready_since < self._hello_s:
            return
        if why := self._why_missing(LEADER):
            self.leave(name, why)
        else:
            self._heard.add(LEADER)

    def _why_missing(self, rank: int) -> str:
        """Why nothing can be expected of a rank; empty: something can. Raises StoreError."""
        said = self._store.get(f"hello-{rank}")
        if said is None:
            return f"rank {rank} runs without stitchfleet, or cannot reach the rendezvous store"
        words = said.decode("utf-8", "replace")
        return f"rank {rank}: {words[3:]}" if words.startswith("no ") else ""

    def _give_up_on(self, found: _Function, reason: str) -> None:
        with self._lock:
            found.agreement.stop_waiting_for_votes(reason)
        self._wake.set()

    def _period(self, reached: bool) -> float:
        with self._lock:
            agreements = [found.agreement for found in self._functions.values()]
            if any(found.waiting or found.agreement.at is not None for found in self._functions.values()):
                return PERIOD_S
            if not reached or any(agreement.writes() for agreement in agreements):
                return VOTE_PERIOD_S
            if any(not agreement.stitched and agreement.reads() for agreement in agreements):
                return VOTE_PERIOD_S if any(agreement.vote for agreement in agreements) else IDLE_PERIOD_S
            return IDLE_PERIOD_S


def _lead(intervals_s: collections.deque[float]) -> int:
    """How many steps ahead LEAD_S is."""
    typical = statistics.median(intervals_s)
    return min(MAX_LEAD, max(MIN_LEAD, math.ceil(LEAD_S / max(typical, 1e-6))))
