"""The zoo's catalog, table and environments. The models themselves run in the benchmark: they need 3 GB of packages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.benchmark.command import main
from scripts.benchmark.contestants import (
    CONTESTANTS,
    Files,
    Installed,
    UnknownNameError,
    command_line,
    environment,
    zoo_workloads,
)
from scripts.zoo import environments
from scripts.zoo.catalog import MODELS
from scripts.zoo.environments import Environment, ZooError, python_of, unpacked
from scripts.zoo.table import HEADER, below, merged, rows, table
from scripts.zoo.table import summary as summary_of


@pytest.mark.parametrize("name", MODELS)
def test_a_model_has_a_script_and_its_package_in_its_environment(name: str) -> None:
    model = MODELS[name]
    assert model.path.is_file()
    installed = {re.split(r"[=<]", package)[0] for package in model.environment.packages}
    assert model.package in installed | {"Keras"}  # TensorFlow brings Keras


def test_every_script_is_in_the_catalog() -> None:
    folder = next(iter(MODELS.values())).path.parent
    assert {path.stem for path in folder.glob("*.py")} - {"job"} == {model.script for model in MODELS.values()}


def test_there_are_twenty_models_by_six_authors() -> None:
    assert len(MODELS) >= 20
    assert len({model.author for model in MODELS.values()}) >= 6


def test_models_are_named_one_by_one_or_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert [workload.name for workload in zoo_workloads("all")] == list(MODELS)
    (one,) = zoo_workloads("hugging_face-bert-infer")
    assert (one.script.name, one.arguments) == ("hugging_face.py", ("bert", "--mode", "infer"))
    with pytest.raises(UnknownNameError, match="no model 'bert' in the zoo; --zoo=list names all"):
        zoo_workloads("bert")
    assert main(["--zoo=list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(MODELS)


def test_a_model_runs_in_its_environment_with_stitchfleet_last_on_the_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine")
    (workload,) = zoo_workloads("ranking")
    found = Installed("/zoo/bin/python", stitchfleet=tmp_path)
    for name in ("plain", "stitched"):
        words = command_line(CONTESTANTS[name], workload, (), Files(tmp_path), tmp_path, found)
        assert words[0] == "/zoo/bin/python"
        assert words[words.index(str(workload.script)) - 1] == "/zoo/bin/python"
        assert "--database" not in words  # the environment has no SQLAlchemy
        assert environment(CONTESTANTS[name], Files(tmp_path), found)["PYTHONPATH"] == f"/mine:{tmp_path}"


# ---- the table ---------------------------------------------------------------------------------------------------------------


def result(name: str, wall_ms: float, failure: str | None = None, **more: Any) -> dict[str, Any]:
    ratio = {"value": 1.5, "low": 1.4, "high": 1.6, "pairs": 5}
    figures = {"wall_ms": wall_ms, "ratio_of_wall": None if name == "plain" else ratio}
    about = {"contestant": name, "failure": failure, "note": None, "peak_bytes": 2**30, "summary": None}
    return {**about, "figures": None if failure else figures, **more}


def summary(**more: Any) -> dict[str, Any]:
    kernels = [
        {"calls": {"stitched": 5}, "error_over_tolerance": 0.25},
        {"calls": {"stitched": 0}, "error_over_tolerance": 0.9},
    ]
    programs = [{"name": "step", "stitched_after_seconds": 12.4}, {"name": "other", "stitched_after_seconds": None}]
    return {"clusters": [{"executables": kernels}], "main": "step", "programs": programs, "reverts": [], **more}


COVERAGE = {
    "share": 0.913,
    "plain": {"memory_us": 2000.0},
    "outside": [
        {"op": "_Arg", "us": 20.0, "reason": "control flow or plumbing"},
        {"op": "TopKV2", "us": 100.0, "reason": "no row in the operator table"},
    ],
}


def document(**workloads: list[dict[str, Any]]) -> dict[str, Any]:
    best = {"name": "xla", "by_wall": {"value": 1.2, "low": 1.1, "high": 1.3, "pairs": 5}}
    return {
        "workloads": workloads,
        "beside_the_better_of_plain_and_xla": {"ocr": best},
        "coverage": {"ocr": COVERAGE},
    }


def test_a_row_says_what_a_job_gained() -> None:
    stitched = result("stitched", 20.0, summary=summary(), peak_bytes=2**30 + 2**24)
    (row,) = rows(document(ocr=[result("plain", 30.0), result("xla", 24.0), stitched]))
    assert row == (
        "| ocr (keras-ocr, Fausto Morales; 2.15.1) | 30 ms | 1.50 (1.40 to 1.60) | 1.20 (1.10 to 1.30), xla | 91% | "
        "TopKV2, 5%: no row in the operator table | 1 | "
        "0.25 of its bound | 0 | 12 s | +16 MiB |"
    )
    assert row.count("|") == HEADER[0].count("|")


def test_a_row_says_that_a_job_went_back_to_plain() -> None:
    note = "ended in phase plain: stitching does not pay here: 277.7% to 257.3% slower"
    stitched = result("stitched", 30.0, summary=summary(), peak_bytes=2**30, note=note)
    (row,) = rows(document(ocr=[result("plain", 30.0), result("xla", 24.0), stitched]))
    assert f"| 12 s; {note} |" in row


def test_parts_are_merged_and_a_jobs_last_result_counts() -> None:
    first = document(ocr=[result("plain", 30.0)], audio=[result("plain", 2.0)]) | {"when": "2026-11-27T10:00:00Z"}
    last = document(ocr=[result("plain", 31.0)]) | {"when": "2026-11-28T10:00:00Z", "coverage": {}}
    for order in ([first, last], [last, first]):
        whole = merged(order)
        walls = [(name, run["figures"]["wall_ms"]) for name, (run,) in whole["workloads"].items()]
        assert walls == [("audio", 2.0), ("ocr", 31.0)]
        assert whole["coverage"] == {}  # the last run has none, and that of another run says nothing of it


def test_the_summary_counts_what_broke_and_takes_the_geometric_mean() -> None:
    good, slow = result("stitched", 20.0, summary=summary()), result("stitched", 40.0, summary=summary(reverts=[{}]))
    slow["figures"]["ratio_of_wall"] = {"value": 1 / 1.5, "low": 0.6, "high": 0.7, "pairs": 5}
    broken = result("stitched", 1.0, "ended with exit code 1")
    whole = document(
        ocr=[result("plain", 30.0), good], audio=[result("plain", 30.0), slow], tabular=[result("plain", 1.0), broken]
    )
    lines = summary_of(whole | {"coverage": {"ocr": COVERAGE, "audio": COVERAGE | {"share": 0.5}}})
    assert lines == [
        "- 3 jobs; 1 broken by stitching; 1 reverts by the guard.",
        "- Coverage of 85% of the memory-intensive time and more: 1 of 2.",
        "- Over plain: 1.00 (geometric mean of 2), 0.67 to 1.50; slower beyond the interval: 1.",
        "- Over the better of plain and XLA: 1.20 (geometric mean of 1), 1.20 to 1.20; slower beyond the interval: 0.",
    ]


def test_a_job_that_failed_or_stayed_plain_is_in_the_table_with_its_reason() -> None:
    plain = summary(programs=[{"name": "step", "stitched_after_seconds": None}], clusters=[])
    lines = table(
        document(
            tabular=[result("plain", 1.0), result("stitched", 1.0, "ended with exit code 1: ValueError: x")],
            ranking=[result("plain", 1.0, "ended")],
            audio=[
                result("plain", 1.0),
                result("stitched", 1.0, summary=plain, note="ended in phase plain: it does not pay"),
            ],
        )
    )[2:]
    assert lines[0].startswith(
        "| tabular (tabnet, Somshubra Majumdar; 2.15.1) | did not run: ended with exit code 1: ValueError: x |"
    )
    assert lines[1].startswith("| ranking (tensorflow-ranking, Google; 2.15.1) | did not run: ended |")
    assert "ended in phase plain: it does not pay" in lines[2]
    assert {line.count("|") for line in lines} == {HEADER[0].count("|")}


# ---- environments ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_environment_is_made_once_and_anew_when_its_packages_change(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(environments, "kept_in", lambda: tmp_path)
    said: list[str] = []
    python = python_of(Environment("small", ("six",), ("pyyaml==6.0.2",)), said.append)
    assert subprocess.run([str(python), "-c", "import six, yaml"], check=False).returncode == 0
    assert len(said) == 1
    python_of(Environment("small", ("six",), ("pyyaml==6.0.2",)), said.append)
    assert len(said) == 1
    with pytest.raises(ZooError, match="no-such-package"):
        python_of(Environment("small", ("six",), ("no-such-package-of-ours==1",)), said.append)
    assert len(said) == 2


@pytest.mark.slow
def test_stitchfleet_is_unpacked_once_and_can_be_imported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(environments, "kept_in", lambda: tmp_path)
    older, newer = tmp_path / "stitchfleet-0", tmp_path / "stitchfleet-1"
    for each in (older, newer):
        each.mkdir()
    os.utime(older, (0, 0))
    folder = unpacked.__wrapped__()
    words = [sys.executable, "-S", "-c", "import stitchfleet.plugin as found; print(found.__file__)"]
    done = subprocess.run(words, env={"PYTHONPATH": str(folder)}, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(str(folder))
    made = folder.stat().st_ino
    assert unpacked.__wrapped__() == folder
    assert folder.stat().st_ino == made
    assert (older.exists(), newer.exists()) == (False, True)  # another benchmark may run on the newer one


def test_jobs_below_the_least_come_lowest_first_with_what_their_steps_consist_of() -> None:
    def beside(value: float) -> dict[str, Any]:
        return {"name": "xla", "by_wall": {"value": value, "low": value - 0.1, "high": value + 0.1, "pairs": 5}}

    def profile(product: float, memory: float, stitch: float) -> dict[str, Any]:
        kinds = [{"op": "MatMul", "runs": 3.0, "us": product}, {"op": "StitchfleetStitch", "runs": 2.0, "us": stitch}]
        return {"product_us": product, "memory_us": memory, "stitch_us": stitch, "kinds": kinds}

    document = {
        "beside_the_better_of_plain_and_xla": {"good": beside(1.2), "low": beside(1.05), "lowest": beside(0.9)},
        "coverage": {
            "good": {"plain": profile(1e3, 1e3, 0.0), "stitched": profile(1e3, 500.0, 400.0)},
            "low": {"plain": profile(4e3, 1e3, 0.0), "stitched": profile(4e3, 500.0, 400.0)},
            "lowest": {"plain": {**profile(0.0, 1e3, 0.0), "kinds": []}, "stitched": profile(0.0, 500.0, 400.0)},
        },
    }
    lines = below(document)[2:]
    assert [line.split(" | ")[0] for line in lines] == ["| lowest", "| low"]
    assert lines[1] == (
        "| low | 1.05 (0.95 to 1.15), xla | 4, 1 ms | 4, 0.4, 0.1 ms | 1.25 | 3 MatMul 4 ms, 2 StitchfleetStitch 0.4 ms |"
    )
    assert "| inf |" in lines[0]
