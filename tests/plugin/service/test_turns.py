"""Services of one run on one host take turns at making kernels."""

from __future__ import annotations

import pathlib

import pytest

from stitchfleet.plugin.service import serving
from stitchfleet.plugin.service.serving import KernelTurn


def test_one_service_of_a_run_makes_kernels_at_a_time(tmp_path: pathlib.Path) -> None:
    first, second, other_run = KernelTurn(tmp_path, "a"), KernelTurn(tmp_path, "a"), KernelTurn(tmp_path, "b")
    assert first.take(3)
    assert first.take(2), "it keeps the turn"
    assert not second.take(3)
    assert other_run.take(1)
    first.give_back()
    assert second.take(3)
    assert not first.take(1)
    second.give_back()
    other_run.give_back()
    assert list(tmp_path.iterdir()) == []


def test_a_service_that_waits_in_vain_makes_them_itself(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(serving.time, "monotonic", lambda: now)
    stopped, second = KernelTurn(tmp_path, "a"), KernelTurn(tmp_path, "a")
    assert stopped.take(3)
    assert not second.take(3)
    now += serving.TURN_PATIENCE_S
    assert not second.take(2), "a kernel came: the other one works"
    now += serving.TURN_PATIENCE_S
    assert not second.take(2)
    now += 1.0
    assert second.take(2)


def test_a_cache_that_cannot_be_written_to_is_no_reason_to_wait(tmp_path: pathlib.Path) -> None:
    assert KernelTurn(tmp_path / "missing", "a").take(1)
