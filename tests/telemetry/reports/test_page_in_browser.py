"""The page in a real Chromium: it shows on a desk, on a phone and on paper, and brings nothing in."""

from __future__ import annotations

import html
import json
import os
import pathlib
import re
import shutil
import subprocess
from typing import Any

import pytest

from stitchfleet.plugin.command import main
from stitchfleet.telemetry.database import access
from stitchfleet.telemetry.database.weeks import Week

from .. import synthetic

pytestmark = pytest.mark.slow

MEASURE = """
<iframe id=frame src="report.html" style="width: %dpx; height: 900px; border: 0"></iframe><pre id=found></pre>
<script>
frame.onload = () => {
  const page = frame.contentDocument, root = page.documentElement;
  const charts = [...page.querySelectorAll("svg")].map(svg => {
    const box = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")].map(text => [text.getBoundingClientRect(), text.textContent]);
    const outside = texts.filter(([t]) => t.left < box.left - 1 || t.right > box.right + 1 || t.bottom > box.bottom + 1);
    return {width: box.width, height: box.height, outside: outside.map(([, words]) => words),
            smallest: Math.min(...texts.map(([t, words]) => words.trim() ? Math.max(t.height, t.width / words.length) : 99))};
  });
  found.textContent = JSON.stringify({charts, visible: root.clientWidth, needed: root.scrollWidth,
    loaded: frame.contentWindow.performance.getEntriesByType("resource").map(entry => entry.name),
    title: page.title, headings: [...page.querySelectorAll("h2")].map(heading => heading.textContent)});
};
</script>
"""


@pytest.fixture(scope="module")
def chromium() -> str:
    """The browser, installed from Debian's packages where that is possible."""
    names = ("chromium", "chromium-browser", "google-chrome")
    if not any(map(shutil.which, names)) and shutil.which("apt-get") and os.geteuid() == 0:
        for words in (["update", "-qq"], ["install", "-y", "-qq", "chromium"]):
            subprocess.run(["apt-get", *words], check=False, capture_output=True, timeout=500)
    for name in names:
        if found := shutil.which(name):
            return found
    pytest.skip("no Chromium, and none can be installed here")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("page")
    engine = access.open_engine(f"sqlite:///{folder}/fleet.db")
    access.upgrade(engine)
    synthetic.fill(engine, Week(2026, 47), weeks=4, jobs=60, frozen=2)
    engine.dispose()
    configuration = {
        "currency": "EUR",
        "cost_centres": {"nlp": "CC-1"},
        "prices": {kind: 1.5 for kind, _ in synthetic.KINDS},
    }
    (folder / "fleet.json").write_text(json.dumps(configuration))
    words = ["--database", f"{folder}/fleet.db", "--configuration", f"{folder}/fleet.json", "--week", "2026-W47"]
    assert main(["report", *words, "--format", "html", "--output", str(folder / "report.html")]) == 0
    return folder / "report.html"


def browse(chromium: str, folder: pathlib.Path, *words: str) -> str:
    """What Chromium prints, with every host name unknown to it."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    offline = ["--host-resolver-rules=MAP * ~NOTFOUND", "--allow-file-access-from-files", "--virtual-time-budget=10000"]
    done = subprocess.run(
        [chromium, *options, *offline, *words], capture_output=True, text=True, timeout=120, check=True, cwd=folder
    )
    return done.stdout


def measured(chromium: str, page: pathlib.Path, width: int) -> dict[str, Any]:
    around = page.with_name(f"around-{width}.html")
    around.write_text(MEASURE % width)
    shown = browse(chromium, page.parent, "--dump-dom", around.as_uri())
    found = re.search(r'<pre id="found">(.*?)</pre>', shown, re.DOTALL)
    assert found is not None
    answer: dict[str, Any] = json.loads(html.unescape(found[1]))
    return answer


@pytest.mark.parametrize(("width", "smallest_text"), [(1100, 12), (390, 7)])
def test_the_page_fits_its_screen_and_its_charts_can_be_read(
    chromium: str, page: pathlib.Path, width: int, smallest_text: float
) -> None:
    found = measured(chromium, page, width)
    assert found["loaded"] == []
    assert found["title"] == "Stitchfleet, week 2026-W47"
    assert {"GPU jobs by namespace", "CPU jobs by cost centre", "Coverage", "Weeks up to this one"} <= set(
        found["headings"]
    )
    assert found["needed"] <= found["visible"], "the page itself never scrolls sideways; wide tables do"
    assert len(found["charts"]) > 12
    for chart in found["charts"]:
        assert chart["outside"] == [], "a text that the browser's font makes too long"
        assert chart["height"] > 60
        assert min(700, width) * 0.85 < chart["width"] <= width
        assert chart["smallest"] >= smallest_text


def test_the_page_prints_within_the_paper(chromium: str, page: pathlib.Path) -> None:
    target = page.with_name("report.pdf")
    browse(chromium, page.parent, f"--print-to-pdf={target}", "--no-pdf-header-footer", page.as_uri())
    pages = re.findall(rb"/MediaBox ?\[([^\]]+)\]", target.read_bytes())
    assert 5 < len(pages) < 40
    assert [round(float(edge)) for edge in pages[0].split()] == [0, 0, 595, 842], "A4, as its style sheet asks"
