"""Sees a rank call `hvd.join`: from then on the ranks take different numbers of steps, and no number of a step is common to them.

All ranks have called it before it returns to any. So whoever is plain from its own call on is plain in the same steps as the others.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

_MODULE = "horovod.tensorflow.mpi_ops"


def watch(note: Callable[[], None]) -> bool:
    """`note` is called before each join, in eager code, or when a graph gets one. False: Horovod is not imported, or is
    another one."""
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
