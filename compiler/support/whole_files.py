"""Files that other processes may be reading while they are written."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pathlib


def write_whole(path: pathlib.Path, content: str | bytes) -> None:
    """Writes a file by one rename: a reader sees what was there before, or all of `content` (text as UTF-8). If two processes write
    at once, the later one wins. If it fails, nothing is left. Raises OSError."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fresh.write_bytes(content.encode() if isinstance(content, str) else content)
        fresh.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise
