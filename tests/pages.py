"""The commands that the pages show."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    *(ROOT / "README.md", ROOT / "CONTRIBUTING.md"),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted(ROOT.glob("*/README.md")),
    ROOT / "tests" / "cluster" / "README.md",
]
_PROGRAM = re.compile(
    r"(?:[A-Z_]+=\S* )*(?:(?:\.venv/bin/)?(?:stitchfleet(?! [a-z]+:)|python)|scripts/[a-z]+|kubectl|helm|printf|export [A-Z_]+=\S+)"
    r"(?: |$)"
)
"""How a line of a block begins that is a command."""


def commands_of(page: Path) -> list[str]:
    """Those of its blocks, and those that its text tells kubectl and helm: one that goes over several lines as one, comments and
    prompts left out. A span of one or two words names a program's command and is none."""
    text = re.sub(r"^```(?!yaml)[a-z]*\n(.*?)^```$", _indented, page.read_text(), flags=re.M | re.S)
    text = re.sub(r"^```yaml\n.*?^```$", "", text, flags=re.M | re.S).replace("\\\n", " ")
    lines = [re.sub(r"\s+#\s.*|^\$ ", "", line.strip()) for line in re.findall(r"^    .*$", text, re.M)]
    lines = [line if "'" in line else " ".join(line.split()) for line in lines]
    spans = [
        span.split() for span in re.findall(r"`((?:kubectl|helm) [^`]*)`", re.sub(r"^    .*$", "", text, flags=re.M))
    ]
    told = [" ".join(words) for words in spans if len(words) > 2 and not words[2].startswith("-")]
    return [line for line in lines if _PROGRAM.match(line)] + told


def _indented(block: re.Match[str]) -> str:
    return re.sub("^", "    ", block[1], flags=re.M)
