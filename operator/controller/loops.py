"""The controller's loops. A failed pass never ends its loop: the error is logged and counted, and the next pass tries again. The
liveness probe notices a pass that hangs, and a slow database is queried less often.
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
"""A loop rests this many times as long as a pass took, so that it costs at most a tenth of a core or of a database connection."""
REMEMBERED = 3
"""The rest is computed from the shortest of this many latest passes: the length of a pass that waited for a silent connection
says nothing about the next pass."""
LONGEST_REST_SECONDS = 240.0


class ControlLoop:
    """Calls `look` again and again, on a thread of the event loop's executor.

    look: one pass; it may block and may raise. seconds: least time between passes. stall_seconds: the loop counts as hanging if
    it made no progress for this long beyond its rest. progress (attribute): when the loop last made progress (time.monotonic),
    whether the pass succeeded or not.
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
        """Starts the next pass now, or, if one is running, after it. Does nothing before `run`. Call it on the event loop's
        thread."""
        if self._wake is not None:
            self._wake.set()

    def made_progress(self) -> None:
        """Notes progress. Also called for parts of a long pass."""
        self.progress = time.monotonic()

    def stalled(self) -> bool:
        """Whether the last progress is older than `stall_seconds` and the rest between passes together."""
        return time.monotonic() - self.progress > self._stall_seconds + self.rest

    @property
    def rest(self) -> float:
        """Seconds from the end of a pass to the next one: at least `seconds`."""
        return max(self._seconds, min(REST * min(self._took, default=0.0), LONGEST_REST_SECONDS))

    def once(self) -> None:
        """Runs one pass on the calling thread; logs and counts an error. Never raises an Exception."""
        started, outcome = time.monotonic(), "error"
        try:
            self._look()
            outcome = "ok"
        except ApiException as error:
            tell(f"{self.name}: the API server answered {error.status} {error.reason}")
        except Exception as error:  # a lost connection may raise many kinds of errors
            tell(f"{self.name}: {type(error).__name__}: {error}")
        took = time.monotonic() - started
        self._took.append(took)
        self._metrics.looks.labels(self.name, outcome).inc()
        self._metrics.seconds.labels(self.name).observe(took)
        self.made_progress()

    async def run(self) -> None:
        """Runs passes until the task is cancelled."""
        loop, self._wake = asyncio.get_running_loop(), asyncio.Event()
        while True:
            self._wake.clear()
            await loop.run_in_executor(None, self.once)
            # not wait_for: before Python 3.12 it may swallow the cancel with which this ends
            waiter = asyncio.ensure_future(self._wake.wait())
            await asyncio.wait({waiter}, timeout=self.rest)
            waiter.cancel()


Item = TypeVar("Item")


def for_each(items: Iterable[Item], act: Callable[[Item], object]) -> None:
    """Calls `act` for each item, also after a call that raised an Exception. The first such exception is raised after the last
    item."""
    failure: Exception | None = None
    for item in items:
        try:
            act(item)
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure


def tell(text: str) -> None:
    """Writes a line to the controller's log (standard error), cut to 500 characters."""
    print(f"stitchfleet controller: {text}"[:500], file=sys.stderr, flush=True)
