"""The commands that the pages show."""

from __future__ import annotations

import re
import subprocess
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
    text = with_plain_blocks(re.sub(r"^```yaml\n.*?^```$", "", page.read_text(), flags=re.M | re.S))
    lines = [re.sub(r"\s+#\s.*|^\$ ", "", line.strip()) for line in re.findall(r"^    .*$", text, re.M)]
    lines = [line if "'" in line else " ".join(line.split()) for line in lines]
    spans = [
        span.split() for span in re.findall(r"`((?:kubectl|helm) [^`]*)`", re.sub(r"^    .*$", "", text, flags=re.M))
    ]
    told = [" ".join(words) for words in spans if len(words) > 2 and not words[2].startswith("-")]
    return [line for line in lines if _PROGRAM.match(line)] + told


def with_plain_blocks(text: str) -> str:
    """A page's text with fenced blocks indented as the others are, and a line that goes over several as one."""
    return re.sub(
        r"^```[a-z]*\n(.*?)^```$",
        lambda block: re.sub("^", "    ", block[1], flags=re.M),
        text.replace("\\\n", " "),
        flags=re.M | re.S,
    )


def type_in(command: str, expected: str, folder: Path, shown: str = "", seconds: float = 900) -> None:
    """Runs a command as somebody types it in `folder`, and checks what it prints. shown: how the page has it."""
    words = ["bash", "-o", "pipefail", "-c", command]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=seconds, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, f"{shown or command}: {said[-3000:]}"
    assert expected in said, f"{shown or command}: {said[-3000:]}"
