"""The scope of the store in which the ranks of one world of an elastic job agree.

Horovod empties its store when ranks leave or join, but a write of an earlier world may arrive later. A rank that took an earlier
world's decision for one of its own would change its arm alone. So each rank of a world draws a nonce, rank 0 draws the world's epoch,
and a rank accepts an epoch only together with its own nonce, which nobody can have read in an earlier world.

    here-r    rank r: its nonce                         in the job's scope; the latest write counts
    epoch     rank 0: EPOCH NONCE,NONCE,...             in the job's scope; rank 0 writes it again if it has read another nonce
    hello-r   rank r, which has accepted the epoch      in the world's scope, as everything that follows (courier.py)
"""

from __future__ import annotations

import time
import uuid

from .agreement import LEADER
from .store import ScopedStore
from .world import World

_LETTERS = 32


class Epoch:
    """One rank's part in naming its world. longest_s: seconds for which rank 0 looks for ranks that have not accepted the epoch."""

    def __init__(self, world: World, scope: str, longest_s: float) -> None:
        """Raises ValueError for a world without a store."""
        if world.store is None:
            raise ValueError("the ranks' launcher has no rendezvous store")
        self._world, self._scope, self._address = world, scope, world.store
        self._common = ScopedStore(*world.store, scope)
        self._own = uuid.uuid4().hex
        """Rank 0: the epoch; other ranks: the nonce."""
        self._store = self._of(self._own) if world.rank == LEADER else None
        self._is_here = False
        self._nonces: dict[int, str] = {}
        self._missing = set(range(1, world.size))
        self._until = time.monotonic() + longest_s

    def store(self) -> ScopedStore | None:
        """The world's scope of the store; None as long as this rank does not know it. Call it again and again, also if it is
        known: rank 0 has to tell the others. Raises StoreError."""
        if self._world.rank == LEADER:
            self._tell()
        elif self._store is None:
            self._look()
        return self._store

    def close(self) -> None:
        """Does nothing: the launcher keeps the store."""

    def _look(self) -> None:
        if not self._is_here:
            self._common.put(f"here-{self._world.rank}", self._own.encode())
            self._is_here = True
        epoch, _, nonces = (self._common.get("epoch") or b"").decode("ascii", "replace").partition(" ")
        if self._own in nonces.split(",") and _is_one(epoch):
            self._store = self._of(epoch)

    def _tell(self) -> None:
        if not self._missing or time.monotonic() > self._until:
            return
        assert self._store is not None
        is_new = False
        for rank in sorted(self._missing):
            if rank in self._nonces and self._store.get(f"hello-{rank}") is not None:
                self._missing.discard(rank)
                continue
            nonce = (self._common.get(f"here-{rank}") or b"").decode("ascii", "replace")
            if _is_one(nonce) and nonce != self._nonces.get(rank):
                self._nonces[rank] = nonce
                is_new = True
        if is_new:
            self._common.put("epoch", f"{self._own} {','.join(self._nonces.values())}".encode())

    def _of(self, epoch: str) -> ScopedStore:
        return ScopedStore(*self._address, f"{self._scope}-{epoch}")


def _is_one(text: str) -> bool:
    """Whether it is an epoch or a nonce: anybody may write to the store."""
    return len(text) == _LETTERS and text.isascii() and text.isalnum()
