"""What all tests share; what a run says at its start of a slow machine, and at its end of the time that it took and of the tests that
it left out."""

from __future__ import annotations

import collections
from typing import Any

import pytest
from hypothesis import settings

from stitchfleet.compiler.toolchain.host import Toolchain

from . import pace
from .kept import build_kept, remove_session_folder

# How long an example takes says what the machine does beside it; nothing here is a timed test.
settings.register_profile("stitchfleet", deadline=None)
settings.load_profile("stitchfleet")

LONGEST = 12
_LEFT_OUT = "stitchfleet_left_out"
REASONS = {
    "slow": "slow (scripts/test --all)",
    "costly": f"costly, and this machine is slow (tests/pace.py; {pace.VARIABLE}=1 runs them)",
    "not asked for": "not asked for",
}


@pytest.fixture
def kept_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that the program compiles in this process are kept from run to run."""
    monkeypatch.setattr(Toolchain, "build", build_kept)


def pytest_unconfigure(config: pytest.Config) -> None:
    remove_session_folder()


def pytest_configure(config: pytest.Config) -> None:
    pace.pace()  # before workers start, which inherit it
    config.stash[_COUNTS] = collections.Counter()
    if config.pluginmanager.hasplugin("xdist"):
        config.pluginmanager.register(_FromWorkers(config), "stitchfleet-from-workers")


_COUNTS = pytest.StashKey[collections.Counter[str]]()


def pytest_sessionstart(session: pytest.Session) -> None:
    """At the start too, since a run may be cut off before its end. Not pytest's header, which `-q` leaves out."""
    reporter: Any = session.config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None and pace.is_slow():
        reporter.write_line(
            f"this machine is slow (pace {pace.pace():.1f}): costly tests are left out "
            f"(tests/pace.py; {pace.VARIABLE}=1 runs them)"
        )


class _FromWorkers:
    """xdist's workers select tests; each selects the same."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        for reason, count in getattr(node, "workeroutput", {}).get(_LEFT_OUT, {}).items():
            counts = self._config.stash[_COUNTS]
            counts[reason] = max(counts[reason], count)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    costly = [item for item in items if pace.is_left_out(item.get_closest_marker("costly"))]
    if costly:
        items[:] = [item for item in items if not pace.is_left_out(item.get_closest_marker("costly"))]
        config.hook.pytest_deselected(items=costly)


def pytest_deselected(items: list[pytest.Item]) -> None:
    for item in items:
        is_costly = pace.is_left_out(item.get_closest_marker("costly"))
        reason = "slow" if item.get_closest_marker("slow") else "costly" if is_costly else "not asked for"
        item.config.stash[_COUNTS][reason] += 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[_LEFT_OUT] = dict(session.config.stash[_COUNTS])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _took[report.nodeid] += report.duration


_took: collections.Counter[str] = collections.Counter()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    counts = config.stash[_COUNTS]
    skipped = terminalreporter.stats.get("skipped", [])
    is_long = len(_took) >= 2 * LONGEST
    if is_long:
        total = sum(_took.values())
        terminalreporter.section(f"of {total:.0f} s in {len(_took)} tests, these took longest")
        for name, seconds in _took.most_common(LONGEST):
            terminalreporter.write_line(f"{seconds:7.1f} s  {name}")
        terminalreporter.write_line(
            f"pace of this machine: {pace.pace():.1f} (1: as fast as the one of the README's tables)"
        )
    if is_long or skipped or counts["slow"] or counts["costly"]:
        said = [f"{counts[name]} {words}" for name, words in REASONS.items() if counts[name]]
        said += [f"{len(skipped)} skipped ({_why(skipped)})"] if skipped else []
        terminalreporter.ensure_newline()
        terminalreporter.write_line(f"not run: {'; '.join(said) or 'nothing'}")


def _why(skipped: list[Any]) -> str:
    """The reasons of skipped tests, each once."""
    reasons = [
        str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr) for report in skipped
    ]
    return ", ".join(dict.fromkeys(reason.removeprefix("Skipped: ") for reason in reasons))
