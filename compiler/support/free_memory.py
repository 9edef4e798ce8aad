"""How much memory this process may still allocate: what the machine has free, and what its control group (a container) allows."""

from __future__ import annotations

import re
from pathlib import Path

GROUPS_FOLDER = Path("/sys/fs/cgroup")
GROUPS = (
    ("memory.max", "memory.current"),  # cgroup v2
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),  # v1
)
"""Files of a control group: its limit, and its current use."""


def group_bytes(path: Path) -> int | None:
    """The number of bytes that `path`, one of a control group's files (GROUPS), contains; None if it says "max" (no limit) or cannot
    be read."""
    try:
        text = path.read_text().strip()
        return None if text == "max" else int(text)
    except (OSError, ValueError):
        return None


def free_bytes(meminfo: Path = Path("/proc/meminfo"), groups: Path = GROUPS_FOLDER) -> int | None:
    """Free bytes: the smallest of MemAvailable and what each control group has left. None if none of them can be read.

    A control group counts its page cache as used, so the result may be too small, never too large. Raises nothing.
    """
    found: list[int] = []
    try:
        available = re.search(r"^MemAvailable:\s+(\d+) kB$", meminfo.read_text(), re.MULTILINE)
        if available:
            found.append(int(available.group(1)) * 1024)
    except OSError:
        pass
    for names in GROUPS:
        limit, used = (group_bytes(groups / name) for name in names)
        if limit is not None and used is not None:
            found.append(max(0, limit - used))
    return min(found, default=None)
