"""The store of ranks whose launcher has none: rank 0 keeps a store (store_server.py) and says where it is: its addresses, its port
and the scope's secret. The other ranks take the first of the addresses at which a store answers.

    Meeting        (`mpirun`) rank r sends rank 0 a request, once; rank 0 answers each
    Announcement   (a strategy of several workers) rank 0 posts it on a board that all can read (multi_worker.py)

From there on they agree as other ranks do (courier.py). Under `mpirun ... stitchfleet run`, rank 0's `stitchfleet run` has
started the store already, and keeps it until it has the other ranks' summaries.

Nobody waits: a rank that runs without stitchfleet asks for nothing, does not hear a request, and reads no board.
"""

from __future__ import annotations

import json
import os
import pathlib
import selectors
import socket
import subprocess
import sys
import threading
import uuid
from typing import NamedTuple

from .multi_worker import Board
from .open_mpi import ANSWER_TAG, REQUEST_TAG, Mail
from .store import ScopedStore, StoreError
from .world import World

STORE_VARIABLE = "STITCHFLEET_RANKS_STORE"
"""PORT SCOPE of the store that rank 0's `stitchfleet run` keeps."""
MAX_ADDRESSES = 8
CLOSE_SECONDS = 1.0
START_SECONDS = 5.0
"""The longest that rank 0 waits for its store's port."""


class StoreAddress(NamedTuple):
    """Where a store is: the host, its TCP port, and the scope, which holds a secret."""

    host: str
    port: int
    scope: str

    def store(self) -> ScopedStore:
        """A client of the store at this place. Opens no connection."""
        return ScopedStore(*self)


class KeptStore:
    """Starts and ends the program that keeps a store on this host. The program also ends when this process does."""

    def __init__(self, run_id: str) -> None:
        """Starts it. Raises StoreError if that fails."""
        scope = f"stitchfleet-{run_id}-{uuid.uuid4().hex}"
        program = pathlib.Path(__file__).with_name("store_server.py")
        command = [sys.executable, "-I", "-S", str(program), scope]
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "OMPI_", "PMIX_"))}
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=clean
            )
        except OSError as error:
            raise StoreError(f"the ranks' store could not be started: {error}") from error
        self._owner = os.getpid()
        port = self._port()
        if not port.isdigit():
            self.close()
            raise StoreError("the ranks' store could not be started")
        self.place = StoreAddress("127.0.0.1", int(port), scope)

    def _port(self) -> str:
        """What the program prints; empty if it prints nothing in time."""
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            return self._process.stdout.readline().strip() if selector.select(START_SECONDS) else ""

    def close(self) -> None:
        """Ends the program and waits for it. Does nothing in a forked child, whose parent has the store."""
        if os.getpid() != self._owner:
            return
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def given_place() -> StoreAddress | None:
    """The place of the store that rank 0's `stitchfleet run` keeps, from STORE_VARIABLE; None if it is not set."""
    port, _, scope = os.environ.get(STORE_VARIABLE, "").partition(" ")
    return StoreAddress("127.0.0.1", int(port), scope) if port.isascii() and port.isdigit() and scope else None


class KeptByRank0:
    """One rank's part in finding a store that rank 0 keeps. `store` is called on the courier's thread, `close` on another."""

    def __init__(self, world: World, run_id: str) -> None:
        self._world, self._run_id = world, run_id
        self._lock = threading.Lock()
        self._closed = self._has_failed = False
        self._places: list[StoreAddress] = []
        """Where rank 0's store may be."""
        self.place: StoreAddress | None = None
        """Where the store is; None as long as this rank does not know it."""
        self._kept: KeptStore | None = None
        self._answer = b""
        """On rank 0: what it says of the store."""

    def store(self) -> ScopedStore | None:
        """The store; None as long as this rank does not know it. Call it again and again, also if it is known: rank 0 has to tell the
        others. Raises StoreError."""
        if self._world.rank == 0:
            if self.place is None and not self._has_failed:
                self._start()
            if self.place is not None:
                self._tell()
        elif self.place is None:
            if not self._places and (answer := self._ask()) is not None:
                self._places = places_of(answer)
            if self._places:
                self._reach()
        return self.place.store() if self.place is not None else None

    def close(self) -> None:
        """Ends the store that this rank keeps. After it has returned, nothing is sent, posted or read any more, but for what has been
        under way for CLOSE_SECONDS by then: a job's end must not wait for a board whose host is gone."""
        is_free = self._lock.acquire(timeout=CLOSE_SECONDS)
        self._closed = True
        if is_free:
            self._lock.release()
        if self._kept is not None:
            self._kept.close()

    def _tell(self) -> None:
        """On rank 0: says where the store is, to those that do not know it."""
        raise NotImplementedError

    def _ask(self) -> bytes | None:
        """On another rank: what rank 0 says; None as long as it has said nothing. Does not wait for it."""
        raise NotImplementedError

    def _start(self) -> None:
        self.place = given_place()
        if self.place is None:
            with self._lock:
                if self._closed:
                    raise StoreError("the ranks' store has ended")
                self._has_failed = True  # it is not tried again and again
                self._kept = KeptStore(self._run_id)
            self.place = self._kept.place
        _, port, scope = self.place
        said = {"host": socket.gethostname(), "addresses": own_addresses(), "port": port, "scope": scope}
        self._answer = json.dumps(said).encode()

    def _reach(self) -> None:
        for place in list(self._places):
            try:
                place.store().get("hello-0")
            except StoreError:
                continue
            self.place = place
            return
        raise StoreError("rank 0's store cannot be reached")


class Meeting(KeptByRank0):
    """By messages: each rank asks, rank 0 answers."""

    def __init__(self, world: World, run_id: str, mail: Mail) -> None:
        super().__init__(world, run_id)
        self._mail = mail
        self._has_asked = False
        self._missing = set(range(1, world.size))

    def _tell(self) -> None:
        while self._missing:
            asked = self._take(REQUEST_TAG)
            if asked is None:
                return
            self._send(asked[0], ANSWER_TAG, self._answer)
            self._missing.discard(asked[0])

    def _ask(self) -> bytes | None:
        if not self._has_asked:
            self._send(0, REQUEST_TAG, b"where")
            self._has_asked = True
        answer = self._take(ANSWER_TAG)
        return None if answer is None else answer[1]

    def _take(self, tag: int) -> tuple[int, bytes] | None:
        with self._lock:
            return None if self._closed else self._mail.take(tag)

    def _send(self, rank: int, tag: int, text: bytes) -> None:
        with self._lock:
            if not self._closed:
                self._mail.send(rank, tag, text)


class Announcement(KeptByRank0):
    """By a board that all ranks read: rank 0 posts its answer there, again if that fails."""

    def __init__(self, world: World, run_id: str, board: Board) -> None:
        super().__init__(world, run_id)
        self._board = board
        self._has_told = False

    def _tell(self) -> None:
        with self._lock:
            if self._has_told or self._closed:
                return
            if self._board.read() is None:  # the board takes one text only; a post that failed may have come there
                self._board.post(self._answer)
            self._has_told = True

    def _ask(self) -> bytes | None:
        with self._lock:
            return None if self._closed else self._board.read()


def own_addresses() -> list[str]:
    """Addresses of this host that other hosts may reach, those of its name first; at most MAX_ADDRESSES, and none of the loopback."""
    found: list[str] = []

    def add(address: str) -> None:
        if address not in found and not address.startswith(("127.", "::1", "fe80:")):
            found.append(address)

    try:
        for *_, place in socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM):
            add(str(place[0]))
    except OSError:
        pass  # the host's name has no address
    for family, far in (
        (socket.AF_INET, "192.0.2.1"),
        (socket.AF_INET6, "2001:db8::1"),
    ):  # RFC 5737, 3849: nothing is sent
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((far, 9))
                add(str(probe.getsockname()[0]))
        except OSError:
            continue
    return found[:MAX_ADDRESSES]


def places_of(answer: bytes) -> list[StoreAddress]:
    """Where rank 0's answer says that its store is, nearest first. Raises StoreError if it is no answer of a rank 0."""
    try:
        said = json.loads(answer)
        port, scope, addresses = int(said["port"]), str(said["scope"]), list(map(str, said["addresses"]))
        if said["host"] == socket.gethostname():
            addresses.insert(0, "127.0.0.1")
    except (ValueError, TypeError, KeyError) as error:
        raise StoreError("rank 0's answer is not understood") from error
    return [StoreAddress(address, port, scope) for address in addresses[: MAX_ADDRESSES + 1]]
