"""A patch makes the one object of the other, whatever they hold."""

from __future__ import annotations

import json
from typing import Any

import jsonpatch
from hypothesis import given
from hypothesis import strategies as st

from stitchfleet.operator.policy.mutate import mutate
from stitchfleet.operator.policy.patch import patch

from ..pods import POLICY, Object, pods

_KEYS = st.sampled_from(["a", "b/c", "d~e", "", "~1"])
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=12,
)


def text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


@given(_VALUES, _VALUES)
def test_it_makes_the_one_of_the_other(before: Any, after: Any) -> None:
    assert text(jsonpatch.apply_patch(before, patch(before, after))) == text(after)


@given(_VALUES)
def test_of_equals_there_is_none(value: Any) -> None:
    assert patch(value, json.loads(text(value))) == []


@given(pods())
def test_it_makes_a_pod_what_mutate_says(given: Object) -> None:
    changed = mutate(given, POLICY)
    assert text(jsonpatch.apply_patch(given, patch(given, changed))) == text(changed)


def test_what_is_added_to_a_list_leaves_the_rest_to_others() -> None:
    assert patch({"l": [1, 2]}, {"l": [1, 2, 3]}) == [{"op": "add", "path": "/l/-", "value": 3}]
    assert patch({"l": [1, 2]}, {"l": [0, 1, 2]}) == [{"op": "add", "path": "/l/0", "value": 0}]
