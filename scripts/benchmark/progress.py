"""Lines about the progress of a long measurement."""

from __future__ import annotations

import sys
import time


def say(line: str) -> None:
    """Prints a line about the progress to standard error; standard output is for the table."""
    print(f"[{time.strftime('%H:%M:%S')}] {line}", file=sys.stderr, flush=True)
