"""Runs checks side by side: each in a forked child, a few at a time, while the parent goes on building.

The oracle is numpy and Python: threads would wait for each other, processes do not. A child computes and sends its result through
a pipe. It never touches the framework, whose threads a fork does not copy.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from .selfcheck import CheckFailedError

T = TypeVar("T")


class CheckerDiedError(Exception):
    """The checking child itself (not the kernel, which runs in a child of its own) ended unexpectedly."""


class Check(Generic[T]):
    """A check in progress. Made by `Checkers.start`."""

    def __init__(self, child: int, reader: int, give: int) -> None:
        self._child = child
        self._reader = reader
        self._give = give

    def result(self) -> T:
        """Waits for the check to end and returns its result. Raises CheckFailedError if the check raised that; CheckerDiedError if it
        raised anything else or the child was killed."""
        with open(self._reader, "rb") as stream:
            said = stream.read()
        _, status = os.waitpid(self._child, 0)
        self._child = 0
        if os.WIFSIGNALED(status):
            os.write(self._give, b".")
            raise CheckerDiedError(f"the checker was ended by {signal.Signals(os.WTERMSIG(status)).name}")
        if not said:
            raise CheckerDiedError(
                f"the checker ended with status {os.waitstatus_to_exitcode(status)} without a result"
            )
        found: T | Exception = pickle.loads(said)
        if isinstance(found, Exception):
            raise found
        return found

    def cancel(self) -> None:
        """Kills the child, if its result has not been asked for."""
        if self._child:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child, signal.SIGKILL)
            os.close(self._reader)
            os.waitpid(self._child, 0)
            self._child = 0


class Checkers:
    """Starts checks at once. At most `count` of them work at a time: each takes one of `count` tokens from a pipe. The token of a
    child that was killed is put back when its result is asked for."""

    def __init__(self, count: int) -> None:
        self._take, self._give = os.pipe()
        os.write(self._give, b"." * count)
        self._started: list[Check[Any]] = []

    def start(self, work: Callable[[], T]) -> Check[T]:
        """Forks a child that runs `work` as soon as a token is free. The result must be picklable."""
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            self._child(work, writer)
        os.close(writer)
        check: Check[T] = Check(child, reader, self._give)
        self._started.append(check)
        return check

    def _child(self, work: Callable[[], object], writer: int) -> None:
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.read(self._take, 1)
            try:
                found = work()
            except CheckFailedError as error:
                found = error
            except Exception as error:  # sent to the parent, which raises it
                found = CheckerDiedError(f"{type(error).__name__}: {error}")
            finally:
                os.write(self._give, b".")
            with open(writer, "wb") as stream:
                pickle.dump(found, stream)
        finally:
            os._exit(0)

    def close(self) -> None:
        """Kills the checks that are still in progress."""
        for check in self._started:
            check.cancel()
        os.close(self._take)
        os.close(self._give)


@contextlib.contextmanager
def checkers(count: int) -> Iterator[Checkers]:
    """A context manager: a Checkers for `count` checks at a time, which is closed at the end (checks in progress are killed)."""
    room = Checkers(count)
    try:
        yield room
    finally:
        room.close()
