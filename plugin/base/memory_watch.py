"""Compares a job's memory with that of its plain phase, so that stitching is given up before the job is killed for memory.

The resident size is read from /proc. The limit is the smallest of the control groups' (a container's), the machine's and a given one.
"""

from __future__ import annotations

import os
import pathlib
import resource

from stitchfleet.compiler.support.free_memory import GROUPS, GROUPS_FOLDER, group_bytes

_PAGE = os.sysconf("SC_PAGE_SIZE")
IDLE_BUFFER_SECONDS = 10.0
"""The memory of a kernel's large result is kept for this long after its last use."""
SCARCE_SHARE = 0.85
"""Share of the limit from which no memory is kept."""
DANGER_SHARE = 0.93
"""Share of the limit from which a rise since the plain phase is dangerous."""
MIN_RISE_BYTES = 64 << 20
"""A smaller rise is attributed to the job itself."""


def resident_bytes() -> int:
    """Resident set size of this process in bytes; 0 if /proc cannot be read."""
    try:
        return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0


def peak_bytes() -> int:
    """Largest resident set size of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def limit_bytes(given: int = 0) -> int | None:
    """Memory that this process may use, in bytes: the smallest of `given` (if above 0), its control groups' limits and the machine's
    memory; None if none is known."""
    limits = [given] if given > 0 else []
    groups = [group_bytes(GROUPS_FOLDER / limit) for limit, _ in GROUPS]
    limits += [limit for limit in groups if limit is not None]
    try:
        limits.append(os.sysconf("SC_PHYS_PAGES") * _PAGE)
    except (OSError, ValueError):
        pass
    return min(limits) if limits else None


class MemoryWatch:
    """Compares the memory of the stitched phase with that of the plain phase. limit: in bytes, as `limit_bytes` takes it."""

    def __init__(self, limit: int = 0) -> None:
        self.limit = limit_bytes(limit)
        self.plain_peak = 0
        self.stitched_peak = 0
        self._given_up = False

    def idle_seconds(self) -> float:
        """For how long memory that is not used may be kept now."""
        is_scarce = self.limit is not None and resident_bytes() >= SCARCE_SHARE * self.limit
        return 0.0 if is_scarce else IDLE_BUFFER_SECONDS

    def danger(self, stitched: bool) -> str | None:
        """Measures the resident memory. stitched: whether the job is stitched now. Returns a reason to give up stitching, at most
        once, else None. Call it a few times per second."""
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
