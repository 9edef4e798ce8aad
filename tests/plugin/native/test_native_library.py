"""Building the native library: progress is told, a failure is one line, no compiler stays behind.

The compiler is a script here; that a real one builds what TensorFlow loads, every other test of the plugin shows.
"""

from __future__ import annotations

import os
import pathlib
import re
import time

import pytest

from stitchfleet.plugin.base.settings import Settings
from stitchfleet.plugin.entry.activation import has_glibc, load_native
from stitchfleet.plugin.native import library
from stitchfleet.plugin.native.library import NativeBuildError, TensorFlowBuild, build_library

BUILD = TensorFlowBuild("2.15.1", pathlib.Path("/no/such/tensorflow"))


def _compiler(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, action: str) -> None:
    """$CXX becomes a script that notes its process, does the action, and writes the file that it was asked for."""
    script = folder / "c++"
    script.write_text(
        f"""#!/bin/sh
echo $$ >> {folder}/processes
{action}
while [ "$1" != -o ]; do shift; done
echo made > "$2"
"""
    )
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))


def _still_there(folder: pathlib.Path) -> list[str]:
    return [pid for pid in (folder / "processes").read_text().split() if pathlib.Path("/proc", pid).exists()]


def test_a_long_build_says_how_far_it_is(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _compiler(tmp_path, monkeypatch, "sleep 0.2")
    monkeypatch.setattr(library, "PROGRESS_SECONDS", 0.05)
    told: list[str] = []
    path = build_library(tmp_path / "cache", BUILD, told.append)
    assert path.read_text() == path.with_name(library.GPU_LIBRARY).read_text() == "made\n"
    assert told[0] == "building the TensorFlow 2.15.1 op once (about half a minute)"
    files = len(library.UNITS) + 1
    found = [re.fullmatch(rf"still building: (\d+) of {files} files compiled", line) for line in told]
    done = [int(match[1]) for match in found if match]
    assert done == sorted(done)
    assert 0 < max(done) < files
    assert build_library(tmp_path / "cache", BUILD, pytest.fail) == path


def test_a_compiler_that_hangs_is_ended(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _compiler(tmp_path, monkeypatch, "exec sleep 1000")
    monkeypatch.setattr(library, "PROGRESS_SECONDS", 0.1)
    monkeypatch.setattr(library, "BUILD_SECONDS", 0.5)
    with pytest.raises(NativeBuildError, match=r"^the C\+\+ compiler took more than 0\.5 s$"):
        build_library(tmp_path / "cache", BUILD, lambda line: None)
    assert _still_there(tmp_path) == []
    assert not any((tmp_path / "cache").rglob("*.so"))


def test_a_compiler_that_fails_is_one_line_and_ends_the_others(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _compiler(
        tmp_path,
        monkeypatch,
        """case "$*" in *group-0.cc*) echo "compare.cc:1: error: no such thing" >&2; exit 1;; esac
exec sleep 1000""",
    )
    began = time.monotonic()
    with pytest.raises(NativeBuildError, match=r"^the C\+\+ compiler failed: compare\.cc:1: error: no such thing$"):
        build_library(tmp_path / "cache", BUILD, lambda line: None)
    assert time.monotonic() - began < 60
    assert _still_there(tmp_path) == []


def test_the_compiler_is_one_of_those_that_kernels_are_built_with(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tmp_path / "first"
    first.write_text("#!/bin/sh\n")
    first.chmod(0o755)
    monkeypatch.setenv("CXX", f"{first} -m32")
    assert library.compiler_command() == (str(first), "-m32")
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert library.compiler_command()[0].endswith(("g++", "clang++", "c++"))
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert library.compiler_command() == (), "zig's standard library is not TensorFlow's"


def test_in_a_pod_with_another_tensorflow_the_log_names_those_that_the_payload_supports(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(library, "find_tensorflow", lambda: BUILD)
    settings = Settings(cache=tmp_path / "cache", payload=tmp_path)
    why = "the image has TensorFlow 2.15.1; the payload supports only images with: "
    assert load_native(settings) == (None, f"{why}none")
    for version in ("2.16.2", "2.9.3"):
        folder = tmp_path / "native" / f"tf-{version}-0123456789abcdef"
        folder.mkdir(parents=True)
        (folder / "libstitchfleet_tf.so").touch()
        (folder / library.GPU_LIBRARY).touch()
    assert load_native(settings) == (None, f"{why}2.9.3, 2.16.2")
    assert capsys.readouterr().err.splitlines()[-1] == f"stitchfleet: this job runs plain: {why}2.9.3, 2.16.2"


def test_in_a_pod_without_glibc_the_log_says_so(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(library, "find_tensorflow", lambda: BUILD)
    assert has_glibc()

    def of_musl(name: str) -> str | None:
        raise ValueError("unrecognized configuration name")

    monkeypatch.setattr(os, "confstr", of_musl)
    assert not has_glibc()
    native, reason = load_native(Settings(cache=tmp_path / "cache", payload=tmp_path))
    assert native is None
    assert reason.startswith("the image's C library is not glibc")
    assert capsys.readouterr().err == f"stitchfleet: this job runs plain: {reason}\n"
    assert "not built" in load_native(Settings(cache=tmp_path))[1], "a job outside pods builds its own op"


def test_without_a_payload_the_log_says_how_the_op_is_built(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "find_tensorflow", lambda: BUILD)
    native, reason = load_native(Settings(cache=tmp_path))
    assert native is None
    assert "stitchfleet run" in reason
    assert "stitchfleet doctor --build" in reason
