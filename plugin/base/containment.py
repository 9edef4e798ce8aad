"""Everything of ours that TensorFlow or the user's script calls goes through here: our failure is never the job's failure.

The first exception of an entry point is reported in one line (the traceback goes to the job's log file) and the plugin is
switched off for the job, which runs on as plain TensorFlow. `contained` returns a given default then and on every later call.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
D = TypeVar("D")

_log = logging.getLogger("stitchfleet")


class Health:
    """Whether the plugin is still at work in this process, and why not."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.reason: str | None = None
        self.failures = 0
        self.on_failure: list[Callable[[str], None]] = []

    @property
    def good(self) -> bool:
        return self.reason is None

    def give_up(self, reason: str) -> None:
        """Switches the plugin off for this process; the first reason stands. Never raises."""
        with self._lock:
            self.failures += 1
            if self.reason is not None:
                return
            self.reason = reason
        say(f"switched off, the job runs on without it: {reason}")
        for listener in list(self.on_failure):
            try:
                listener(reason)
            except Exception:
                _log.debug("a listener failed", exc_info=True)

    def give_up_for(self, error: Exception, where: str) -> None:
        """The same for an exception, in one line that says what raised it. where: the entry point that it has ended."""
        if os.environ.get("STITCHFLEET_DEBUG"):
            traceback.print_exception(error)
        _log.debug("contained failure in %s", where, exc_info=error)
        last = traceback.extract_tb(error.__traceback__)[-1]
        self.give_up(f"{type(error).__name__}: {error} (in {where}, {os.path.basename(last.filename)}:{last.lineno})")


HEALTH = Health()


def say(line: str) -> None:
    """One line for the person at the terminal, on standard error. Never raises."""
    try:
        print(f"stitchfleet: {line}", file=sys.stderr, flush=True)
    except Exception:
        _log.debug("cannot write to standard error", exc_info=True)


def contained(default: D) -> Callable[[Callable[P, R]], Callable[P, R | D]]:
    """Decorates an entry point: its exceptions end here, switch the plugin off and become `default`.

    KeyboardInterrupt and SystemExit are the user's and pass. After a failure the entry point returns `default` at once.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R | D]:
        @functools.wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R | D:
            if HEALTH.reason is not None:
                return default
            try:
                return function(*args, **kwargs)
            except Exception as error:
                HEALTH.give_up_for(error, function.__qualname__)
                return default

        return guarded

    return decorate
