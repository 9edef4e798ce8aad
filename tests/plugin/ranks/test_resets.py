"""Changes of an elastic job's world are noticed at Horovod's own functions."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from stitchfleet.plugin.base import containment
from stitchfleet.plugin.ranks import resets
from stitchfleet.plugin.ranks.resets import Place


class Library:
    """As the ctypes object of Horovod's library."""

    def __init__(self, calls: list[str]) -> None:
        self.calls, self.place, self.is_initialized, self.works = calls, Place(0, 1, 0, 1), False, True

    def horovod_shutdown(self) -> None:
        self.calls.append("shutdown")
        self.is_initialized = False

    def horovod_init(self, *arguments: object) -> bool:
        self.calls.append(f"init {arguments}")
        self.is_initialized = self.works
        return self.works

    def horovod_is_initialized(self) -> bool:
        return self.is_initialized

    def __getattr__(self, name: str) -> Any:
        field = name.removeprefix("horovod_")
        if field not in Place._fields:
            raise AttributeError(name)
        return lambda: getattr(self.place, field) if self.is_initialized else -1


class Listener:
    def __init__(self, calls: list[str]) -> None:
        self.calls = calls

    def world_ends(self) -> None:
        self.calls.append("ends")

    def world_is_sought(self) -> None:
        self.calls.append("sought")

    def world_begins(self, place: Place | None) -> None:
        self.calls.append(f"begins {None if place is None else tuple(place)}")


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    found = Library([])
    module: Any = types.ModuleType("horovod.tensorflow.mpi_ops")
    module._basics = types.SimpleNamespace(MPI_LIB_CTYPES=found)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return found


def test_a_reset_is_seen_from_the_end_of_a_world_to_the_next(library: Library) -> None:
    calls = library.calls
    assert resets.watch(Listener(calls))
    assert calls == []
    library.horovod_init("ranks", 2)
    library.horovod_shutdown()
    library.place = Place(1, 3, 1, 2)
    library.horovod_init()
    assert calls == [
        *("sought", "init ('ranks', 2)", "begins (0, 1, 0, 1)"),
        *("ends", "shutdown"),
        *("sought", "init ()", "begins (1, 3, 1, 2)"),
    ]


def test_a_world_that_is_there_already_begins_at_once_and_only_once(library: Library) -> None:
    library.is_initialized = True
    assert resets.watch(Listener(library.calls))
    assert resets.watch(Listener(library.calls))
    assert library.calls == ["begins (0, 1, 0, 1)"]


def test_a_second_initialization_changes_nothing(library: Library) -> None:
    assert resets.watch(Listener(library.calls))
    library.horovod_init()
    before = len(library.calls)
    library.horovod_init()
    assert library.calls[before:] == ["init ()"]


def test_horovod_that_could_not_be_initialized_makes_no_world(library: Library) -> None:
    assert resets.watch(Listener(library.calls))
    library.works = False
    assert library.horovod_init() is False
    assert library.calls == ["sought", "init ()", "begins None"]


def test_an_error_of_horovod_is_the_jobs(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: object) -> bool:
        raise ValueError("no rank here")

    monkeypatch.setattr(library, "horovod_init", fails)
    assert resets.watch(Listener(library.calls))
    with pytest.raises(ValueError, match="no rank here"):
        library.horovod_init()
    assert library.calls == ["sought", "begins None"]


def test_a_listener_that_has_to_run_after_a_failure_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other ranks have to learn that this one is plain, in each world."""
    monkeypatch.setattr(containment, "HEALTH", containment.Health())
    ran: list[str] = []

    @containment.contained(None)
    def entry() -> None:
        ran.append("entry")

    @containment.contained(None, after_failure=True)
    def world_ends() -> None:
        ran.append("ends")
        raise ValueError("broken")

    world_ends()
    entry()
    world_ends()
    assert ran == ["ends", "ends"]
    assert not containment.HEALTH.good


def test_without_horovod_there_is_nothing_to_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "horovod.tensorflow.mpi_ops", types.ModuleType("another version"))
    assert not resets.watch(Listener([]))
