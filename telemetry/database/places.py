"""Default places of records and of the database: the same folders that the plugin uses."""

from __future__ import annotations

import os
import pathlib
import re

from ..pod.folders import default_cache
from .errors import DatabaseError

DATABASE_HELP = (
    "SQLAlchemy URL or SQLite file; default: $STITCHFLEET_DATABASE, else stitchfleet.db in the user's cache folder"
)
"""Help text of an argument that is passed to `database_url`."""


_LIKE_A_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def cache_folder() -> pathlib.Path:
    """$STITCHFLEET_CACHE, or stitchfleet/ in the user's cache folder."""
    given = os.environ.get("STITCHFLEET_CACHE")
    return pathlib.Path(given) if given else default_cache()


def records_folder() -> pathlib.Path:
    """$STITCHFLEET_DATA, or records/ in the cache folder. It holds a spool for each training process."""
    given = os.environ.get("STITCHFLEET_DATA")
    return pathlib.Path(given) if given else cache_folder() / "records"


def database_url(given: str | None) -> str:
    """The SQLAlchemy URL for a URL or for the path of an SQLite file.

    None: $STITCHFLEET_DATABASE (URL or path), else stitchfleet.db in the user's cache folder. Raises DatabaseError for a mistyped
    URL, which would otherwise become a file with a password in its name; the text does not repeat it.
    """
    text = given or os.environ.get("STITCHFLEET_DATABASE")
    if not text:
        text = str(default_cache() / "stitchfleet.db")
    if "://" in text:
        return text
    if _LIKE_A_URL.match(text) or "@" in text.rpartition("/")[0]:
        raise DatabaseError(
            "the database is not a URL, but looks like one; a URL begins with postgresql:// or sqlite:/// (a file: ./NAME)"
        )
    return f"sqlite:///{text}"
