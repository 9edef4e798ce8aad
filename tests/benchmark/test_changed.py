"""scripts/bench --changed: which kernels two checkouts write differently, and how they are timed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from scripts.benchmark import changed, command

HLO = """HloModule {name}
ENTRY main {{
  x = f32[64,128] parameter(0)
  ROOT t = f32[64,128] tanh(x)
}}
"""
OTHER = """
import os

if "STITCHFLEET_TEST_OTHER" in os.environ:
    from stitchfleet.compiler.codegen.cpu import kernel_text

    render = kernel_text.render

    def otherwise(loops, *words, **named):
        if loops.name == "lost":
            raise ValueError("cannot write it")
        return render(loops, *words, **named) + ("\\n// otherwise" if loops.name == "other" else "")

    kernel_text.render = otherwise
"""


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache with three clusters."""
    (tmp_path / "hlo").mkdir()
    for name in ("same", "other", "lost"):
        (tmp_path / "hlo" / f"{name}.hlo").write_text(HLO.format(name=name))
    return tmp_path


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another checkout: this one, but that it writes one kernel otherwise and another not at all."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(OTHER)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")]))
    python = tmp_path / "checkout" / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nSTITCHFLEET_TEST_OTHER=1 exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return tmp_path / "checkout"


def test_kernels_that_differ_are_counted_and_timed(
    cache: Path, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--changed", str(checkout), "--cache", str(cache), "--rounds", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "3 clusters, the kernels of 1 differ"
    assert lines[1].startswith("no kernel before: lost.hlo: ValueError: ")
    assert [line.split()[0] for line in lines[3:]] == ["other", "1"]


def test_a_kernel_that_only_the_other_checkout_has_is_a_failure(
    cache: Path, checkout: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two change places."""
    python = checkout / ".venv" / "bin" / "python"
    here = python.rename(python.with_name("here"))
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(here))
    assert command.main(["--changed", str(checkout), "--cache", str(cache), "--rounds", "1"]) == 1
    assert "no kernel after: lost.hlo: ValueError: " in capsys.readouterr().out


def test_the_table_puts_what_lost_most_first() -> None:
    lines = changed.table(
        [changed.Changed("a", 10.0, 5.0), changed.Changed("b", 10.0, 20.0), changed.Changed("c", 10.0, 10.0)]
    )
    assert [line.split()[0] for line in lines[1:4]] == ["b", "c", "a"]
    assert lines[-1] == "3 timed: 1 faster, 1 slower; geometric mean 1.000, 0.50 to 2.00"
    assert changed.table([]) == []


@pytest.mark.parametrize("words", [["nowhere"], ["nowhere", "--cache", "{cache}"], ["{cache}", "--rounds", "0"]])
def test_mistakes_are_one_line(words: list[str], cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        command.main(["--changed", *(word.format(cache=cache) for word in words)])
    assert error.value.code == 2
    assert "error:" in capsys.readouterr().err.splitlines()[-1]
