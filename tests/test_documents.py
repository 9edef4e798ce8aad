"""What `docs/` says of the program is what the program is."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
RULES = ROOT / "helm" / "stitchfleet" / "files" / "rules.yml"


def test_the_runbook_has_one_entry_for_each_alert() -> None:
    alerts = [
        rule["alert"]
        for group in yaml.safe_load(RULES.read_text())["groups"]
        for rule in group["rules"]
        if "alert" in rule
    ]
    assert re.findall(r"^## (Stitchfleet\w+)$", (DOCS / "runbook.md").read_text(), re.MULTILINE) == alerts


def test_the_pages_of_reference_are_those_that_the_chart_gives() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "reference.py", "--check"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_each_value_of_the_chart_is_explained() -> None:
    silent = [line for line in (DOCS / "values.md").read_text().splitlines() if line.endswith("|  |")]
    assert silent == []


@pytest.mark.parametrize(
    "page",
    [*sorted(DOCS.glob("*.md")), *ROOT.glob("*.md"), ROOT / "operator" / "README.md"],
    ids=lambda page: page.name,
)
def test_links_lead_to_files(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


def texts_of_the_program() -> list[str]:
    """All string constants, docstrings left out by their length being no matter: a line is found in some."""
    found = []
    for package in ("plugin", "compiler", "telemetry", "operator"):
        for path in (ROOT / package).rglob("*.py"):
            tree = ast.parse(path.read_text())
            docstrings = {
                id(node.body[0].value)
                for node in ast.walk(tree)
                if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
                and node.body
                and isinstance(node.body[0], ast.Expr)
            }
            found += [
                node.value
                for node in ast.walk(tree)
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
            ]
    return found


def test_each_line_of_the_troubleshooting_page_is_one_that_the_program_says() -> None:
    page = (DOCS / "troubleshooting.md").read_text()
    lines = re.findall(r"^\| ((?:`[^`]+`(?:, )?)+)", page, re.MULTILINE)
    texts = texts_of_the_program()
    assert len(lines) > 20
    for line in lines:
        for span in re.findall(r"`([^`]+)`", line):
            parts = [part.strip(" :;()") for part in re.split(r"\.\.\.|: | \(|; |\b\d+\b", span)]
            assert [part for part in parts if not any(part in text for text in texts)] == []
