"""Notices that a rank calls `hvd.join`: from then on the ranks take different numbers of steps, so a step's number is not common.

`hvd.join` returns on no rank before all ranks have called it. So if each rank is plain from its own call on, all are plain in the
same steps.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

_MODULE = "horovod.tensorflow.mpi_ops"


def watch(note: Callable[[], None]) -> bool:
    """Makes Horovod call `note` before each join: when eager code runs it, or when it is added to a graph.

    Returns False if Horovod is not imported, or is a version without this function.
    """
    operators: Any = getattr(sys.modules.get(_MODULE), "MPI_LIB", None)
    original = getattr(operators, "horovod_join", None)
    if original is None:
        return False
    if hasattr(original, "stitchfleet_watches"):
        return True

    def horovod_join(*args: Any, **kwargs: Any) -> Any:
        note()
        return original(*args, **kwargs)

    horovod_join.stitchfleet_watches = True  # type: ignore[attr-defined]
    operators.horovod_join = horovod_join
    return True
