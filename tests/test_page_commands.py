"""Each command that the pages show is run: here, on the cluster (tests/cluster/test_docs.py), or by a test that is named. For the few
that no test runs, NOT_RUN_HERE says why."""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stitchfleet.telemetry.database import access

from .cluster.page_commands import A_LAPTOP, INSTALLING, ON_A_CLUSTER
from .pages import PAGES, ROOT, commands_of, type_in, with_plain_blocks
from .plugin.conftest import cache as cache

KERNEL = {
    r"printf 'HloModule m\nENTRY main {\n  x = f32[64,128] parameter(0)\n  e = f32[64,128] exponential(x)\n"
    r"  ROOT t = f32[64,128] tanh(e)\n}\n' > m.hlo": "",
    ".venv/bin/stitchfleet compile m.hlo --stop-after graph": "exp(",
    ".venv/bin/stitchfleet explain m.hlo": "exp",
    ".venv/bin/stitchfleet compile m.hlo --run": "median of 200 calls",
    ".venv/bin/stitchfleet compile m.hlo --target cuda --stop-after source": "__global__",
    "stitchfleet compile FILE.hlo [--stop-after STAGE] [--run]": "",
    "stitchfleet compile tests/fixtures/layer_norm.hlo --stop-after STAGE": "multiply",
    "stitchfleet compile tests/fixtures/dense.hlo --stop-after STAGE": "matrix products of 6 rows at once",
}
"""The commands of one folder, in their order, and what each has to print."""
_RUN = ".venv/bin/stitchfleet run"
JOBS = {
    f"{_RUN} --summary s.json -- .venv/bin/python scripts/workloads/session_v1.py --steps 2000": "stitched from step",
    ".venv/bin/stitchfleet explain s.json --html step.html": "phase at the end",
    "stitchfleet explain SUMMARY.json --html step.html": "phase at the end",
    "stitchfleet explain FILE.hlo | SUMMARY.json [--html FILE]": "phase at the end",
    "stitchfleet run -- python train.py": "stitchfleet: ",
    ".venv/bin/stitchfleet run --mode fallback -- ...": "stitchfleet: ",
    ".venv/bin/stitchfleet run --mode alternate -- ...": "stitchfleet: ",
    "stitchfleet run -- COMMAND | doctor [--settings]": "STITCHFLEET_CACHE",
    "stitchfleet jobs | report [--week 2026-W47] [--format html]": "<html",
    "stitchfleet report [--week 2026-W47] [--format table|json|csv|html] [--configuration FILE.json]": "Week ",
}
JOB = ".venv/bin/python tests/plugin/scripts/loop.py 5 20"
"""In place of a reader's own."""
STANDS_FOR = {
    "stitchfleet compile FILE.hlo [--stop-after STAGE] [--run]": "stitchfleet compile m.hlo --stop-after plan > plan.txt",
    "stitchfleet compile tests/fixtures/layer_norm.hlo --stop-after STAGE": (
        "stitchfleet compile tests/fixtures/layer_norm.hlo --stop-after loops"
    ),
    "stitchfleet compile tests/fixtures/dense.hlo --stop-after STAGE": (
        "stitchfleet compile tests/fixtures/dense.hlo --stop-after plan"
    ),
    "stitchfleet explain SUMMARY.json --html step.html": "stitchfleet explain s.json --html step.html",
    "stitchfleet explain FILE.hlo | SUMMARY.json [--html FILE]": "stitchfleet explain s.json",
    "stitchfleet run -- python train.py": f"stitchfleet run -- {JOB}",
    ".venv/bin/stitchfleet run --mode fallback -- ...": f".venv/bin/stitchfleet run --mode fallback -- {JOB}",
    ".venv/bin/stitchfleet run --mode alternate -- ...": f".venv/bin/stitchfleet run --mode alternate -- {JOB}",
    "stitchfleet run -- COMMAND | doctor [--settings]": "stitchfleet doctor > doctor.txt; stitchfleet doctor --settings",
    "stitchfleet jobs | report [--week 2026-W47] [--format html]": "stitchfleet jobs && stitchfleet report --format html",
    "stitchfleet report [--week 2026-W47] [--format table|json|csv|html] [--configuration FILE.json]": "stitchfleet report",
}
"""A page's pattern, and what a reader makes of it."""
_POSTGRES = "tests/cluster/test_external.py::test_two_ingest_servers_and_two_webhooks_share_one_database"
_DATABASE = "tests/telemetry/commands/test_command.py::test_looking_after_the_database"
_HELM = "helm {} stitchfleet helm/stitchfleet --namespace stitchfleet"
ELSEWHERE = {
    "scripts/test": ".ci/run",
    "scripts/environment": "scripts/test",
    "scripts/bench [--workloads all]": "tests/test_bench.py::test_a_run_measures_what_is_there_and_writes_it_down",
    "scripts/bench --changed ../before": "tests/benchmark/test_changed.py::test_kernels_that_differ_are_counted_and_timed",
    "stitchfleet ingest | db | webhook | controller": _POSTGRES,
    "stitchfleet compile FILE.hlo --target cuda --run [--launch tune] [--cache DIR]": (
        "tests/compiler/pipeline/test_cuda_runtime.py::test_a_kernel_is_run_judged_and_timed"
    ),
    f"{_HELM.format('install')} --create-namespace --set clusterName=paris": (
        "tests/cluster/test_docs.py::test_a_release_is_installed_used_and_removed_by_the_words_of_the_pages"
    ),
    "kubectl -n stitchfleet create secret generic fleet-database --from-literal=url=postgresql://USER:PASSWORD@HOST/NAME": _POSTGRES,
    f"{_HELM.format('upgrade --install')} --set database.external.secretName=fleet-database ...": _POSTGRES,
    "kubectl -n stitchfleet delete pvc stitchfleet-data": (
        "tests/cluster/test_embedded.py::test_the_data_outlives_the_server_s_pod_and_the_release"
    ),
    "export STITCHFLEET_DATABASE=postgresql://stitchfleet@db/stitchfleet": _DATABASE,
    "stitchfleet db upgrade": _DATABASE,
    "stitchfleet ingest --tokens tokens.txt": (
        "tests/telemetry/ingest/test_ingest.py::test_what_was_acknowledged_survives_the_servers_death"
    ),
}
"""What runs the others: a test, or a program of the repository."""
HELPFUL = ("scripts/bench", "scripts/demo", "scripts/test")
"""Programs whose --help is run here, and names every option that a page gives them."""
SHORT_DEMO = "scripts/demo --steps 40 --plain-steps 10"
NOT_RUN_HERE = {
    "scripts/demo": f"it trains a BERT three times, for 4 to 9 minutes; a slow test runs `{SHORT_DEMO}`",
    "scripts/test --all cluster": "it starts the slow tests of this suite that are tests/cluster; its --help is run here",
    "scripts/test --all plugin -k test_agreement -s": "it starts slow tests of this suite, tests/plugin/ranks/test_agreement.py",
    "kubectl -n stitchfleet get certificates": "cert-manager does not run on the tests' cluster",
    "kubectl -n stitchfleet describe certificate stitchfleet-webhook": "cert-manager does not run on the tests' cluster",
}


def test_each_command_of_the_pages_is_run_somewhere() -> None:
    shown = {command for page in PAGES for command in commands_of(page)}
    run = {*KERNEL, *JOBS, *ELSEWHERE, "scripts/test --help", *ON_A_CLUSTER, *INSTALLING, *A_LAPTOP}
    assert sorted(run & NOT_RUN_HERE.keys()) == []
    run |= NOT_RUN_HERE.keys()
    assert sorted(shown - run) == []
    assert sorted(run - shown) == []


def test_the_commands_of_an_upgrade_are_run_in_the_order_of_the_page() -> None:
    shown = commands_of(ROOT / "docs" / "upgrade.md")
    assert [command for command in INSTALLING if command in shown] == [each for each in shown if each in INSTALLING]


@pytest.mark.parametrize("place", sorted(set(ELSEWHERE.values())))
def test_what_runs_it_is_there(place: str) -> None:
    file, _, name = place.partition("::")
    assert (ROOT / file).is_file()
    if name:
        tree = ast.parse((ROOT / file).read_text())
        assert name in [each.name for each in tree.body if isinstance(each, ast.FunctionDef)]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of the programs alone, whose environment is the one of the tests: `scripts/environment` would install into it."""
    root = tmp_path_factory.mktemp("checkout")
    (root / ".venv").symlink_to(sys.prefix)
    (root / "scripts").mkdir()
    for program in HELPFUL:
        shutil.copy2(ROOT / program, root / program)
        if (ROOT / f"{program}.py").exists():
            (root / f"{program}.py").symlink_to(ROOT / f"{program}.py")
    environment = root / "scripts" / "environment"
    environment.write_text("#!/bin/sh\n")
    environment.chmod(0o755)
    return root


@functools.cache
def help_of(checkout: Path, program: str, option: str = "") -> str:
    """What `program [option] --help` prints."""
    words = [str(checkout / program), *filter(None, [option]), "--help"]
    environment = {name: value for name, value in os.environ.items() if name != "TENSORFLOW"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, ""), f"{' '.join(words)}: {done.stderr}"
    return done.stdout


def shown_uses(program: str) -> Iterator[list[str]]:
    """The words after the program's name, for each time that a page names the program with an option."""
    for page in PAGES:
        text = with_plain_blocks(page.read_text())
        spans = re.findall(r"`([^`]*)`", re.sub(r"^    .*$", "", text, flags=re.M))
        for line in [*spans, *re.findall(r"^    (.*)$", text, re.M)]:
            named = re.search(
                rf"(?<![\w/-]){program}(?![\w/-])(.*)", " ".join(re.sub(r'\s#\s.*|"[^"]*"', "", line).split())
            )
            if named is not None and "--" in named[1]:
                yield re.sub(r"[\[\]=,]", " ", named[1]).split()


def names(text: str, word: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text) is not None


@pytest.mark.parametrize("program", HELPFUL)
def test_the_help_of_a_program_names_the_options_that_the_pages_give_it(program: str, checkout: Path) -> None:
    text = help_of(checkout, program)
    assert names(text, program)
    for words in shown_uses(program):
        options = [word for word in words if word.startswith("--") and word != "--help"]
        for option in options:
            # An option of a benchmark that has a command line of its own, such as `--telemetry --recording`, is in the help of that.
            known = names(text, option) or (
                option != options[0] and names(help_of(checkout, program, options[0]), option)
            )
            assert known, f"{program} {' '.join(words)}: --help does not name {option}"


def test_the_help_of_the_tests_names_the_groups_that_the_pages_name(checkout: Path) -> None:
    uses = list(shown_uses("scripts/test"))
    groups = {words[words.index("--all") + 1] for words in uses if "--all" in words[:-1]}
    assert groups >= {"cluster", "plugin"}
    assert [group for group in sorted(groups) if not names(help_of(checkout, "scripts/test"), group)] == []


@pytest.mark.slow
def test_the_demo_runs_with_fewer_steps(checkout: Path, cache: Path) -> None:
    (checkout / "scripts" / "demo.py").unlink()
    shutil.copy2(ROOT / "scripts" / "demo.py", checkout / "scripts")  # the output's folder is beside it
    (checkout / "scripts" / "workloads").symlink_to(ROOT / "scripts" / "workloads")
    (checkout / ".cache").mkdir()
    (checkout / ".cache" / "stitchfleet").symlink_to(cache)
    type_in(f"unset TENSORFLOW; {SHORT_DEMO}", "5/5  the report", checkout, shown=SHORT_DEMO)
    assert (checkout / "demo-output" / "report.html").is_file()
    assert len(json.loads((checkout / "demo-output" / "second.json").read_text())["losses"]) == 40


@pytest.fixture
def folder(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As a checkout looks to somebody who types commands in it; records and all else that is made stay in it."""
    for name in (".venv", "scripts", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    settings = {"CACHE": str(cache), "COMPILE_NICE": "0", "DATABASE": f"sqlite:///{tmp_path}/records.db"}
    for name, value in settings.items():
        monkeypatch.setenv(f"STITCHFLEET_{name}", value)
    monkeypatch.setenv("PATH", f"{ROOT}/.venv/bin:{os.environ['PATH']}")
    return tmp_path


def run(command: str, expected: str, folder: Path) -> None:
    type_in(STANDS_FOR.get(command, command), expected, folder, shown=command)


def test_the_commands_about_one_kernel_run(folder: Path) -> None:
    for command, expected in KERNEL.items():
        run(command, expected, folder)


@pytest.mark.slow
def test_the_commands_about_a_job_run(folder: Path) -> None:
    for command, expected in JOBS.items():
        run(command, expected, folder)
    assert (folder / "step.html").read_text().startswith("<!")


def test_the_schema_that_the_page_of_the_database_shows_is_the_one_that_there_is() -> None:
    assert f"schema {access.SCHEMA}, before none" in (ROOT / "docs" / "telemetry.md").read_text()
