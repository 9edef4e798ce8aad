"""The spool's files: every whole record is read back, once, whatever happened to the bytes around it."""

from __future__ import annotations

import errno
import pathlib
import random
import resource
import subprocess
import sys
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stitchfleet.telemetry.pod import spool
from stitchfleet.telemetry.pod.spool import OPEN, SEALED, SHIPPING, Damage, Iterations, Kind, Record, SpoolWriter

bodies = st.lists(st.binary(max_size=60) | st.just(spool.MARK * 3), min_size=1, max_size=12)


def segment_of(parts: list[bytes]) -> tuple[bytes, list[Record], list[int]]:
    """The segment's bytes, its records, and where each record ends."""
    records = [Record(Kind.EVENT, sequence, body) for sequence, body in enumerate(parts)]
    data, ends = spool.MAGIC, []
    for record in records:
        data += spool.encode(record)
        ends.append(len(data))
    return data, records, ends


@given(bodies)
def test_what_was_written_is_read(parts: list[bytes]) -> None:
    data, records, _ = segment_of(parts)
    damage = Damage()
    assert list(spool.decode(data, damage)) == records
    assert damage == Damage()


@given(bodies, st.data())
def test_a_segment_cut_off_anywhere_gives_its_whole_records(parts: list[bytes], choose: st.DataObject) -> None:
    data, records, ends = segment_of(parts)
    cut = choose.draw(st.integers(0, len(data)))
    damage = Damage()
    whole = sum(end <= cut for end in ends)
    assert list(spool.decode(data[:cut], damage)) == records[:whole]
    assert damage.records == 0, "a torn end is no damage"
    assert damage.torn_bytes == (
        cut - max([end for end in ends if end <= cut], default=min(cut, len(spool.MAGIC)))
        if (cut >= len(spool.MAGIC))
        else cut
    )


@given(bodies, st.data())
def test_damage_costs_only_the_records_it_touches(parts: list[bytes], choose: st.DataObject) -> None:
    data, records, ends = segment_of(parts)
    position = choose.draw(st.integers(len(spool.MAGIC), len(data) - 1))
    flipped = bytearray(data)
    flipped[position] ^= choose.draw(st.integers(1, 255))
    hit = sum(end <= position for end in ends)
    damage = Damage()
    read = list(spool.decode(bytes(flipped), damage))
    assert read == [record for record in records if record.sequence != hit]
    assert damage.records == 1 or damage.torn_bytes > 0


@given(st.binary(max_size=400))
def test_any_bytes_can_be_read(data: bytes) -> None:
    assert list(spool.decode(data, Damage())) == [] or spool.MARK in data


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 2)), min_size=1, max_size=6),
    st.integers(-(2**40), 2**40),
    st.integers(1, 1000),
    st.data(),
)
def test_iterations_return_as_they_were(
    lengths: list[tuple[int, int]], first: int, stride: int, choose: st.DataObject
) -> None:
    runs, count = [], 0
    for length, arm in lengths:
        runs.append((count, length, arm))
        count += length
    times = choose.draw(st.lists(st.floats(0, 1e9, width=32), min_size=count, max_size=count))
    block = Iterations(first, stride, 10**18, 10**18 + 5, runs, array("f", times))
    assert Iterations.decode(block.encode()) == block


@pytest.mark.parametrize("keep", [0, 10, 39, 44, 47])
def test_iterations_cut_short_are_refused(keep: int) -> None:
    block = Iterations(0, 1, 0, 1, [(0, 2, 0)], array("f", [1.0, 2.0]))
    with pytest.raises(ValueError, match="iterations"):
        Iterations.decode(block.encode()[:keep])


def read_all(folder: pathlib.Path) -> list[Record]:
    found: list[Record] = []
    for path in spool.segments(folder, OPEN, SEALED, SHIPPING):
        found += spool.decode(path.read_bytes(), Damage())
    return found


def test_segments_stand_alone_and_follow_on(tmp_path: pathlib.Path) -> None:
    writer = SpoolWriter(tmp_path, b"who", 1 << 20, 1 << 12)
    for number in range(3):
        writer.append(Kind.EVENT, b"%d" % number)
        writer.seal()
    writer.close()
    paths = spool.segments(tmp_path, SEALED)
    assert [path.name for path in paths] == [f"{n:010d}.sealed" for n in (1, 2, 3)]
    for path in paths:
        first = next(spool.decode(path.read_bytes(), Damage()))
        assert (first.kind, first.body) == (Kind.IDENTITY, b"who")
    sequences = [record.sequence for record in read_all(tmp_path)]
    assert sequences == list(range(6))


def test_the_oldest_goes_when_the_bound_is_hit_and_is_counted(tmp_path: pathlib.Path) -> None:
    writer = SpoolWriter(tmp_path, b"who", 20_000, 2_000)
    for number in range(200):
        writer.append(Kind.ITERATIONS, b"%03d" % number * 100, weight=7)
        if writer.is_full:
            writer.seal()
    writer.close()
    kept = [int(record.body[:3]) for record in read_all(tmp_path) if record.kind == Kind.ITERATIONS]
    assert sum(path.stat().st_size for path in spool.segments(tmp_path, SEALED)) <= 20_000
    assert kept == list(range(200 - len(kept), 200)), "the newest are kept, in order"
    assert writer.dropped == 7 * (200 - len(kept)) > 0


def test_what_a_shipper_took_is_not_dropped(tmp_path: pathlib.Path) -> None:
    writer = SpoolWriter(tmp_path, b"who", 10_000, 2_000)
    writer.append(Kind.EVENT, b"x" * 6_000)
    writer.seal()
    taken = spool.segments(tmp_path, SEALED)[0]
    taken.rename(taken.with_suffix(SHIPPING))
    with pytest.raises(OSError, match="nothing can be dropped") as caught:
        writer.append(Kind.EVENT, b"y" * 6_000)
    assert caught.value.errno == errno.ENOSPC
    assert writer.dropped == 0
    taken.with_suffix(SHIPPING).unlink()
    writer.append(Kind.EVENT, b"y" * 6_000)
    writer.close()


@given(bodies, st.binary(max_size=30), st.booleans())
def test_a_segment_is_given_an_identity_only_where_it_has_none(parts: list[bytes], who: bytes, damaged: bool) -> None:
    own = spool.encode(Record(Kind.IDENTITY, 6, b"own"))
    if damaged:
        own = own[:-1] + b"?"
    records = [Record(Kind.EVENT, 7 + number, body) for number, body in enumerate(parts)]
    data = spool.MAGIC + own + b"".join(map(spool.encode, records))
    found = list(spool.decode(spool.with_identity(data, who), Damage()))
    assert found == [Record(Kind.IDENTITY, 6, who if damaged else b"own"), *records]
    assert spool.with_identity(data, None) == data
    if not damaged:
        assert spool.with_identity(data, who) == data


def test_the_identity_beside_the_segments_may_be_missing_or_damaged(tmp_path: pathlib.Path) -> None:
    assert spool.identity_of(tmp_path) is None
    SpoolWriter(tmp_path, b"who", 1 << 20, 1 << 12).close()
    assert spool.identity_of(tmp_path) == b"who"
    path = tmp_path / spool.IDENTITY
    for bad in (path.read_bytes()[:-1], b"", path.read_bytes()[:-1] + b"x"):
        path.write_bytes(bad)
        assert spool.identity_of(tmp_path) is None


def test_one_spool_has_one_writer(tmp_path: pathlib.Path) -> None:
    writer = SpoolWriter(tmp_path, b"who", 1 << 20, 1 << 12)
    code = (
        "import pathlib, sys; from stitchfleet.telemetry.pod.spool import SpoolWriter\n"
        "try: SpoolWriter(pathlib.Path(sys.argv[1]), b'other', 1 << 20, 1 << 12)\n"
        "except OSError as error: print(error)"
    )
    out = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert "another process" in out.stdout
    writer.close()


def test_a_write_that_fails_half_way_leaves_nothing(tmp_path: pathlib.Path) -> None:
    """RLIMIT_FSIZE takes a part of the last write and then refuses, as a full disk does."""
    writer = SpoolWriter(tmp_path, b"who", 1 << 30, 1 << 20)
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    written, refused = 0, None
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, old[1]))
        for _ in range(100):
            try:
                writer.append(Kind.EVENT, b"z" * 700)
            except OSError as error:
                refused = error.errno
                break
            written += 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    writer.append(Kind.EVENT, b"after")
    writer.close()
    damage = Damage()
    records = list(spool.decode(spool.segments(tmp_path, SEALED)[0].read_bytes(), damage))
    assert damage == Damage()
    assert refused == errno.EFBIG
    assert 4 <= written <= 7
    assert [len(record.body) for record in records] == [3, *[700] * written, 5]


def test_reading_is_linear_in_hostile_bytes() -> None:
    """Marks all over, none with a record behind it: passed over in one go."""
    data = spool.MAGIC + spool.MARK * 50_000 + bytes(random.Random(1).randbytes(1000))
    damage = Damage()
    assert list(spool.decode(data, damage)) == []
    assert damage.bytes + damage.torn_bytes == len(data) - len(spool.MAGIC)
