"""How fast this machine is, and what the quick suite leaves out on one that is slow: the one rule, measured once at the start of
a run.

CI has a fixed time. A machine that shares its processors with others can be eight times slower than the one on which the suite
takes five minutes, and must not make a sound change fail. There, tests that are marked `costly` are left out, and the run says so
in one line; `costly(from_pace=4)` is for those that a machine can afford up to that pace. STITCHFLEET_TEST_PACE sets the pace by hand
(1: a fast machine).
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

REFERENCE_SECONDS = 0.21
"""What `_work` takes on a core of an AMD EPYC (Zen 4, 2.6 GHz) that does nothing else, 24 November 2026."""
SLOW = 1.5
"""From this pace on the costly tests are left out: all of `.ci/run`, with everything to install, took 50 minutes at a pace of 1."""
VARIABLE = "STITCHFLEET_TEST_PACE"


def _work() -> int:
    """Integers, a dictionary and calls, as an import of a large package has them."""
    seen: dict[int, int] = {}
    value = 1
    for number in range(1_000_000):
        value = (value * 1103515245 + number) & 0x7FFFFFFF
        seen[value & 4095] = value
    return len(seen)


def pace() -> float:
    """How many times as long as on the reference this machine takes. Measured once for a run: its workers inherit the answer."""
    known = os.environ.get(VARIABLE)
    if known is None:
        took = []
        for _ in range(3):
            start = time.perf_counter()
            _work()
            took.append(time.perf_counter() - start)
        known = os.environ[VARIABLE] = f"{min(took) / REFERENCE_SECONDS:.2f}"
    return float(known)


def is_slow() -> bool:
    return pace() >= SLOW


def is_left_out(costly: pytest.Mark | None) -> bool:
    """Whether a test with this mark is left out at this machine's pace."""
    return costly is not None and pace() >= float(costly.kwargs.get("from_pace", SLOW))
