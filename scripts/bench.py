"""What scripts/bench does once the environment is there; the benchmark itself is the package beside this file."""

from __future__ import annotations

import pathlib
import sys

# The root in place of this folder: `scripts` is found as a namespace package, and the caller's folder stays the current one, so that
# a file named on the command line is where the caller says.
sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

from scripts.benchmark.command import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
