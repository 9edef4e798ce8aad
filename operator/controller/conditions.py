"""Status conditions in the standard shape (metav1.Condition)."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from ..policy.names import Object


def condition(kind: str, status: bool, reason: str, message: str, generation: int) -> Object:
    """A condition without its time; `with_times` adds it."""
    return {
        "type": kind,
        "status": "True" if status else "False",
        "reason": reason,
        "message": message,
        "observedGeneration": generation,
    }


def with_times(conditions: Sequence[Object], before: Sequence[Mapping[str, Any]]) -> list[Object]:
    """The conditions with lastTransitionTime: when the status last changed, not when it was last checked. before: the old
    conditions."""
    known = {entry["type"]: entry for entry in before}
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    found = []
    for entry in conditions:
        old = known.get(entry["type"])
        same = old is not None and old.get("status") == entry["status"]
        found.append(entry | {"lastTransitionTime": old["lastTransitionTime"] if same and old else now})
    return found


def merged(conditions: Sequence[Object], before: Sequence[Mapping[str, Any]]) -> list[Object]:
    """These conditions, with times, and those of `before` that have another type."""
    fresh = {entry["type"] for entry in conditions}
    return [*with_times(conditions, before), *(dict(entry) for entry in before if entry["type"] not in fresh)]
