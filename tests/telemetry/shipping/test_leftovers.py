"""What could not be sent for too long goes, oldest first, and is counted once: by the writer while it lives, by a shipper after."""

from __future__ import annotations

import json
import os
import pathlib
import time

import pytest

from stitchfleet.telemetry.ingest import receiving
from stitchfleet.telemetry.pod import recording, spool
from stitchfleet.telemetry.pod.recording import PLAIN, Recorder
from stitchfleet.telemetry.pod.spool import KEEP_DAYS, OPEN, SEALED, SHIPPING, Kind, SpoolWriter
from stitchfleet.telemetry.shipping import shipper
from stitchfleet.telemetry.shipping.leftovers import drop_old

from ..conftest import query
from ..helpers import bodies, identity, iterations, records
from ..servers import ingest_server
from .test_shipper import record_job

pytestmark = pytest.mark.usefixtures("shipper_here")


def age(path: pathlib.Path, days: float) -> None:
    """As if nobody had written to the file for so long."""
    then = time.time() - 86_400 * days
    os.utime(path, (then, then))


def test_a_spool_keeps_nothing_that_ingest_would_not_take() -> None:
    assert KEEP_DAYS < receiving.KEEP_DAYS


def test_a_living_writer_drops_what_nobody_took_and_says_so_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "AGE_SECONDS", 0.0)
    recorder = Recorder(tmp_path, identity(), seal_seconds=0.0, keep_days=2.0)
    for step in range(30):
        recorder.iteration(step, PLAIN, 1_000_000)
        if step % 10 == 9:
            assert recorder.flush(120)
            recorder._spool.seal()
    first, second, third = spool.segments(tmp_path, SEALED)
    age(first, 3.0)
    age(second, 2.1)
    age(third, 1.9)
    assert recorder.flush(120)
    recorder.event("still", "here")
    assert recorder.flush(120)
    assert [step for step, _, _ in iterations(tmp_path)] == list(range(20, 30))
    assert recorder.lost == 20
    recorder.close(120)
    said = [(loss["lost"], loss["reason"]) for loss in bodies(tmp_path, Kind.LOSS)]
    assert said == [(20, "they could not be sent for 2 days")]


def test_what_a_shipper_took_is_not_too_old(tmp_path: pathlib.Path) -> None:
    writer = SpoolWriter(tmp_path, b"who", 1 << 20, 1 << 12)
    writer.append(Kind.EVENT, b"x")
    writer.seal()
    (path,) = spool.segments(tmp_path, SEALED)
    age(path, 99)
    taken = path.rename(path.with_suffix(SHIPPING))
    assert writer.drop_old(1.0) == 0
    taken.rename(path)
    assert writer.drop_old(1.0) == 1
    writer.close()


def old_spool(folder: pathlib.Path) -> None:
    """Of a process that is dead: two segments of three are old, and the process had counted 7 lost records itself."""
    recorder = Recorder(folder, identity())
    for part in range(3):
        for step in range(100 * part, 100 * part + 100):
            recorder.iteration(step, PLAIN, 1_000_000)
        recorder.event("part", str(part))
        if part == 0:
            recorder._lose(7, "the disk is too slow")
        assert recorder.flush(120)
        recorder._spool.seal()
    recorder.close(120)
    for path in spool.segments(folder, SEALED)[:2]:
        age(path, 40)


@pytest.mark.parametrize("way", ["ingest", "database"])
def test_of_a_dead_process_a_shipper_drops_what_it_cannot_send_and_says_so_once(
    tmp_path: pathlib.Path,
    way: str,
    url: str,
    nobody: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "spool"
    old_spool(folder)
    (tmp_path / "file").write_text("in the way")
    away = nobody if way == "ingest" else f"sqlite:///{tmp_path}/file/x.db"
    for dropped in (True, False):
        assert shipper.main([str(folder), f"--{way}", away]) == 1
        said = "shipper: 202 records were dropped as too old to wait any longer\n"
        assert (said in capsys.readouterr().err) is dropped
    assert [step for step, _, _ in iterations(folder)] == list(range(200, 300)), "oldest first"
    with ingest_server(url) as served:
        assert shipper.main([str(folder), "--ingest", served.url]) == 0
        assert served.metrics()["stitchfleet_lost_records_total"] == 209, "its own count, and what was dropped later"
        assert served.metrics()["stitchfleet_ingest_damaged_records_total"] == 0
    assert not spool.segments(folder, OPEN, SEALED, SHIPPING)
    assert query(url, "SELECT message FROM events WHERE kind = 'part'") == [("2",)]
    told = sorted(str(text) for (text,) in query(url, "SELECT message FROM events WHERE kind = 'records-lost'"))
    after = "101 records of this process were lost after its end: they could not be sent for 30 days"
    assert told == [after, after, "7 records of this process were lost so far: the disk is too slow"]


def test_a_count_of_the_process_itself_stays_beside_the_new_one(tmp_path: pathlib.Path) -> None:
    writer = SpoolWriter(tmp_path, b"who", 1 << 20, 1 << 12)
    for number in (1, 2):
        writer.append(Kind.LOSS, json.dumps({"lost": number}).encode(), 0)
    writer.append(Kind.EVENT, b"x")
    writer.close()
    age(spool.segments(tmp_path, SEALED)[0], 3)
    assert drop_old(tmp_path, 2.0) == 1
    assert [loss["lost"] for loss in bodies(tmp_path, Kind.LOSS)] == [1, 2, 1]
    numbers = [record.sequence for record in records(tmp_path)]
    assert len(set(numbers)) == len(numbers)


def test_what_can_still_be_sent_is_sent_however_old(tmp_path: pathlib.Path, url: str) -> None:
    old_spool(tmp_path / "spool")
    with ingest_server(url) as served:
        assert shipper.main([str(tmp_path / "spool"), "--ingest", served.url]) == 0
        assert served.metrics()["stitchfleet_lost_records_total"] == 7
    assert query(url, "SELECT count(*) FROM iterations") == [(300,)]


def test_the_open_segment_of_a_dead_process_grows_old_too(tmp_path: pathlib.Path) -> None:
    record_job(tmp_path)
    (path,) = spool.segments(tmp_path, SEALED)
    path = path.rename(path.with_suffix(OPEN))
    age(path, 3)
    assert drop_old(tmp_path, 4.0) == 0
    assert drop_old(tmp_path, 2.0) == 110
    assert [path.suffix for path in spool.segments(tmp_path, OPEN, SEALED, SHIPPING)] == [SEALED]
    (loss,) = bodies(tmp_path, Kind.LOSS)
    assert (loss["lost"], loss["after_death"]) == (110, True)
    age(path.with_suffix(SEALED), 99)
    assert drop_old(tmp_path, 2.0) == 0
    assert bodies(tmp_path, Kind.LOSS) == [loss], "a count waits for ever"


def test_a_shipper_that_dies_while_it_drops_counts_nothing_twice(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_spool(tmp_path)

    def die(*_arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(pathlib.Path, "replace", die)
        with pytest.raises(KeyboardInterrupt):
            drop_old(tmp_path, 30.0)
    assert drop_old(tmp_path, 30.0) == 202
    assert sum(loss["lost"] for loss in bodies(tmp_path, Kind.LOSS) if "after_death" in loss) == 202


def test_a_living_writers_spool_is_its_own(tmp_path: pathlib.Path) -> None:
    old_spool(tmp_path)
    child = os.fork()
    if child == 0:  # another process holds the lock, as POSIX locks are a process's
        writer = SpoolWriter(tmp_path, b"who", 1 << 20, 1 << 12)
        (tmp_path / "there").touch()
        time.sleep(60)
        writer.close()
        os._exit(0)
    while not (tmp_path / "there").exists():
        time.sleep(0.01)
    try:
        assert drop_old(tmp_path, 1.0) == 0
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert drop_old(tmp_path, 1.0) == 202


def test_of_a_segment_whose_identity_is_damaged_it_is_known_whose_count_it_is(tmp_path: pathlib.Path) -> None:
    record_job(tmp_path)
    (path,) = spool.segments(tmp_path, SEALED)
    data = bytearray(path.read_bytes())
    data[data.find(b'"run_id"') + 3] ^= 1
    path.write_bytes(data)
    age(path, 99)
    assert drop_old(tmp_path, 30.0) == 111, "the identity too"
    first, second = records(tmp_path)
    assert (first.kind, b'"run_id"' in first.body, second.kind) == (Kind.IDENTITY, True, Kind.LOSS)


def test_a_segment_that_says_nothing_goes(tmp_path: pathlib.Path) -> None:
    path = tmp_path / f"{1:010d}{SEALED}"
    path.write_bytes(b"nothing at all" * 9)
    age(path, 99)
    assert drop_old(tmp_path, 30.0) == 1
    assert not path.exists()
    assert json.dumps(bodies(tmp_path, Kind.LOSS)) == "[]"
