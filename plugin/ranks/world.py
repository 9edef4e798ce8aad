"""Which rank of which job a process is, from the launcher's environment variables.

    horovodrun (Gloo)   HOROVOD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE; HOROVOD_GLOO_RENDEZVOUS_ADDR and _PORT name its store;
                        HOROVOD_ELASTIC if ranks may leave and join
    Open MPI            OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE; PMIX_NAMESPACE is the same in all ranks of a job
    MPICH, Intel MPI    PMI_RANK, PMI_SIZE

Horovod (horovod/runner/gloo_run.py, 0.28.1) sets these for each rank's command; `stitchfleet run` can be that command, and reads
them too. A process without them is a world of size 1.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from .store import Store, StoreError

RUN_ID_SECONDS = 5.0
"""The longest that a rank waits for rank 0 to choose the run id. Rank 0 starts at the same time, and Horovod waits for it anyway."""
_POLL_SECONDS = 0.02
_RUN_SCOPE = "stitchfleet"


@dataclass(frozen=True)
class World:
    """The ranks of a job, seen from one of them. store: (host, port) of Horovod's rendezvous store, or None if there is none."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    """Ranks on this host; 1 if the launcher does not say."""
    store: tuple[str, int] | None = None
    is_elastic: bool = False
    job: str = ""
    """The launcher's name for the job, equal in all its ranks; empty if there is none."""

    @property
    def is_distributed(self) -> bool:
        return self.size > 1

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> World:
        """The world of the first launcher whose rank and size are both set and valid (0 <= rank < size); else a world of size 1."""
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

    Rank 0 writes it to the store and the others read it there. Open MPI's ranks derive it from the job's name. If neither works, each
    rank has its own run id, and its records count as a separate job. Waits for at most `longest_s` seconds.
    """
    own = uuid.uuid4().hex
    if world.store is None:
        return hashlib.sha256(world.job.encode()).hexdigest()[:32] if world.job else own
    store = Store(*world.store, _RUN_SCOPE)
    end = time.monotonic() + longest_s
    while True:
        try:
            if world.rank == 0:
                store.put("run", own.encode())
                return own
            found = (store.get("run") or b"").decode("ascii", "replace")
            if len(found) == len(own) and found.isalnum():
                return found
        except StoreError:
            pass
        if time.monotonic() >= end:
            return own
        time.sleep(_POLL_SECONDS)
