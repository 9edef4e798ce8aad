"""Entry points of installed packages. Python 3.9's importlib.metadata cannot select them by group yet."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import metadata
from typing import Any

_CAN_SELECT: bool = sys.version_info >= (3, 10)


def entry_points(group: str) -> Iterable[metadata.EntryPoint]:
    """The entry points of group `group` that all installed packages declare."""
    if _CAN_SELECT:
        return metadata.entry_points(group=group)
    found: Any = metadata.entry_points()
    return list(found.get(group, ()))
