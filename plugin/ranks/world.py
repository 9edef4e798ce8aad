"""Which rank of which job a process is, from the launcher's environment variables.

    horovodrun (Gloo)   HOROVOD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE; HOROVOD_GLOO_RENDEZVOUS_ADDR and _PORT name its store;
                        HOROVOD_ELASTIC if ranks may leave and join
    Open MPI            OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE; PMIX_NAMESPACE is the same in all ranks of a job
    MPICH, Intel MPI    PMI_RANK, PMI_SIZE
    tf.distribute       TF_CONFIG, for the workers of a MultiWorkerMirroredStrategy

Horovod (horovod/runner/gloo_run.py, 0.28.1) sets these for each rank's command; `stitchfleet run` can be that command, and reads
them too. A process without them is a world of size 1.
"""

from __future__ import annotations

import dataclasses
import hashlib
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from . import multi_worker
from .resets import Place
from .store import ScopedStore, StoreError

RUN_ID_SECONDS = 5.0
"""The longest that a rank waits for rank 0 to choose the run id. Rank 0 starts at the same time, and Horovod waits for it anyway."""
_POLL_SECONDS = 0.02
_KEEP_SECONDS = 0.2
"""Far below RUN_ID_SECONDS, so that a rank that joins finds the run id in time."""
_RUN_SCOPE, _RUN_KEY = "stitchfleet", "run"


@dataclass(frozen=True)
class World:
    """How many ranks a job has, and which of them this process is. store: (host, port) of Horovod's rendezvous store, or None if
    there is none.

    In an elastic job rank and size change while it runs: each reset gives the process another World (`at`). The environment keeps
    the values with which the process was started, so only the first World can be read from it.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    """Ranks on this host; 1 if the launcher does not say."""
    store: tuple[str, int] | None = None
    is_elastic: bool = False
    job: str = ""
    """The launcher's name for the job, equal in all its ranks; empty if there is none."""
    cluster: str = ""
    """Of workers by TF_CONFIG (multi_worker.py): a digest of their cluster, equal in all of them; else empty."""

    @property
    def is_distributed(self) -> bool:
        """Whether other ranks take part, or may come later."""
        return self.size > 1 or self.is_elastic

    def at(self, place: Place) -> World:
        """This world after a reset that gave the process another place."""
        return dataclasses.replace(self, **place._asdict())

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> World:
        """The world of the first launcher whose rank and size are both set and valid (0 <= rank < size), or of the workers that
        TF_CONFIG names; else a world of size 1."""
        for rank_name, size_name, local_rank_name, local_size_name in _LAUNCHERS:
            rank, size = _number(environment, rank_name), _number(environment, size_name)
            if rank is None or size is None or rank >= size:
                continue
            local_rank = _number(environment, local_rank_name)
            local_size = _number(environment, local_size_name)
            return cls(
                rank,
                size,
                0 if local_rank is None else local_rank,
                1 if local_size is None else max(1, local_size),
                _store(environment),
                environment.get("HOROVOD_ELASTIC", "") not in ("", "0"),
                environment.get("PMIX_NAMESPACE", ""),
            )
        worker = multi_worker.member(environment)
        if worker is not None:
            return cls(cluster=worker.cluster).at(worker.place)
        return cls()


_LAUNCHERS = (
    ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)


def _number(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _store(environment: Mapping[str, str]) -> tuple[str, int] | None:
    host, port = (
        environment.get("HOROVOD_GLOO_RENDEZVOUS_ADDR", ""),
        _number(environment, "HOROVOD_GLOO_RENDEZVOUS_PORT"),
    )
    return (host, port) if host and port is not None and 0 < port < 65536 else None


def agree_on_run_id(world: World, longest_s: float = RUN_ID_SECONDS) -> str:
    """One run id (32 hexadecimal digits) for all ranks of `horovodrun ... stitchfleet run`, where each rank starts on its own.

    Rank 0 writes it to the store, and the other ranks read it there. In an elastic job the present ranks keep it in the store
    for ranks that join later (`RunIdKeeper`). Open MPI's ranks derive it from the job's name. If none of this works, each rank
    has its own run id, and its records count as a separate job. Waits for at most `longest_s` seconds.
    """
    own = uuid.uuid4().hex
    if world.store is None:
        return hashlib.sha256(world.job.encode()).hexdigest()[:32] if world.job else own
    store = ScopedStore(*world.store, _RUN_SCOPE)
    end = time.monotonic() + longest_s
    while True:
        try:
            if world.rank == 0 and not world.is_elastic:
                store.put(_RUN_KEY, own.encode())
                return own
            found = (store.get(_RUN_KEY) or b"").decode("ascii", "replace")
            if len(found) == len(own) and found.isalnum():
                return found
            if world.rank == 0:
                store.put(_RUN_KEY, own.encode())
                return own
        except StoreError:
            pass
        if time.monotonic() >= end:
            return own
        time.sleep(_POLL_SECONDS)


class RunIdKeeper:
    """Keeps the run id in the store while the ranks of an elastic job wait for new ranks: Horovod empties the store before it
    starts the new ranks, whose `stitchfleet run` reads the id from the store (`agree_on_run_id`).

    The id cannot be derived from what the ranks' environments have in common, the store's address: another job may get the same
    port later.
    """

    def __init__(self, world: World, run_id: str) -> None:
        self._world, self._value = world, run_id.encode()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._work, name="stitchfleet-run-id", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread, without waiting for it: a request that is under way writes the same value as all earlier ones."""
        self._done.set()

    def _work(self) -> None:
        assert self._world.store is not None
        store = ScopedStore(*self._world.store, _RUN_SCOPE)
        while True:
            try:
                if store.get(_RUN_KEY) is None:
                    store.put(_RUN_KEY, self._value)
            except StoreError:
                pass  # asked again soon
            if self._done.wait(_KEEP_SECONDS):
                return
