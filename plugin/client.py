"""The trainer's side of the compile service: starts it, sends requests, takes answers on a thread that mostly sleeps."""

from __future__ import annotations

import base64
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

Answer = dict[str, Any]

MAX_RESTARTS = 2


def clean_environment() -> dict[str, str]:
    """The environment of a helper process of ours: the activation and the user's GPUs are not inherited."""
    bootstrap = str(pathlib.Path(__file__).parent / "bootstrap")
    environment = {key: value for key, value in os.environ.items() if key != "STITCHFLEET_ENABLED"}
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path and path != bootstrap]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    environment.update(CUDA_VISIBLE_DEVICES="-1", TF_CPP_MIN_LOG_LEVEL="3", OMP_NUM_THREADS="1")
    return environment


class CompileClient:
    """Requests in, answers to callbacks (on this client's thread). A dead service fails what waits and is started anew, twice."""

    def __init__(
        self, cache: pathlib.Path, cache_bytes: int, nice: int, log: pathlib.Path, tell: Callable[[str], None]
    ) -> None:
        self._cache, self._cache_bytes, self._nice, self._log, self._tell = cache, cache_bytes, nice, log, tell
        self._lock = threading.Lock()
        self._waiting: dict[int, tuple[dict[str, Any], Callable[[Answer], None]]] = {}
        self._next_id = 0
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._restarts = 0
        self._closed = False
        self.cpu_seconds = 0.0
        self.busy_since: float | None = None
        self.busy_seconds = 0.0

    @property
    def busy(self) -> bool:
        """Whether a request is unanswered, so that the service may be at work beside the job."""
        return bool(self._waiting)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def prepare(self) -> None:
        """Starts the service ahead of the first request, so that its start is not waited for. Once: later calls do nothing."""
        with self._lock:
            if self._process is None and not self._closed:
                try:
                    self._start()
                except OSError:
                    pass  # the first request tries again, and says it

    def compile(
        self,
        cluster: str,
        body: bytes,
        inputs: object,
        changing: bool,
        device: object,
        answered: Callable[[Answer], None],
        samples: object = (),
        fallback: bytes = b"",
    ) -> None:
        """`changing`: the same op has asked for other shapes before. device: a GPU's figures, None for the processor. samples: some
        numbers of the call's inputs. fallback: the operators as a function of values, where `body` is not that."""
        described = base64.b64encode(body).decode()
        message = {"cluster": cluster, "body": described, "inputs": inputs, "changing": changing, "device": device}
        message["samples"], message["fallback"] = samples, base64.b64encode(fallback).decode()
        self._submit(message, answered)

    def judge(self, folder: pathlib.Path, answered: Callable[[Answer], None]) -> None:
        self._submit({"judge": str(folder)}, answered)

    def _submit(self, message: dict[str, Any], answered: Callable[[Answer], None]) -> None:
        with self._lock:
            if self._closed:
                return
            self._next_id += 1
            message["id"] = self._next_id
            if not self._waiting:
                self.busy_since = time.monotonic()
            self._waiting[self._next_id] = (message, answered)
            try:
                if self._socket is None:
                    self._start()
                assert self._socket is not None
                self._socket.sendall(json.dumps(message).encode() + b"\n")
                return
            except OSError as error:
                reason = str(error)
        self._fail_all(f"the compile service cannot be reached: {reason}")

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        try:
            with open(self._log, "ab") as log:
                self._process = subprocess.Popen(
                    [
                        *(sys.executable, "-m", "stitchfleet.plugin.service", "--fd", str(theirs.fileno())),
                        *("--cache", str(self._cache), "--cache-bytes", str(self._cache_bytes)),
                        *("--nice", str(self._nice)),
                    ],
                    pass_fds=[theirs.fileno()],
                    env=clean_environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
        finally:
            theirs.close()
        self._socket = ours
        threading.Thread(target=self._listen, args=(ours,), name="stitchfleet-answers", daemon=True).start()

    def _listen(self, connection: socket.socket) -> None:
        unread = b""
        while True:
            try:
                received = connection.recv(1 << 20)
            except OSError:
                received = b""
            if not received:
                break
            unread += received
            *lines, unread = unread.split(b"\n")
            for line in lines:
                self._answer(json.loads(line))
        self._lost(connection)

    def _answer(self, answer: Answer) -> None:
        with self._lock:
            found = self._waiting.get(int(answer.get("id", -1)))
        if found is None:
            return
        try:
            found[1](answer)
        except Exception as error:
            self._tell(f"an answer of the compile service could not be used: {type(error).__name__}: {error}")
        finally:
            with self._lock:
                self._waiting.pop(int(answer["id"]), None)
                self._note_idle()

    def _note_idle(self) -> None:
        if not self._waiting and self.busy_since is not None:
            self.busy_seconds += time.monotonic() - self.busy_since
            self.busy_since = None

    def _lost(self, connection: socket.socket) -> None:
        with self._lock:
            if self._socket is connection:
                self._socket = None
            if self._closed:
                return
            waiting = list(self._waiting.values())
            again = bool(waiting) and self._restarts < MAX_RESTARTS
            if again:
                self._restarts += 1
        code = self._process.wait() if self._process is not None else None
        if not waiting:
            return
        if not again:
            self._fail_all(f"the compile service ended (exit code {code})")
            return
        self._tell(f"the compile service ended (exit code {code}) with {len(waiting)} requests open; starting it again")
        with self._lock:
            try:
                self._start()
                assert self._socket is not None
                for message, _ in waiting:
                    self._socket.sendall(json.dumps(message).encode() + b"\n")
                return
            except OSError as error:
                reason = str(error)
        self._fail_all(f"the compile service cannot be started: {reason}")

    def _fail_all(self, line: str) -> None:
        with self._lock:
            waiting, self._waiting = list(self._waiting.values()), {}
            self._note_idle()
        self._tell(line)
        for message, answered in waiting:
            answered({"id": message["id"], "failure": line, "ops": [], "lost": True})

    def close(self) -> None:
        """Ends the service. Returns within a second."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
            self._note_idle()
            connection, self._socket = self._socket, None
        if connection is not None:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            connection.close()
        if self._process is not None:
            try:
                self._process.wait(timeout=0.2)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
