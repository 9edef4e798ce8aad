"""One node for all workers of a test run, and for a person who has one up.

Whoever uses the node holds a shared lock. Who comes first starts it; who leaves last stops it, unless a person started it with
`scripts/cluster up`. A node whose tests were killed is found by nobody holding the lock, and is stopped before the next one starts.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from typing import TextIO

from .node import STATE, Node, NodeError
from .programs import cache_folder

_PERSON = STATE / "of-a-person"


@contextlib.contextmanager
def shared_node(node: Node) -> Iterator[Node]:
    """The running node, for as long as the caller needs it. Raises NodeError and ProgramsError."""
    with _lock_file("users") as users:
        with _gate():
            _must_be_ours(node)
            if _is_alone(users):
                if STATE.exists() and not (_PERSON.exists() and node.is_running):
                    node.stop()
                if not node.is_running:
                    node.start()
            fcntl.flock(users, fcntl.LOCK_SH)
        try:
            yield node
        finally:
            with _gate():
                if _is_alone(users) and not _PERSON.exists() and (left := node.stop()):
                    raise NodeError(f"the cluster was stopped and left behind: {'; '.join(left)}")


def start_for_a_person(node: Node) -> None:
    """Starts it so that it stays. Raises NodeError and ProgramsError."""
    with _gate():
        _must_be_ours(node)
        if not node.is_running:
            node.stop()
            node.start()
        _PERSON.touch()


def stop_for_a_person(node: Node) -> None:
    """Raises NodeError if something of it is left."""
    with _gate():
        left = node.stop()
    if left:
        raise NodeError(f"it was stopped and left behind: {'; '.join(left)}")


def _must_be_ours(node: Node) -> None:
    """Raises NodeError if the node that is there was started with another cache, whose users hold another lock."""
    if STATE.exists() and node.cache_in_use not in ("", str(cache_folder())):
        raise NodeError(
            f"a cluster with the cache {node.cache_in_use} is there already; `scripts/cluster down` stops it"
        )


def _lock_file(name: str) -> TextIO:
    folder = cache_folder() / "cluster"
    folder.mkdir(parents=True, exist_ok=True)
    return open(folder / f"{name}.lock", "w", encoding="utf-8")


def _is_alone(users: TextIO) -> bool:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def _gate() -> Iterator[None]:
    """One at a time starts or stops."""
    with _lock_file("gate") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        yield
