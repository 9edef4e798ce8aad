"""Python's collector of cyclic garbage, which goes through all objects of a process whenever a quarter of them is new."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def not_collected() -> Iterator[None]:
    """A context for work that makes many objects, nearly all of which stay: the collector is off in it, for all threads.

    What is no longer referenced is still freed at once. Afterwards the collector is on again if it was on before.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
