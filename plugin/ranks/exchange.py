"""Documents that each rank sends to rank 0 over the store when it ends: JSON; an incomplete document counts as absent."""

from __future__ import annotations

import json
import time
from typing import Any

from .store import MAX_VALUE_BYTES, ScopedStore, StoreError

_POLL_SECONDS = 0.05


def publish(store: ScopedStore, rank: int, what: str, document: Any) -> bool:
    """Writes a rank's document to the store as JSON. Makes up to three attempts of at most a second each.

    what: the kind of document. Returns False if the store does not answer, or if the JSON text is longer than MAX_VALUE_BYTES.
    """
    value = json.dumps(document).encode()
    if len(value) > MAX_VALUE_BYTES:
        return False
    for _ in range(3):
        try:
            store.put(f"{what}-{rank}", value)
            return True
        except StoreError:
            time.sleep(_POLL_SECONDS)
    return False


def collect(store: ScopedStore, rank: int, size: int, what: str, longest_s: float) -> dict[int, Any]:
    """The documents of the other ranks of a world of `size`, by rank: those that arrive within `longest_s` seconds."""
    found: dict[int, Any] = {}
    end = time.monotonic() + longest_s
    while True:
        for other in range(size):
            if other == rank or other in found:
                continue
            try:
                value = store.get(f"{what}-{other}")
            except StoreError:
                break  # the store does not answer: no need to ask for the other ranks now
            try:
                if value is not None:
                    found[other] = json.loads(value)
            except ValueError:
                continue  # the value is incomplete
        if len(found) == size - 1 or time.monotonic() >= end:
            return found
        time.sleep(_POLL_SECONDS)
