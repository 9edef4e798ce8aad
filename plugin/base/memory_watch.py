"""Memory beside plain: stitching is given up before it can get the job killed for memory.

The resident size of the process is read from /proc; the bound is the control group's (a container's limit) or the machine's.
"""

from __future__ import annotations

import os
import pathlib
import resource

from stitchfleet.compiler.support.free_memory import GROUPS, GROUPS_FOLDER, group_bytes

_PAGE = os.sysconf("SC_PAGE_SIZE")
DANGER_SHARE = 0.93
"""Of the memory there is, when a rise since the plain phase counts as dangerous."""
MIN_RISE_BYTES = 64 << 20
"""A rise smaller than this is the job's own."""


def resident_bytes() -> int:
    """This process's resident set, 0 where /proc does not tell."""
    try:
        return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0


def peak_bytes() -> int:
    """The largest resident set so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def limit_bytes(given: int = 0) -> int | None:
    """What this process may use: the smallest of a given limit, its control groups' and the machine's memory."""
    limits = [given] if given > 0 else []
    groups = [group_bytes(GROUPS_FOLDER / limit) for limit, _ in GROUPS]
    limits += [limit for limit in groups if limit is not None]
    try:
        limits.append(os.sysconf("SC_PHYS_PAGES") * _PAGE)
    except (OSError, ValueError):
        pass
    return min(limits) if limits else None


class MemoryWatch:
    """Compares the stitched phase's memory with the plain phase's. `danger` is asked some times a second."""

    def __init__(self, limit: int = 0) -> None:
        self.limit = limit_bytes(limit)
        self.plain_peak = 0
        self.stitched_peak = 0
        self._given_up = False

    def danger(self, stitched: bool) -> str | None:
        """A reason to give up stitching, once; None otherwise."""
        now = resident_bytes()
        if not stitched:
            self.plain_peak = max(self.plain_peak, now)
            return None
        self.stitched_peak = max(self.stitched_peak, now)
        if self._given_up or self.limit is None or now < DANGER_SHARE * self.limit:
            return None
        rise = now - self.plain_peak
        if rise < MIN_RISE_BYTES:
            return None
        self._given_up = True
        return f"memory is {now / 2**20:.0f} MiB of {self.limit / 2**20:.0f} MiB, {rise / 2**20:.0f} MiB more than the plain job had"
