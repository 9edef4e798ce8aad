"""Contains failures: every function of ours that TensorFlow or the user's script calls is decorated here, so that a failure of ours
is never a failure of the job.

The first exception in an entry point is reported in one line (its traceback is logged at debug level) and switches the plugin off for
this process, which goes on as plain TensorFlow. That call and all later ones return a given default.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from typing import ParamSpec

    P = ParamSpec("P")
R = TypeVar("R")
D = TypeVar("D")

_log = logging.getLogger("stitchfleet")


class Health:
    """Whether the plugin is switched on in this process. reason: why not, or None. failures: how often `give_up` was called. Any
    thread may call its methods.

    on_failure: listeners, each called once with the reason.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.reason: str | None = None
        self.failures = 0
        self.on_failure: list[Callable[[str], None]] = []

    @property
    def good(self) -> bool:
        """Whether the plugin is switched on."""
        return self.reason is None

    def give_up(self, reason: str) -> None:
        """Switches the plugin off for this process. The first reason is kept. Never raises."""
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
        """Switches the plugin off because of an exception; the reason is one line that names its file and line. where: the entry
        point that it has ended. With STITCHFLEET_DEBUG set, prints the traceback too."""
        if os.environ.get("STITCHFLEET_DEBUG"):
            traceback.print_exception(type(error), error, error.__traceback__)
        _log.debug("contained failure in %s", where, exc_info=error)
        last = traceback.extract_tb(error.__traceback__)[-1]
        self.give_up(f"{type(error).__name__}: {error} (in {where}, {os.path.basename(last.filename)}:{last.lineno})")


HEALTH = Health()


def say(line: str) -> None:
    """Prints a line for the person at the terminal to standard error. Never raises."""
    try:
        print(f"stitchfleet: {line}", file=sys.stderr, flush=True)
    except Exception:
        _log.debug("cannot write to standard error", exc_info=True)


def contained(default: D, after_failure: bool = False) -> Callable[[Callable[P, R]], Callable[P, R | D]]:
    """Decorates an entry point: an exception in it switches the plugin off, and the call returns `default`.

    KeyboardInterrupt and SystemExit belong to the user and are not caught. After a failure anywhere, the entry point returns
    `default` without running, unless `after_failure` says that it has to run even then.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R | D]:
        @functools.wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R | D:
            if HEALTH.reason is not None and not after_failure:
                return default
            try:
                return function(*args, **kwargs)
            except Exception as error:
                HEALTH.give_up_for(error, function.__qualname__)
                return default

        return guarded

    return decorate
