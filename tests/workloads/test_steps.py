"""The log of a workload's steps: Ctrl-C ends the job between two steps, a second one at once."""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import signal
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from .conftest import SCRIPTS


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """scripts/workloads/steps.py, where Ctrl-C does what it does in a script."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield importlib.import_module("steps")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
        for name in ("steps", "distributed"):
            sys.modules.pop(name, None)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_a_step_that_is_interrupted_is_done_and_the_last(steps: ModuleType, tmp_path: pathlib.Path) -> None:
    def step(number: int) -> float:
        if number == 2:
            interrupt()
        return float(number)

    with steps.step_log(str(tmp_path / "log.json"), quiet=True) as book:
        for number in range(5):
            book(lambda number=number: step(number))
    assert json.loads((tmp_path / "log.json").read_text())["losses"] == [0.0, 1.0, 2.0]


def test_a_second_interrupt_does_not_wait_for_the_steps_end(steps: ModuleType, tmp_path: pathlib.Path) -> None:
    def step() -> float:
        interrupt()
        interrupt()
        raise AssertionError("the step went on")

    with steps.step_log(str(tmp_path / "log.json"), quiet=True) as book:
        book(lambda: 1.0)
        book(step)
    assert json.loads((tmp_path / "log.json").read_text())["losses"] == [1.0]
