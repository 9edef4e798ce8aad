"""Where no cluster can run, one line says what to install, and tests are skipped with it."""

from __future__ import annotations

import os
import subprocess

import pytest

from . import requirements


def test_what_is_missing_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(requirements, "_go_version", lambda: (1, 19))
    monkeypatch.setattr(requirements, "_is_there", lambda program: program != "buildah")
    monkeypatch.setattr(requirements, "CONTROL_GROUPS", ("/proc/version",))
    monkeypatch.setattr(os, "access", lambda path, mode: path != "/proc/version")
    refused: subprocess.CompletedProcess[bytes] = subprocess.CompletedProcess(["unshare"], 1)
    monkeypatch.setattr(subprocess, "run", lambda *words, **options: refused)
    said = requirements.what_is_missing()
    assert "\n" not in said
    wanted = ("root", "Go 1.24", "Debian's buildah", "the right to mount", "control groups that can be written to")
    assert all(part in said for part in wanted), said
