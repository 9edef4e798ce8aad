"""A JSON patch (RFC 6902) from one object to another: a few operations on whole values, which the API server applies atomically.

If a list begins or ends as before, only the new elements are added, so that elements that others added meanwhile are kept.
"""

from __future__ import annotations

from typing import Any

from .names import Object


def patch(before: Any, after: Any) -> list[Object]:
    """The patch from `before` to `after`; empty if they are equal."""
    found: list[Object] = []
    _compare(before, after, "", found)
    return found


def _compare(before: Any, after: Any, path: str, found: list[Object]) -> None:
    if before is after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        gone = (key for key in before if key not in after)
        found.extend({"op": "remove", "path": f"{path}/{_escaped(key)}"} for key in gone)
        for key, value in after.items():
            if key not in before:
                found.append({"op": "add", "path": f"{path}/{_escaped(key)}", "value": value})
            else:
                _compare(before[key], value, f"{path}/{_escaped(key)}", found)
    elif isinstance(before, list) and isinstance(after, list) and len(before) <= len(after):
        _compare_lists(before, after, path, found)
    elif not _is_same(before, after):
        found.append({"op": "replace", "path": path, "value": after})


def _compare_lists(before: list[Any], after: list[Any], path: str, found: list[Object]) -> None:
    more = len(after) - len(before)
    if more and before and _is_same(before, after[more:]):
        found.extend({"op": "add", "path": f"{path}/{number}", "value": after[number]} for number in range(more))
        return
    for number, (old, new) in enumerate(zip(before, after)):
        _compare(old, new, f"{path}/{number}", found)
    found.extend({"op": "add", "path": f"{path}/-", "value": value} for value in after[len(before) :])


def _is_same(before: Any, after: Any) -> bool:
    """Whether two values are equal as JSON, where true is not 1."""
    if type(before) is not type(after):
        return False
    if isinstance(before, dict):
        return before.keys() == after.keys() and all(_is_same(before[key], after[key]) for key in before)
    if isinstance(before, list):
        return len(before) == len(after) and all(map(_is_same, before, after))
    return bool(before == after)


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
