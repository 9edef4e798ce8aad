"""Where the parts of a job say what happened (records.py has the one of a job)."""

from __future__ import annotations

import pathlib
from typing import Protocol


class EventLog(Protocol):
    """A job's events, and its folder."""

    folder: pathlib.Path

    def event(self, kind: str, message: str, **facts: object) -> None:
        """Never raises."""
