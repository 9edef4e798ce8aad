"""The interface by which the parts of a job record events; job/records.py implements it."""

from __future__ import annotations

import pathlib
from typing import Protocol


class EventLog(Protocol):
    """A job's event log. folder: the folder of the job's records."""

    folder: pathlib.Path

    def event(self, kind: str, message: str, **facts: object) -> None:
        """Records an event. facts: values that JSON can hold. Never raises."""
