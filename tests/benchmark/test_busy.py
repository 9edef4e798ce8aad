"""How soon a job is stitched beside other work: the processes beside it, and the table."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from scripts.benchmark import busy
from scripts.benchmark.busy import Arrival
from stitchfleet.plugin.base.descendants import processor_seconds
from stitchfleet.plugin.native import library


def test_busy_processes_are_busy_and_end() -> None:
    before = set(processor_seconds(os.getpid()))  # other tests of this worker may have helpers that stay
    with busy.busy_processes(2):
        beside = set(processor_seconds(os.getpid())) - before
        assert len(beside) == 2
        while any(processor_seconds(process).get(process, 0.0) < 0.05 for process in beside):
            time.sleep(0.05)
    assert beside.isdisjoint(processor_seconds(os.getpid()))


@pytest.mark.parametrize("is_stubborn", [False, True])
def test_an_interrupted_measurement_leaves_no_job(monkeypatch: pytest.MonkeyPatch, is_stubborn: bool) -> None:
    monkeypatch.setattr(busy, "LAST_WORDS_S", 1.0)
    text = "import signal, time; " + "signal.signal(signal.SIGINT, signal.SIG_IGN); " * is_stubborn
    text += "print('ready', flush=True); time.sleep(600)"
    job = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, preexec_fn=busy._in_front)
    assert job.stdout is not None
    with job.stdout as out:
        assert out.readline() == b"ready\n"
    with pytest.raises(KeyboardInterrupt), busy._stopped(job):
        raise KeyboardInterrupt
    assert job.returncode == -(signal.SIGKILL if is_stubborn else signal.SIGINT)


def test_a_job_that_has_ended_is_not_stopped() -> None:
    job = subprocess.Popen([sys.executable, "-c", ""], preexec_fn=busy._in_front)
    with busy._stopped(job):
        assert job.wait() == 0
    assert job.returncode == 0


def test_the_table_says_where_a_job_was_not_stitched(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def arrival(workload: str, count: int, patience_s: float, limit_s: float, native: pathlib.Path) -> Arrival:
        assert (workload, patience_s, limit_s, native) == ("crnn", 30.0, 99.0, tmp_path / "native")
        return Arrival(
            *(count, limit_s, *((12.4, 6.3, 77) if count < 8 else (None, None, None)), "compile", 0.5, 1.25, 30.0)
        )

    monkeypatch.setattr(busy, "arrival", arrival)
    monkeypatch.setattr(library, "build_library", lambda *parts: tmp_path / "native" / "tf" / "library.so")
    words = [
        "--workload",
        "crnn",
        "--patience",
        "30",
        "--limit",
        "99",
        "--threads",
        "0,8",
        "--json",
        str(tmp_path / "f"),
    ]
    assert busy.main(words) == 0
    _, _, first, last = capsys.readouterr().out.splitlines()
    assert first.split() == ["0", "6", "s", "12", "s", "77", "1.2", "s", "30", "s", "0.5"]
    assert last.split() == ["8", "-", "not", "in", "99", "s", "(compile)", "-", "1.2", "s", "30", "s", "0.5"]
    assert [row["busy"] for row in json.loads((tmp_path / "f").read_text())["figures"]] == [0, 8]
