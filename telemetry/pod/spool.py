"""The files between the training process and the shipper.

A spool is a folder that one process writes. Its segments are files of records:

    segment = MAGIC, then records
    record  = MARK (4 bytes) | length u32 | crc32 u32 | kind u8 | sequence u64 | body (length bytes)      little-endian

The file `identity` holds a second copy of the writer's identity record, for a segment whose own is damaged: earlier segments may be
gone.

The checksum covers kind, sequence and body. Records are appended by single writes, so a process killed at any point leaves at most
one torn record at a segment's end. A damaged record is skipped by searching for the next MARK whose checksum is right. The first
record of each segment is the job's identity, so a segment can be read without the others.

A segment's name shows its state: `N.open` is being written, `N.sealed` is complete, `N.shipping` belongs to a shipper. A rename is
atomic, so the writer (which deletes the oldest sealed segments if the folder is full, and those that are too old) and the shipper
never both take one.
The writer holds a lock on `owner.lock` as long as it lives, the shipper one on `shipper.lock`. The kernel releases both when the
process ends, so the open segment of a dead process can be told from that of a living one, in containers too.

Records survive the death of the process at any point. They are not flushed to the disk at each write, so a machine that loses power
may lose what the kernel still held. Standard library only: this runs in the training process.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import fcntl
import os
import pathlib
import stat
import struct
import time
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

MAGIC = b"STITCHSPOOL1\n"
MARK = b"\xf5SR\x9b"
_HEAD = struct.Struct("<4sII")
_KEY = struct.Struct("<BQ")
MAX_BODY_BYTES = 16 << 20
"""Longest body of a record; a greater length in a file is damage."""
MAX_RECORDS = 1 << 14
"""Most records that are read from one segment: a writer seals it at 1 MiB, which holds as many of 64 bytes each. What follows
counts as damage."""
MAX_FALSE_HEADS = 10_000
MAX_WASTED_CHECKSUMS = 8
"""Reading stops searching a segment for records after this many heads without a valid record, or when checksums were computed over
this many times the segment's bytes. Each damaged record causes one such head; a segment that somebody fills with heads would be
read for minutes."""


class Kind(enum.IntEnum):
    """What a record holds. All kinds except ITERATIONS and FUNCTION_ITERATIONS are JSON objects."""

    IDENTITY = 1
    ITERATIONS = 2
    ARM_BLOCK = 3
    CLUSTER = 4
    EVENT = 5
    JOB_END = 6
    LOSS = 7
    MODEL = 8
    FUNCTION_ITERATIONS = 9
    """The number of a training function other than the job's first (FUNCTION_NUMBER), followed by the content of ITERATIONS."""
    FUNCTION = 10
    """A training function's number and name."""


FUNCTION_NUMBER = struct.Struct("<I")


AFTER_DEATH = "after_death"
"""In a LOSS record: its count is added to the process's own count, which is cumulative over its life."""


@dataclass(frozen=True)
class Record:
    """One record as read. kind: a number of `Kind`, or one of a newer writer. sequence: increases over the whole spool, so that a
    missing record is noticed."""

    kind: int
    sequence: int
    body: bytes


def encode(record: Record) -> bytes:
    """The record's bytes. Raises ValueError if the body is longer than MAX_BODY_BYTES."""
    if len(record.body) > MAX_BODY_BYTES:
        raise ValueError(f"a record of {len(record.body)} bytes is over the bound of {MAX_BODY_BYTES}")
    key = _KEY.pack(record.kind, record.sequence)
    checksum = zlib.crc32(record.body, zlib.crc32(key))
    return _HEAD.pack(MARK, len(record.body), checksum) + key + record.body


@dataclass
class Damage:
    """Bytes that were read but are not records. A torn record at the end of the segment of a process that was killed is not
    damage."""

    records: int = 0
    """Number of skipped stretches of bytes, each at least one record."""
    bytes: int = 0
    torn_bytes: int = 0
    """Bytes of a last record that was cut off."""


def decode(data: bytes, damage: Damage) -> Iterator[Record]:
    """The records in a segment's bytes. Damaged ones are skipped and counted in `damage`. The time is proportional to the bytes."""
    position = len(MAGIC)
    if not data.startswith(MAGIC):
        if len(data) < len(MAGIC) and MAGIC.startswith(data):
            damage.torn_bytes += len(data)
            return
        position = 0
    view = memoryview(data)
    bad_from: int | None = None if position else 0
    found = false_heads = wasted = 0
    while position < len(data):
        record = _record_at(view, position) if found < MAX_RECORDS else 0
        if isinstance(record, int):
            if bad_from is None:
                bad_from = position
            false_heads += 1
            wasted += record
            if (
                found == MAX_RECORDS
                or false_heads > MAX_FALSE_HEADS
                or wasted > MAX_WASTED_CHECKSUMS * len(data) + MAX_BODY_BYTES
            ):
                damage.records += 1
                damage.bytes += len(data) - bad_from
                return
            position = data.find(MARK, position + 1)
            if position < 0:
                break
            continue
        if bad_from is not None:
            if position > bad_from:
                damage.records += 1
                damage.bytes += position - bad_from
            bad_from = None
        found += 1
        yield record
        position += _HEAD.size + _KEY.size + len(record.body)
    if bad_from is not None:
        if _is_torn(data, bad_from):
            damage.torn_bytes += len(data) - bad_from
        else:
            damage.records += 1
            damage.bytes += len(data) - bad_from


def _record_at(data: bytes | memoryview, position: int) -> Record | int:
    """The record that begins at `position`; if none does, the number of bytes over which a checksum was computed in vain."""
    start = position + _HEAD.size + _KEY.size
    if start > len(data):
        return 0
    mark, length, checksum = _HEAD.unpack_from(data, position)
    if mark != MARK or length > MAX_BODY_BYTES or start + length > len(data):
        return 0
    body = data[start : start + length]
    if zlib.crc32(body, zlib.crc32(data[position + _HEAD.size : start])) != checksum:
        return int(length)
    kind, sequence = _KEY.unpack_from(data, position + _HEAD.size)
    return Record(kind, sequence, bytes(body))


def _is_torn(data: bytes, position: int) -> bool:
    """Whether the bytes from `position` to the end are the beginning of a record that was being written."""
    rest = data[position:]
    if not (rest.startswith(MARK) or MARK.startswith(rest)):
        return False
    if len(rest) < _HEAD.size:
        return True
    length = int(_HEAD.unpack_from(rest)[1])
    return length <= MAX_BODY_BYTES and len(rest) < _HEAD.size + _KEY.size + length


# ---- iterations -------------------------------------------------------------------------------------------------------------

_ITERATIONS = struct.Struct("<qqqqII")


@dataclass
class Iterations:
    """Consecutive iterations of one UTC day.

    durations: float32 microseconds (4 bytes each; nanoseconds as int32 would overflow at 2.1 s; float32 keeps 24 bits, which is
    0.06 us of a second). runs: (first index, count, arm), in order, covering all iterations. Iteration i is step first_step + i *
    stride. started_ns, ended_ns: wall clock, nanoseconds since 1970, of the first iteration's start and the last one's end.
    """

    first_step: int
    stride: int
    started_ns: int
    ended_ns: int
    runs: list[tuple[int, int, int]] = field(default_factory=list)
    durations: array[float] = field(default_factory=lambda: array("f"))

    def encode(self) -> bytes:
        """The body of a record, which `decode` reads."""
        head = _ITERATIONS.pack(
            self.first_step, self.stride, self.started_ns, self.ended_ns, len(self.durations), len(self.runs)
        )
        runs = b"".join(struct.pack("<IB", count, arm) for _, count, arm in self.runs)
        return head + runs + little_endian(self.durations)

    @classmethod
    def decode(cls, body: bytes) -> Iterations:
        """The iterations in a record's body. Raises ValueError if the body does not hold what its head says."""
        try:
            first_step, stride, started, ended, count, run_count = _ITERATIONS.unpack_from(body)
            lengths = [struct.unpack_from("<IB", body, _ITERATIONS.size + 5 * k) for k in range(run_count)]
        except struct.error as error:
            raise ValueError(f"iterations: {error}") from None
        runs, first = [], 0
        for length, arm in lengths:
            runs.append((first, length, arm))
            first += length
        durations = array("f")
        rest = body[_ITERATIONS.size + 5 * run_count :]
        if first != count or len(rest) != 4 * count or count == 0 or any(length == 0 for length, _ in lengths):
            raise ValueError(
                f"iterations: {count} iterations, {first} of them with an arm, {len(rest)} bytes of durations"
            )
        durations.frombytes(rest)
        if _BIG_ENDIAN:
            durations.byteswap()
        return cls(first_step, stride, started, ended, runs, durations)


_BIG_ENDIAN = array("H", [1]).tobytes() == b"\x00\x01"


def little_endian(values: array[float]) -> bytes:
    """The array's bytes in little-endian order on every machine."""
    if _BIG_ENDIAN:
        values = values[:]
        values.byteswap()
    return values.tobytes()


# ---- the folder -------------------------------------------------------------------------------------------------------------

LOCK_TRIES = 20
KEEP_DAYS = 30.0
"""Default for how many days a segment may wait to be sent: less than the ingest server accepts (store.KEEP_DAYS)."""
OPEN, SEALED, SHIPPING = ".open", ".sealed", ".shipping"
IDENTITY = "identity"


def segments(folder: pathlib.Path, *suffixes: str) -> list[pathlib.Path]:
    """The regular files that are segments with these suffixes, oldest first; none if the folder does not exist. Links and pipes are
    left out."""
    try:
        with os.scandir(folder) as entries:
            names = [
                entry.name
                for entry in entries
                if entry.name.endswith(suffixes)
                and entry.name.split(".")[0].isdigit()
                and entry.is_file(follow_symlinks=False)
            ]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [folder / name for name in sorted(names)]


def read_file(path: pathlib.Path) -> bytes:
    """The content of a regular file. Raises OSError for a file of any other type: reading a pipe would block, and a link may lead
    anywhere."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        return file.read()


def write_file(path: pathlib.Path, data: bytes) -> None:
    """Writes a regular file, which is created with mode 600, and follows no link. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "wb") as file:
        file.write(data)


def identity_of(folder: pathlib.Path) -> bytes | None:
    """The body of the identity record of a spool's writer; None if it is missing or damaged."""
    try:
        record = _record_at(read_file(folder / IDENTITY), 0)
    except OSError:
        return None
    return record.body if isinstance(record, Record) and record.kind == Kind.IDENTITY else None


def with_identity(data: bytes, identity: bytes | None) -> bytes:
    """A segment's bytes, preceded by the identity record if their own cannot be read."""
    first = next(decode(data, Damage()), None)
    if first is None or first.kind == Kind.IDENTITY or identity is None:
        return data
    record = Record(Kind.IDENTITY, max(0, first.sequence - 1), identity)
    return MAGIC + encode(record) + data.removeprefix(MAGIC)


class Lock:
    """An exclusive lock on a file. The kernel releases it when the process ends, and children do not inherit it (POSIX lockf).

    A process must open a lock file only once: closing any descriptor of it releases the lock.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def acquire(self) -> bool:
        """Takes the lock; False if another process holds it. Raises OSError if the file cannot be made, or is a link."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Releases the lock, if it is held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def old_segments(folder: pathlib.Path, days: float, *suffixes: str) -> list[pathlib.Path]:
    """The segments with one of the suffixes that were not written to for `days` days, oldest first."""
    begin = time.time() - 86_400 * days
    found = []
    for path in segments(folder, *suffixes):
        with contextlib.suppress(FileNotFoundError):  # it was shipped meanwhile
            if path.stat().st_mtime < begin:
                found.append(path)
    return found


def too_old(days: float) -> str:
    """The text of the reason for which records were dropped. days: the age limit."""
    return f"they could not be sent for {days:g} days"


class SpoolWriter:
    """Appends records to segments. Not thread-safe; only the Recorder's writer thread calls it.

    identity: the body of the identity record, the first record of each segment.
    """

    def __init__(self, folder: pathlib.Path, identity: bytes, max_bytes: int, segment_bytes: int) -> None:
        """max_bytes: bound on the bytes of all segments in the folder. segment_bytes: size at which a segment is full. Raises
        OSError if the folder cannot be written, or if a living process writes to it already."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder, self.identity = folder, identity
        self.max_bytes, self.segment_bytes = max_bytes, segment_bytes
        self._lock = Lock(folder / "owner.lock")
        for _ in range(LOCK_TRIES):
            if self._lock.acquire():
                break
            time.sleep(0.01)  # a shipper holds it briefly to find out if the owner lives
        else:
            raise BlockingIOError(f"{folder} is the spool of another process")
        self.dropped = 0
        """The weight of the records in old segments that were deleted because of their size or age."""
        self._descriptor: int | None = None
        self._path = folder
        self._last_sealed: pathlib.Path | None = None
        self._written = 0
        self._records = 0
        self._weight = 0
        self._weights: dict[str, int] = {}
        """The weight of each sealed segment of this writer, by the segment's number: what is lost if it is deleted."""
        self._held = 0
        """An upper bound on the bytes of complete segments: shipped ones are noticed only when the limit is near."""
        existing = segments(folder, OPEN, SEALED, SHIPPING)
        self._number = max((int(path.name.split(".")[0]) for path in existing), default=0)
        self._held = sum(_size(path) for path in existing)
        self.sequence = 0
        self._open()
        with contextlib.suppress(OSError):  # each segment has a copy too
            write_file(folder / IDENTITY, encode(Record(Kind.IDENTITY, 0, identity)))

    @property
    def has_records(self) -> bool:
        """Whether the open segment holds more than its identity."""
        return self._descriptor is not None and self._records > 0

    @property
    def is_full(self) -> bool:
        """Whether the open segment has reached its size and should be sealed."""
        return self._written >= self.segment_bytes

    def append(self, kind: Kind, body: bytes, weight: int = 1) -> None:
        """Adds a record that counts as `weight` measurements (for iterations, one each).

        Raises ValueError if `body` is longer than MAX_BODY_BYTES, and OSError if the record could not be written completely; then
        none of its bytes stay in the file.
        """
        if self._descriptor is None:
            self._open()
        data = encode(Record(kind, self.sequence, body))
        self._make_room(len(data))
        self._write(data)
        self.sequence += 1
        self._records += 1
        self._weight += weight

    @property
    def nobody_ships(self) -> bool:
        """Whether the last sealed segment has not been taken."""
        return self._last_sealed is not None and self._last_sealed.exists()

    def seal(self) -> None:
        """Hands the open segment to the shipper; the next append begins a new one. Raises OSError."""
        if self._descriptor is None:
            return
        descriptor, self._descriptor = self._descriptor, None
        os.close(descriptor)
        if self._records == 0:
            self._path.unlink()
            return
        name = self._path.name.split(".")[0]
        self._weights[name] = self._weight
        self._held += self._written
        self._last_sealed = self._path.with_suffix(SEALED)
        self._path.rename(self._last_sealed)

    def drop_old(self, days: float) -> int:
        """Deletes the sealed segments that nobody has taken for `days` days; returns the number of measurements in them. Raises
        OSError."""
        before = self.dropped
        for path in old_segments(self.folder, days, SEALED):
            self._drop(path)
        return self.dropped - before

    def close(self) -> None:
        """Seals the open segment and releases the folder. Raises OSError."""
        try:
            self.seal()
        finally:
            self._lock.release()

    def abandon(self) -> None:
        """For a forked child: forgets the files, which are the parent's."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> None:
        self._number += 1
        path = self.folder / f"{self._number:010d}{OPEN}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o600)
        self._path, self._written, self._records, self._weight = path, 0, 0, 0
        try:
            self._write(MAGIC + encode(Record(Kind.IDENTITY, self.sequence, self.identity)))
        except OSError:
            os.close(self._descriptor)
            self._descriptor = None
            path.unlink(missing_ok=True)
            raise
        self.sequence += 1

    def _write(self, data: bytes) -> None:
        assert self._descriptor is not None
        done = 0
        try:
            while done < len(data):
                done += os.write(self._descriptor, data[done:])
        except OSError:
            if done:
                # a full disk may accept a part; if this fails too, readers skip that part
                try:
                    os.ftruncate(self._descriptor, self._written)
                except OSError:
                    self._written += done
            raise
        self._written += done

    def _make_room(self, wanted: int) -> None:
        """Deletes the oldest sealed segments until `wanted` more bytes fit. Raises OSError if that is not enough."""
        if self._held + self._written + wanted <= self.max_bytes:
            return
        sizes = {path: _size(path) for path in segments(self.folder, SEALED, SHIPPING)}
        self._held = sum(sizes.values())
        if self._held + self._written + wanted <= self.max_bytes:
            return
        # a tenth more than needed, so that the folder is not listed again at the next record
        target = self.max_bytes - wanted - self.max_bytes // 10
        for path, size in sizes.items():
            if self._held + self._written <= target:
                break
            if path.suffix != SEALED:
                continue
            if self._drop(path):
                self._held -= size
        if self._held + self._written + wanted > self.max_bytes:
            raise OSError(errno.ENOSPC, f"the spool holds its {self.max_bytes} bytes and nothing can be dropped")

    def _drop(self, path: pathlib.Path) -> bool:
        try:
            path.unlink()
        except FileNotFoundError:
            return False  # a shipper took it; it counts until it is gone
        self.dropped += self._weights.pop(path.name.split(".")[0], 1)
        return True


def _size(path: pathlib.Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0  # it was shipped meanwhile
