"""The recorder, inside the training process: who the job is, and what its steps measured.

`Recorder.iteration` appends to a queue in memory and returns. A thread wakes up once a second and writes what has accumulated to the
spool. A slow disk delays only that thread, and the queue is bounded. After construction nothing here raises: what cannot be kept is
counted in `Recorder.lost`. Standard library only.

A record survives the death of the process (SIGKILL, the out-of-memory killer) as soon as it is written, which is at most
WRITE_SECONDS after it was made, or when `Recorder.flush` returns True.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import getpass
import hashlib
import json
import math
import os
import pathlib
import platform
import re
import sys
import threading
import time
import uuid
import weakref
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from . import environment
from .spool import FUNCTION_NUMBER, KEEP_DAYS, Iterations, Kind, SpoolWriter, too_old

PLAIN, STITCHED, UNCOUNTED = 0, 1, 2
"""Arms of an iteration. UNCOUNTED: warm-up, tracing, compiling in the background, verifying, the first step after a change of arm."""

FORMAT = 2
"""Format of the identity record. A reader refuses a spool whose format it does not know. 2: a job has several training functions."""

WRITE_SECONDS = 1.0
"""How often the writer thread wakes up; a SIGKILL loses at most this much. Once a second costs a 50 ms step less than 0.02%."""
MAX_PENDING = 1 << 16
"""Most iterations, and most other records, that wait in memory. A job with 10,000 steps/s fills it in 6 s of a stalled disk."""
MAX_BLOCK = 4096
"""Most iterations in one record."""
AGE_SECONDS = 600.0
"""How often the age of segments that nobody takes is checked; the limit on it is counted in days."""
LAZY_SEALS = 10
"""While nobody takes sealed segments away, a segment stays open this many times longer, which makes fewer files."""
DAY_NS = 86_400 * 10**9
MAX_FUNCTIONS = 1 << 15
"""Numbers of training functions are below this: the database keeps them in two bytes."""

MAX_RANKS = 1 << 16
MAX_DEVICES = 1 << 16
"""Bounds for one job; the largest known trainings have tens of thousands of ranks and devices."""
MAX_ATTEMPT = 1_000_000
MAX_LABELS, MAX_LABEL_KEY, MAX_LABEL_TEXT = 64, 317, 253
MAX_LABEL_LETTERS = 4096
"""Bound on the characters of all label keys and values of a job together, since each report reads those of all jobs. Labels beyond
it are left out."""
KEY_TEXTS = ("run_id", "cluster", "namespace", "uid")
TEXT_LENGTHS = {
    **dict.fromkeys(KEY_TEXTS, 128),
    **dict.fromkeys(("name", "user", "model_fingerprint"), 253),
    **dict.fromkeys(("framework", "framework_version", "plugin_version"), 64),
    "image": 1024,
    "device_kind": 128,
}
"""Most characters of each text of the identity. Key texts are bounded by PostgreSQL, whose index entries hold 2,704 bytes."""

_SERVICE_ACCOUNT_NAMESPACE = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
MAX_DURATION_NS = 10**16
"""115 days: no step takes longer, and a float32 can hold it."""


GRAPH = "graph:"
"""Prefix of a model fingerprint that the plugin computed from the graph, as opposed to a name that somebody chose."""


@dataclass(frozen=True)
class JobIdentity:
    """Who a training process is. Empty strings mean unknown.

    cluster: the Kubernetes cluster, or the host's name on a laptop. run_id: the same in all processes of a job. uid: of the pod.
    attempt: number of restarts of the job, from 0. device_kind: "cpu", or the GPU's model; device_count: devices of the whole job.
    rank, world_size: of this process in a distributed job. labels: the pod's labels, by which the report forms groups.
    """

    cluster: str
    run_id: str
    uid: str
    attempt: int
    namespace: str
    name: str
    user: str
    image: str
    framework: str
    framework_version: str
    plugin_version: str
    model_fingerprint: str
    device_kind: str
    device_count: int
    rank: int
    world_size: int
    labels: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_environment(cls, run_id: str, **known: object) -> JobIdentity:
        """The identity found in the environment. `known` (names of fields) takes precedence over it.

        The variables are those of the table in `environment`; in Kubernetes the admission webhook sets them. Without them, rank
        and world size come from the variables of Horovod, Open MPI or PMI; on a laptop the host's name, the script's name and the
        login name are used, and the devices are those that the driver's files in /proc show.
        """
        found = _from_environment()
        found.update(run_id=run_id)
        names = {spec.name for spec in dataclasses.fields(cls)}
        found.update({name: value for name, value in known.items() if name in names and value is not None})
        return cls(**_within_bounds(found))  # type: ignore[arg-type]

    def to_json(self) -> dict[str, object]:
        """The identity as a JSON object, which `from_json` reads."""
        return {**dataclasses.asdict(self), "labels": dict(self.labels)}

    @classmethod
    def from_json(cls, facts: Mapping[str, object]) -> JobIdentity:
        """The identity in `facts`. Unknown fields (of a newer writer) are ignored. Raises ValueError for a missing or mistyped
        field."""
        values: dict[str, object] = {}
        for spec in dataclasses.fields(cls):
            value = facts.get(spec.name)
            if spec.name == "labels":
                value = {} if value is None else value
                if not isinstance(value, dict):
                    raise ValueError(f"the identity's labels are {value!r}, not an object")
                values["labels"] = {str(key): str(text) for key, text in value.items()}
                continue
            wanted = int if spec.type == "int" else str
            if not isinstance(value, wanted) or isinstance(value, bool):
                raise ValueError(f"the identity's {spec.name} is {value!r}, not {wanted.__name__}")
            values[spec.name] = value
        return cls(**values)  # type: ignore[arg-type]


def _from_environment() -> dict[str, object]:
    in_pod = "KUBERNETES_SERVICE_HOST" in os.environ
    host = platform.node() or "localhost"
    script = pathlib.Path(sys.argv[0]).stem if sys.argv and sys.argv[0] not in ("", "-c", "-m") else "python"
    ranks = (environment.RANK.name, "HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
    rank = _first_integer(*ranks, default=0, most=MAX_RANKS - 1)
    sizes = (environment.WORLD_SIZE.name, "HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
    size = max(1, _first_integer(*sizes, default=1, most=MAX_RANKS))
    kind, count = _devices()
    return {
        "cluster": environment.CLUSTER.read() or ("kubernetes" if in_pod else host),
        "uid": environment.POD_UID.read() or _read(pathlib.Path(environment.POD_UID_FILE.read())),
        "attempt": _first_integer(environment.ATTEMPT.name, default=0, most=MAX_ATTEMPT),
        "namespace": environment.NAMESPACE.read() or _read(_SERVICE_ACCOUNT_NAMESPACE) or "default",
        "name": environment.JOB_NAME.read() or (host if in_pod else script),
        "user": environment.USER.read() or _login_name(),
        "image": environment.IMAGE.read(),
        "framework": "",
        "framework_version": "",
        "plugin_version": "",
        "model_fingerprint": environment.MODEL.read(),
        "device_kind": environment.DEVICE_KIND.read() or kind,
        "device_count": size * max(1, _first_integer(environment.DEVICE_COUNT.name, default=count, most=MAX_DEVICES)),
        "rank": rank,
        "world_size": size,
        "labels": _labels(),
    }


def _first_integer(*names: str, default: int, most: int) -> int:
    """The first of these variables that holds a number from 0 to `most`, else `default`. Other numbers are skipped, because the
    records would be refused."""
    for name in names:
        try:
            found = int(os.environ[name])
        except (KeyError, ValueError):
            continue
        if 0 <= found <= most:
            return found
    return default


def _within_bounds(found: dict[str, object]) -> dict[str, object]:
    """The identity within the bounds that readers enforce: invalid text is repaired, and text that is too long is cut."""
    for name, most in TEXT_LENGTHS.items():
        text = _sound(str(found[name]))
        if len(text) > most:
            # A key that is cut gets a hash, so that it still differs from others
            told = hashlib.sha256(text.encode()).hexdigest()[:16] if name in KEY_TEXTS else ""
            text = f"{text[: most - len(told) - 1]}…{told}"
        found[name] = text
    found["device_count"] = min(int(str(found["device_count"])), MAX_DEVICES)
    labels = found["labels"]
    if isinstance(labels, Mapping):
        found["labels"] = bounded_labels({_sound(str(key)): _sound(str(text)) for key, text in labels.items()})
    return found


def bounded_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """The first MAX_LABELS of the labels, as long as they have at most MAX_LABEL_LETTERS characters together; keys and texts are
    cut to their maximum lengths."""
    found: dict[str, str] = {}
    room = MAX_LABEL_LETTERS
    for key, text in list(labels.items())[:MAX_LABELS]:
        key, text = key[:MAX_LABEL_KEY], text[:MAX_LABEL_TEXT]
        room -= len(key) + len(text)
        if room < 0:
            break
        found[key] = text
    return found


def _sound(text: str) -> str:
    """`text` without unpaired surrogates, which stand for bytes of a variable that were not UTF-8."""
    return text if text.isascii() else _HALVES.sub("\ufffd", text)


_HALVES = re.compile("[\ud800-\udfff]")


def _read(path: pathlib.Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _login_name() -> str:
    try:
        return getpass.getuser()
    except Exception:  # a container may have no such user, and Python's versions differ in what they raise
        return str(os.getuid())


def _devices() -> tuple[str, int]:
    """(kind, count) of the devices that this process may use, from the NVIDIA driver's files, without loading a driver; without a
    GPU, one CPU device."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in ("", "-1"):
        return "cpu", 1
    folder = pathlib.Path("/proc/driver/nvidia/gpus")
    try:
        cards = sorted(folder.iterdir())
    except OSError:
        return "cpu", 1
    if not cards:
        return "cpu", 1
    models = [
        line.partition(":")[2].strip()
        for line in _read(cards[0] / "information").splitlines()
        if line.startswith("Model")
    ]
    count = len([part for part in visible.split(",") if part.strip()]) if visible else len(cards)
    return (models[0] if models else "gpu"), count


def _labels() -> dict[str, str]:
    parts = environment.LABELS.read().split(",")
    file = environment.LABELS_FILE.read()
    if file:
        parts += _read(pathlib.Path(file)).splitlines()
    pairs = (part.partition("=") for part in parts)
    return {key.strip(): value.strip().strip('"') for key, mark, value in pairs if mark and key.strip()}


class Recorder:
    """Records what a job measures. Any thread may call any method; none blocks (except `flush` and `close`, for their time) or
    raises."""

    def __init__(
        self,
        folder: pathlib.Path,
        identity: JobIdentity,
        *,
        max_bytes: int = 64 << 20,
        keep_days: float = KEEP_DAYS,
        seal_seconds: float = 30.0,
        after: Recorder | None = None,
    ) -> None:
        """Opens the spool in `folder`, which is created with owner-only permissions if it is missing.

        max_bytes: bound on the bytes of its segments; keep_days: on their age in days. Beyond either the oldest are deleted and
        counted. seal_seconds: time after which a segment is handed to the shipper; a full one is at once. after: a recorder of the
        same folder, which is ended here: what it still holds is written before the first record of this one, and nobody waits for
        it. Raises OSError if the folder cannot be written or belongs to another process; not with `after`, whose folder it is.
        """
        self.identity = identity
        self.process = uuid.uuid4().hex[:12]
        """Distinguishes the processes of one job and rank (for example a child that trains too)."""
        about = {
            "format": FORMAT,
            "process": self.process,
            "pid": os.getpid(),
            "host": platform.node(),
            "started_ns": time.time_ns(),
            "job": identity.to_json(),
        }
        segment_bytes = max(1 << 12, min(1 << 20, max_bytes // 8))
        self._open_spool = functools.partial(SpoolWriter, folder, _json(about), max_bytes, segment_bytes)
        # Two writers in one folder would number their segments alike, and the first that ends would release the lock of both.
        self._spool: SpoolWriter | None = self._open_spool() if after is None else None
        self._seal_seconds = seal_seconds
        self._sealed_at = time.monotonic()
        self._keep_days = keep_days
        self._aged_at = time.monotonic()
        self._iterations: collections.deque[tuple[int, int, int, int, int]] = collections.deque()
        self._others: collections.deque[tuple[Kind, bytes]] = collections.deque()
        self._flushes: collections.deque[threading.Event] = collections.deque()
        self._wake = threading.Event()
        self._counting = threading.Lock()
        self._lost = 0
        self._lost_written = 0
        self._closed = False
        self.failure = ""
        """The last reason why a record was lost, as text."""
        before = after._end() if after is not None else None
        self._thread: threading.Thread | None = threading.Thread(
            target=self._write_until_closed, args=(before,), name="stitchfleet-records", daemon=True
        )
        try:
            self._thread.start()
        except RuntimeError as error:  # the pod's limit of processes is reached
            if self._spool is not None:
                self._spool.close()
            raise OSError(f"no thread for the records: {error}") from None
        # Threads do not survive a fork: the child must neither fill a queue that nobody writes nor touch the parent's files.
        itself = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _forget(itself()))

    # ---- what a job says ------------------------------------------------------------------------------------------------------

    def iteration(self, step: int, arm: int, duration_ns: int, function: int = 0) -> None:
        """Records an iteration that has just ended. step: its number, counted per training function. arm: PLAIN, STITCHED or
        UNCOUNTED. duration_ns: wall time. function: number of the training function of which it was a step."""
        pending = self._iterations
        if self._closed or len(pending) >= MAX_PENDING:
            self._lose(1, "the recorder is closed" if self._closed else "the disk is too slow")
            return
        pending.append((step, arm, duration_ns, time.time_ns(), function))
        if len(pending) == MAX_BLOCK:
            self._wake.set()

    def function(self, number: int, name: str) -> None:
        """Records a training function: its name, and the number by which iterations and blocks refer to it."""
        self._other(Kind.FUNCTION, {"function": number, "name": name})

    def arm_block(self, pair: int, arm: int, first_step: int, durations_ns: Sequence[int], function: int = 0) -> None:
        """Records one complete block of a pair: the counted iterations of one arm (PLAIN or STITCHED). pair: counted across all
        functions. first_step: number of its first step."""
        facts = {"pair": pair, "arm": arm, "first_step": first_step, "durations_ns": list(durations_ns)}
        self._other(Kind.ARM_BLOCK, {**facts, "function": function} if function else facts)

    def cluster(self, name: str, facts: Mapping[str, object]) -> None:
        """Records the state of one cluster. facts: values that JSON can hold. A later call for the same name replaces it."""
        self._other(Kind.CLUSTER, {"name": name, "facts": facts})

    def event(self, kind: str, message: str, facts: Mapping[str, object] = {}) -> None:
        """Records something that a person may want to know later. facts: values that JSON can hold."""
        self._other(Kind.EVENT, {"kind": kind, "message": message, "facts": facts})

    def model(self, fingerprint: str) -> None:
        """Records the model, for a job whose environment did not name it."""
        self._other(Kind.MODEL, {"fingerprint": fingerprint})

    def job_end(self, facts: Mapping[str, object]) -> None:
        """Records the end of the process: overhead_ns, iterations by arm, phase, reason."""
        self._other(Kind.JOB_END, {"facts": facts})

    @property
    def lost(self) -> int:
        """Number of iterations and other records that could not be kept: queue or spool full, too old, disk full or not writable, not
        encodable."""
        return self._lost + (self._spool.dropped if self._spool is not None else 0)

    def flush(self, timeout_s: float) -> bool:
        """Waits until everything recorded before is written or counted as lost. Returns False if that takes longer than
        `timeout_s` seconds, or if the recorder is closed."""
        thread = self._thread
        if self._closed or thread is None or not thread.is_alive():
            return False
        done = threading.Event()
        self._flushes.append(done)
        self._wake.set()
        return done.wait(timeout_s)

    def close(self, timeout_s: float = 2.0) -> None:
        """Writes and seals what is queued, in at most `timeout_s` seconds; what could not be written by then is counted as lost.
        Later records are counted as lost too."""
        thread = self._end()
        if thread is not None:
            thread.join(timeout_s)
            if thread.is_alive():
                self._lose(len(self._iterations) + len(self._others), "the disk is too slow")

    def _end(self) -> threading.Thread | None:
        """Takes no more records. Returns the thread that writes what is queued; None if it was ended before."""
        self._closed = True
        self._wake.set()
        thread, self._thread = self._thread, None
        return thread

    # ---- the writer thread ----------------------------------------------------------------------------------------------------

    def _other(self, kind: Kind, facts: dict[str, object]) -> None:
        if self._closed or len(self._others) >= MAX_PENDING:
            self._lose(1, "the recorder is closed" if self._closed else "the disk is too slow")
            return
        try:
            self._others.append((kind, _json({"time_ns": time.time_ns(), **facts})))
        except Exception as error:
            self._lose(1, f"a record cannot be encoded: {error}")

    def _lose(self, count: int, reason: str) -> None:
        with self._counting:
            self._lost += count
            self.failure = reason

    def _write_until_closed(self, before: threading.Thread | None) -> None:
        if before is not None:
            before.join()
        while True:
            self._wake.wait(WRITE_SECONDS)
            self._wake.clear()
            closing = self._closed
            waiting = [self._flushes.popleft() for _ in range(len(self._flushes))]
            try:
                spool = self._opened(closing)
                if spool is not None:
                    self._drop_when_due(spool)
                    self._write_pending(spool)
                    self._seal_when_due(spool, closing)
            except Exception as error:  # no error may end the thread
                self._lose(1, f"{type(error).__name__}: {error}")
            for done in waiting:
                done.set()
            if closing:
                return

    def _opened(self, closing: bool) -> SpoolWriter | None:
        """The spool; None if it cannot be opened now. It is tried again until the recorder is closed."""
        if self._spool is None:
            try:
                self._spool = self._open_spool()
            except OSError as error:
                self.failure = str(error)
                if closing:
                    self._lose(len(self._iterations) + len(self._others), str(error))
        return self._spool

    def _drop_when_due(self, spool: SpoolWriter) -> None:
        if time.monotonic() - self._aged_at < AGE_SECONDS:
            return
        self._aged_at = time.monotonic()
        if spool.drop_old(self._keep_days):
            self.failure = too_old(self._keep_days)

    def _write_pending(self, spool: SpoolWriter) -> None:
        entries = self._iterations
        blocks: dict[int, Iterations] = {}
        for _ in range(len(entries)):
            step, arm, duration_ns, ended_ns, function = entries.popleft()
            if not _is_sound(step, arm, duration_ns, function):
                self._lose(
                    1, f"not an iteration: step {step!r}, arm {arm!r}, {duration_ns!r} ns of function {function!r}"
                )
                continue
            block = blocks.get(function)
            if block is not None and (
                len(block.durations) >= MAX_BLOCK
                or ended_ns // DAY_NS != block.ended_ns // DAY_NS
                or not _continues(block, step)
            ):
                self._append_block(spool, function, block)
                block = None
            if block is None:
                block = blocks[function] = Iterations(step, 1, ended_ns - duration_ns, ended_ns, [], array("f"))
            _extend(block, step, arm, duration_ns, ended_ns)
        for function, block in blocks.items():
            self._append_block(spool, function, block)
        others = self._others
        for _ in range(len(others)):
            kind, body = others.popleft()
            self._append(spool, kind, body, 1)
        if self.lost != self._lost_written:
            self._lost_written = self.lost
            try:
                spool.append(
                    Kind.LOSS, _json({"time_ns": time.time_ns(), "lost": self.lost, "reason": self.failure}), 0
                )
            except OSError:
                self._lost_written = -1  # written again when the disk accepts it

    def _append_block(self, spool: SpoolWriter, function: int, block: Iterations) -> None:
        if function == 0:
            self._append(spool, Kind.ITERATIONS, block.encode(), len(block.durations))
        else:
            body = FUNCTION_NUMBER.pack(function) + block.encode()
            self._append(spool, Kind.FUNCTION_ITERATIONS, body, len(block.durations))

    def _append(self, spool: SpoolWriter, kind: Kind, body: bytes, weight: int) -> None:
        try:
            spool.append(kind, body, weight)
        except (OSError, ValueError) as error:
            self._lose(weight, str(error))

    def _seal_when_due(self, spool: SpoolWriter, closing: bool) -> None:
        age = time.monotonic() - self._sealed_at
        try:
            if closing:
                spool.close()
            elif spool.is_full or (
                spool.has_records
                and age >= self._seal_seconds
                and (age >= LAZY_SEALS * self._seal_seconds or not spool.nobody_ships)
            ):
                self._sealed_at = time.monotonic()
                spool.seal()
        except OSError as error:
            self.failure = str(
                error
            )  # the records are written; a shipper finds the segment after this process has ended


def _is_sound(step: object, arm: object, duration_ns: object, function: object) -> bool:
    return (
        isinstance(step, int)
        and isinstance(function, int)
        and 0 <= function < MAX_FUNCTIONS
        and isinstance(duration_ns, int)
        and arm in (PLAIN, STITCHED, UNCOUNTED)
        and abs(step) < 1 << 62
        and 0 <= duration_ns < MAX_DURATION_NS
    )


def _continues(block: Iterations, step: int) -> bool:
    count = len(block.durations)
    if count == 1:
        return step > block.first_step
    return step == block.first_step + count * block.stride


def _extend(block: Iterations, step: int, arm: int, duration_ns: int, ended_ns: int) -> None:
    count = len(block.durations)
    if count == 1:
        block.stride = step - block.first_step
    block.durations.append(duration_ns / 1e3)
    block.ended_ns = ended_ns
    if block.runs and block.runs[-1][2] == arm:
        first, length, _ = block.runs[-1]
        block.runs[-1] = (first, length + 1, arm)
    else:
        block.runs.append((count, 1, arm))


def _forget(recorder: Recorder | None) -> None:
    if recorder is not None:
        recorder._closed = True
        recorder._thread = None
        recorder._counting = threading.Lock()
        if recorder._spool is not None:
            recorder._spool.abandon()


def _json(facts: Mapping[str, object]) -> bytes:
    return json.dumps(_plain(facts), separators=(",", ":"), allow_nan=False).encode()


def _plain(value: object, depth: int = 0) -> object:
    """The value in JSON's types: numbers that are not finite become strings, and unknown objects their text."""
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if depth > 32:
        raise ValueError("nested too deeply")
    if isinstance(value, Mapping):
        return {str(key): _plain(entry, depth + 1) for key, entry in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(entry, depth + 1) for entry in value]
    return str(value)
