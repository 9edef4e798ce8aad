"""Status conditions in the standard shape (metav1.Condition)."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from ..policy.names import Object


def condition(kind: str, status: bool, reason: str, message: str, generation: int) -> Object:
    """A condition of type `kind` without lastTransitionTime, which `with_times` adds. generation: metadata.generation of the
    object that was observed."""
    return {
        "type": kind,
        "status": "True" if status else "False",
        "reason": reason,
        "message": message,
        "observedGeneration": generation,
    }


def with_times(conditions: Sequence[Object], before: Sequence[Mapping[str, Any]]) -> list[Object]:
    """The conditions with lastTransitionTime: the time (UTC, RFC 3339) at which their status last changed, not the time of the
    last check. before: the object's present conditions."""
    known = {entry["type"]: entry for entry in before}
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    found = []
    for entry in conditions:
        old = known.get(entry["type"])
        same = old is not None and old.get("status") == entry["status"]
        found.append(entry | {"lastTransitionTime": old["lastTransitionTime"] if same and old else now})
    return found


def merged(conditions: Sequence[Object], before: Sequence[Mapping[str, Any]]) -> list[Object]:
    """The given conditions, with times, followed by the conditions of `before` whose type is not among them."""
    fresh = {entry["type"] for entry in conditions}
    return [*with_times(conditions, before), *(dict(entry) for entry in before if entry["type"] not in fresh)]
