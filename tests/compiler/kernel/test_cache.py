"""The kernel cache: complete entries or none, ours or none, bounded, and never in the way of the job."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stitchfleet.compiler.kernel.cache import LIBRARY, METADATA, MIN_MAX_BYTES, KernelCache
from stitchfleet.compiler.kernel.metadata import CheckReport, KernelError, KernelMetadata, TensorType

KEY = "ab" * 32
METADATA_OF = KernelMetadata(
    symbol="k",
    inputs=(TensorType("f32", (2, 3)),),
    outputs=(TensorType("bf16", ()), TensorType("pred", (0,))),
    scratch_bytes=64,
    aliases=((0, 1),),
    bytes_read=1,
    bytes_written=2,
    intermediate_bytes=3,
    op_count=4,
    phases=2,
    parallel_phases=1,
    estimated_ns=5.5,
    tolerances=((1e-6, 1e-7),),
    graph_digest="d",
    generator="g",
    compiler="c",
    vector_symbols=("_ZGVdN8v_stitch_sin_f32",),
    check=CheckReport(True, ("normal",), 0.5, False),
)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "built.so"
    path.write_bytes(os.urandom(5000))
    return path


def test_metadata_survives_json() -> None:
    assert KernelMetadata.from_json(METADATA_OF.to_json()) == METADATA_OF
    with pytest.raises(KernelError, match="not a kernel's metadata"):
        KernelMetadata.from_json('{"symbol": "k"}')


def test_what_is_put_is_found(tmp_path: Path, library: Path) -> None:
    put = KernelCache(tmp_path / "cache").put(KEY, library, METADATA_OF, "source")
    found = KernelCache(tmp_path / "cache").find(KEY)
    assert found == put
    assert found is not None
    assert found.library.read_bytes() == library.read_bytes()
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700
    assert KernelCache(tmp_path / "cache").find("cd" * 32) is None
    assert KernelCache(tmp_path / "cache").find("../" + KEY) is None


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([LIBRARY, METADATA]), st.integers(0, 4000), st.binary(max_size=8))
def test_a_damaged_entry_is_missing_and_can_be_put_again(
    tmp_path_factory: pytest.TempPathFactory, name: str, length: int, tail: bytes
) -> None:
    folder = tmp_path_factory.mktemp("cache")
    built = folder / "built.so"
    built.write_bytes(bytes(range(256)) * 20)
    cache = KernelCache(folder / "kernels")
    entry = cache.put(KEY, built, METADATA_OF)
    path = entry.library.parent / name
    whole = path.read_bytes()
    damaged = whole[:length] + tail
    if damaged.rstrip() == whole.rstrip():  # white space after JSON damages nothing
        return
    path.write_bytes(damaged)
    assert cache.find(KEY) is None
    assert cache.refusals
    cache.put(KEY, built, METADATA_OF)
    assert cache.find(KEY) is not None


@pytest.mark.parametrize("part", ["", LIBRARY, METADATA])
def test_what_others_can_write_is_not_loaded(tmp_path: Path, library: Path, part: str) -> None:
    cache = KernelCache(tmp_path / "cache")
    entry = cache.put(KEY, library, METADATA_OF)
    (entry.library.parent / part).chmod(0o777)
    assert cache.find(KEY) is None
    assert "can be written by others" in cache.refusals[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_another_user_wrote_is_not_loaded(tmp_path: Path, library: Path) -> None:
    cache = KernelCache(tmp_path / "cache")
    entry = cache.put(KEY, library, METADATA_OF)
    os.chown(entry.library, 12345, 12345)
    assert cache.find(KEY) is None
    assert "belongs to user 12345" in cache.refusals[0]


def test_a_linked_entry_is_not_loaded(tmp_path: Path, library: Path) -> None:
    cache = KernelCache(tmp_path / "cache")
    entry = cache.put(KEY, library, METADATA_OF)
    moved = tmp_path / "elsewhere.so"
    entry.library.rename(moved)
    entry.library.symlink_to(moved)
    assert cache.find(KEY) is None
    assert "is a link" in cache.refusals[0]


def test_a_folder_that_cannot_be_used_is_replaced_by_a_private_one(tmp_path: Path, library: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    cache = KernelCache(blocked / "cache")
    assert cache.notice is not None
    assert "cannot be used" in cache.notice
    cache.put(KEY, library, METADATA_OF)
    assert cache.find(KEY) is not None

    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    assert "can be written by others" in (KernelCache(shared).notice or "")


def test_a_disk_that_fills_up_does_not_stop_the_job(
    tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = KernelCache(tmp_path / "cache")
    real, failures = os.rename, []

    def full(source: str, target: str) -> None:
        if str(tmp_path) in str(target) and not failures:
            failures.append(target)
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "rename", full)
    entry = cache.put(KEY, library, METADATA_OF)
    assert "No space left on device" in (cache.notice or "")
    assert cache.find(KEY) == entry


def test_the_least_recently_used_entries_go(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path / "cache", max_bytes=MIN_MAX_BYTES)
    built = tmp_path / "built.so"
    built.write_bytes(b"x" * (MIN_MAX_BYTES // 3))
    keys = [f"{number:02d}" * 32 for number in range(3)]
    for age, key in enumerate(keys[:2]):
        entry = cache.put(key, built, METADATA_OF)
        os.utime(entry.library.parent, (1000 + age, 1000 + age))
    assert cache.find(keys[0]) is not None  # used: now the younger one
    cache.put(keys[2], built, METADATA_OF)
    assert cache.find(keys[1]) is None
    assert cache.find(keys[0]) is not None
    assert cache.find(keys[2]) is not None
    assert cache.size_bytes() <= MIN_MAX_BYTES


def test_two_processes_and_many_threads_put_one_key_without_a_clash(tmp_path: Path, library: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from stitchfleet.compiler.kernel.cache import KernelCache\n"
        "from stitchfleet.compiler.kernel.metadata import KernelMetadata\n"
        "cache = KernelCache(Path(sys.argv[1])); metadata = KernelMetadata.from_json(Path(sys.argv[3]).read_text())\n"
        "for i in range(40): cache.put('%02d' % (i % 5) * 32, Path(sys.argv[2]), metadata); "
        "assert cache.find('%02d' % (i % 5) * 32)\n"
    )
    described = tmp_path / "metadata.json"
    described.write_text(METADATA_OF.to_json())
    arguments = [sys.executable, "-c", code, str(tmp_path / "cache"), str(library), str(described)]
    other = subprocess.Popen(arguments)
    cache = KernelCache(tmp_path / "cache")
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for i in range(20):
                key = f"{i % 5:02d}" * 32
                cache.put(key, library, METADATA_OF)
                assert cache.find(key) is not None
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert other.wait() == 0
    assert failures == []
    assert not list((tmp_path / "cache").glob(".new-*"))


def test_metadata_of_another_version_is_not_loaded(tmp_path: Path, library: Path) -> None:
    from stitchfleet.compiler.kernel.host_kernel import LoadedKernel

    with pytest.raises(KernelError, match="given ABI 99"):
        LoadedKernel(library, replace(METADATA_OF, abi_version=99))
