"""The Python part of scripts/bench, which prepares the environment first. The benchmark itself is the package scripts/benchmark."""

from __future__ import annotations

import pathlib
import sys

# The project's root replaces this folder on the path, so that `scripts` is found as a namespace package without a change of the
# current folder: paths on the command line are relative to the caller's.
sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

from scripts.benchmark.command import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
