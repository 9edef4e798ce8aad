"""How much of the server's room each caller may hold at once.

A caller may hold as much as it leaves free: one caller alone gets half of everything, two get a third each, and a newcomer always
finds room. (This is the dynamic threshold of shared-memory switches, with alpha 1: Choudhury and Hahne, "Dynamic queue length
thresholds for shared-memory packet switches", IEEE/ACM Transactions on Networking 6(2), 1998.) A caller is a namespace, not one of
its pods."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncIterator
from dataclasses import dataclass


class Shares:
    """Requests and bytes held by each caller. requests, size: the most that all callers may hold. Used on the event loop's thread
    only."""

    def __init__(self, requests: int, size: int) -> None:
        self.limits = (requests, size)
        self.used = [0, 0]
        self._of_callers: tuple[Counter[str], Counter[str]] = (Counter(), Counter())

    def admits(self, caller: str, requests: int, size: int) -> bool:
        """Whether the caller may hold this many requests and this many bytes more."""
        wanted = (requests, size)
        for limit, used, of_callers, more in zip(self.limits, self.used, self._of_callers, wanted):
            if more and used + more > limit:
                return False
            mine = of_callers[caller]
            # a caller that holds nothing may have one request, whatever its size
            if more and self._of_callers[0][caller] and mine + more > limit - used - more:
                return False
        return True

    def hold(self, caller: str, requests: int, size: int) -> None:
        """Adds to what the caller holds: requests, and size in bytes. Negative numbers give it back."""
        for place, more in enumerate((requests, size)):
            self.used[place] += more
            counter = self._of_callers[place]
            counter[caller] += more
            if not counter[caller]:
                del counter[caller]  # or it would grow with every caller that ever came


class Turns:
    """Memory and threads for the batches that are being processed. Callers take turns, one batch per turn, however many they have
    waiting.

    If there are several threads, a caller never has all of them: its slow batches delay nobody else's. Used on the event loop's
    thread only.
    """

    def __init__(self, size: int, threads: int, wait_s: float) -> None:
        """size: bytes at once. threads: batches at once. wait_s: how long a batch waits for its turn, in seconds."""
        self.size, self.threads, self.wait_s = size, threads, wait_s
        self._used = self._passed = 0
        self._active: Counter[str] = Counter()
        self._waiting: dict[str, deque[tuple[int, asyncio.Future[None]]]] = {}

    @contextlib.asynccontextmanager
    async def turn(self, caller: str, size: int) -> AsyncIterator[Turn]:
        """A context manager: waits for a thread and `size` bytes (or all bytes, if there are fewer), and holds them. Raises
        asyncio.TimeoutError after `wait_s` seconds."""
        size = min(size, self.size)
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append((size, granted))
        self._wake()
        held = Turn(self, size)
        try:
            if not (await asyncio.wait({granted}, timeout=self.wait_s))[0]:
                raise asyncio.TimeoutError
            yield held
        finally:
            if granted.done():
                self._used -= held.size
                self._active[caller] -= 1
                if not self._active[caller]:
                    del self._active[caller]
            else:
                granted.cancel()
            self._wake()

    def give_back(self, size: int) -> None:
        """Gives back `size` bytes, and grants the next turn if there is room."""
        self._used -= size
        self._wake()

    def _wake(self) -> None:
        while sum(self._active.values()) < self.threads and self._grant_one():
            pass

    def _grant_one(self) -> bool:
        """Gives the next caller that may have one its turn, and moves it to the end of the line."""
        for caller in list(self._waiting):
            queue = self._waiting[caller]
            while queue and queue[0][1].done():
                queue.popleft()  # it no longer waits
            if not queue:
                del self._waiting[caller]
                continue
            size, granted = queue[0]
            if self._active[caller] >= max(1, self.threads - 1):
                continue
            if self._used + size > self.size:
                # smaller batches of others may pass it, but not forever
                self._passed += 1
                if self._passed > MAX_PASSED:
                    return False
                continue
            queue.popleft()
            del self._waiting[caller]
            if queue:
                self._waiting[caller] = queue
            self._used += size
            self._active[caller] += 1
            self._passed = 0
            granted.set_result(None)
            return True
        return False


MAX_PASSED = 16


@dataclass
class Turn:
    """The memory in bytes that a batch holds."""

    turns: Turns
    size: int

    def shrink(self, size: int) -> None:
        """Gives back the memory beyond `size` bytes."""
        if size < self.size:
            rest, self.size = self.size - size, size
            self.turns.give_back(rest)
