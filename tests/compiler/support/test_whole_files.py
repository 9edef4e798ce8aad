"""A file that others may be reading is there as it was, or as it is written: also while it is written, and if that fails."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from stitchfleet.compiler.support.whole_files import write_whole


def test_a_reader_never_sees_a_part(tmp_path: Path) -> None:
    path, ended = tmp_path / "index", threading.Event()
    versions = [letter * 200_000 for letter in "abcdef"]
    write_whole(path, versions[0])

    def write() -> None:
        for text in versions * 20:
            write_whole(path, text)
        ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = set()
    while not ended.is_set():
        seen.add(path.read_text())
    writer.join()
    assert seen <= set(versions)
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "index"
    write_whole(path, b"before")

    def full(self: Path, content: bytes) -> int:
        with self.open("wb") as file:
            file.write(content[:3])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, b"after that")
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]
