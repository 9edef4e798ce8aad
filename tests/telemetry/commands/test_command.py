"""The commands, as a person uses them, and the page they write."""

from __future__ import annotations

import csv
import html.parser
import io
import json
import os
import pathlib
import subprocess
import sys

import pytest

from stitchfleet.plugin.command import main
from stitchfleet.telemetry.database import access
from stitchfleet.telemetry.database.weeks import Week
from stitchfleet.telemetry.pod.recording import PLAIN, STITCHED, UNCOUNTED, Recorder
from stitchfleet.telemetry.reports import formats

from ..helpers import identity


@pytest.fixture(autouse=True)
def home(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """An empty cache folder of the user's, with the default database in it."""
    for name in ("STITCHFLEET_DATABASE", "STITCHFLEET_CACHE", "STITCHFLEET_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "stitchfleet"


@pytest.fixture
def home_and_fleet(home: pathlib.Path, empty_url: str, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The same, and an empty database of either kind named by the environment."""
    monkeypatch.setenv("STITCHFLEET_DATABASE", empty_url)
    return home


def record(home: pathlib.Path, run_id: str, *, pairs: int = 4, name: str = "bert-1", **changes: object) -> None:
    """A job that saved 20%, as the plugin would leave it in its spool."""
    recorder = Recorder(home / "records" / run_id, identity(run_id, name=name, **changes))
    for step in range(300):
        arm = UNCOUNTED if step < 5 else PLAIN if step < 50 else STITCHED
        recorder.iteration(step, arm, 8_000_000 if arm == STITCHED else 10_000_000)
    for pair in range(pairs):
        recorder.arm_block(pair, PLAIN, 50, [10_000_000 + pair * 1000] * 5)
        recorder.arm_block(pair, STITCHED, 60, [8_000_000 + pair * 1500] * 5)
    executable = {"kernel": "k_softmax", "largest_error": 1e-7, "error_over_tolerance": 0.25}
    facts = {"ops": {"Exp": 1, "Sum": 2}, "state": "stitched", "instances": 3, "executables": [executable]}
    recorder.cluster("softmax_1a2b", facts)
    recorder.event("stitched", "stitched from step 50 on <b>")
    recorder.job_end({"overhead_ns": 20_000_000, "phase": "stitched"})
    recorder.close(timeout_s=120)


def this_week() -> str:
    import time

    return str(Week.at(time.time_ns()))


def test_nothing_recorded_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs"]) == 0
    assert "no job has been recorded yet" in capsys.readouterr().out
    assert main(["jobs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert main(["report", "--week", "2020-W01"]) == 0
    assert "No job ran in this week" in capsys.readouterr().out
    for form in ("json", "csv", "html"):
        assert main(["report", "--week", "2020-W01", "--format", form]) == 0


def test_spools_on_the_machine_are_brought_in_first(
    home_and_fleet: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["db", "upgrade"]) == 0
    capsys.readouterr()
    record(home_and_fleet, "a" * 32)
    assert main(["jobs"]) == 0
    out = capsys.readouterr().out
    assert "bert-1" in out
    assert "+20.0%" in out
    record(home_and_fleet, "b" * 32, pairs=1)
    assert main(["jobs", "--json"]) == 0
    found = {job["run_id"]: job for job in json.loads(capsys.readouterr().out)}
    assert found["a" * 32]["status"] == "measured"
    assert found["a" * 32]["saved_hours"] == pytest.approx((250 * 0.002 - 0.02) / 3600, rel=1e-3)
    assert found["b" * 32]["status"] == "unmeasured"
    assert found["b" * 32]["saved_hours"] is None


def test_the_report_says_the_same_in_each_format(
    home_and_fleet: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["db", "upgrade"]) == 0
    capsys.readouterr()
    record(home_and_fleet, "a" * 32)
    record(home_and_fleet, "b" * 32, pairs=1, name="short")
    record(home_and_fleet, "c" * 32, name="=HYPERLINK()", device_kind="NVIDIA A100", device_count=8)
    assert main(["report"]) == 0
    text = capsys.readouterr().out
    assert "CPU device-hours saved: +0.48 s (95% interval" in text
    assert "1 measured (0 of them slower), 0 not stitched, 1 unmeasured" in text
    assert "Unmeasured: too few pairs" in text
    assert "untrimmed" in text, "the definition is printed"
    assert main(["report", "--format", "json", "--week", this_week()]) == 0
    found = json.loads(capsys.readouterr().out)
    cpu, gpu = found["totals"]
    assert (cpu["unit"], gpu["unit"]) == ("CPU", "GPU")
    assert gpu["saved_hours"] == pytest.approx(8 * cpu["saved_hours"])
    assert cpu["saved_hours_low"] < cpu["saved_hours"] < cpu["saved_hours_high"]
    assert main(["report", "--format", "csv"]) == 0
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    by_run = {line["run_id"]: line for line in lines}
    assert float(by_run["a" * 32]["saved_hours"]) == pytest.approx(cpu["saved_hours"])
    assert by_run["b" * 32]["saved_hours"] == ""
    assert by_run["c" * 32]["name"] == "'=HYPERLINK()", "no spreadsheet takes it for a formula"


class Page(html.parser.HTMLParser):
    """Checks that tags nest, and keeps what a reader sees and what a browser would load."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)
        self.handle_startendtag(tag, attributes)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        loading = ("src", "href", "xlink:href", "srcset", "data")
        self.loads += [f"{tag} {value}" for name, value in attributes if name in loading and (value or "")[:1] != "#"]
        if tag in ("script", "link", "iframe", "object"):
            self.loads.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_the_page_stands_alone_and_shows_everything(
    home_and_fleet: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["db", "upgrade"]) == 0
    capsys.readouterr()
    record(home_and_fleet, "a" * 32, name="<script>alert(1)</script>")
    record(home_and_fleet, "b" * 32, pairs=1, name="short")
    target = home_and_fleet / "page.html"
    assert main(["report", "--format", "html", "--output", str(target)]) == 0
    assert capsys.readouterr().out == ""
    page = Page()
    page.feed(target.read_text())
    page.close()
    assert page.open == []
    assert page.loads == []
    seen = " ".join(page.text)
    for text in (
        "<script>alert(1)</script>", "softmax_1a2b", "3 x 3", "25.0%", "k_softmax", "stitched from step 50 on <b>",
        "Unmeasured jobs", "short", "+20.0%", "95% interval", "How this was measured", this_week(),
    ):  # fmt: skip
        assert text in seen, text


CONFIGURATION = {
    "team_label": "team",
    "cost_centres": {"nlp": "CC-1001"},
    "currency": "EUR",
    "prices": {"cpu": 3600.0, "NVIDIA A100": 7200.0},
}


def test_groups_money_and_past_weeks_are_in_every_format(
    home: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home.mkdir()
    (home / "fleet.json").write_text(json.dumps(CONFIGURATION))
    record(home, "a" * 32)
    record(home, "b" * 32, pairs=1, name="short", labels={})
    record(
        home, "c" * 32, name="dien", namespace="ads", device_kind="NVIDIA A100", device_count=8, model_fingerprint=""
    )

    def made(*words: str) -> str:
        assert main(["report", "--configuration", str(home / "fleet.json"), *words]) == 0
        return capsys.readouterr().out

    found = json.loads(made("--format", "json"))
    groups = {(group["unit"], group["dimension"], group["name"]): group for group in found["groups"]}
    gpu = groups["GPU", "namespace", "ads"]
    assert gpu["saved_hours"] == pytest.approx(8 * 0.48 / 3600, rel=1e-3)
    assert gpu["hours_avoided_times_price"] == pytest.approx(7200 * gpu["saved_hours"])
    assert gpu["hours_avoided_times_price_low"] == pytest.approx(7200 * gpu["saved_hours_low"])
    assert groups["GPU", "model", "dien"]["jobs"] == groups["CPU", "model", "f00d"]["jobs_measured"] == 1
    assert groups["CPU", "team", None]["jobs_unmeasured"] == groups["CPU", "cost centre", None]["jobs"] == 1
    assert groups["CPU", "cost centre", "CC-1001"]["saved_hours"] == pytest.approx(0.48 / 3600, rel=1e-3)
    assert found["totals"][1]["hours_avoided_times_price"] == pytest.approx(gpu["hours_avoided_times_price"])
    assert found["weeks"][-1]["week"] == found["week"]
    (top,) = found["top_jobs"]["GPU"]
    assert (top["run_id"], top["cluster"], top["namespace"], top["attempt"], top["rank"]) == (
        "c" * 32,
        "lab",
        "ads",
        0,
        0,
    )

    text = made()
    for line in (
        "CPU hours avoided times price: +0.48 EUR",
        "GPU jobs by device kind",
        "CPU jobs by cost centre",
        "CC-1001",
        "no team",
    ):
        assert line in text, line

    lines = list(csv.DictReader(io.StringIO(made("--format", "csv", "--lines", "groups"))))
    assert [(line["dimension"], line["unit"]) for line in lines[:2]] == [("all", "CPU"), ("all", "GPU")]
    by_name = {(line["unit"], line["dimension"], line["name"]): line for line in lines}
    assert float(by_name["GPU", "namespace", "ads"]["saved_hours"]) == pytest.approx(gpu["saved_hours"])
    jobs = {line["run_id"]: line for line in csv.DictReader(io.StringIO(made("--format", "csv")))}
    assert jobs["a" * 32]["cost_centre"] == "CC-1001"
    assert jobs["b" * 32]["hours_avoided_times_price"] == "", "unmeasured"
    assert float(jobs["c" * 32]["hours_avoided_times_price"]) == pytest.approx(gpu["hours_avoided_times_price"])
    weeks = list(csv.DictReader(io.StringIO(made("--format", "csv", "--lines", "weeks"))))
    assert {line["unit"] for line in weeks} == {"CPU", "GPU"}

    page = Page()
    page.feed(made("--format", "html"))
    assert page.loads == []
    seen = " ".join(page.text)
    for words in (
        "GPU jobs by namespace",
        "CPU jobs by cost centre",
        "CC-1001",
        "Coverage",
        "+7.68 EUR",
        "no invoice gets smaller",
    ):
        assert words in seen, words


def test_a_home_that_cannot_be_written_to_is_no_news(tmp_path: pathlib.Path) -> None:
    """The plotting library keeps a list of fonts there."""
    words = ["report", "--database", f"{tmp_path}/fleet.db", "--format", "html"]
    environment = {**os.environ, "HOME": "/proc", "XDG_CACHE_HOME": "/proc/cache", "XDG_CONFIG_HOME": "/proc/config"}
    environment.pop("MPLCONFIGDIR", None)
    assert main(["db", "upgrade", "--database", f"{tmp_path}/fleet.db"]) == 0
    command = [
        sys.executable,
        "-c",
        "import sys; from stitchfleet.plugin.command import main; sys.exit(main())",
        *words,
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.startswith("<!doctype html>")


def test_a_report_without_prices_speaks_of_no_money(home: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(home, "a" * 32)
    for form in ("table", "html"):
        assert main(["report", "--format", form]) == 0
        out = capsys.readouterr().out
        assert "price" not in out
        assert "cost centre" not in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["report", "--week", "last"], "YYYY-Www"),
        (["report", "--week", "1500-W01"], "1970 to 2261"),
        (["report", "--trend-weeks", "-1"], "it is from 0 to"),
        (["report", "--week", "2020-W01", "--revision", "1"], "2020-W01 has no revision 1: it is not frozen yet"),
        (["report", "--configuration", "/nowhere/fleet.json"], "/nowhere/fleet.json cannot be read"),
        (["report", "--configuration", "/proc/self/cmdline"], "not JSON"),
        (["report", "--database", "/nowhere/x.db"], "there is no database /nowhere/x.db"),
        (["jobs", "--database", "mysql://db/x"], "not supported"),
        (["jobs", "--database", "no://x"], "not supported"),
        (["report", "--output", "/nowhere/x.txt"], "cannot be written"),
        (["db", "check", "--database", "/nowhere/x.db"], "db upgrade"),
        (["db", "upgrade", "--database", "/proc/x/x.db"], "cannot be created"),
    ],
)
def test_a_mistake_is_one_line_and_exit_status_2(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_a_file_that_is_no_database(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.db").write_bytes(b"not at all a database" * 100)
    for words in (["jobs"], ["report"], ["db", "check"], ["db", "upgrade"], ["db", "prune"]):
        assert main([*words, "--database", str(tmp_path / "x.db")]) == 2
        assert "not a database" in capsys.readouterr().err


def test_a_database_named_explicitly_is_read_as_it_is(
    home: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(home, "a" * 32)
    other = str(tmp_path / "other.db")
    assert main(["db", "upgrade", "--database", other]) == 0
    assert main(["jobs", "--database", other]) == 0
    assert "no job" in capsys.readouterr().out, "this machine's spools do not go into somebody else's database"


def test_looking_after_the_database(home_and_fleet: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["db", "upgrade"]) == 0
    assert f"schema {access.SCHEMA}, before none" in capsys.readouterr().out
    assert main(["db", "check"]) == 0
    record(home_and_fleet, "a" * 32)
    assert main(["report"]) == 0
    assert main(["db", "prune", "--keep-days", "-1"]) == 2
    assert main(["db", "prune"]) == 0
    assert "nothing ended more than 28 days ago" in capsys.readouterr().out
    assert main(["db", "delete"]) == 2
    assert "--namespace" in capsys.readouterr().err
    assert main(["db", "delete", "--namespace", "nobody"]) == 0
    assert "no rows of namespace nobody" in capsys.readouterr().out
    assert main(["db", "delete", "--namespace", "team"]) == 0
    assert "with --yes, these are deleted: 8 arm_blocks, 1 clusters, 1 events" in capsys.readouterr().out
    assert main(["db", "delete", "--namespace", "team", "--yes"]) == 0
    assert "deleted: 8 arm_blocks" in capsys.readouterr().out
    assert main(["jobs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_an_unfit_database_fails_the_check(tmp_path: pathlib.Path) -> None:
    (tmp_path / "empty.db").write_bytes(b"")
    assert main(["db", "check", "--database", str(tmp_path / "empty.db")]) == 1
    assert main(["jobs", "--database", str(tmp_path / "empty.db")]) == 2


@pytest.mark.parametrize("command", ["jobs", "report", "db"])
def test_help_teaches(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0
    assert "--database" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("value", "words"), [(0.0, "+0 s"), (12.34, "+12.3 h"), (0.5, "+30.0 min"), (-0.001, "-3.60 s"), (1e-6, "+0.00 s")]
)
def test_hours_in_words(value: float, words: str) -> None:
    assert formats.hours(value, sign=True).lstrip("+") == words.lstrip("+")
