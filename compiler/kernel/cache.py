"""Kernels on disk, by content: no rank or job that shares the folder builds the same kernel twice.

A key covers everything that a binary depends on (the backend's identity and the graph's digest), so an entry never becomes stale,
only unused. An entry is a folder with the binary (a library, or a cubin for a GPU), its metadata and its source. It appears by one
rename, complete or not at all.

Whoever can write native code into a shared folder can execute it in a job: only entries that belong to this user and that nobody else
can write are loaded, and a folder that others can write is not used.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .metadata import KernelError, KernelMetadata

LIBRARY, CUBIN, METADATA = "kernel.so", "kernel.cubin", "entry.json"
MIN_MAX_BYTES = 1 << 20


class UntrustedEntryError(Exception):
    """The entry, or the folder, is a symbolic link, belongs to another user or can be written by one: it is not loaded."""


@dataclass(frozen=True)
class CacheEntry:
    """A kernel on disk. library: the path of its binary, for a GPU the cubin."""

    key: str
    library: Path
    metadata: KernelMetadata


def _file_names(metadata: KernelMetadata) -> tuple[str, str]:
    """The names of a kernel's binary and of its source in its entry."""
    return (LIBRARY, "kernel.cc") if metadata.launch is None else (CUBIN, "kernel.cu")


class KernelCache:
    """Entries below `directory`, at most `max_bytes` of them together (the least recently used are removed first).

    If the folder cannot be used (read-only, full, not ours), a private temporary folder replaces it, and `notice` says why, in one
    line. `refusals` lists entries that exist but were not loaded, with the reason.
    """

    def __init__(self, directory: Path, max_bytes: int = 1 << 30) -> None:
        self.max_bytes = max(max_bytes, MIN_MAX_BYTES)
        self.notice: str | None = None
        self.refusals: list[str] = []
        self._fallback: tempfile.TemporaryDirectory[str] | None = None
        self.directory = directory
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            _require_private(directory)
            (directory / "locks").mkdir(exist_ok=True, mode=0o700)
        except (OSError, UntrustedEntryError) as error:
            self._fall_back(error)

    def _fall_back(self, error: Exception) -> None:
        """Continues in a private folder that is removed when this process ends."""
        if self._fallback is None:
            self._fallback = tempfile.TemporaryDirectory(prefix="stitchfleet-kernels-")
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        self.notice = f"kernel cache {self.directory} cannot be used ({reason}); kernels of this process are kept apart"
        self.directory = Path(self._fallback.name)
        (self.directory / "locks").mkdir(exist_ok=True, mode=0o700)

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        with open(self.directory / "locks" / "write", "a+b") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(handle, fcntl.LOCK_UN)

    def _path(self, key: str) -> Path:
        return self.directory / key[:2] / key

    def find(self, key: str) -> CacheEntry | None:
        """The entry of `key`; None if there is none, if it is damaged (then it is removed), or if another user owns it or can write
        it. The last two are added to `refusals`."""
        if len(key) < 8 or not key.isalnum():
            return None
        path = self._path(key)
        try:
            entry = self._read(key, path)
        except FileNotFoundError:
            return None
        except UntrustedEntryError as error:
            self.refusals.append(f"{key[:12]}: {error}")
            return None
        except (OSError, KernelError, ValueError, KeyError, TypeError) as error:
            self.refusals.append(f"{key[:12]}: damaged ({error}); it will be built again")
            self._remove(path)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return entry

    def _read(self, key: str, path: Path) -> CacheEntry:
        for part in (path.parent, path, path / METADATA):
            _require_private(part)
        described = json.loads((path / METADATA).read_text())
        metadata = KernelMetadata.from_json(json.dumps(described["metadata"]))
        binary = path / _file_names(metadata)[0]
        _require_private(binary)
        if described["sha256"] != hashlib.sha256(binary.read_bytes()).hexdigest() or described["key"] != key:
            raise ValueError("its checksum differs")
        return CacheEntry(key, binary, metadata)

    def put(
        self, key: str, library: Path, metadata: KernelMetadata, source: str = "", renew: bool = False
    ) -> CacheEntry:
        """Adds an entry with a copy of the file `library`, and evicts old entries. If there is an entry already (another process was
        faster), that is returned; with `renew` it is replaced. Raises OSError or UntrustedEntryError only if not even the private
        folder can be written."""
        try:
            return self._put(key, library, metadata, source, renew)
        except (OSError, UntrustedEntryError) as error:
            if self._fallback is not None:
                raise
            self._fall_back(error)
            return self._put(key, library, metadata, source, renew)

    def _put(self, key: str, library: Path, metadata: KernelMetadata, source: str, renew: bool) -> CacheEntry:
        path = self._path(key)
        path.parent.mkdir(exist_ok=True, mode=0o700)
        fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=self.directory))
        try:
            binary_name, source_name = _file_names(metadata)
            binary = fresh / binary_name
            shutil.copyfile(library, binary)
            os.chmod(binary, 0o700)
            described = {
                "key": key,
                "sha256": hashlib.sha256(binary.read_bytes()).hexdigest(),
                "metadata": json.loads(metadata.to_json()),
            }
            if source:
                (fresh / source_name).write_text(source)
            (fresh / METADATA).write_text(json.dumps(described))
            os.chmod(fresh / METADATA, 0o600)
            with self._lock():
                existing = self.find(key)
                if existing is not None and not renew:
                    return existing
                if path.exists():
                    self._remove(path)
                os.rename(fresh, path)
                self._evict(path)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        return CacheEntry(key, path / binary_name, metadata)

    def _remove(self, path: Path) -> None:
        """Removes an entry in such a way that no reader sees half of it."""
        doomed = self.directory / f".old-{path.name}-{os.getpid()}"
        with contextlib.suppress(OSError):
            os.rename(path, doomed)
        shutil.rmtree(doomed, ignore_errors=True)

    def _entries(self) -> list[tuple[float, int, Path]]:
        found = []
        for path in self.directory.glob("??/*"):
            with contextlib.suppress(OSError):
                size = sum(file.stat().st_size for file in path.iterdir())
                found.append((path.stat().st_mtime, size, path))
        return found

    def _evict(self, keep: Path) -> None:
        entries = sorted(self._entries())
        total = sum(size for _, size, _ in entries)
        for _, size, path in entries:
            if total <= self.max_bytes:
                break
            if path != keep:
                self._remove(path)
                total -= size

    def size_bytes(self) -> int:
        """Total bytes of all entries."""
        return sum(size for _, size, _ in self._entries())


def _require_private(path: Path) -> None:
    """Raises UntrustedEntryError unless `path` belongs to this user, only this user can write it, and it is no link;
    FileNotFoundError if it does not exist."""
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        raise UntrustedEntryError(f"{path.name} is a link")
    if status.st_uid != os.geteuid():
        raise UntrustedEntryError(f"{path.name} belongs to user {status.st_uid}, this is user {os.geteuid()}")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UntrustedEntryError(f"{path.name} can be written by others (mode {stat.S_IMODE(status.st_mode):o})")
