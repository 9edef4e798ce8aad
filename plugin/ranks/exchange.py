"""Documents that each rank sends to rank 0 over the store when it ends: JSON; an incomplete document counts as absent."""

from __future__ import annotations

import json
import time
from typing import Any

from .store import MAX_VALUE_BYTES, Store, StoreError
from .world import World

_POLL_SECONDS = 0.05


def publish(world: World, run_id: str, what: str, document: Any) -> bool:
    """Writes this rank's document to the store. Makes up to three attempts of at most a second each.

    what: the kind of document. Returns False if there is no store, it does not answer, or the document is over MAX_VALUE_BYTES.
    """
    value = json.dumps(document).encode()
    if world.store is None or len(value) > MAX_VALUE_BYTES:
        return False
    store = Store(*world.store, f"stitchfleet-{run_id}")
    for _ in range(3):
        try:
            store.put(f"{what}-{world.rank}", value)
            return True
        except StoreError:
            time.sleep(_POLL_SECONDS)
    return False


def collect(world: World, run_id: str, what: str, longest_s: float) -> dict[int, Any]:
    """The documents of the other ranks, by rank: those that arrive within `longest_s` seconds."""
    found: dict[int, Any] = {}
    if world.store is None:
        return found
    store = Store(*world.store, f"stitchfleet-{run_id}")
    end = time.monotonic() + longest_s
    while True:
        for rank in range(world.size):
            if rank == world.rank or rank in found:
                continue
            try:
                value = store.get(f"{what}-{rank}")
            except StoreError:
                break  # the store does not answer: no need to ask for the other ranks now
            try:
                if value is not None:
                    found[rank] = json.loads(value)
            except ValueError:
                continue  # the value is incomplete
        if len(found) == world.size - 1 or time.monotonic() >= end:
            return found
        time.sleep(_POLL_SECONDS)
