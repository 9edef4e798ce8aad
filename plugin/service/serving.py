"""The compile service: a separate process that turns clusters into checked kernels, so that neither TensorFlow's lowering nor a
compiler's crash ever happens inside the training process.

`messages` defines requests and answers. A request seen before is answered from the cache on disk, without importing TensorFlow (3 s);
so is one that failed, unless it might succeed another time (a compiler that was killed, a full disk). A new request is lowered,
compiled with others in one translation unit, and its kernel is checked against the float64 oracle in a child of this process before
any job may load it. The process runs at a low priority and ends with its trainer; if the trainer has ended in good order, it may make
the kernels that were asked for, for the next run, within some seconds (`Finishing`).

Ranks of one job on one host need the same kernels. Each has a service, and one of these at a time makes kernels (KernelTurn); the
others look for them in the cache, without importing TensorFlow. A service keeps the turn until it has nothing to do; if its process
ends, the turn is free.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import pathlib
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from stitchfleet.compiler.hlo.importer import UnsupportedHloError, import_hlo_proto
from stitchfleet.compiler.ir.graph import Graph
from stitchfleet.compiler.kernel.cache import CacheEntry, KernelCache
from stitchfleet.compiler.kernel.metadata import KernelError, KernelMetadata
from stitchfleet.compiler.pipeline import backend
from stitchfleet.compiler.pipeline.backends import backend_for
from stitchfleet.compiler.support.whole_files import write_whole
from stitchfleet.telemetry.pod.background import step_back

from ..clusters import rare_data
from ..graph import to_hlo
from ..graph.to_hlo import LoweringError
from ..native.library import numpy_dtype
from . import bundle, framework
from .framework import reference
from .messages import Answer, Compiled, CompileRequest, Failed, Judged, JudgeRequest, Request, request_of, to_line

LOOK_SECONDS = 0.2
"""Interval at which a service without the turn looks for the kernels that another one makes."""
TURN_PATIENCE_S = 60.0
"""Longest time without a new kernel from the other service, whose process may have been stopped. After it both make kernels, which is
harmless."""
BATCH = 8
"""Kernels in one translation unit: they share the compiler's start-up, and the first kernels are still early."""


@dataclass
class Work:
    """A request in progress. key: the cache key of its answer. graph: the lowered cluster. hlo: the file of its HLO, or ""."""

    id: int
    request: CompileRequest
    key: str
    graph: Graph | None = None
    hlo: str = ""

    @property
    def samples(self) -> dict[int, npt.NDArray[Any]]:
        """Number of a kernel's input -> some of its elements in the job's call."""
        inputs = self.request.inputs
        numbers = {argument: parameter for parameter, argument in enumerate(to_hlo.kernel_inputs(inputs))}
        return {
            numbers[sample.input]: np.frombuffer(sample.value, numpy_dtype(inputs[sample.input].dtype))
            for sample in self.request.samples
            if sample.input in numbers
        }


class KernelTurn:
    """The turn of a run's services on this host to make kernels: the service that holds the lock of a file in the cache has it."""

    def __init__(self, cache: pathlib.Path, run: str) -> None:
        digest = hashlib.sha256(run.encode()).hexdigest()[:16]
        self._path = cache / f"turn-{digest}.lock"
        self._file: IO[str] | None = None
        self._fewest: int | None = None
        self._since = 0.0

    @property
    def has_it(self) -> bool:
        """Whether this service has the turn."""
        return self._file is not None

    def take(self, waiting: int) -> bool:
        """Tries to take the turn. Returns whether this service may make kernels now: if it has the turn, if the cache cannot be
        written, or if `waiting`, the number of its open requests, has not decreased for TURN_PATIENCE_S."""
        if self._file is not None:
            return True
        now = time.monotonic()
        if self._fewest is None or waiting < self._fewest:
            self._fewest, self._since = waiting, now
        try:
            file = open(self._path, "w")  # noqa: SIM115  kept open: closing it gives the turn back
        except OSError:
            return True  # the cache cannot be written to: no kernels will appear there
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_the_file = os.path.samestat(os.fstat(file.fileno()), os.stat(self._path))
        except OSError:
            is_the_file = False
        if not is_the_file:  # another service has the lock, or has just removed the file that we opened
            file.close()
            return now - self._since > TURN_PATIENCE_S
        self._file = file
        return True

    def give_back(self) -> None:
        """Gives the turn back, if this service has it."""
        self._fewest = None
        if self._file is not None:
            self._path.unlink(missing_ok=True)
            self._file.close()
            self._file = None


class Finishing:
    """Whether the service goes on after its trainer's end, for at most `seconds`, to make the kernels that the trainer asked for: one
    of a few seconds would else never get any, however often it runs. The trainer asks for it by a byte in a pipe, which stays there
    after its end and which a crash does not write."""

    def __init__(self, pipe: int | None, seconds: float) -> None:
        self.seconds = seconds
        self._pipe = pipe

    @property
    def is_wanted(self) -> bool:
        """Whether the trainer has ended, or is about to, and asked for it."""
        if self._pipe is None:
            return False
        look = select.poll()
        look.register(self._pipe, select.POLLIN)
        return any(seen & select.POLLIN for _, seen in look.poll(0))

    def begin(self) -> None:
        """Sees to it that the process ends in time: SIGALRM ends it, whatever it is at."""
        signal.setitimer(signal.ITIMER_REAL, self.seconds)


NEVER = Finishing(None, 0.0)


def answer_identity() -> str:
    """What an answer depends on besides its request: how operators become HLO (to_hlo), HLO a graph, and a graph a kernel, and what a
    kernel is compared with (framework, rare_data)."""
    sources = hashlib.sha256()
    for module in (to_hlo, framework, rare_data):
        sources.update(pathlib.Path(str(module.__file__)).read_bytes())
    return "|".join((sources.hexdigest(), backend.importer_version(), backend_for(None).identity()))


class Service:
    """Answers requests. cache: folder, of at most `cache_bytes` bytes of kernels. send(number, answer): delivers an answer."""

    def __init__(self, cache: pathlib.Path, cache_bytes: int, send: Callable[[int, Answer], None]) -> None:
        self.index = cache / "requests"
        self.index.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.kernels = KernelCache(cache / "kernels", cache_bytes)
        self.send = send
        self.identity = answer_identity()
        self.waiting: list[Work] = []

    def accept(self, number: int, request: Request) -> None:
        """Takes one request: a bundle is judged at once, a kernel in the cache is sent at once, and any other request waits."""
        if isinstance(request, JudgeRequest):
            self.send(number, judge_bundle(request.bundle))
            return
        described = json.dumps([[argument.to_json() for argument in request.inputs], request.device], sort_keys=True)
        key = hashlib.sha256(b"\0".join([self.identity.encode(), request.body, described.encode()])).hexdigest()
        work = Work(number, request, key)
        if not self._answer_from_cache(work):
            self.waiting.append(work)

    def work_on(self) -> None:
        """Lowers, compiles and answers up to BATCH waiting requests."""
        batch, self.waiting = self.waiting[:BATCH], self.waiting[BATCH:]
        ready: list[Work] = []
        for work in batch:
            if self._answer_from_cache(work):  # another job may have made the kernel meanwhile
                continue
            try:
                hlo = to_hlo.lower(work.request.body, work.request.inputs)
                work.graph = import_hlo_proto(hlo).graph
                work.hlo = self._keep_hlo(work, hlo)
                ready.append(work)
            except LoweringError as error:
                self._fail(work, str(error), error.ops, keep=error.is_certain)
            except UnsupportedHloError as error:
                self._fail(work, str(error), sorted({op.op_type for op in error.ops if op.op_type}))
            except Exception as error:
                traceback.print_exc()
                self._fail(work, f"{type(error).__name__}: {error}", (), keep=False)
        of_devices: dict[str, list[Work]] = {}
        for work in ready:
            of_devices.setdefault(json.dumps(work.request.device, sort_keys=True), []).append(work)
        for alike in of_devices.values():
            self._compile(alike)

    def look_in_cache(self) -> None:
        """Answers the waiting requests whose kernels another service has made meanwhile."""
        self.waiting = [work for work in self.waiting if not self._answer_from_cache(work)]

    def _compile(self, ready: list[Work]) -> None:
        """Compiles and answers lowered requests for one device."""
        requests = [
            backend.KernelRequest(
                work.request.cluster,
                work.graph,
                reference(work.request.fallback or work.request.body, work.request.inputs, len(work.graph.outputs)),
                work.request.cluster if work.request.changing else "",
                work.samples,
            )
            for work in ready
            if work.graph is not None
        ]
        try:
            made_by = backend_for(ready[0].request.device)
        except ValueError as error:
            outcomes = [backend.CompileOutcome(request.name, failure=str(error)) for request in requests]
        else:
            outcomes = made_by.compile(requests, self.kernels)
        print(f"{sum(outcome.entry is not None for outcome in outcomes)} kernels made", file=sys.stderr, flush=True)
        for work, outcome in zip(ready, outcomes):
            if outcome.entry is None:
                self._fail(work, outcome.failure or "unknown failure", (), keep=outcome.permanent)
            else:
                known: dict[str, Any] = {"entry": outcome.entry.key, "hlo": work.hlo}
                if outcome.entry.metadata.parameters:  # many shapes share the entry; the metadata are of this one
                    known["metadata"] = outcome.entry.metadata.to_json()
                self._store(work, known)
                self._send_kernel(work, outcome.entry)

    def _answer_from_cache(self, work: Work) -> bool:
        path = self.index / work.key
        try:
            known = json.loads(path.read_text())
        except (OSError, ValueError):
            return False
        if "failure" in known:
            self.send(work.id, Failed(known["failure"], tuple(known["ops"])))
            return True
        entry = self.kernels.find(known.get("entry", ""))
        if entry is None:
            return False
        if "metadata" in known:
            try:
                entry = replace(entry, metadata=KernelMetadata.from_json(known["metadata"]))
            except KernelError:
                return False
        work.hlo = str(known.get("hlo", ""))
        self._send_kernel(work, entry)
        return True

    def _send_kernel(self, work: Work, entry: CacheEntry) -> None:
        inputs = tuple(to_hlo.kernel_inputs(work.request.inputs))
        self.send(work.id, Compiled(entry.library, entry.metadata, inputs, work.hlo))

    def _keep_hlo(self, work: Work, hlo: bytes) -> str:
        """Keeps the HLO for `stitchfleet explain` and `compile`. Returns its path, or "" if it cannot be written."""
        path = self.index.parent / "hlo" / f"{work.request.cluster}_{work.key[:8]}.pb"
        try:
            path.parent.mkdir(exist_ok=True, mode=0o700)
            write_whole(path, hlo)
            return str(path)
        except OSError:
            return ""

    def _fail(self, work: Work, line: str, ops: Sequence[str], keep: bool = True) -> None:
        if keep:
            self._store(work, {"failure": line, "ops": list(ops)})
        self.send(work.id, Failed(line, tuple(ops)))

    def _store(self, work: Work, known: dict[str, Any]) -> None:
        path = self.index / work.key
        try:
            write_whole(path, json.dumps(known))
        except OSError as error:
            print(f"cannot keep an answer in the cache: {error}", file=sys.stderr)


def judge_bundle(folder: pathlib.Path) -> Judged:
    """Decides by the float64 oracle whether a kernel was wrong in a failed comparison, or only its tolerance too tight. Never
    raises."""
    try:
        return bundle.judge_bundle(folder)
    except Exception as error:
        traceback.print_exc()
        return Judged(False, f"the judge failed: {type(error).__name__}: {error}")


def serve(
    connection: socket.socket,
    cache: pathlib.Path,
    cache_bytes: int,
    turns: KernelTurn | None = None,
    finishing: Finishing = NEVER,
) -> None:
    """Answers requests until the other side closes the connection; then makes the kernels that are still wanted, if `finishing` says
    so. New requests are read between batches. turns: given if several services get the same requests."""

    def send(number: int, answer: Answer) -> None:
        try:
            connection.sendall(to_line(number, answer))
        except (BrokenPipeError, ConnectionResetError):
            if not finishing.is_wanted:
                raise

    service = Service(cache, cache_bytes, send)
    unread = b""
    while True:
        # A burst of requests comes with the first stitched step: wait a moment for the rest of it, so that batches are full.
        timeout = (0.05 if turns is None or turns.has_it else LOOK_SECONDS) if service.waiting else None
        readable, _, _ = select.select([connection], [], [], timeout)
        if readable:
            try:
                received = connection.recv(1 << 20)
            except ConnectionResetError:  # it has closed the connection with answers unread
                received = b""
            if not received:
                if finishing.is_wanted:
                    finishing.begin()
                    finish(service, turns)
                return
            unread += received
            *lines, unread = unread.split(b"\n")
            for line in lines:
                service.accept(*request_of(line))
            continue
        if service.waiting and turns is not None and not turns.take(len(service.waiting)):
            service.look_in_cache()
        elif service.waiting:
            service.work_on()
        if turns is not None and not service.waiting:
            turns.give_back()


def finish(service: Service, turns: KernelTurn | None) -> None:
    """Makes the kernels that are still wanted, or waits until a service that has the turn has made them. One service finishes at a
    time: of many short jobs, one after the other, no more than one leaves a process behind."""
    alone = KernelTurn(service.index.parent, "finishing")
    if not alone.take(len(service.waiting)):
        return
    while service.waiting:
        if turns is None or turns.take(len(service.waiting)):
            service.work_on()
        else:
            time.sleep(LOOK_SECONDS)
            service.look_in_cache()
    alone.give_back()


def die_with_parent(finishing: Finishing = NEVER) -> None:
    """Makes this process end by SIGTERM as soon as its parent has ended, however that happens, or as `finishing` says.

    Linux's PR_SET_PDEATHSIG does not do: it sends the signal as soon as the thread that has started this process ends (prctl(2)), and
    that may be any thread of the job.
    """
    threading.Thread(target=_end_after, args=(os.getppid(), finishing), name="stitchfleet-parent", daemon=True).start()


def _end_after(parent: int, finishing: Finishing) -> None:
    try:
        ended = select.poll()
        ended.register(os.pidfd_open(parent), select.POLLIN)
        if os.getppid() == parent:  # else it had ended before, and the id may be another process's
            ended.poll()
    except (OSError, AttributeError):  # Linux before 5.3, a sandbox without pidfd_open, or a Python without it
        while os.getppid() == parent:
            time.sleep(1.0)
    if finishing.is_wanted:
        finishing.begin()
    else:
        os.kill(os.getpid(), signal.SIGTERM)


def main() -> int:
    """The command of the service's process. Serves on an open socket until the other side closes it. Returns the exit status 0."""
    parser = argparse.ArgumentParser(prog="python -m stitchfleet.plugin.service.serving", description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="the socket's file descriptor")
    parser.add_argument("--cache", type=pathlib.Path, required=True)
    parser.add_argument("--cache-bytes", type=int, default=2 << 30)
    parser.add_argument("--shared-by", default="", help="the run whose processes on this host ask for the same kernels")
    parser.add_argument("--finish-fd", type=int, help="the reading end of the pipe by which the trainer asks for that")
    parser.add_argument(
        "--finish-seconds", type=float, default=0.0, help="longest time to go on after the trainer's end"
    )
    parser.add_argument("--nice", type=int, default=10, help="added to this process's priority (nice(2))")
    arguments = parser.parse_args()
    finishing = Finishing(arguments.finish_fd, arguments.finish_seconds)
    die_with_parent(finishing)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the job
    step_back(arguments.nice)
    with socket.socket(fileno=arguments.fd) as connection:
        start = time.monotonic()
        try:
            turns = KernelTurn(arguments.cache, arguments.shared_by) if arguments.shared_by else None
            serve(connection, arguments.cache, arguments.cache_bytes, turns, finishing)
        except (BrokenPipeError, ConnectionResetError):
            pass
        print(f"compile service ended after {time.monotonic() - start:.1f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
