"""What the controller does again and again. A look never ends the loop: what went wrong in it is told and counted, and the next look
tries again. A look that hangs is seen by the liveness probe, and a database that is slow is asked less often.
"""

from __future__ import annotations

import asyncio
import collections
import sys
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from kubernetes.client.exceptions import ApiException

from .metrics import Metrics

REST = 9.0
"""A loop rests so many times as long as its looks take, so that it costs at most a tenth of a core or a database connection."""
REMEMBERED = 3
"""Looks of which the shortest counts for that: one that waited for a connection that had gone silent says nothing of the next."""
LONGEST_REST_SECONDS = 240.0


class Loop:
    """look: may block and may raise. seconds: between looks, at least. stall_seconds: without progress for so long, it hangs.

    progress: when the loop made progress last (time.monotonic), good or not.
    """

    def __init__(
        self, name: str, look: Callable[[], None], seconds: float, stall_seconds: float, metrics: Metrics
    ) -> None:
        self.name, self._look, self._seconds, self._metrics = name, look, seconds, metrics
        self._stall_seconds = stall_seconds
        self._took: collections.deque[float] = collections.deque(maxlen=REMEMBERED)
        self._wake: asyncio.Event | None = None
        self.made_progress()
        for outcome in ("ok", "error"):
            metrics.looks.labels(name, outcome)

    def look_now(self) -> None:
        """From the event loop."""
        if self._wake is not None:
            self._wake.set()

    def made_progress(self) -> None:
        """Of a part of a long look, too."""
        self.progress = time.monotonic()

    def stalled(self) -> bool:
        return time.monotonic() - self.progress > self._stall_seconds + self.rest

    @property
    def rest(self) -> float:
        """Seconds until the next look."""
        return max(self._seconds, min(REST * min(self._took, default=0.0), LONGEST_REST_SECONDS))

    def once(self) -> None:
        """Never raises."""
        started, outcome = time.monotonic(), "error"
        try:
            self._look()
            outcome = "ok"
        except ApiException as error:
            tell(f"{self.name}: the API server answered {error.status} {error.reason}")
        except Exception as error:  # a lost connection has many names
            tell(f"{self.name}: {type(error).__name__}: {error}")
        took = time.monotonic() - started
        self._took.append(took)
        self._metrics.looks.labels(self.name, outcome).inc()
        self._metrics.seconds.labels(self.name).observe(took)
        self.made_progress()

    async def run(self) -> None:
        """For ever."""
        loop, self._wake = asyncio.get_running_loop(), asyncio.Event()
        while True:
            self._wake.clear()
            await loop.run_in_executor(None, self.once)
            # no wait_for: before Python 3.12 it may swallow the cancel with which this ends
            waiter = asyncio.ensure_future(self._wake.wait())
            await asyncio.wait({waiter}, timeout=self.rest)
            waiter.cancel()


Item = TypeVar("Item")


def for_each(items: Iterable[Item], act: Callable[[Item], None]) -> None:
    """Acts on each. One that fails keeps nobody from the rest; the first failure is raised after the last item."""
    failure: Exception | None = None
    for item in items:
        try:
            act(item)
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure


def tell(text: str) -> None:
    """A line of the controller's log."""
    print(f"stitchfleet controller: {text}"[:500], file=sys.stderr, flush=True)
