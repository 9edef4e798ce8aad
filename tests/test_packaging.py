"""What people install: a wheel that is complete, forces nothing on a training image, and works in an empty environment."""

from __future__ import annotations

import ast
import configparser
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

import pytest

from scripts.wheel import PACKAGES, ROOT, build_wheel
from stitchfleet.compiler.pipeline.backend import NO_PART_OF_A_KERNEL

FIXTURE = ROOT / "tests" / "fixtures" / "layer_norm.hlo"

# What code in a training pod may import: the standard library, and what TensorFlow itself brings.
IN_A_POD = frozenset(("numpy", "google", "ml_dtypes", "wrapt", "tensorflow", "keras", "stitchfleet"))


def _run(*command: object, cwd: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")} | variables
    return subprocess.run(
        [str(word) for word in command], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


# ---- the wheel ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def _wheel_files(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_holds_every_file_of_the_packages(wheel: Path) -> None:
    wanted = {
        f"stitchfleet/{path.relative_to(ROOT)}"
        for name in PACKAGES
        for path in (ROOT / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in (".md", ".so")
    }
    assert wanted - _wheel_files(wheel) == set()
    # the sources of the op are built where the job runs, and the bootstrap folder goes on the job's PYTHONPATH
    assert {"stitchfleet/plugin/native/op/stitch_op.cc", "stitchfleet/plugin/bootstrap/sitecustomize.py"} <= wanted
    typed = {path.parent for path in (ROOT / "operator").rglob("__init__.py")} | {ROOT / name for name in PACKAGES[:3]}
    assert {f"stitchfleet/{folder.relative_to(ROOT)}/py.typed" for folder in typed} <= wanted


def test_the_wheel_holds_nothing_else(wheel: Path) -> None:
    roots = tuple(f"stitchfleet/{name}/" for name in PACKAGES)
    others = {name for name in _wheel_files(wheel) if not name.startswith(roots) and ".dist-info/" not in name}
    assert others == set()
    assert not any(name.startswith(("operator/", "stitchfleet/operator/__init__")) for name in _wheel_files(wheel))


def test_nothing_is_required_but_by_extras(wheel: Path) -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    assert config["options"]["install_requires"].strip() == ""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    required = metadata.get_all("Requires-Dist") or []
    assert len(required) > 5
    assert [line for line in required if "extra ==" not in line] == []


def test_every_entry_point_leads_somewhere() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    lines = [line for value in config["options.entry_points"].values() for line in value.split("\n") if line.strip()]
    for line in lines:
        module, attribute = re.fullmatch(r"\S+ = stitchfleet\.([\w.]+):(\w+)", line).groups()  # type: ignore[union-attr]
        tree = ast.parse((ROOT / (module.replace(".", "/") + ".py")).read_text())
        assert attribute in {getattr(node, "name", None) for node in tree.body}, line


# ---- the wheel, installed where there is nothing else ----------------------------------------------------------------------


class Installed:
    """An environment with the wheel in it, and what was asked for beside."""

    def __init__(self, folder: Path, wheel: Path, extras: str = "") -> None:
        venv.create(folder, with_pip=True)
        self.bin = folder / "bin"
        target = f"{wheel}[{extras}]" if extras else str(wheel)
        done = _run(self.bin / "pip", "install", "-q", "--disable-pip-version-check", target, cwd=folder)
        assert done.returncode == 0, done.stderr

    def stitchfleet(self, *words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
        return _run(self.bin / "stitchfleet", *words, cwd=cwd)


@pytest.fixture(scope="module")
def empty(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel alone."""
    return Installed(tmp_path_factory.mktemp("empty"), wheel)


@pytest.fixture(scope="module")
def with_extras(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel with what its compiler and its reports need, and no TensorFlow."""
    installed = Installed(tmp_path_factory.mktemp("extras"), wheel, "compiler,report")
    assert _run(installed.bin / "python", "-c", "import tensorflow").returncode != 0
    return installed


@pytest.mark.slow
def test_installed_alone_it_brings_no_other_package(empty: Installed, tmp_path: Path) -> None:
    listed = _run(empty.bin / "pip", "list", "--format", "freeze", "--disable-pip-version-check").stdout
    assert {line.split("==")[0] for line in listed.split()} <= {"stitchfleet", "pip", "setuptools", "wheel"}
    shown = empty.stitchfleet("--help", cwd=tmp_path)
    assert shown.returncode == 0
    assert {"run", "compile", "report"} <= set(shown.stdout.split())
    assert empty.stitchfleet("--version", cwd=tmp_path).stdout.startswith("stitchfleet ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("compile", FIXTURE), "stitchfleet[compiler]"),
        (("report",), "stitchfleet[report]"),
    ],
)
def test_a_command_whose_packages_are_missing_says_so_in_one_line(
    empty: Installed, tmp_path: Path, words: tuple[object, ...], extra: str
) -> None:
    shown = empty.stitchfleet(*words, cwd=tmp_path)
    assert shown.returncode == 2
    assert len(shown.stderr.strip().splitlines()) == 1
    assert extra in shown.stderr


@pytest.mark.slow
@pytest.mark.parametrize("environment", ["empty", "with_extras"])
def test_a_job_without_tensorflow_runs_as_it_would(
    environment: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    installed: Installed = request.getfixturevalue(environment)
    script = "import sys; print('mine'); sys.exit(7)"
    shown = installed.stitchfleet(
        "run", "--cache", tmp_path / "cache", "--", installed.bin / "python", "-c", script, cwd=tmp_path
    )
    assert shown.stdout.startswith("mine\n")
    assert shown.returncode == 7
    assert "Traceback" not in shown.stderr


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
def test_the_installed_compiler_makes_a_checked_kernel(with_extras: Installed, tmp_path: Path) -> None:
    shown = with_extras.stitchfleet("compile", FIXTURE, "--run", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "1 outputs right" in shown.stdout


@pytest.mark.slow
def test_the_installed_report_reads_a_database_of_its_own_making(with_extras: Installed, tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path}/fleet.db"
    made = with_extras.stitchfleet("db", "--database", database, "upgrade", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    shown = with_extras.stitchfleet("report", "--database", database, cwd=tmp_path)
    assert "Traceback" not in shown.stderr
    assert shown.stdout.strip()
    page = tmp_path / "report.html"
    with_extras.stitchfleet("report", "--database", database, "--format", "html", "--output", page, cwd=tmp_path)
    assert page.read_text().lstrip().lower().startswith("<!doctype html")


# ---- what may import what ----------------------------------------------------------------------------------------------------


OURS = ("stitchfleet", "scripts", "tests")
"""What the names of our modules begin with."""


def _imports(path: Path, package: str) -> Iterator[tuple[str, int]]:
    """(absolute module name, line) of each import of a file, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module, node.lineno
            yield from ((f"{module}.{alias.name}", node.lineno) for alias in node.names if module.startswith(OURS))


def _file_of(module: str) -> Path | None:
    """The file of one of our modules, None for anything else."""
    parts = module.split(".")
    if parts[0] != "stitchfleet" or len(parts) < 2:
        return None
    base = ROOT.joinpath(*parts[1:])
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


OF_COMMANDS = {
    ROOT / "compiler" / "pipeline" / "cuda_runtime.py",
    *(ROOT / "compiler" / "commands").glob("command*.py"),
}
"""What only commands load that people give: `stitchfleet compile --target cuda --run` and its like."""


def pod_modules() -> dict[Path, list[tuple[str, int]]]:
    """The files that a training process may load, with their imports: plugin, compiler but for its commands, and all of ours that
    these import."""
    waiting = [path for name in ("compiler", "plugin") for path in sorted((ROOT / name).rglob("*.py"))]
    waiting = [path for path in waiting if path not in OF_COMMANDS]
    found: dict[Path, list[tuple[str, int]]] = {}
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        package = ".".join(["stitchfleet", *path.relative_to(ROOT).parent.parts])
        found[path] = list(_imports(path, package))
        waiting += [file for module, _ in found[path] if (file := _file_of(module)) is not None]
    return found


def test_code_in_a_training_pod_imports_only_what_tensorflow_brings() -> None:
    modules = pod_modules()
    assert ROOT / "telemetry" / "pod" / "recording.py" in modules
    assert ROOT / "telemetry" / "database" / "store.py" not in modules
    assert not OF_COMMANDS & set(modules)
    foreign = [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path, imports in modules.items()
        for module, line in imports
        if (top := module.split(".")[0]) not in sys.stdlib_module_names and top not in IN_A_POD
    ]
    assert foreign == []


def _lint(folder: Path) -> subprocess.CompletedProcess[str]:
    return _run(Path(sys.executable).parent / "lint-imports", "--no-cache", cwd=folder, PYTHONPATH=str(folder))


# Of each contract in setup.cfg: a file, and a line in it that breaks the contract.
_BREACHES = [
    ("layers", "compiler/kernel/cache.py", "import stitchfleet.plugin.job.job"),
    ("layers", "compiler/kernel/cache.py", "import stitchfleet.telemetry.pod.spool"),
    ("layers", "telemetry/pod/spool.py", "import stitchfleet.compiler.kernel.cache"),
    ("operator", "operator/webhook/command.py", "import stitchfleet.operator.controller.command"),
    ("operator", "operator/policy/identity.py", "import stitchfleet.operator.cluster.events"),
    ("operator-alone", "operator/controller/command.py", "import stitchfleet.plugin.base.settings"),
    ("policy-pure", "operator/policy/identity.py", "import kubernetes"),
    ("nobody-imports-the-operator", "telemetry/ingest/serving.py", "import stitchfleet.operator.policy.identity"),
    ("compiler-alone", "compiler/kernel/cache.py", "import tensorflow"),
    ("pod", "plugin/job/job.py", "import sqlalchemy"),
    ("recording-and-sending", "telemetry/pod/spool.py", "import numpy"),
    ("telemetry", "telemetry/database/store.py", "import stitchfleet.telemetry.totals.weekly"),
    ("telemetry", "telemetry/reports/page.py", "import stitchfleet.telemetry.ingest.metrics"),
    ("telemetry", "telemetry/pod/spool.py", "import stitchfleet.telemetry.database.weeks"),
    ("plugin", "plugin/clusters/clusters.py", "import stitchfleet.plugin.stitching.preparation"),
    ("plugin", "plugin/native/library.py", "import stitchfleet.plugin.graph.tf_ops"),
    ("compiler", "compiler/check/oracle.py", "import stitchfleet.compiler.planning.plan"),
    ("compiler", "compiler/planning/plan.py", "import stitchfleet.compiler.lowering.kernel_loops"),
    ("kernels", "compiler/codegen/cpu/body.py", "import stitchfleet.compiler.explaining.words"),
    ("kernels", "compiler/lowering/rows.py", "import stitchfleet.compiler.hlo.module"),
    ("kernels", "compiler/pipeline/cpu.py", "import stitchfleet.compiler.explaining.words"),
    ("codegen", "compiler/codegen/cpu/body.py", "import stitchfleet.compiler.codegen.cuda.body"),
]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the packages and of the contracts."""
    folder = tmp_path_factory.mktemp("packages")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, folder / "stitchfleet" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    return folder


def _contracts() -> dict[str, str]:
    """The name of each contract in setup.cfg, by its section."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    prefix = "importlinter:contract:"
    return {s.removeprefix(prefix): settings[s]["name"] for s in settings.sections() if s.startswith(prefix)}


def test_the_layers_are_kept(packages: Path) -> None:
    linted = _lint(packages)
    assert linted.returncode == 0, linted.stdout


def test_the_contract_about_kernels_knows_every_room_of_the_compiler() -> None:
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    contract = settings["importlinter:contract:kernels"]
    rooms = {path.parent.name for path in (ROOT / "compiler").glob("*/__init__.py")}
    assert set(contract["forbidden_modules"].split()) == {
        f"stitchfleet.compiler.{room}" for room in NO_PART_OF_A_KERNEL
    }
    assert set(contract["source_modules"].split()) == {
        f"stitchfleet.compiler.{room}" for room in rooms - set(NO_PART_OF_A_KERNEL)
    }


def test_each_contract_is_broken_once() -> None:
    assert {contract for contract, _, _ in _BREACHES} == set(_contracts())


@pytest.mark.parametrize(("contract", "file", "line"), _BREACHES, ids=[f"{c}: {f}" for c, f, _ in _BREACHES])
def test_a_breach_is_found(packages: Path, contract: str, file: str, line: str) -> None:
    broken = packages / "stitchfleet" / file
    sound = broken.read_text()
    broken.write_text(f"{sound}\n{line}\n")
    try:
        linted = _lint(packages)
    finally:
        broken.write_text(sound)
    assert linted.returncode != 0
    assert f"{_contracts()[contract]} BROKEN" in " ".join(linted.stdout.split()), linted.stdout
    assert ("BROKEN" in linted.stdout) == bool(file)


# ---- operator/ is no package of its own -------------------------------------------------------------------------------------


def test_python_starts_in_the_root_and_finds_its_own_operator() -> None:
    assert not (ROOT / "operator" / "__init__.py").exists()
    assert not (ROOT / "operator.py").exists()
    script = "import operator, collections; assert operator.add(1, 2) == 3; print(operator.__file__)"
    shown = _run(sys.executable, "-c", script, cwd=ROOT)
    assert shown.returncode == 0, shown.stderr
    assert not shown.stdout.startswith(str(ROOT) + "/operator")


def test_the_docstring_of_each_folder_names_what_is_in_it() -> None:
    maps = [path for name in (*PACKAGES, "scripts") for path in (ROOT / name).rglob("__init__.py")]
    assert len(maps) > 50
    missing = []
    for path in maps:
        words = set(re.findall(r"\w+", ast.get_docstring(ast.parse(path.read_text())) or ""))
        inside = {f.stem for f in path.parent.glob("*.py")} | {f.parent.name for f in path.parent.glob("*/__init__.py")}
        missing += [
            f"{path.relative_to(ROOT)} does not name {name}"
            for name in sorted(inside - words)
            if not name.startswith("__") and "migrations" not in path.parts
        ]
    assert missing == []


def test_every_path_that_the_contributors_are_sent_to_is_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = set(re.findall(r"`([\w./]+/[\w./]+)`", text))
    assert len(named) > 20
    missing = sorted(path for path in named if not (ROOT / path).exists())
    assert not missing
    tracked = [Path(path).name for path in _run("git", "ls-files").stdout.split()]
    alone = set(re.findall(r"`(\w+\.py)`", text))
    assert {name: tracked.count(name) for name in alone} == dict.fromkeys(alone, 1), (
        "a file without its folder is the only one"
    )


def test_no_file_holds_two_sides_of_a_merge() -> None:
    """Python's are seen by whatever reads them; those of C++, of charts and of pages may be seen by nobody."""
    found = _run("git", "grep", "-lE", "^(<{7}|>{7}) ", "--", ".")
    assert found.stdout.split() == []


# ---- no circles --------------------------------------------------------------------------------------------------------------

FOLDERS = ("compiler", "plugin", "telemetry", "operator", "scripts", "tests")


def _graph() -> dict[str, set[str]]:
    """For each module of the tree, those of the tree that it imports, anywhere in the file and for types alone too."""
    files = {
        ".".join((*(() if folder in OURS else ("stitchfleet",)), *path.relative_to(ROOT).with_suffix("").parts)): path
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
    }
    return {
        name: {module for module, _ in _imports(path, name.rpartition(".")[0]) if module in files} - {name}
        for name, path in files.items()
    }


def circles(graph: dict[str, set[str]]) -> list[str]:
    """A node of each circle: what is left once nodes without edges into the rest are taken away, again and again."""
    left = dict(graph)
    while ends := [name for name, targets in left.items() if not targets & left.keys()]:
        for name in ends:
            del left[name]
    return sorted(left)


def test_a_circle_is_seen() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["a", "b", "c"]


def test_no_modules_import_each_other() -> None:
    graph = _graph()
    assert {name.split(".")[name.startswith("stitchfleet")] for name, targets in graph.items() if targets} == {*FOLDERS}
    assert circles(graph) == []
