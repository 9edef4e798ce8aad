"""How much memory this process may still take: what the machine has free, and what its control group (a container) allows."""

from __future__ import annotations

import re
from pathlib import Path

GROUPS_FOLDER = Path("/sys/fs/cgroup")
GROUPS = (
    ("memory.max", "memory.current"),  # cgroup v2
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),  # v1
)
"""Files of a control group: its limit, and what it uses."""


def group_bytes(path: Path) -> int | None:
    """What one of these files says; None for no limit, and where it does not tell."""
    try:
        text = path.read_text().strip()
        return None if text == "max" else int(text)
    except (OSError, ValueError):
        return None


def free_bytes(meminfo: Path = Path("/proc/meminfo"), groups: Path = GROUPS_FOLDER) -> int | None:
    """Bytes; None where nothing tells. What a group's files hold in the page cache counts as used: too little at worst."""
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
