"""Starts of Python with TensorFlow imported, for jobs of the tests: one process imports it, and each job is a fork of that process.

An import of TensorFlow takes 2 to 3 seconds of a processor, more than most of the jobs themselves. A fork has the modules and nothing
else: TensorFlow starts its threads and reads its settings when a job first uses it. What differs from a start of Python is that the
plugin finds TensorFlow imported. So some tests start Python in each run, and `scripts/test --all` starts it for all jobs
(tests/marks.py).

    job        the program in `Prepared.python`, in place of Python: hands over its arguments, environment, folder, input and outputs
    server     forks a guard for each job
    guard      forks the job; passes on how it ended; ends it when its program is gone
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import resource
import select
import signal
import socket
import subprocess
import sys
import types
from typing import Any

PROGRAM = """#!{python} -IS
import json, os, resource, signal, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
limit = resource.getrlimit(resource.RLIMIT_FSIZE)
job = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd(), limit]).encode()
socket.send_fds(server, [len(job).to_bytes(8, "big")], [0, 1, 2])
server.sendall(job)
code = int(server.recv(16) or -9)
if code < 0:
    signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
    os.kill(os.getpid(), -code)
os._exit(code)
"""


class Prepared:
    """A server, for as long as it is open. python: a program to start scripts by, as `sys.executable` does."""

    def __init__(self, folder: pathlib.Path) -> None:
        address = folder / "prepared"
        self.python = folder / "prepared-tensorflow"
        self.python.write_text(PROGRAM.format(python=sys.executable, address=str(address)))
        self.python.chmod(0o755)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(address))
        listener.listen(16)
        clean = {name: value for name, value in os.environ.items() if not name.startswith("STITCHFLEET_")}
        with listener:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(listener.fileno())],
                env={**clean, "TF_CPP_MIN_LOG_LEVEL": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[listener.fileno()],
            )

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()  # the server's end
        self._process.wait()


def serve(listener: socket.socket) -> None:
    """Forks for each connection, until standard input ends. Returns in a job's process, ready to run its script."""
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(0, select.POLLIN)
    while True:
        ready = [number for number, _ in poll.poll(1000.0)]
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if 0 in ready:
            end_guards()
        if listener.fileno() not in ready:
            continue
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            guard(connection)
            return
        connection.close()


def end_guards() -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    os._exit(0)


def guard(connection: socket.socket) -> None:
    """Returns in the job's process."""
    head, files, _, _ = socket.recv_fds(connection, 8, 3)
    wanted = int.from_bytes(head, "big")
    text = b""
    while len(text) < wanted:
        text += connection.recv(wanted - len(text))
    job = os.fork()
    if job == 0:
        connection.close()
        become(files, *json.loads(text))
        return
    for file in files:
        os.close(file)
    process = os.pidfd_open(job)
    poll = select.poll()
    poll.register(process, select.POLLIN)
    poll.register(connection, select.POLLHUP)
    if process not in [number for number, _ in poll.poll()]:
        os.kill(job, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(job, 0)[1])
    with contextlib.suppress(OSError):
        connection.sendall(str(code).encode())
    os._exit(0)


def become(
    files: list[int], arguments: list[str], environment: dict[str, str], folder: str, limit: tuple[int, int]
) -> None:
    """All that a start of Python takes from outside. limit: of the sizes of files."""
    resource.setrlimit(resource.RLIMIT_FSIZE, tuple(limit))
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = arguments
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [str(pathlib.Path(arguments[0]).resolve().parent), *paths, *sys.path[1:]]
    sys.path_importer_cache.clear()
    sys.modules.pop("sitecustomize", None)
    with contextlib.suppress(ModuleNotFoundError):
        __import__("sitecustomize")


def script_as_main() -> tuple[Any, dict[str, Any]]:
    path = sys.argv[0]
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=path, __builtins__=__builtins__)
    sys.modules["__main__"] = module
    return compile(pathlib.Path(path).read_bytes(), path, "exec"), module.__dict__


if __name__ == "__main__":
    import gc

    import tensorflow

    assert tensorflow.keras.layers  # a lazy import
    gc.collect()
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
    exec(*script_as_main())  # ends as Python ends: exit handlers, threads, output
