"""Notices when an elastic Horovod job changes its world: `hvd.elastic.run` shuts Horovod down and initializes it again.

The functions of Horovod's library are attributes of a ctypes object, which Horovod looks up at each call; they are replaced there.
The new rank and size come from the library, since it changes the process's environment without Python's `os.environ`.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple, Protocol

_MODULE = "horovod.tensorflow.mpi_ops"


class Place(NamedTuple):
    """The place of a process in a world."""

    rank: int
    size: int
    local_rank: int
    local_size: int


class Listener(Protocol):
    """What `watch` calls at each change of the world. No method may raise, or wait for long."""

    def world_ends(self) -> None:
        """Horovod is about to shut down. It also does at the process's exit."""

    def world_is_sought(self) -> None:
        """Horovod is about to be initialized, which may take as long as other processes take to come."""

    def world_begins(self, place: Place | None) -> None:
        """Horovod has been initialized, or, if `place` is None, could not be."""


def present_place() -> Place | None:
    """The place of this process; None if Horovod is not initialized, or is a version in which changes cannot be seen."""
    library = _library()
    return _place(library) if library is not None and library.horovod_is_initialized() else None


def _library() -> Any:
    """Horovod's library if it is imported and has the functions that are watched, else None."""
    library: Any = getattr(getattr(sys.modules.get(_MODULE), "_basics", None), "MPI_LIB_CTYPES", None)
    has_them = all(hasattr(library, name) for name in ("horovod_shutdown", "horovod_init"))
    return library if has_them else None


def watch(listener: Listener) -> bool:
    """Makes Horovod call the listener at each change. If Horovod is initialized already, the listener is called at once.

    Returns False if Horovod is not imported, or is a version without these functions.
    """
    library = _library()
    if library is None:
        return False
    if hasattr(library, "stitchfleet_watches"):
        return True
    shut_down, initialize = library.horovod_shutdown, library.horovod_init

    def horovod_shutdown(*args: Any) -> Any:
        listener.world_ends()
        return shut_down(*args)

    def horovod_init(*args: Any) -> Any:
        if library.horovod_is_initialized():  # Horovod ignores the call
            return initialize(*args)
        listener.world_is_sought()
        done = False
        try:
            done = initialize(*args)
        finally:
            listener.world_begins(_place(library) if done else None)
        return done

    library.horovod_shutdown, library.horovod_init = horovod_shutdown, horovod_init
    library.stitchfleet_watches = True
    if library.horovod_is_initialized():
        listener.world_begins(_place(library))
    return True


def _place(library: Any) -> Place | None:
    """The place of this process; None if Horovod is shutting down again."""
    found = Place(*(int(getattr(library, f"horovod_{name}")()) for name in Place._fields))
    return found if 0 <= found.rank < found.size and 0 <= found.local_rank < found.local_size else None
