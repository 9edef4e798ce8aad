"""`stitchfleet doctor`: one screen, and below each problem what to do about it."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from stitchfleet.plugin.base.settings import Settings
from stitchfleet.plugin.commands import doctor
from stitchfleet.plugin.commands.doctor import Finding, findings, of_database, of_ingest, of_version
from stitchfleet.plugin.native.library import NativeBuildError, TensorFlowBuild, find_tensorflow
from stitchfleet.plugin.versions import known
from stitchfleet.plugin.versions.self_test import SelfTestResult


def by_subject(settings: Settings) -> dict[str, Finding]:
    return {finding.subject: finding for finding in findings(settings, build_now=False)}


def test_this_machine_has_what_it_takes(cache: pathlib.Path) -> None:
    command = [sys.executable, "-m", "stitchfleet.plugin.command", "doctor", "--cache", str(cache)]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("STITCHFLEET_")}
    done = subprocess.run(
        command, env={**clean, "XDG_CACHE_HOME": str(cache)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1] == "Jobs are stitched here."
    assert not [line for line in lines if line.strip().startswith("->")], done.stdout
    assert len(lines) <= 24
    subjects = [line.split()[0] for line in lines[:-2]]
    assert subjects == [
        "Python",
        "TensorFlow",
        "Keras",
        "cache",
        "compiler",
        "op",
        "version",
        "GPU",
        "database",
        "ingest",
    ]
    build = find_tensorflow()
    assert f"TensorFlow   {build.version} in {build.package}" in lines
    assert "op           built" in lines


def test_without_tensorflow_it_says_which(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    def none() -> TensorFlowBuild:
        raise NativeBuildError("TensorFlow is not installed in this Python")

    monkeypatch.setattr(doctor, "find_tensorflow", none)
    found = by_subject(Settings(cache=tmp_path))["TensorFlow"]
    assert found.stops
    assert found.todo == f"install it: pip install tensorflow (tested: {known.TESTED})"


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setattr(doctor, "compiler_command", lambda: ())
    found = by_subject(Settings(cache=tmp_path))
    assert found["compiler"] == Finding(
        "compiler", "none found", "install g++ (Debian: apt-get install g++), or set CXX", True
    )
    assert found["op"].text.startswith("not built yet")


def test_a_folder_that_cannot_be_written_to(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    found = by_subject(Settings(cache=tmp_path / "file" / "cache"))["cache"]
    assert found.todo.startswith("set STITCHFLEET_CACHE")
    assert "cannot be written to" in capsys.readouterr().err


def test_another_graph_optimizer_is_named_before_tensorflow_is_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "site" / "tensorflow-plugins"
    folder.mkdir(parents=True)
    (folder / "other.so").write_bytes(b"\x7fELF TF_InitGraph")
    (folder / "device.so").write_bytes(b"\x7fELF SE_InitPlugin")
    build = TensorFlowBuild("2.15.1", tmp_path / "site" / "tensorflow")
    monkeypatch.setattr(doctor, "find_tensorflow", lambda: build)
    found = by_subject(Settings(cache=tmp_path / "cache"))["in the way"]
    assert found.text == "other.so registers a graph optimizer of its own"
    assert found.stops


def test_versions() -> None:
    assert of_version("2.15.1", None) == Finding("version", "tested")
    untried = of_version("2.22.0", None)
    assert "doctor --build" in untried.todo
    assert not untried.stops
    passed, failed = (
        of_version("2.22.0", SelfTestResult(True)),
        of_version("2.22.0", SelfTestResult(False, "no kernel ran")),
    )
    assert passed == Finding("version", f"not among those that were tested ({known.TESTED}), but its self-test passed")
    assert failed.text.endswith("and its self-test failed: no kernel ran")
    assert failed.stops


def test_a_database_that_is_not_there(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("STITCHFLEET_DATABASE", raising=False)
    assert of_database(Settings()) == Finding("database", "none yet: the first job makes it")
    gone = of_database(Settings(database="postgresql+psycopg://someone:secret@127.0.0.1:1/nowhere"))
    assert "cannot be used" in gone.text
    assert "secret" not in gone.text
    assert gone.todo
    assert not gone.stops


def test_an_ingest_server_that_is_not_there() -> None:
    assert of_ingest(Settings()).text.startswith("not set")
    assert of_ingest(Settings(ingest="nonsense")).todo == "set STITCHFLEET_INGEST"
    gone = of_ingest(Settings(ingest="http://someone:secret@127.0.0.1:1"))
    assert gone.text.startswith("127.0.0.1:1: the ingest server cannot be reached")
    assert not gone.stops
