"""`stitchfleet run` around a job: its signals, its output, its processes."""

from __future__ import annotations

import json
import os
import pathlib
import pty
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from stitchfleet import plugin
from stitchfleet.plugin.base.settings import Settings
from stitchfleet.plugin.commands import run
from stitchfleet.plugin.commands.run import why_python_does_not_start_us
from stitchfleet.telemetry.pod.recording import PLAIN, Recorder

from ...telemetry.helpers import identity, iterations
from ..conftest import SCRIPTS

COUNTS = """
import os, signal, sys, time
seen = []
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, lambda received, frame: seen.append(signal.Signals(received).name))
print(os.getpid(), flush=True)
end = time.monotonic() + 60
while len(seen) < int(sys.argv[1]) and time.monotonic() < end:
    time.sleep(0.02)
time.sleep(0.5)  # one that comes twice comes now
print(" ".join(seen), flush=True)
"""
"""A job that prints its pid, and the signals that it got when it has got so many."""


def words(cache: pathlib.Path, *job: str) -> list[str]:
    command = [sys.executable, "-m", "stitchfleet.plugin.command", "run", "--quiet", "--cache", str(cache)]
    return [*command, "--", sys.executable, "-c", COUNTS, *job]


def send(group: bool, *numbers: int) -> Callable[[int], None]:
    def kill(pid: int) -> None:
        for number in numbers:
            (os.killpg if group else os.kill)(pid, number)
            time.sleep(0.3)

    return kill


@pytest.mark.parametrize(
    ("kill", "expected"),
    [
        (send(False, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1), "SIGINT SIGQUIT SIGTERM SIGUSR1"),
        (send(True, signal.SIGINT, signal.SIGTERM), "SIGINT SIGTERM"),
    ],
    ids=["to-us", "to-our-group"],
)
def test_a_signal_to_run_reaches_the_job_once(cache: pathlib.Path, kill: Callable[[int], None], expected: str) -> None:
    count = str(len(expected.split()))
    with subprocess.Popen(words(cache, count), stdout=subprocess.PIPE, text=True, start_new_session=True) as run:
        assert run.stdout is not None
        run.stdout.readline()
        kill(run.pid)
        assert run.stdout.readline().strip() == expected
        assert run.wait() == 0


def test_ctrl_c_at_a_terminal_reaches_the_job_once_and_so_does_a_signal_to_run_alone(cache: pathlib.Path) -> None:
    master, terminal = pty.openpty()
    run = subprocess.Popen(
        words(cache, "2"),
        stdin=terminal,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0),
    )
    with run:
        assert run.stdout is not None
        run.stdout.readline()
        os.write(master, b"\x03")
        time.sleep(0.3)
        os.kill(run.pid, signal.SIGINT)
        assert run.stdout.readline().strip() == "SIGINT SIGINT"
    os.close(terminal)
    os.close(master)


def test_a_job_that_a_signal_ends_gives_its_exit_code_and_does_not_outlive_run(cache: pathlib.Path) -> None:
    command = words(cache, "9")
    killed = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    with killed:
        assert killed.stdout is not None
        os.kill(int(killed.stdout.readline()), signal.SIGKILL)
        assert killed.wait() == 128 + signal.SIGKILL
    run = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    with run:
        assert run.stdout is not None
        job = int(run.stdout.readline())
        run.kill()
        assert run.stdout.read() == ""  # its end of the pipe is closed
    end = time.monotonic() + 30
    while pathlib.Path(f"/proc/{job}").exists() and "Z" not in pathlib.Path(f"/proc/{job}/stat").read_text():
        assert time.monotonic() < end, "the job goes on"
        time.sleep(0.05)


def test_quiet_prints_nothing_of_a_job_that_goes_well(
    no_kernels: pathlib.Path, tmp_path: pathlib.Path, prepared: str
) -> None:
    """It ends while its kernels are being made."""
    command = [sys.executable, "-m", "stitchfleet.plugin.command", "run", "--quiet", "--cache", str(no_kernels)]
    command += ["--database", f"sqlite:///{tmp_path}/r.db", "--", prepared, str(SCRIPTS / "loop.py"), "20", "0.5"]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "1", "STITCHFLEET_COMPILE_AFTER_END": "0.1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert not [line for line in done.stderr.splitlines() if "stitchfleet" in line and "spool" not in line]


def test_standard_output_is_the_jobs_alone(cache: pathlib.Path, tmp_path: pathlib.Path, prepared: str) -> None:
    command = [sys.executable, "-m", "stitchfleet.plugin.command", "run", "--cache", str(cache)]
    job = tmp_path / "job.py"
    job.write_text("import tensorflow as tf; tf.function(lambda x: x + 1)(tf.ones([])); print('mine')")
    done = subprocess.run(
        [*command, "--database", f"sqlite:///{tmp_path}/r.db", "--", prepared, str(job)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "mine\n"
    assert "stitchfleet: what happened in run" in done.stderr


def test_a_server_that_never_answers_delays_the_end_by_the_bound_at_most_and_the_records_stay(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = []
    for name in ("first", "second"):
        recorder = Recorder(tmp_path / name, identity(uid=name), seal_seconds=0.0)
        recorder.iteration(0, PLAIN, 1_000_000)
        recorder.close(1 << 20)
        processes.append({"records": {"folder": str(tmp_path / name)}})
    waits: list[float] = []
    said: list[str] = []
    really_run = subprocess.run

    def watched(*words: Any, timeout: float, **more: Any) -> Any:
        waits.append(timeout)
        return really_run(*words, timeout=timeout, **more)

    with socket.create_server(("127.0.0.1", 0)) as server:  # connections queue up, nobody reads them
        settings = Settings(ingest=f"http://127.0.0.1:{server.getsockname()[1]}")
        monkeypatch.setattr(run, "SHIPPING_SECONDS", 1.0)
        monkeypatch.setattr(run, "say", said.append)
        monkeypatch.setattr(subprocess, "run", watched)
        run.hand_over_records(processes, settings)
    assert len(waits) == 1, "the second process's records have no time left"
    assert 0 < waits[0] <= 1.0
    assert [line.split("spool ")[1] for line in said] == [
        f"{tmp_path / name} for now: handing it over took more than 1 s" for name in ("first", "second")
    ]
    assert [step for name in ("first", "second") for step, _, _ in iterations(tmp_path / name)] == [0, 0]
    monkeypatch.setattr(run, "SHIPPING_SECONDS", 600.0)
    said.clear()
    run.hand_over_records(
        processes, Settings(database=f"sqlite:///{tmp_path}/records.db")
    )  # the next run does the same
    assert said == []
    assert not any(iterations(tmp_path / name) for name in ("first", "second"))


@pytest.mark.slow  # three imports of TensorFlow: 8 s of a processor
def test_every_training_process_of_a_run_is_in_the_summary(cache: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Two scripts one after the other, the second of which forks two children that train."""
    summary = tmp_path / "summary.json"
    command = [sys.executable, "-m", "stitchfleet.plugin.command", "run", "--cache", str(cache), "--mode", "alternate"]
    scripts = f"{sys.executable} {SCRIPTS / 'loop.py'} 30; {sys.executable} {SCRIPTS / 'children.py'}"
    done = subprocess.run(
        [*command, "--summary", str(summary), "--database", f"sqlite:///{tmp_path}/r.db", "--", "bash", "-c", scripts],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(summary.read_text())
    processes = [found, *found["other_processes"]]
    steps = sorted((p["programs"][0]["name"], p["programs"][0]["steps"]) for p in processes)
    assert steps == [("child_step", 20), ("child_step", 21), ("train", 30)]
    assert done.stderr.count("stitchfleet: what happened in run") == 3
    assert all(f"process {process['pid']}" in done.stderr for process in processes)
    assert [path.name for path in tmp_path.glob("summary*")] == ["summary.json"]


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (["python", "-I", "train.py"], "ignores PYTHONPATH"),
        (["/usr/bin/python3.11", "-uE", "train.py"], "ignores PYTHONPATH"),
        (["python3", "-S", "-m", "train"], "sitecustomize"),
        (["python", "train.py", "-I"], ""),
        (["python", "-m", "train", "-S"], ""),
        (["python", "-c", "print('-S')"], ""),
        (["bash", "-S"], ""),
    ],
)
def test_a_python_that_does_not_read_sitecustomize_is_told(command: Sequence[str], reason: str) -> None:
    found = why_python_does_not_start_us(command)
    assert reason in found
    assert bool(found) == bool(reason)


def test_of_a_job_that_runs_plain_one_line_says_why_and_none_misses_its_summary(cache: pathlib.Path) -> None:
    command = [sys.executable, "-m", "stitchfleet.plugin.command", "run", "--cache", str(cache), "--"]
    command += [sys.executable, "-I", "-c", "print('trained')"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "trained\n"
    why = "python -I ignores PYTHONPATH, by which the plugin is switched on"
    assert done.stderr == f"stitchfleet: the job will run plain: {why}\n"


def test_a_python_without_us_runs_the_job_and_is_named(tmp_path: pathlib.Path) -> None:
    """Somebody has stitchfleet in a virtual environment, and runs the job with another Python."""
    shutil.copy(pathlib.Path(plugin.__file__).parent / "bootstrap" / "sitecustomize.py", tmp_path)
    other = pathlib.Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    environment = {"PATH": os.defpath, "PYTHONPATH": str(tmp_path), "STITCHFLEET_ENABLED": "1"}
    words = [str(other), "-c", "print('trained')"]
    done = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "trained\n"
    assert done.stderr == f"stitchfleet: not switched on, the job runs without it: it is not installed for {other}\n"


def test_the_launcher_loads_no_array_library() -> None:
    """numpy alone would add a tenth of a second to the start of every job: what the launcher imports is the standard library."""
    program = "import json, stitchfleet.plugin.commands.run, sys; print(json.dumps([*sys.modules]))"
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in json.loads(done.stdout)} - sys.stdlib_module_names
    assert {name for name in loaded if not name.startswith("_")} <= {"stitchfleet", "sitecustomize"}, loaded
