"""What the versions' tests saw, for docs/versions.md: kept in the JSON file that $STITCHFLEET_VERSIONS names."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

VARIABLE = "STITCHFLEET_VERSIONS"


def note(environment: str, way: str, **figures: Any) -> None:
    """Adds the figures of a way of training in an environment to the file. Several processes may do so at once."""
    if not (target := os.environ.get(VARIABLE)):
        return
    path = Path(target)
    with open(path.with_suffix(".lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = json.loads(path.read_text()) if path.exists() else {}
        known.setdefault(environment, {})[way] = figures
        path.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
