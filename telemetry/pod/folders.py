"""The folder that the plugin, the records and the database share where no setting names another."""

from __future__ import annotations

import os
import pathlib


def default_cache() -> pathlib.Path:
    """stitchfleet/ in the user's cache folder: $XDG_CACHE_HOME, or ~/.cache. STITCHFLEET_CACHE is not read here."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return pathlib.Path(base) / "stitchfleet"
