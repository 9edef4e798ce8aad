"""The trainer's side of the compile service: starts it, sends requests, and receives answers on a thread that mostly sleeps.

The service runs at a low priority. On a machine whose processors are all busy it gets almost no processor time (at nice 10 beside two
busy threads per core, a twentieth of a core), and kernels would never come. If it has had so little for `patience_s` while requests
were open, it is started again at the job's own priority: raising a running process's priority needs privileges, starting one at our
own does not. Finished kernels are in the cache. The job's steps meanwhile are booked as disturbed, as always.

If the job ends while kernels are being made, the service may go on for some seconds, so that the next run finds them.
"""

from __future__ import annotations

import os
import pathlib
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping

from ..base.descendants import end, processor_seconds
from ..base.settings import clean_environment
from .messages import Answer, CompileRequest, Failed, JudgeRequest, MessageError, Request, answer_of, to_line

MAX_RESTARTS = 2
LOOK_SECONDS = 5.0
"""Interval at which the client checks whether the service is starved."""
STARVED_SHARE = 0.25
"""The service is starved if it had less than this share of one processor: the import of TensorFlow alone would take minutes."""


class CompileClient:
    """Sends requests and passes the answers to callbacks, on this client's thread.

    If the service ends with requests open, it is started again and gets them again, MAX_RESTARTS times; then they fail.
    """

    def __init__(
        self,
        cache: pathlib.Path,
        cache_bytes: int,
        nice: int,
        log: pathlib.Path,
        tell: Callable[[str], None],
        patience_s: float = 0.0,
        shared_by: str = "",
        finish_s: float = 0.0,
        note: Callable[[str], None] | None = None,
    ) -> None:
        """cache: the kernels' folder, of at most `cache_bytes` bytes. nice: added to the service's priority (nice(2)). log: file for
        its output. tell: prints a line for people about a failure. patience_s: seconds for which the service may starve at `nice`; 0:
        for ever. shared_by: the run id, if several processes of the run on this host need the same kernels, so that one service at a
        time makes them; else "". finish_s: seconds for which the service may go on after `close` to make the kernels that were asked
        for. note: prints a line about what is no failure; `tell` if it is None."""
        self._finish_s = finish_s
        self._finish_pipe: int | None = None
        self._shared_by = shared_by
        self._patience_s = patience_s
        self._window: tuple[float, float] | None = None
        """(begin of the interval in which the service is observed, processor seconds that it had used by then)."""
        self._cache, self._cache_bytes, self._nice, self._log, self._tell = cache, cache_bytes, nice, log, tell
        self._note = note or tell
        self._lock = threading.Lock()
        self._waiting: dict[int, tuple[Request, Callable[[Answer], None]]] = {}
        self._next_id = 0
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._restarts = 0
        self._closed = False
        self.busy_since: float | None = None
        self.busy_seconds = 0.0

    @property
    def busy(self) -> bool:
        """Whether a request is unanswered, so that the service may be working beside the job."""
        return bool(self._waiting)

    @property
    def pid(self) -> int | None:
        """Process id of the service; None before its first start."""
        return self._process.pid if self._process is not None else None

    def prepare(self) -> None:
        """Starts the service before the first request, which then need not wait for it. Later calls do nothing."""
        with self._lock:
            if self._process is None and not self._closed:
                try:
                    self._start()
                except OSError:
                    pass  # the first request tries again, and reports it

    def compile(self, request: CompileRequest, answered: Callable[[Answer], None]) -> None:
        """Requests a kernel. `answered` gets Compiled or Failed, on the client's thread (on the caller's if the service cannot
        start); it is not called after `close`. Any thread may call it."""
        self._submit(request, answered)

    def judge(self, folder: pathlib.Path, answered: Callable[[Answer], None]) -> None:
        """Requests the oracle's verdict on the bundle in `folder`. `answered` gets Judged or Failed, as in `compile`."""
        self._submit(JudgeRequest(folder), answered)

    def _submit(self, request: Request, answered: Callable[[Answer], None]) -> None:
        with self._lock:
            if self._closed:
                return
            self._next_id += 1
            if not self._waiting:
                self.busy_since = time.monotonic()
            self._waiting[self._next_id] = (request, answered)
            try:
                if self._socket is None:
                    self._start()
                self._send({self._next_id: request})
                return
            except OSError as error:
                reason = str(error)
        self._fail_all(f"the compile service cannot be reached: {reason}")

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        asked, ask = os.pipe()
        try:
            with open(self._log, "ab") as log:
                self._process = subprocess.Popen(
                    [
                        *(sys.executable, "-m", "stitchfleet.plugin.service.serving", "--fd", str(theirs.fileno())),
                        *("--cache", str(self._cache), "--cache-bytes", str(self._cache_bytes)),
                        *("--nice", str(self._nice)),
                        *("--finish-fd", str(asked), "--finish-seconds", str(self._finish_s)),
                        *(("--shared-by", self._shared_by) if self._shared_by else ()),
                    ],
                    pass_fds=[theirs.fileno(), asked],
                    env=clean_environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
        except OSError:
            os.close(ask)
            raise
        finally:
            theirs.close()
            os.close(asked)
        if self._finish_pipe is not None:
            os.close(self._finish_pipe)
        self._socket, self._finish_pipe = ours, ask
        threading.Thread(target=self._listen, args=(ours,), name="stitchfleet-answers", daemon=True).start()

    def _listen(self, connection: socket.socket) -> None:
        unread = b""
        poll = select.poll()  # select(2) fails for descriptors above 1023, and a job may have that many
        poll.register(connection, select.POLLIN)
        while True:
            try:
                if not poll.poll(LOOK_SECONDS * 1e3):
                    if self._starves() and self._start_again(connection):
                        return  # another thread listens to the new service
                    continue
                received = connection.recv(1 << 20)
            except OSError:
                received = b""
            if not received:
                break
            unread += received
            *lines, unread = unread.split(b"\n")
            for line in lines:
                self._answer(line)
        self._lost(connection)

    def _starves(self) -> bool:
        """Whether requests have been open for `patience_s` and the service has had almost no processor time since."""
        pid = self.pid
        if not self._waiting or not self._patience_s or not self._nice or pid is None:
            self._window = None
            return False
        now, used = time.monotonic(), sum(processor_seconds(pid).values())
        if self._window is None:
            self._window = (now, used)
        since, before = self._window
        if now - since < self._patience_s:
            return False
        self._window = (now, used)
        return used - before < STARVED_SHARE * (now - since)

    def _start_again(self, connection: socket.socket) -> bool:
        """Starts the service again, at the job's own priority, and sends the open requests. False if the service is gone already."""
        with self._lock:
            if self._closed or self._socket is not connection or self._process is None:
                return False
            self._nice, self._window = 0, None
            end(self._process.pid)
            self._process.wait()
            connection.close()
            self._socket = None
            waiting = {number: request for number, (request, _) in self._waiting.items()}
            try:
                self._start()
                self._send(waiting)
                reason = ""
            except OSError as error:
                reason = str(error)
        if reason:
            self._fail_all(f"the compile service cannot be started: {reason}")
        else:
            self._note(
                "the processors are busy and leave the compile service nothing; it goes on at the job's own priority"
            )
        return True

    def _send(self, requests: Mapping[int, Request]) -> None:
        assert self._socket is not None
        for number, request in requests.items():
            self._socket.sendall(to_line(number, request))

    def _answer(self, line: bytes) -> None:
        try:
            number, answer = answer_of(line)
        except MessageError as error:  # the request that it answers is unknown
            self._fail_all(f"an answer of the compile service could not be used: {error}")
            return
        with self._lock:
            found = self._waiting.get(number)
        if found is None:
            return
        try:
            found[1](answer)
        except Exception as error:
            self._tell(f"an answer of the compile service could not be used: {type(error).__name__}: {error}")
        finally:
            with self._lock:
                self._waiting.pop(number, None)
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
            waiting = {number: request for number, (request, _) in self._waiting.items()}
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
                self._send(waiting)
                return
            except OSError as error:
                reason = str(error)
        self._fail_all(f"the compile service cannot be started: {reason}")

    def _fail_all(self, line: str) -> None:
        with self._lock:
            waiting, self._waiting = list(self._waiting.values()), {}
            self._note_idle()
        self._tell(line)
        for _, answered in waiting:
            answered(Failed(line))

    def _is_to_finish(self) -> bool:
        """Asks the service to go on after this process's end, if there is anything for it to finish. Returns whether it was asked."""
        wanted = sum(isinstance(request, CompileRequest) for request, _ in self._waiting.values())
        if not wanted or not self._finish_s or self._finish_pipe is None:
            return False
        if self._process is None or self._process.poll() is not None:
            return False
        try:
            os.write(self._finish_pipe, b"f")
        except OSError:
            return False
        self._process.returncode = 0  # nobody waits for it: no warning that it still runs
        self._note(
            f"{wanted} kernels are still being made, for the next run: the compiler goes on for at most {self._finish_s:g} s"
        )
        return True

    def close(self) -> None:
        """Ends the service, or leaves it to finish the kernels that were asked for, for at most `finish_s` seconds. Returns within a
        second."""
        with self._lock:
            goes_on = not self._closed and self._is_to_finish()
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
        if self._finish_pipe is not None:
            os.close(self._finish_pipe)
            self._finish_pipe = None
        if self._process is not None and not goes_on:
            try:
                self._process.wait(timeout=0.2)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
