"""From the spool into the database: nothing lost, nothing twice, and a database that fails costs nothing but time."""

from __future__ import annotations

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time
from array import array
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from stitchfleet.telemetry.database import access, models, rows
from stitchfleet.telemetry.pod import spool
from stitchfleet.telemetry.pod.recording import PLAIN, STITCHED, Recorder
from stitchfleet.telemetry.pod.spool import OPEN, SEALED, SHIPPING, Damage, Iterations, Kind, Record, SpoolWriter
from stitchfleet.telemetry.shipping import shipper

from ...marks import slow
from ..conftest import query
from ..helpers import identity


@pytest.fixture
def url(url: str) -> str:
    """Without rows. A fleet's database has tables before its jobs come; a laptop's is made by the first of them."""
    file = access.file_of(url)
    if file is not None:
        file.unlink()
    return url


def record_job(folder: pathlib.Path, run_id: str = "run-1", steps: int = 100, **changes: object) -> None:
    """A whole job's spool: steps in two arms, three pairs, a cluster, an event, an end."""
    recorder = Recorder(folder, identity(run_id, **changes))
    for step in range(steps):
        recorder.iteration(step, STITCHED if step >= steps // 2 else PLAIN, 1_000_000 + step)
    for pair in range(3):
        recorder.arm_block(pair, PLAIN, pair * 20, [1_000_000, 1_100_000])
        recorder.arm_block(pair, STITCHED, pair * 20 + 10, [800_000, 900_000])
    recorder.cluster("softmax", {"state": "verify"})
    recorder.cluster("softmax", {"state": "stitched"})
    recorder.event("epoch", "epoch 1 ended")
    recorder.job_end({"overhead_ns": 5_000_000, "phase": "stitched"})
    recorder.close(timeout_s=120)


def counts(url: str) -> dict[str, object]:
    names = ("jobs", "job_ends", "iteration_blocks", "arm_blocks", "clusters", "events")
    return {name: query(url, f"SELECT count(*) FROM {name}")[0][0] for name in names}


WHOLE = {"jobs": 1, "job_ends": 1, "iteration_blocks": 1, "arm_blocks": 6, "clusters": 2, "events": 1}


pytestmark = pytest.mark.usefixtures("shipper_here")


def test_a_job_arrives_whole_and_its_spool_is_empty_after(tmp_path: pathlib.Path, url: str) -> None:
    record_job(tmp_path / "spool")
    assert shipper.main([str(tmp_path / "spool"), "--database", url]) == 0
    assert counts(url) == WHOLE
    assert not spool.segments(tmp_path / "spool", OPEN, SEALED, SHIPPING)


def test_a_segment_sent_twice_changes_nothing(tmp_path: pathlib.Path, url: str) -> None:
    record_job(tmp_path / "spool")
    shutil.copytree(tmp_path / "spool", tmp_path / "again")
    for folder in ("spool", "again"):
        assert shipper.main([str(tmp_path / folder), "--database", url]) == 0
    assert counts(url) == WHOLE


def test_the_view_shows_each_iteration_as_it_was_said(tmp_path: pathlib.Path, url: str) -> None:
    recorder = Recorder(tmp_path / "spool", identity())
    random.seed(3)
    said, step = [], 0
    for _ in range(9000):
        step += 1 if random.random() < 0.999 else 5
        said.append((step, random.choices((0, 1, 2), (5, 90, 5))[0], min(round(random.lognormvariate(15, 6)), 10**15)))
        recorder.iteration(*said[-1])
    for pair in range(2):
        recorder.arm_block(pair, PLAIN, 0, [1_000_000 + pair * 500_000])
    recorder.close(timeout_s=120)
    assert shipper.main([str(tmp_path), "--database", url]) == 0
    seen: list[Any] = query(
        url, "SELECT step, arm, duration_ns, saved_ns FROM iterations WHERE job = 'run-1' AND rank = 0 ORDER BY step"
    )
    assert [(step, arm) for step, arm, *_ in seen] == [(step, arm) for step, arm, _ in said]
    for (_, arm, duration, saved), (_, _, exact) in zip(seen, said, strict=True):
        assert duration == array("f", [exact / 1e3])[0] * 1000.0, "the very float32 that was stored"
        assert saved == {0: 0.0, 1: 1_250_000 - duration, 2: None}[arm]
    if url.startswith("sqlite"):
        plan = query(url, "EXPLAIN QUERY PLAN SELECT * FROM iterations WHERE job = 'run-1'")
        searched = {str(row[3]).split(" (")[0] for row in plan}
        assert searched >= {"SEARCH j USING COVERING INDEX jobs_by_key"}, plan
        assert any("SEARCH b USING INDEX" in str(row[3]) and "(process_id=?)" in str(row[3]) for row in plan), plan


@pytest.mark.parametrize("value", [0.0, 1e-45, 1.17e-38, 0.001, 1.0, 3.3e6, 1e13])
def test_the_view_decodes_every_kind_of_float(tmp_path: pathlib.Path, url: str, value: float) -> None:
    writer = SpoolWriter(tmp_path / "spool", _identity_body(), 1 << 20, 1 << 20)
    writer.append(Kind.ITERATIONS, Iterations(0, 1, 0, 1, [(0, 1, 0)], array("f", [value])).encode())
    writer.close()
    assert shipper.main([str(tmp_path / "spool"), "--database", url]) == 0
    assert query(url, "SELECT duration_ns FROM iterations") == [(array("f", [value])[0] * 1000.0,)]
    stored = query(url, "SELECT durations FROM iteration_blocks")[0][0]
    assert array("f", stored) == array("f", [value])  # type: ignore[arg-type]


def _identity_body(**changes: object) -> bytes:
    about = {"format": 1, "process": "p", "pid": 1, "host": "h", "started_ns": 0, "job": identity().to_json()}
    return json.dumps({**about, **changes}).encode()


def test_a_corrupt_record_in_the_middle_is_passed_over_and_counted(tmp_path: pathlib.Path, url: str) -> None:
    record_job(tmp_path / "spool")
    path = spool.segments(tmp_path / "spool", SEALED)[0]
    data = bytearray(path.read_bytes())
    position = data.find(b'"epoch 1 ended"')
    data[position + 3] ^= 1
    path.write_bytes(data)
    engine = access.open_engine(url)
    access.upgrade(engine)
    done = shipper.ship_all(tmp_path, engine)
    assert (len(done.damaged), done.kept) == (1, [])
    assert counts(url) == {**WHOLE, "events": 0}


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (Kind.ARM_BLOCK, b'{"pair": 0, "arm": 1, "first_step": 0, "durations_ns": [], "time_ns": 1}'),
        (Kind.ARM_BLOCK, b'{"pair": 0, "arm": 1, "first_step": 0, "durations_ns": [-1, 5], "time_ns": 1}'),
        (Kind.ARM_BLOCK, b'{"pair": 0, "arm": 2, "first_step": 0, "durations_ns": [5], "time_ns": 1}'),
        (Kind.EVENT, b"[]"),
        (Kind.EVENT, b"{"),
        (Kind.EVENT, b'{"kind": "x"}'),
        (Kind.ITERATIONS, Iterations(0, 1, 0, 1, [(0, 1, 0)], array("f", [float("nan")])).encode()),
        (Kind.ITERATIONS, Iterations(0, 1, 0, 1, [(0, 1, 0)], array("f", [-1.0])).encode()),
        (Kind.ITERATIONS, Iterations(0, 1, 0, 1, [(0, 1, 9)], array("f", [1.0])).encode()),
        (Kind.ITERATIONS, Iterations(0, 1, 0, 1, [(0, 1, 0)], array("f", [float("inf")])).encode()),
        (Kind.ITERATIONS, Iterations(0, 1, 0, 1, [(0, 1, 0)], array("f", [3e38])).encode()),
        (Kind.ITERATIONS, Iterations(0, 0, 0, 1, [(0, 1, 0)], array("f", [1.0])).encode()),
        (Kind.ITERATIONS, Iterations(0, 1 << 62, 0, 1, [(0, 2, 0)], array("f", [1.0, 1.0])).encode()),
        (Kind.ITERATIONS, Iterations(0, 1, 0, 1, [(0, 5000, 0)], array("f", [1.0] * 5000)).encode()),
        (Kind.ARM_BLOCK, b'{"pair": 0, "arm": 1, "first_step": 0, "durations_ns": [NaN], "time_ns": 1}'),
        (Kind.ARM_BLOCK, b'{"pair": 99999999999, "arm": 1, "first_step": 0, "durations_ns": [1], "time_ns": 1}'),
        (Kind.EVENT, b'{"kind": "x", "message": "m", "facts": {}, "time_ns": 1e999}'),
        (Kind.EVENT, b"[" * 200_000),
        (Kind.CLUSTER, b'{"name": "x", "facts": 7}'),
        (Kind.JOB_END, b'{"facts": {"overhead_ns": -5}, "time_ns": 1}'),
        (99, b"?"),
    ],
)
def test_a_record_that_says_nonsense_is_counted_and_the_rest_arrives(kind: int, body: bytes) -> None:
    data = spool.MAGIC + spool.encode(Record(Kind.IDENTITY, 0, _identity_body())) + spool.encode(Record(kind, 1, body))
    data += spool.encode(Record(Kind.EVENT, 2, b'{"kind": "k", "message": "m", "facts": {}, "time_ns": 5}'))
    found, _ = rows.rows_of_segment(data)
    assert len(found.damaged) == 1
    assert [row["message"] for row in found.tables["events"]] == ["m"]


def test_a_number_no_database_takes_does_not_hold_up_the_rest(tmp_path: pathlib.Path, url: str) -> None:
    writer = SpoolWriter(tmp_path / "spool", _identity_body(), 1 << 20, 1 << 20)
    writer.append(Kind.EVENT, b'{"kind": "k", "message": "m", "facts": {}, "time_ns": %d}' % 10**30)
    writer.seal()
    writer.append(Kind.EVENT, b'{"kind": "k", "message": "good", "facts": {}, "time_ns": 5}')
    writer.close()
    engine = access.open_engine(url)
    access.upgrade(engine)
    done = shipper.ship_all(tmp_path, engine)
    assert len(done.damaged) == 1
    assert query(url, "SELECT message FROM events") == [("good",)]


def test_text_that_no_database_takes_is_mended(tmp_path: pathlib.Path, url: str) -> None:
    writer = SpoolWriter(tmp_path / "spool", _identity_body(host="a\0b"), 1 << 20, 1 << 20)
    writer.append(Kind.EVENT, b'{"kind": "k", "message": "half \\ud800, whole \\u00e9", "facts": {}, "time_ns": 5}')
    writer.close()
    assert shipper.main([str(tmp_path), "--database", url]) == 0
    assert query(url, "SELECT host FROM jobs") == [("a\ufffdb",)]
    assert query(url, "SELECT message FROM events") == [("half \ufffd, whole \u00e9",)]


def _segment(*records: tuple[int, int, bytes]) -> bytes:
    whole = [(Kind.IDENTITY, 0, _identity_body()), *records]
    return spool.MAGIC + b"".join(spool.encode(Record(kind, sequence, body)) for kind, sequence, body in whole)


def test_numbers_twice_numbers_missing_and_a_clock_set_back_are_counted_and_cost_nothing() -> None:
    def block(step: int, ended_ns: int) -> bytes:
        return Iterations(step, 1, ended_ns - 1, ended_ns, [(0, 2, 0)], array("f", [1.0, 1.0])).encode()

    data = _segment(
        (Kind.ITERATIONS, 1, block(0, 1000)),
        (Kind.ITERATIONS, 1, block(2, 2000)),
        (Kind.ITERATIONS, 5, block(4, 3000)),
        (Kind.ITERATIONS, 6, block(6, 1500)),
    )
    found, _ = rows.rows_of_segment(data)
    assert found.damaged == []
    assert +found.irregular == {rows.DUPLICATE_SEQUENCE: 1, rows.MISSING_SEQUENCE: 3, rows.CLOCK_BACKWARDS: 1}
    assert sum(row["plain_count"] for row in found.tables["iteration_blocks"]) == 6
    whole, _ = rows.rows_of_segment(_segment((Kind.ITERATIONS, 1, block(0, 1000))))
    assert not +whole.irregular


def test_a_spool_of_the_future_is_left_for_a_program_of_the_future(tmp_path: pathlib.Path, url: str) -> None:
    writer = SpoolWriter(tmp_path / "spool", _identity_body(format=3), 1 << 20, 1 << 20)
    writer.append(Kind.EVENT, b"{}")
    writer.close()
    assert shipper.main([str(tmp_path / "spool"), "--database", url]) == 1
    assert len(spool.segments(tmp_path / "spool", SHIPPING)) == 1


def test_a_database_that_cannot_be_written_leaves_the_spool_and_says_so(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], url: str
) -> None:
    record_job(tmp_path / "spool")
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "not-a-database").write_bytes(b"something else entirely, of some length" * 100)
    for target in (
        f"sqlite:///{tmp_path}/file/x.db",
        f"sqlite:///{tmp_path}/not-a-database",
        "sqlite:////proc/x.db",
        "odd",
    ):
        if target == "odd":
            target = "nosuchdialect://host/db"
        assert shipper.main([str(tmp_path / "spool"), "--database", target]) == 1
        assert capsys.readouterr().err.count("\n") == 1
    assert len(spool.segments(tmp_path / "spool", SEALED, SHIPPING)) == 1
    assert shipper.main([str(tmp_path / "spool"), "--database", url]) == 0
    assert counts(url) == WHOLE


def test_a_database_that_stays_locked_leaves_the_spool(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/telemetry.db"
    monkeypatch.setattr(access, "BUSY_SECONDS", 0.05)
    engine = access.open_engine(url)
    access.upgrade(engine)
    record_job(tmp_path / "spool")
    with access.writing(engine):
        other = access.open_engine(url)
        done = shipper.ship_all(tmp_path, other)
    assert ["locked" in reason for reason in done.kept] == [True]
    assert shipper.ship_all(tmp_path, other).segments == 1
    assert counts(url) == WHOLE


def test_a_shipper_that_died_after_its_commit_is_followed_by_one_that_changes_nothing(
    tmp_path: pathlib.Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_job(tmp_path / "spool")
    engine = access.open_engine(url)
    access.upgrade(engine)

    def die(_path: pathlib.Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(pathlib.Path, "unlink", die)
        with pytest.raises(KeyboardInterrupt):
            shipper.ship_all(tmp_path, engine)
    assert counts(url) == WHOLE
    assert shipper.ship_all(tmp_path, engine).segments == 1
    assert counts(url) == WHOLE


def run_shipper(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "stitchfleet.telemetry.shipping.shipper", *words], stderr=subprocess.PIPE, text=True
    )


def test_shippers_at_once_share_the_work(tmp_path: pathlib.Path, url: str) -> None:
    for number in range(12):
        record_job(tmp_path / "spools" / str(number), f"run-{number}", steps=50)
    processes = [run_shipper(str(tmp_path / "spools"), "--database", url) for _ in range(3)]
    assert [process.communicate()[1] for process in processes] == [""] * 3
    # what one found locked another had: a last pass finds what all passed by
    assert shipper.main([str(tmp_path / "spools"), "--database", url]) == 0
    assert counts(url) == {name: 12 * count for name, count in WHOLE.items()}


JOB = """
import pathlib, sys, time
sys.path.insert(0, sys.argv[2])
from stitchfleet.telemetry.pod.recording import Recorder
from tests.telemetry.helpers import identity
recorder = Recorder(pathlib.Path(sys.argv[1]), identity(), seal_seconds=0.2)
for step in range(100_000):
    recorder.iteration(step, 0, 1_000_000)
    if step == 500:
        assert recorder.flush(120)
        print("there", flush=True)
    time.sleep(0.0005)
"""


@pytest.mark.parametrize("url", ["postgres", slow("sqlite")], indirect=True)
def test_following_a_job_that_is_killed_brings_all_it_had_written(tmp_path: pathlib.Path, url: str) -> None:
    root = pathlib.Path(__file__).parents[3]
    job = subprocess.Popen(
        [sys.executable, "-c", JOB, str(tmp_path / "spool"), str(root)], stdout=subprocess.PIPE, text=True, cwd=root
    )
    assert job.stdout is not None
    assert job.stdout.readline() == "there\n"
    follower = run_shipper(str(tmp_path / "spool"), "--database", url, "--follow", str(job.pid))
    time.sleep(0.2)
    job.send_signal(signal.SIGKILL)
    job.wait()
    job.stdout.close()
    assert follower.communicate(timeout=600)[1] == ""
    assert follower.returncode == 0
    steps = [step for (step,) in query(url, "SELECT step FROM iterations ORDER BY step")]
    assert steps == list(range(len(steps)))
    assert len(steps) > 500
    assert not spool.segments(tmp_path / "spool", OPEN, SEALED, SHIPPING)


def test_a_living_writers_open_segment_is_let_be(tmp_path: pathlib.Path, url: str) -> None:
    root = pathlib.Path(__file__).parents[3]
    job = subprocess.Popen(
        [sys.executable, "-c", JOB.replace("0.2)", "3600)"), str(tmp_path / "spool"), str(root)],
        stdout=subprocess.PIPE, text=True, cwd=root,
    )  # fmt: skip
    assert job.stdout is not None
    assert job.stdout.readline() == "there\n"
    assert shipper.main([str(tmp_path / "spool"), "--database", url]) == 0
    assert len(spool.segments(tmp_path / "spool", OPEN)) == 1
    job.kill()
    job.wait()
    job.stdout.close()
    assert shipper.main([str(tmp_path / "spool"), "--database", url]) == 0
    assert counts(url)["iteration_blocks"] == 1


def test_wrong_arguments(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shipper.main([str(tmp_path / "none"), "--database", "x"]) == 2
    assert "is not a folder" in capsys.readouterr().err
    assert shipper.main([str(tmp_path), "--database", f"{tmp_path}/x.db"]) == 0
    assert not os.path.exists(tmp_path / "x.db"), "nothing to ship makes no database"


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.integers(1, 3), st.data())
def test_joined_blocks_hold_the_same_iterations(lengths: list[int], stride: int, choose: st.DataObject) -> None:
    parts, step = [], 0
    for sequence, length in enumerate(lengths):
        step += choose.draw(st.sampled_from((0, 0, 0, 7)))
        arms = [choose.draw(st.integers(0, 2)) for _ in range(length)]
        runs = [(index, 1, arm) for index, arm in enumerate(arms)]
        parts.append((sequence, Iterations(step, stride if length > 1 else 1, 0, 1, runs, array("f", range(length)))))
        step += length * stride

    def flat(blocks: list[tuple[int, Iterations]]) -> list[tuple[int, int, float]]:
        return [
            (block.first_step + index * block.stride, arm, block.durations[index])
            for _, block in blocks
            for first, count, arm in block.runs
            for index in range(first, first + count)
        ]

    assert flat(rows.merged(parts)) == flat(parts)
    assert len({sequence for sequence, _ in rows.merged(parts)}) == len(rows.merged(parts))


def test_damage_is_told_from_a_torn_end() -> None:
    data = spool.MAGIC + spool.encode(Record(Kind.IDENTITY, 0, _identity_body()))
    damage = Damage()
    list(spool.decode(data[:-1], damage))
    assert damage.records == 0
    found, identity_body = rows.rows_of_segment(data[:-1])
    assert (len(found), found.damaged, identity_body) == (0, [], None)


def test_a_segment_whose_identity_is_damaged_is_known_by_its_neighbour() -> None:
    event = spool.encode(Record(Kind.EVENT, 2, b'{"kind": "k", "message": "m", "facts": {}, "time_ns": 5}'))
    found, _ = rows.rows_of_segment(spool.MAGIC + event, _identity_body())
    assert found.tables["jobs"][0]["run_id"] == "run-1"
    assert len(found.tables["events"]) == 1
    lost, _ = rows.rows_of_segment(spool.MAGIC + event)
    assert (len(lost), len(lost.damaged)) == (0, 1)


@pytest.mark.parametrize(("known", "kept"), [("", "graph:1"), ("chosen", "chosen")])
def test_the_model_is_known_once_its_graph_was_seen(tmp_path: pathlib.Path, url: str, known: str, kept: str) -> None:
    recorder = Recorder(tmp_path / "spool", identity(model_fingerprint=known), seal_seconds=0.0)
    recorder.event("before", "nothing of the model")
    recorder.flush(120)
    engine = access.open_engine(url)
    access.upgrade(engine)
    shipper.ship_all(tmp_path, engine)
    assert query(url, "SELECT model_fingerprint FROM jobs") == [(known,)]
    recorder.model("graph:1")
    recorder.event("after", "more")
    recorder.close(timeout_s=120)
    shipper.ship_all(tmp_path, engine)
    assert query(url, "SELECT model_fingerprint FROM jobs") == [(kept,)]
    assert query(url, "SELECT count(*) FROM events") == [(2,)]


def test_every_row_has_every_column_of_its_table(tmp_path: pathlib.Path) -> None:
    record_job(tmp_path)
    found, _ = rows.rows_of_segment(spool.segments(tmp_path, SEALED)[0].read_bytes())
    for name, entries in found.tables.items():
        for row in entries:
            assert set(row) == set(models.metadata.tables[name].columns.keys()) - {"process_id"}, name
    assert isinstance(models.metadata.tables["jobs"], sa.Table)


def test_a_fleets_database_is_upgraded_by_its_keeper_alone(
    tmp_path: pathlib.Path, empty_postgres_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    record_job(tmp_path / "spool")
    assert shipper.main([str(tmp_path / "spool"), "--database", empty_postgres_url]) == 1
    assert "`stitchfleet db upgrade`" in capsys.readouterr().err
    assert query(empty_postgres_url, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(0,)]
