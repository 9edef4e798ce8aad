"""Each command that the pages show is run: here, on the cluster (tests/cluster/test_docs.py), or by a test that is named."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

from stitchfleet.telemetry.database import access

from .cluster.page_commands import A_LAPTOP, INSTALLING, ON_A_CLUSTER
from .pages import PAGES, ROOT, commands_of, type_in
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
    "scripts/demo": "scripts/demo",
    "scripts/test": ".ci/run",
    "scripts/test --help": ".ci/run",
    "scripts/test --all cluster": ".ci/run",
    "scripts/test --all plugin -k test_agreement -s": "scripts/test",
    "scripts/environment": "scripts/test",
    "scripts/bench [--workloads all]": "tests/test_bench.py::test_a_run_measures_what_is_there_and_writes_it_down",
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
NOT_HERE = {
    "kubectl -n stitchfleet get certificates": "cert-manager does not run on the tests' cluster",
    "kubectl -n stitchfleet describe certificate stitchfleet-webhook": "cert-manager does not run on the tests' cluster",
}


def test_each_command_of_the_pages_is_run_somewhere() -> None:
    shown = {command for page in PAGES for command in commands_of(page)}
    run = {*KERNEL, *JOBS, *ELSEWHERE, *NOT_HERE, *ON_A_CLUSTER, *INSTALLING, *A_LAPTOP}
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
