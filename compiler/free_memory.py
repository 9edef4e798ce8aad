"""How much memory this process may still take: what the machine has free, and what its control group (a container) allows."""

from __future__ import annotations

import re
from pathlib import Path

GROUPS = (
    ("memory.max", "memory.current"),  # cgroup v2
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),  # v1
)


def free_bytes(meminfo: Path = Path("/proc/meminfo"), groups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes; None where nothing tells. What a group's files hold in the page cache counts as used: too little at worst."""
    found: list[int] = []
    try:
        available = re.search(r"^MemAvailable:\s+(\d+) kB$", meminfo.read_text(), re.MULTILINE)
        if available:
            found.append(int(available.group(1)) * 1024)
    except OSError:
        pass
    for limit, usage in GROUPS:
        try:
            text = (groups / limit).read_text().strip()
            if text != "max":
                found.append(max(0, int(text) - int((groups / usage).read_text())))
        except (OSError, ValueError):
            continue
    return min(found, default=None)
