"""Figures that tests measure for a page of `docs/`: kept in the JSON file that an environment variable names."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def keep(variable: str, *path: str, figures: Mapping[str, Any]) -> None:
    """Adds figures to the file, below the keys `path`, if the variable names one. Several processes may do so at once."""
    if not (target := os.environ.get(variable)):
        return
    file = Path(target)
    with open(file.with_suffix(".lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        *above, last = path
        place = known
        for key in above:
            place = place.setdefault(key, {})
        place[last] = dict(figures)
        file.write_text(json.dumps(known, indent=1) + "\n")
