"""Messages from rank to rank over the Open MPI library that Horovod has loaded and initialized (meeting.py uses them).

A message is no collective: if nobody receives it, nothing happens. Messages go over MPI_COMM_WORLD, of which Horovod uses a duplicate
only, with tags of our own. MPI's functions are called from a thread beside Horovod's, so MPI has to be initialized with
MPI_THREAD_MULTIPLE, as Horovod does; and never after Horovod has been shut down, which ends MPI. Jobs that use mpi4py are left alone:
a receive of theirs for any tag could take our message.

The binary interface is that of Open MPI 4 and 5 (mpi.h): handles are addresses of ompi_mpi_comm_world and ompi_mpi_byte; MPI_Status
begins with source and tag; MPI_ANY_SOURCE is -1.
"""

from __future__ import annotations

import ctypes
import pathlib
import sys
from typing import Protocol

from .store import StoreError
from .world import World

REQUEST_TAG, ANSWER_TAG = 22_295, 22_296
"""Tags of the messages of meeting.py: at most 32,767, which every MPI must allow (MPI standard, MPI_TAG_UB)."""
_THREAD_MULTIPLE = 3
_STATUS_BYTES = 256
"""More than MPI_Status has in any version."""


class Mail(Protocol):
    """Messages between ranks. No method waits for another rank."""

    def why_unusable(self, world: World) -> str:
        """Why messages cannot be sent now; empty if they can. world: this process's place. May raise StoreError."""

    def send(self, rank: int, tag: int, text: bytes) -> None:
        """Begins to send a message and returns at once. Raises StoreError if MPI refuses it."""
        ...

    def take(self, tag: int) -> tuple[int, bytes] | None:
        """A message with this tag that has arrived, as (sending rank, text), or None. Raises StoreError."""


class OpenMpi:
    """The Open MPI library that Horovod has loaded and initialized in this process."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._world = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(library, "ompi_mpi_comm_world")))
        self._byte = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(library, "ompi_mpi_byte")))
        self._sent: list[tuple[ctypes.c_void_p, ctypes.Array[ctypes.c_char]]] = []
        """Messages that MPI may still read."""

    @classmethod
    def loaded(cls) -> OpenMpi | None:
        """The library, or None if the process has not loaded Open MPI."""
        try:
            maps = pathlib.Path("/proc/self/maps").read_text()
            path = next(line.split()[-1] for line in maps.splitlines() if "/libmpi.so" in line)
            return cls(ctypes.CDLL(path))
        except (OSError, StopIteration, ValueError):  # ValueError: another MPI, without Open MPI's symbols
            return None

    def why_unusable(self, world: World) -> str:
        """Why messages cannot be sent by Open MPI in `world`, in one line; "" if they can."""
        if "mpi4py.MPI" in sys.modules:
            return "the job uses mpi4py, whose messages ours must not mix with"
        if not self._flag("MPI_Initialized") or self._flag("MPI_Finalized"):
            return "MPI is not initialized"
        if self._number("MPI_Query_thread") != _THREAD_MULTIPLE:
            return "MPI is initialized without MPI_THREAD_MULTIPLE"
        place = (self._of_world("MPI_Comm_rank"), self._of_world("MPI_Comm_size"))
        if place != (world.rank, world.size):
            return f"Horovod's rank {world.rank} of {world.size} is MPI's rank {place[0]} of {place[1]}"
        return ""

    def _number(self, function: str) -> int:
        value = ctypes.c_int()
        self._call(function, ctypes.byref(value))
        return value.value

    def _flag(self, function: str) -> bool:
        return bool(self._number(function))

    def _of_world(self, function: str) -> int:
        value = ctypes.c_int()
        self._call(function, self._world, ctypes.byref(value))
        return value.value

    def _call(self, function: str, *arguments: object) -> None:
        status = getattr(self._library, function)(*arguments)
        if status:
            raise StoreError(f"{function} returned {status}")

    def send(self, rank: int, tag: int, text: bytes) -> None:
        """Sends `text` to `rank` under `tag` without waiting for it to arrive. Raises StoreError."""
        self._forget_sent()
        request, buffer = ctypes.c_void_p(), ctypes.create_string_buffer(text, len(text))
        self._call("MPI_Isend", buffer, len(text), self._byte, rank, tag, self._world, ctypes.byref(request))
        self._sent.append((request, buffer))

    def _forget_sent(self) -> None:
        left = []
        for request, buffer in self._sent:
            done = ctypes.c_int()
            status = ctypes.create_string_buffer(_STATUS_BYTES)
            self._call("MPI_Test", ctypes.byref(request), ctypes.byref(done), status)
            if not done.value:
                left.append((request, buffer))
        self._sent = left

    def take(self, tag: int) -> tuple[int, bytes] | None:
        """The next message under `tag` as its sender's rank and its text, or None if none has arrived. Raises StoreError."""
        self._forget_sent()
        found, message = ctypes.c_int(), ctypes.c_void_p()
        status = ctypes.create_string_buffer(_STATUS_BYTES)
        any_source = -1
        self._call("MPI_Improbe", any_source, tag, self._world, ctypes.byref(found), ctypes.byref(message), status)
        if not found.value:
            return None
        count = ctypes.c_int()
        self._call("MPI_Get_count", status, self._byte, ctypes.byref(count))
        buffer = ctypes.create_string_buffer(max(1, count.value))
        self._call("MPI_Mrecv", buffer, count.value, self._byte, ctypes.byref(message), status)
        return ctypes.c_int.from_buffer(status).value, buffer.raw[: count.value]
