"""Compiled kernels that tests keep from run to run, named by all that they are made of.

STITCHFLEET_TEST_CACHE names the folder (`scripts/test` takes one in ~/.cache); without it every run compiles its own.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path


def kept(made_of: str, name: str, make: Callable[[Path], None], otherwise: Path) -> Path:
    """The file `name` made of a text, which holds all that it depends on: the one that is there, or what `make` writes to the path
    it is given. The path has the text's digest in it: one that was loaded stands for the first library, whatever is written to it.

    otherwise: the folder where nothing is kept.
    """
    root = os.environ.get("STITCHFLEET_TEST_CACHE")
    digest = hashlib.sha256(made_of.encode()).hexdigest()[:20]
    folder = Path(root) / "compiled" / digest[:2] if root else otherwise
    path = folder / f"{digest}-{name}"
    if path.exists():
        os.utime(path)  # `scripts/test` removes what no run asked for in a long time
        return path
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f"{os.getpid()}-{path.name}"
    make(unfinished)
    unfinished.replace(path)
    return path
