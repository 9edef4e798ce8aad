"""Horovod for the tests' jobs, in the tests' cache.

python -m tests.horovod.installation     builds it if it is not there and this run's tests need it (scripts/test)
"""

from __future__ import annotations

import os
import pathlib
import sys
from collections.abc import Callable

from scripts import horovod_build

from .. import pace
from ..kept import session_folder
from ..marks import ALL


def install(say: Callable[[str], None]) -> pathlib.Path:
    """The folder with Horovod (scripts/horovod_build.py). Without a cache it is kept as long as this process's tests run."""
    root = os.environ.get("STITCHFLEET_TEST_CACHE")
    return horovod_build.install((pathlib.Path(root) if root else session_folder()) / "horovod", say)


if __name__ == "__main__" and (ALL or not pace.is_slow()):
    install(lambda line: print(line, file=sys.stderr, flush=True))
