"""The rule by which a slow machine leaves out what is costly, and what a run says of it."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from . import conftest, pace

ROOT = pathlib.Path(__file__).resolve().parents[1]
MANY = 2 * conftest.LONGEST
"""With so many tests a run lists those that took longest."""
INI = """
[pytest]
markers =
    slow: behind --all
    costly: left out on a slow machine
"""
TESTS = f"""
import time, pytest

@pytest.mark.costly
@pytest.mark.parametrize("number", range(3))
def test_costly(number):
    pass

@pytest.mark.costly(from_pace=9)
def test_costly_from_nine_on():
    pass

@pytest.mark.slow
def test_slow():
    pass

@pytest.mark.parametrize("number", range({MANY}))
def test_quick(number):
    time.sleep(0.2 if number == 7 else 0.0)
"""
COSTLY = "3 costly, and this machine is slow (tests/pace.py; STITCHFLEET_TEST_PACE=1 runs them)"


def lines_of(folder: pathlib.Path, said_pace: str, *arguments: str) -> tuple[int, list[str]]:
    """Exit code and lines of a run of TESTS under tests/conftest.py, as scripts/test begins it."""
    (folder / "pytest.ini").write_text(INI)
    (folder / "test_some.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    environment = {**os.environ, pace.VARIABLE: said_pace, "PYTHONPATH": str(ROOT)}
    environment = {name: value for name, value in environment.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [*command, "-m", "not slow", *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    return done.returncode, done.stdout.splitlines()


def test_a_machine_is_slow_from_the_rules_pace_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for said, slow in (("0.7", False), (str(pace.SLOW), True), ("8", True)):
        monkeypatch.setenv(pace.VARIABLE, said)
        assert pace.is_slow() == slow


def test_a_test_may_say_from_which_pace_on_it_is_costly(tmp_path: pathlib.Path) -> None:
    code, lines = lines_of(tmp_path, "9")
    assert code == 0, lines
    assert f"not run: 1 slow (scripts/test --all); {COSTLY.replace('3', '4', 1)}" in lines


def test_the_pace_is_measured_once_and_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(pace.VARIABLE)
    first = pace.pace()
    monkeypatch.setattr(pace, "_work", lambda: pytest.fail("measured again"))
    assert pace.pace() == first > 0


@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_slow_machine_leaves_out_costly_tests_counts_them_and_says_so_at_the_start_and_at_the_end(
    tmp_path: pathlib.Path, processes: str
) -> None:
    code, lines = lines_of(tmp_path, "8", "-n", processes)
    assert code == 0, lines
    assert lines[0].startswith("this machine is slow (pace 8.0): costly tests are left out")
    assert f"not run: 1 slow (scripts/test --all); {COSTLY}" in lines
    assert any(line.startswith(f"{MANY + 1} passed") for line in lines), lines
    (head,) = [number for number, line in enumerate(lines) if f"in {MANY + 1} tests, these took longest" in line]
    assert lines[head + 1].split() == ["0.2", "s", "test_some.py::test_quick[7]"]
    assert len([line for line in lines if " s  test_some.py::" in line]) == conftest.LONGEST


def test_what_is_left_out_of_a_few_tests_is_said_too_and_of_all(tmp_path: pathlib.Path) -> None:
    code, lines = lines_of(tmp_path, "8", "test_some.py::test_costly", "test_some.py::test_quick[1]")
    assert code == 0
    assert f"not run: {COSTLY}" in lines
    code, lines = lines_of(tmp_path, "8", "test_some.py::test_costly")
    assert code == pytest.ExitCode.NO_TESTS_COLLECTED
    assert f"not run: {COSTLY}" in lines


def test_a_fast_machine_runs_them(tmp_path: pathlib.Path) -> None:
    code, lines = lines_of(tmp_path, "1", "test_some.py::test_costly")
    assert code == 0
    assert any(line.startswith("3 passed") for line in lines), lines
    assert not any("slow" in line or "not run" in line for line in lines), lines
