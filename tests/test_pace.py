"""The rule by which a slow machine leaves out what is costly."""

from __future__ import annotations

import pytest

from . import pace


def test_a_machine_is_slow_from_the_rules_pace_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for said, slow in (("0.7", False), (str(pace.SLOW), True), ("8", True)):
        monkeypatch.setenv(pace.VARIABLE, said)
        assert pace.is_slow() == slow


def test_the_pace_is_measured_once_and_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(pace.VARIABLE)
    first = pace.pace()
    monkeypatch.setattr(pace, "_work", lambda: pytest.fail("measured again"))
    assert pace.pace() == first > 0
