"""Libraries that tests compile and results of plain runs, kept from run to run, named by all that they are made of.

STITCHFLEET_TEST_CACHE names the folder (`scripts/test` takes one in ~/.cache); without it every run compiles its own.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from stitchfleet.compiler.toolchain.host import Toolchain


def kept(
    text: str, identity: str, name: str, compile_to: Callable[[Path, Path], None], otherwise: Path | None = None
) -> Path:
    """The library of a source text: the one that is there, or what `compile_to` makes of the source's path at the library's.

    The library's path has the digest of all that it is made of in it: one that was loaded stands for the first, whatever is written
    there. identity: what it is made of beside the text. name: of the source. otherwise: where it is where nothing is kept; None: for
    as long as this process's tests run.
    """
    root = os.environ.get("STITCHFLEET_TEST_CACHE")
    digest = hashlib.sha256(f"{identity}\n{text}".encode()).hexdigest()[:20]
    folder = Path(root) / "compiled" / digest[:2] if root else otherwise or session_folder()
    path = folder / f"{digest}-{Path(name).stem}.so"
    if path.exists():
        os.utime(path)  # `scripts/test` removes what no run asked for in a long time
        return path
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / f"{os.getpid()}-{digest}-{name}"
    library = source.with_suffix(".so")
    source.write_text(text)
    try:
        compile_to(source, library)
    finally:
        source.unlink()
    library.replace(path)
    return path


_build = Toolchain.build


def build_kept(toolchain: Toolchain, source: Path, output: Path, extra: Sequence[str] = ()) -> None:
    """Toolchain.build, of a library that may be there already."""
    identity = "\n".join((toolchain.identity, *extra))
    library = kept(source.read_text(), identity, source.name, lambda text, made: _build(toolchain, text, made, extra))
    shutil.copyfile(library, output)


def kept_run(folder: Path, made_of: Sequence[str], run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `run` returns, once for all that it is made of, whichever process of the tests comes first. If it raises, nothing is
    kept."""
    folder.mkdir(exist_ok=True, mode=0o700)
    name = hashlib.sha256(json.dumps(list(made_of)).encode()).hexdigest()[:20]
    path = folder / f"{name}.json"
    with open(path.with_suffix(".lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            found = run()
            path.with_suffix(".new").write_text(json.dumps(found))
            path.with_suffix(".new").replace(path)
        kept: dict[str, Any] = json.loads(path.read_text())
        return kept


@lru_cache(maxsize=1)
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="stitchfleet-test-")


def session_folder() -> Path:
    """A folder for as long as this process's tests run."""
    return Path(_temporary().name)


def remove_session_folder() -> None:
    """For a process that ends without what Python does when it ends."""
    if _temporary.cache_info().currsize:
        _temporary().cleanup()
