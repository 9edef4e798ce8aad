"""compiler/README.md shows the real output of every stage: the commands are run again and compared. After a change that is meant,
STITCHFLEET_UPDATE_GOLDEN=1 writes the blocks anew; the words around them are for a person to keep true."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from stitchfleet.compiler.commands.command import CompileCommand, ExplainCommand

ROOT = Path(__file__).resolve().parents[3]
README = ROOT / "compiler" / "README.md"
FIXTURES = Path(__file__).parents[2] / "fixtures"
LAYER_NORM, DENSE = FIXTURES / "layer_norm.hlo", FIXTURES / "dense.hlo"
STAGES = [
    *((LAYER_NORM, stage, f"stage:{stage}") for stage in ("hlo", "graph", "plan", "loops", "source")),
    *((DENSE, stage, f"dense:{stage}") for stage in ("hlo", "plan", "loops", "source")),
]
"""Files, stages, and the page's blocks of what they print."""

# Times, sizes, values and names by content: what may differ between machines and compilers.
_DIFFERS = re.compile(r"stitch_[0-9a-f]+|by .*|-?\b\d[\d.e+-]*")


def _output(file: Path, *words: str) -> str:
    command = CompileCommand()
    parser = argparse.ArgumentParser()
    command.configure(parser)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert command.run(parser.parse_args([str(file), *words])) == 0
    return out.getvalue().strip() + "\n"


def _block(name: str, make: Callable[[], str], same: Callable[[str, str], bool]) -> tuple[str, str]:
    """(the page's block, what it should be); in update mode, the page is written anew first unless both are the same."""
    pattern = re.compile(rf"(?<=^```)(\S+ {re.escape(name)}\n)(.*?)(?=^```$)", re.MULTILINE | re.DOTALL)
    page = README.read_text()
    assert len(pattern.findall(page)) == 1
    real = make()
    if os.environ.get("STITCHFLEET_UPDATE_GOLDEN") == "1" and not same(pattern.findall(page)[0][1], real):
        page = pattern.sub(lambda match: match[1] + real, page)
        README.write_text(page)
    return pattern.findall(page)[0][1], real


@pytest.mark.parametrize(("file", "stage", "name"), STAGES)
def test_the_page_shows_what_each_stage_prints(file: Path, stage: str, name: str) -> None:
    shown, real = _block(name, lambda: _output(file, "--stop-after", stage), str.__eq__)
    assert shown == real


def _without_figures(text: str) -> str:
    return _DIFFERS.sub("#", text)


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
@pytest.mark.parametrize(("file", "name"), [(LAYER_NORM, "run"), (DENSE, "dense:run")])
def test_the_page_shows_what_a_finished_kernel_prints_but_for_the_figures(file: Path, name: str) -> None:
    shown, real = _block(
        name, lambda: _output(file, "--run"), lambda old, new: _without_figures(old) == _without_figures(new)
    )
    assert _without_figures(shown) == _without_figures(real)
    assert "intermediates 0" in shown


def test_the_picture_of_the_plan_is_what_explain_draws(tmp_path: Path) -> None:
    """`scripts/pictures` makes it again."""
    drawn = tmp_path / "plan.svg"
    parser = argparse.ArgumentParser()
    command = ExplainCommand()
    command.configure(parser)
    assert command.run(parser.parse_args([str(LAYER_NORM), "--svg", str(drawn)])) == 0
    assert (ROOT / "docs" / "pictures" / "plan.svg").read_text() == drawn.read_text()


def test_the_page_names_only_files_that_there_are() -> None:
    named = set(re.findall(r"`(?:tests/compiler/)?([\w/]+\.(?:py|h|hlo))`", README.read_text()))
    here = {path.name for folder in ("compiler", "plugin", "tests/compiler") for path in (ROOT / folder).rglob("*")}
    assert len(named) > 15
    assert not {name for name in named if name.rsplit("/", 1)[-1] not in here}
