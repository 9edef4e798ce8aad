"""The processes of a contestant: a job and all processes that it has started, in any session.

They are identified by a variable in their environment (`/proc/PID/environ`), which every child inherits, and by descent. Process
groups would not do, since the compile service and the shipper start their own sessions. Linux only.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

MARK = "BENCH_CONTESTANT"
"""Name of the variable. It must not begin with STITCHFLEET_: `stitchfleet run` does not pass on all such variables."""
_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
_STOPPED_OR_GONE = "TtZX"


@dataclass(frozen=True)
class Process:
    """One process in /proc. state: a letter. cpu_s: user and system time in seconds, including children that it has waited for."""

    pid: int
    parent: int
    state: str
    cpu_s: float


def _read_process(pid: int) -> Process | None:
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()  # the command's name before it may contain blanks and brackets
    return Process(pid, int(fields[1]), fields[0], sum(map(int, fields[11:15])) * _TICK_S)


def variable_of(pid: int, name: str) -> str:
    """A variable in the environment that a process was started with; empty if there is none, or no such process."""
    try:
        variables = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    found = next((one for one in variables if one.startswith(f"{name}=".encode())), b"=")
    return found.partition(b"=")[2].decode(errors="replace")


def _has_mark(pid: int, mark: str) -> bool:
    # a mark ends with the contestant's name; without one ("race/") it stands for all contestants of the race
    found = variable_of(pid, MARK)
    return found == mark or (mark.endswith("/") and found.startswith(mark))


def members(mark: str) -> dict[int, Process]:
    """Process id -> process, of the living processes of a mark. A mark that ends with a slash stands for all marks that begin with
    it."""
    everyone = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (process := _read_process(int(name))) is not None and process.state not in "ZX":
            everyone[process.pid] = process
    found = {pid for pid in everyone if pid != os.getpid() and _has_mark(pid, mark)}
    grown = True
    while grown:  # children that got another environment
        more = {pid for pid, process in everyone.items() if process.parent in found} - found
        grown = bool(more)
        found |= more
    return {pid: everyone[pid] for pid in found}


def send(pid: int, number: int) -> None:
    """Sends a signal. Does nothing if the process is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def freeze(mark: str, limit_s: float = 10.0) -> None:
    """Stops every process of the mark, and returns when all are stopped, including those that are started meanwhile.

    Raises TimeoutError if one has not stopped within `limit_s` seconds.
    """
    deadline = time.monotonic() + limit_s
    while True:
        running = [process for process in members(mark).values() if process.state not in _STOPPED_OR_GONE]
        if not running:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {running[0].pid} of {mark} does not stop")
        for process in running:
            send(process.pid, signal.SIGSTOP)
        time.sleep(0.002)


def thaw(mark: str) -> None:
    """Continues the processes of the mark."""
    for pid in members(mark):
        send(pid, signal.SIGCONT)


def kill_all(mark: str, limit_s: float = 10.0) -> None:
    """Kills every process of the mark, stopped or not, including those that are started meanwhile, for at most `limit_s` seconds."""
    deadline = time.monotonic() + limit_s
    while (found := members(mark)) and time.monotonic() < deadline:
        for pid in found:
            send(pid, signal.SIGKILL)
        time.sleep(0.01)


def cpu_seconds(mark: str) -> float:
    """User and system time in seconds of all processes of the mark so far, including ended children that were waited for."""
    return sum(process.cpu_s for process in members(mark).values())


def peak_bytes(pid: int) -> int:
    """Largest resident set size of a process so far, in bytes (VmHWM); 0 if it is gone."""
    try:
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def arguments_of(pid: int) -> list[str]:
    """The command line of a process; [] if it is gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def start(command: list[str], mark: str, variables: dict[str, str], output: pathlib.Path) -> subprocess.Popen[bytes]:
    """Starts a contestant in its own session, so that Ctrl-C at the terminal reaches only the benchmark. output: file for its
    output."""

    def child() -> None:
        # If a shell has started the benchmark in the background, SIGINT is ignored, which the child would inherit.
        signal.signal(signal.SIGINT, signal.default_int_handler)

    with open(output, "wb") as stream:
        return subprocess.Popen(
            command,
            env={**variables, MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=child,
        )


@contextlib.contextmanager
def watched(mark: str) -> Iterator[None]:
    """A context in which processes of the mark may be started. They are killed at its end.

    A watchdog process kills them even if the benchmark itself is killed; stopped processes would stay for ever. It waits on a pipe
    for the end of the benchmark.
    """
    reading, writing = os.pipe()
    try:
        watchdog = subprocess.Popen(
            [sys.executable, "-I", str(pathlib.Path(__file__).resolve()), mark],
            stdin=reading,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
    finally:
        os.close(reading)
    try:
        yield
    finally:
        try:
            kill_all(mark)
        finally:
            os.close(writing)
            watchdog.wait()


if __name__ == "__main__":  # the watchdog
    sys.stdin.buffer.read()
    kill_all(sys.argv[1])
