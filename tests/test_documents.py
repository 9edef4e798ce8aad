"""What `docs/` says of the program is what the program is."""

from __future__ import annotations

import argparse
import ast
import functools
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import yaml

from stitchfleet.plugin.command import GROUP, SUMMARIES

from .pages import PAGES, ROOT, with_plain_blocks

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


CODE = re.compile(r"`([^`\n]+)`|^    (?:\$ )?(\S.*)$", re.MULTILINE)
"""A span, or a line of a block."""


def codes_of(page: Path) -> list[str]:
    """What stands as code in a page, a command that goes over several lines as one, without comments."""
    found = CODE.findall(with_plain_blocks(page.read_text()))
    return [re.sub(r"\s#\s.*", "", span or line) for span, line in found]


@functools.cache
def options_of(name: str) -> frozenset[str]:
    """Those of a command of ours, its subcommands' among them."""
    (entry,) = [entry for entry in metadata.entry_points(group=GROUP) if entry.name == name]
    waiting, found = [argparse.ArgumentParser()], set()
    entry.load()().configure(waiting[0])
    while waiting:
        for action in waiting.pop()._actions:
            found.update(action.option_strings)
            if isinstance(action, argparse._SubParsersAction):
                waiting += action.choices.values()
    return frozenset(found)


def test_the_pages_name_only_commands_and_options_that_there_are() -> None:
    wrong, seen = [], 0
    for page in PAGES:
        for code in codes_of(page):
            for name, words in re.findall(r"\bstitchfleet ([a-z]+)\b((?: (?!-- )[^|;&]*)?)", code):
                if name not in SUMMARIES:
                    continue  # a release's or a folder's name
                seen += 1
                given = re.findall(r"(?<![\w-])--[a-z][a-z-]+", words.split(" -- ")[0])
                wrong += [f"{page.name}: {name} {option}" for option in given if option not in options_of(name)]
    assert wrong == []
    assert seen > 40


def test_the_pages_name_only_scripts_and_options_that_there_are() -> None:
    wrong, seen = [], 0
    for page in PAGES:
        for code in codes_of(page):
            for name, words in re.findall(r"(?<![\w/])scripts/([a-z-]+)(?![\w./])([^|;&]*)", code):
                path = ROOT / "scripts" / name
                if path.is_dir():
                    continue
                seen += 1
                if not path.exists():
                    wrong.append(f"{page.name}: scripts/{name}")
                    continue
                more = {"bench": "benchmark", "bench-gpu": "gpu"}.get(name)
                texts = [path, path.with_suffix(".py"), *((ROOT / "scripts" / more).glob("*.py") if more else ())]
                text = "\n".join(each.read_text() for each in texts if each.exists())
                own = re.sub(r'"[^"]*"', "", words)  # what is quoted is handed on to a workload
                given = re.findall(r"(?<![\w-])--[a-z][a-z-]+", own)
                wrong += [f"{page.name}: scripts/{name} {option}" for option in given if option not in text]
    assert wrong == []
    assert seen > 20


def test_the_pages_set_only_values_that_the_chart_has() -> None:
    values = yaml.safe_load((ROOT / "helm" / "stitchfleet" / "values.yaml").read_text())
    keys = [key for page in PAGES for code in codes_of(page) for key in re.findall(r"--set ([A-Za-z.]+)=", code)]
    assert len(keys) > 1
    for key in keys:
        found = values
        for part in key.split("."):
            assert part in found, key
            found = found[part]


MEASURED = re.compile(r"(?<![\w.])\d[\d.,]*\s?(?:ns|us|ms|s|MB|GB)\b|\(\d+\.\d+ to \d+\.\d+\)|\bms\b.*\|")
"""A figure of a measurement. Sizes that are settings or bounds are given in MiB."""
SETTINGS = {"values", "resources", "limits", "troubleshooting", "threats", "telemetry"}
"""Pages whose numbers are settings and bounds."""
BOUNDS = {
    "certificates.md": (
        "`stitchfleet-certificates`, every 30 s",
        "made anew within 30 s",
        "reads its files every 30 s",
    ),
    "ranks.md": ("30 s after rank 0 is ready", "a step waits for 3 s at most", "agreed step and 3 s more"),
}
"""Times on the other pages that are settings or bounds, each with the words beside it."""
TABLE = re.compile(r"((?:^\|.*\n)+)", re.MULTILINE)
RESULTS = "benchmark/results/"


def test_each_table_and_each_section_with_measured_figures_links_to_a_file_of_results() -> None:
    """A table's link is in it or in the text between it and the table before."""
    measured, without = 0, []
    for page in (ROOT / "README.md", *(page for page in sorted(DOCS.glob("*.md")) if page.stem not in SETTINGS)):
        text = page.read_text()
        for bound in BOUNDS.get(page.name, ()):
            assert bound in text, page.name
            text = text.replace(bound, "")
        for section in re.split(r"^##+ ", text, flags=re.MULTILINE):
            title = f"{page.name}: {section.partition(chr(10))[0]}"
            texts = TABLE.split(section)  # prose, a table, prose, ...
            if MEASURED.search("".join(texts[::2])):
                measured += 1
                without += [title] if RESULTS not in section else []
            for prose, table in zip(texts[::2], texts[1::2]):
                if MEASURED.search(table):
                    measured += 1
                    without += [f"{title}: {table.partition(chr(10))[0]}"] if RESULTS not in prose + table else []
    assert measured >= 20
    assert without == []
