"""Horovod for the tests' jobs, in the tests' cache.

python -m tests.horovod.installation     builds it if it is not there and this run's tests need it (scripts/test); with the slow tests
                                         a second time, with Open MPI
"""

from __future__ import annotations

import os
import pathlib
import shutil
import sys
from collections.abc import Callable

from scripts import horovod_build

from .. import pace
from ..kept import session_folder
from ..marks import ALL


def install(say: Callable[[str], None], with_mpi: bool = False) -> pathlib.Path:
    """The folder with Horovod (scripts/horovod_build.py). Without a cache it is kept as long as this process's tests run."""
    root = os.environ.get("STITCHFLEET_TEST_CACHE")
    return horovod_build.install((pathlib.Path(root) if root else session_folder()) / "horovod", say, with_mpi)


if __name__ == "__main__" and (ALL or not pace.is_slow()):
    for with_mpi in (False, True) if ALL and shutil.which("mpirun") else (False,):
        install(lambda line: print(line, file=sys.stderr, flush=True), with_mpi)
