"""The process that compiles beside a job."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from stitchfleet.plugin.base import descendants
from stitchfleet.plugin.service import client as module
from stitchfleet.plugin.service.client import CompileClient
from stitchfleet.plugin.service.messages import Answer, CompileRequest, Failed


def test_the_service_has_the_lowest_priority_in_the_jobs_own_session(tmp_path: pathlib.Path) -> None:
    """In a session of its own Linux would give it as large a share of the processors as the job, whatever its priority."""
    client = CompileClient(tmp_path / "cache", 1 << 20, 19, tmp_path / "log", lambda line: None)
    client.prepare()
    try:
        pid = client.pid
        assert pid is not None
        deadline = time.monotonic() + 120  # it begins as our child does, and steps back when Python is up
        while os.getpriority(os.PRIO_PROCESS, pid) != 19 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert os.getpriority(os.PRIO_PROCESS, pid) == 19
        assert os.getpgid(pid) == pid
        assert os.getsid(pid) == os.getsid(0)
    finally:
        client.close()


def test_the_service_outlives_the_thread_that_started_it(tmp_path: pathlib.Path) -> None:
    """A function may be called first by a thread of the job that ends soon after."""
    client = CompileClient(tmp_path / "cache", 1 << 20, 19, tmp_path / "log", lambda line: None)
    has_begun, may_end = threading.Event(), threading.Event()

    def user() -> None:
        client.prepare()
        has_begun.set()
        may_end.wait(120)

    thread = threading.Thread(target=user)
    thread.start()
    try:
        assert has_begun.wait(60)
        pid = client.pid
        assert pid is not None
        deadline = time.monotonic() + 120
        while os.getpriority(os.PRIO_PROCESS, pid) != 19 and time.monotonic() < deadline:  # it is about to serve
            time.sleep(0.05)
        may_end.set()
        thread.join()
        time.sleep(0.5)
        assert client._process is not None
        assert client._process.poll() is None
    finally:
        may_end.set()
        client.close()


@pytest.mark.parametrize(
    "python", ["", pytest.param("del os.pidfd_open; ", marks=pytest.mark.slow)], ids=["pidfd", "without pidfd"]
)
def test_the_service_ends_with_its_parent(python: str) -> None:
    """Also while it is at work, so that it does not see that its socket is closed."""
    child = f"import os, time; {python}from stitchfleet.plugin.service.serving import die_with_parent"
    child += "; die_with_parent(); print(os.getpid(), flush=True)"
    parent = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', sys.argv[1]]); time.sleep(600)"
    command = [sys.executable, "-c", parent, f"{child}; time.sleep(600)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        pid = int(started.stdout.readline())
        assert descendants.processor_seconds(pid)
        started.kill()
        deadline = time.monotonic() + 60
        while descendants.processor_seconds(pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not descendants.processor_seconds(pid)


SERVICE = """
import json, os, socket, subprocess, sys, time
arguments = sys.argv[1:]
nice = int(arguments[arguments.index("--nice") + 1])
with socket.socket(fileno=int(arguments[arguments.index("--fd") + 1])) as connection:
    if nice:
        subprocess.Popen([sys.executable, "-c", "import os, time; os.setpgid(0, 0); time.sleep(600)"])
        time.sleep(600)
    unread = b""
    while data := connection.recv(1 << 20):
        *lines, unread = (unread + data).split(b"\\n")
        for line in lines:
            request = json.loads(line)
            answer = {"id": request["id"], "kind": "failed", "line": f"at {nice}", "ops": []}
            connection.sendall(json.dumps(answer).encode() + b"\\n")
"""
"""In place of the compile service: at a low priority it never answers and has a compiler in a group of its own, at the job's own it
answers at once."""


@pytest.fixture
def starved(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """starved(works, patience_s): a client of SERVICE, what it tells, and room for answers. works: it has half of a processor."""
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.05)
    clients: list[CompileClient] = []
    popen = subprocess.Popen

    def make(works: bool, patience_s: float) -> tuple[CompileClient, list[str], list[Answer]]:
        script = tmp_path / "service.py"
        script.write_text(SERVICE)
        monkeypatch.setattr(module, "processor_seconds", lambda pid: {pid: time.monotonic() / 2 if works else 1.0})

        def start(command: list[str], **more: Any) -> Any:
            return popen([sys.executable, str(script), *command[3:]], **more)

        monkeypatch.setattr(module.subprocess, "Popen", start)
        told: list[str] = []
        client = CompileClient(tmp_path / "cache", 1 << 20, 10, tmp_path / "log", told.append, patience_s)
        clients.append(client)
        return client, told, []

    yield make
    for client in clients:
        pid = client.pid
        if pid is not None:
            descendants.end(pid)
        client.close()


def test_a_service_that_gets_nothing_of_the_processors_goes_on_at_the_jobs_own_priority(starved: Any) -> None:
    client, told, answers = starved(works=False, patience_s=2.0)
    done = threading.Semaphore(0)

    def answered(answer: Answer) -> None:
        answers.append(answer)
        done.release()

    for number in range(3):
        client.compile(CompileRequest(f"c{number}", b"", ()), answered)
    first = client.pid
    below: set[int] = set()
    while len(below) < 2 and client.pid == first:
        below = set(descendants.processor_seconds(first)) or below
    for _ in range(3):
        assert done.acquire(timeout=60), told
    assert set(answers) == {Failed("at 0")}
    assert len(answers) == 3
    assert client.pid != first
    assert len(told) == 1
    assert "at the job's own priority" in told[0]
    assert not client.busy
    for process in below:
        assert not pathlib.Path(f"/proc/{process}/cwd").exists(), "what it had started has ended with it"


def test_a_service_at_work_is_left_alone(starved: Any) -> None:
    client, told, answers = starved(works=True, patience_s=0.3)
    client.compile(CompileRequest("c", b"", ()), answers.append)
    first = client.pid
    time.sleep(2.0)
    assert client.pid == first
    assert told == []


def test_patience_without_end(starved: Any) -> None:
    client, told, answers = starved(works=False, patience_s=0.0)
    client.compile(CompileRequest("c", b"", ()), answers.append)
    first = client.pid
    time.sleep(1.0)
    assert client.pid == first
    assert told == answers == []


def test_the_processors_time_of_a_process_is_its_childrens_too() -> None:
    text = """
import subprocess, sys, time
subprocess.run([sys.executable, "-c", "x = 0\\nfor i in range(6000000): x += i"])
print(1, flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        used = descendants.processor_seconds(process.pid)
        descendants.end(process.pid)
    assert list(used) == [process.pid]
    assert used[process.pid] > 0.1
