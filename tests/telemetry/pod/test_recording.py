"""The recorder: never in the way of a job, and honest about what it could not keep."""

from __future__ import annotations

import math
import os
import pathlib
import random
import resource
import signal
import subprocess
import sys
import threading
import time
import types
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stitchfleet.telemetry.database.rows import rows_of_segment
from stitchfleet.telemetry.pod import recording, spool
from stitchfleet.telemetry.pod.recording import PLAIN, STITCHED, UNCOUNTED, JobIdentity, Recorder
from stitchfleet.telemetry.pod.spool import OPEN, SEALED, Kind

from ..helpers import bodies, identity, iterations, records


def test_everything_said_is_in_the_spool(tmp_path: pathlib.Path) -> None:
    recorder = Recorder(tmp_path, identity())
    for step in range(10):
        recorder.iteration(step, UNCOUNTED if step < 2 else PLAIN if step < 6 else STITCHED, 1_000_000 + step)
    recorder.arm_block(3, STITCHED, 40, [5, 6, 7])
    recorder.cluster("softmax", {"ops": {"Exp": 1}, "largest_error": math.inf})
    recorder.event("epoch", "epoch 1 ended", {"epoch": 1})
    recorder.job_end({"overhead_ns": 12})
    recorder.close(timeout_s=120)
    assert recorder.lost == 0
    assert [(step, arm) for step, arm, _ in iterations(tmp_path)] == [
        (step, UNCOUNTED if step < 2 else PLAIN if step < 6 else STITCHED) for step in range(10)
    ]
    assert iterations(tmp_path)[4][2] == pytest.approx(1000.004, rel=1e-7)
    assert bodies(tmp_path, Kind.ARM_BLOCK)[0] | {"time_ns": 0} == {
        "time_ns": 0, "pair": 3, "arm": 1, "first_step": 40, "durations_ns": [5, 6, 7],
    }  # fmt: skip
    assert bodies(tmp_path, Kind.CLUSTER)[0]["facts"] == {"ops": {"Exp": 1}, "largest_error": "inf"}
    assert bodies(tmp_path, Kind.EVENT)[0]["message"] == "epoch 1 ended"
    assert bodies(tmp_path, Kind.JOB_END)[0]["facts"] == {"overhead_ns": 12}
    assert JobIdentity.from_json(bodies(tmp_path, Kind.IDENTITY)[0]["job"]) == identity()
    assert not spool.segments(tmp_path, OPEN)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(-5, 300), st.integers(0, 2), st.integers(0, 10**10)), max_size=40))
def test_steps_may_jump_and_arms_may_change_as_they_like(
    tmp_path_factory: pytest.TempPathFactory, said: list[tuple[int, int, int]]
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    recorder = Recorder(folder, identity())
    for entry in said:
        recorder.iteration(*entry)
    recorder.close(timeout_s=120)
    assert [(step, arm) for step, arm, _ in iterations(folder)] == [(step, arm) for step, arm, _ in said]
    for (_, _, microseconds), (_, _, duration) in zip(iterations(folder), said, strict=True):
        assert microseconds == pytest.approx(duration / 1e3, rel=1e-7)


def test_functions_that_take_turns_have_blocks_of_their_own(tmp_path: pathlib.Path) -> None:
    """Three of them, of which one jumps; as one stream, each step would be a block."""
    recorder = Recorder(tmp_path, identity())
    for number, name in enumerate(("critic", "generator", "third")):
        recorder.function(number, name)
    for step in range(200):
        recorder.iteration(step, PLAIN if step < 90 else STITCHED, 1_000 + step)
        recorder.iteration(step, STITCHED, 5_000 + step, 1)
        if step % 7 == 0:
            recorder.iteration(3 * step, UNCOUNTED, 9_000, 2)
    recorder.arm_block(0, PLAIN, 4, [5, 6], 1)
    recorder.close(timeout_s=120)
    assert recorder.lost == 0
    (path,) = spool.segments(tmp_path, SEALED)
    rows, _ = rows_of_segment(path.read_bytes())
    assert rows.damaged == []
    assert rows.tables["functions"] == [
        {"function": 0, "name": "critic"}, {"function": 1, "name": "generator"}, {"function": 2, "name": "third"},
    ]  # fmt: skip
    assert [row["function"] for row in rows.tables["arm_blocks"]] == [1]
    found = dict.fromkeys(range(3), (0, 0, 0))
    for row in rows.tables["iteration_blocks"]:
        before = found[row["function"]]
        found[row["function"]] = (
            before[0] + row["plain_count"], before[1] + row["stitched_count"], before[2] + row["uncounted_count"]
        )  # fmt: skip
    assert found == {0: (90, 110, 0), 1: (0, 200, 0), 2: (0, 0, 29)}
    assert len(rows.tables["iteration_blocks"]) <= 6


def test_a_block_never_crosses_midnight(tmp_path: pathlib.Path) -> None:
    midnight = 20_000 * recording.DAY_NS
    recorder = Recorder(tmp_path, identity())
    for step in range(6):
        with mock.patch.object(recording.time, "time_ns", return_value=midnight + (step - 3) * 10**9):
            recorder.iteration(step, PLAIN, 10**9)
    recorder.close(timeout_s=120)
    blocks = [spool.Iterations.decode(r.body) for r in records(tmp_path) if r.kind == Kind.ITERATIONS]
    assert [(block.first_step, len(block.durations)) for block in blocks] == [(0, 3), (3, 3)]
    assert [block.ended_ns // recording.DAY_NS for block in blocks] == [19_999, 20_000]
    assert blocks[1].started_ns == midnight - 10**9, "an iteration belongs to the day it ends in"


@pytest.mark.parametrize(
    "bad", [("x", 0, 1), (1, 7, 1), (1, 0, -1), (1, 0, 1.5), (1, 0, 10**17), (1 << 70, 0, 1), (1, 0, 1, 1 << 15)]
)
def test_nonsense_is_counted_and_costs_nothing_else(tmp_path: pathlib.Path, bad: tuple[int, ...]) -> None:
    recorder = Recorder(tmp_path, identity())
    recorder.iteration(1, PLAIN, 5)
    recorder.iteration(*bad)
    recorder.iteration(2, PLAIN, 5)
    circular: dict[str, object] = {}
    circular["itself"] = circular
    recorder.event("odd", "circular", circular)
    recorder.close(timeout_s=120)
    assert recorder.lost == 2
    assert [step for step, *_ in iterations(tmp_path)] == [1, 2]
    assert bodies(tmp_path, Kind.LOSS)[-1]["lost"] == 2


def test_after_the_end_all_is_counted_as_lost(tmp_path: pathlib.Path) -> None:
    recorder = Recorder(tmp_path, identity())
    recorder.close(timeout_s=120)
    recorder.iteration(1, PLAIN, 5)
    recorder.event("late", "too late")
    recorder.close(timeout_s=120)
    assert recorder.lost == 2


def test_a_folder_that_cannot_be_written_is_an_error_of_the_constructor_only(tmp_path: pathlib.Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    with pytest.raises(OSError, match="file"):
        Recorder(in_the_way / "spool", identity())
    with pytest.raises(OSError, match="proc"):
        Recorder(pathlib.Path("/proc/no-such-spool"), identity())


def test_a_disk_that_fills_up_costs_records_not_the_job(tmp_path: pathlib.Path) -> None:
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    recorder = Recorder(tmp_path, identity(), seal_seconds=3600)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (6_000, old[1]))
        for step in range(5_000):
            recorder.iteration(step, PLAIN, 1_000_000)
            if step % 500 == 499:
                assert recorder.flush(120)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    assert 0 < recorder.lost < 5_000
    recorder.close(timeout_s=120)
    assert len(iterations(tmp_path)) + recorder.lost == 5_000
    assert "too large" in recorder.failure
    assert bodies(tmp_path, Kind.LOSS)[-1]["lost"] == recorder.lost


def test_a_deleted_folder_costs_records_not_the_job(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "spool"
    recorder = Recorder(folder, identity())
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    recorder.iteration(1, PLAIN, 5)
    recorder.close(timeout_s=120)
    recorder.iteration(2, PLAIN, 5)
    assert recorder.lost == 1


def test_a_full_spool_drops_its_oldest_and_counts_iterations(tmp_path: pathlib.Path) -> None:
    recorder = Recorder(tmp_path, identity(), max_bytes=64 << 10)
    for step in range(60_000):
        recorder.iteration(step, PLAIN, 1_000_000)
        if step % 1_000 == 999:
            assert recorder.flush(120)
    recorder.close(timeout_s=120)
    kept = [step for step, *_ in iterations(tmp_path)]
    assert kept == list(range(60_000 - len(kept), 60_000))
    # the LOSS records among what was dropped weigh nothing
    assert recorder.lost == 60_000 - len(kept) > 0
    assert sum(path.stat().st_size for path in spool.segments(tmp_path, SEALED)) <= 64 << 10


def test_a_stalled_disk_bounds_the_queue_and_never_blocks(tmp_path: pathlib.Path) -> None:
    recorder = Recorder(tmp_path, identity())
    stalled, go_on = threading.Event(), threading.Event()
    append = recorder._spool.append

    def stall(*arguments: object) -> None:
        stalled.set()
        go_on.wait(120)
        append(*arguments)  # type: ignore[arg-type]

    with mock.patch.object(recorder._spool, "append", stall):
        recorder.event("first", "the writer hangs in this one")
        recorder._wake.set()
        assert stalled.wait(120)
        begun = time.perf_counter()
        for step in range(recording.MAX_PENDING + 1_000):
            recorder.iteration(step, PLAIN, 5)
        assert time.perf_counter() - begun < 100, "the job went on"
        assert recorder.lost == 1_000
        assert not recorder.flush(0.01)
        go_on.set()
        recorder.close(timeout_s=120)
    assert len(iterations(tmp_path)) == recording.MAX_PENDING


def test_a_close_that_takes_too_long_gives_up_and_counts(tmp_path: pathlib.Path) -> None:
    recorder = Recorder(tmp_path, identity())
    go_on, stalled = threading.Event(), threading.Event()

    def stall(*_: object) -> None:
        stalled.set()
        go_on.wait(120)

    with mock.patch.object(recorder._spool, "append", stall):
        recorder.event("first", "the writer hangs in this one")
        recorder._wake.set()
        assert stalled.wait(120)
        for step in range(10):
            recorder.iteration(step, PLAIN, 5)
        recorder.close(timeout_s=0.05)
        assert recorder.lost == 10
        go_on.set()


def test_the_next_world_of_a_rank_waits_for_no_disk_and_shares_the_spool_with_nobody(tmp_path: pathlib.Path) -> None:
    """A disk that stalls while an elastic job changes its world: all of both is written, in order, by one writer at a time."""
    first = Recorder(tmp_path, identity(rank=1, world_size=2))
    go_on, stalled = threading.Event(), threading.Event()
    append = first._spool.append if first._spool else None
    assert append is not None

    def stall(kind: Kind, body: bytes, weight: int = 1) -> None:
        stalled.set()
        go_on.wait(120)
        append(kind, body, weight)

    with mock.patch.object(first._spool, "append", stall):
        first.event("first", "the writer hangs in this one")
        first._wake.set()
        assert stalled.wait(120)
        first.job_end({"phase": "stitched"})
        began = time.monotonic()
        second = Recorder(tmp_path, identity(rank=0, world_size=1), after=first)
        second.event("second", "of the next world")
        assert time.monotonic() - began < 5.0
        assert not second.flush(0.2)
        assert second.process != first.process
        go_on.set()
        assert second.flush(120)
    assert (first.lost, second.lost) == (0, 0)
    assert not writer_is_dead(tmp_path), "the lock is the second one's, and it lives"
    second.close(timeout_s=120)
    found = [rows_of_segment(path.read_bytes(), None)[0] for path in spool.segments(tmp_path, SEALED)]
    assert [[event["message"] for event in rows.tables["events"]] for rows in found] == [
        ["the writer hangs in this one"],
        ["of the next world"],
    ]
    assert [len(rows.tables["job_ends"]) for rows in found] == [1, 0]


def writer_is_dead(folder: pathlib.Path) -> bool:
    """As a shipper in another process sees it: a process's own locks do not stop it."""
    text = "import pathlib, sys; from stitchfleet.telemetry.shipping import shipper; "
    text += "sys.exit(shipper._writer_is_dead(pathlib.Path(sys.argv[1])))"
    return bool(subprocess.run([sys.executable, "-c", text, str(folder)], check=False).returncode)


def test_a_next_world_whose_spool_cannot_be_opened_counts_what_it_lost(tmp_path: pathlib.Path) -> None:
    first = Recorder(tmp_path / "spool", identity())
    with mock.patch.object(recording, "SpoolWriter", side_effect=OSError(28, "no space left on device")):
        second = Recorder(tmp_path / "spool", identity(rank=0, world_size=1), after=first)
    for step in range(3):
        second.iteration(step, PLAIN, 5)
    second.close(timeout_s=120)
    assert second.lost == 3
    assert "no space left" in second.failure


def test_segments_are_sealed_in_time_and_less_often_while_nobody_takes_them(tmp_path: pathlib.Path) -> None:
    now = 1000.0
    clock = types.SimpleNamespace(monotonic=lambda: now, time_ns=time.time_ns)

    def sealed() -> int:
        assert recorder.flush(120), "the writer has looked at the clock since"
        return len(spool.segments(tmp_path, SEALED))

    with mock.patch.object(recording, "time", clock):
        recorder = Recorder(tmp_path, identity(), seal_seconds=30)
        recorder.iteration(1, PLAIN, 5)
        assert sealed() == 0
        now += 31
        assert sealed() == 1
        now += 31
        assert sealed() == 1, "nothing new"
        recorder.iteration(2, PLAIN, 5)
        assert sealed() == 1, "nobody took the first"
        spool.segments(tmp_path, SEALED)[0].unlink()  # a shipper took it
        assert sealed() == 1
        recorder.iteration(3, PLAIN, 5)
        now += 31 * recording.LAZY_SEALS - 31
        assert sealed() == 1
        now += 31
        assert sealed() == 2, "so long that it is sealed all the same"
        recorder.close(timeout_s=120)


def test_a_forked_child_is_silent_and_leaves_the_parents_spool_alone(tmp_path: pathlib.Path) -> None:
    recorder = Recorder(tmp_path, identity())
    recorder.iteration(1, PLAIN, 5)
    assert recorder.flush(120)
    child = os.fork()
    if child == 0:
        recorder.iteration(99, PLAIN, 5)
        recorder.event("child", "not to be seen")
        recorder.close(timeout_s=120)
        os._exit(0 if recorder.lost == 2 else 1)
    assert os.waitpid(child, 0)[1] == 0
    recorder.iteration(2, PLAIN, 5)
    recorder.close(timeout_s=120)
    assert [step for step, *_ in iterations(tmp_path)] == [1, 2]
    assert bodies(tmp_path, Kind.EVENT) == []
    assert recorder.lost == 0


VICTIM = """
import pathlib, sys
from stitchfleet.telemetry.pod import recording
sys.path.insert(0, sys.argv[2])
from tests.telemetry.helpers import identity
recording.WRITE_SECONDS = 0.002
recorder = recording.Recorder(pathlib.Path(sys.argv[1]), identity(), seal_seconds=0.01, max_bytes=1 << 30)
print("ready", flush=True)
step = 0
while True:
    for _ in range(37):
        recorder.iteration(step, step // 10 % 2, 1000 + step)
        step += 1
    recorder.event("mark", str(step))
    if step % (37 * 8) == 0:
        assert recorder.flush(120)
        print(step, flush=True)
"""
ROOT = pathlib.Path(__file__).parents[3]


def kill_once(folder: pathlib.Path, delay: float) -> int:
    """Runs a recorder, kills it after `delay` seconds of work, checks what is left; returns the steps it had acknowledged."""
    child = subprocess.Popen(
        [sys.executable, "-c", VICTIM, str(folder), str(ROOT)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    time.sleep(delay)
    child.send_signal(signal.SIGKILL)
    lines = child.stdout.read().splitlines()
    child.wait()
    child.stdout.close()
    # the last line may itself be cut off
    acknowledged = int(lines[-2]) if len(lines) > 1 else 0
    found = iterations(folder)
    assert [step for step, *_ in found] == list(range(len(found))), "in order, none missing, none twice"
    assert len(found) >= acknowledged
    # a pytest.approx for each of ten thousands of steps would take longer than all else here
    assert all(abs(us - (1000 + step) / 1e3) <= 1e-6 * (1000 + step) / 1e3 for step, _, us in found)
    marks = [int(event["message"]) for event in bodies(folder, Kind.EVENT)]
    assert marks == [37 * (k + 1) for k in range(len(marks))]
    assert len(marks) >= acknowledged // 37
    sequences = [record.sequence for record in records(folder)]
    assert sequences == sorted(set(sequences))
    return acknowledged


def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: pathlib.Path) -> None:
    random.seed(7)
    acknowledged = [kill_once(tmp_path / str(k), random.uniform(0.0, 0.12)) for k in range(25)]
    assert sum(count > 0 for count in acknowledged) > 10, "most were killed at work"


@pytest.mark.slow
def test_kill_9_at_a_thousand_points(tmp_path: pathlib.Path) -> None:
    random.seed(8)
    for k in range(1000):
        kill_once(tmp_path / str(k), random.uniform(0.0, 0.1))


def test_identity_in_kubernetes(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    labels = tmp_path / "labels"
    labels.write_text('team="nlp"\napp="bert"\n')
    for name, value in {
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
        "STITCHFLEET_CLUSTER": "prod-7",
        "STITCHFLEET_NAMESPACE": "research",
        "STITCHFLEET_JOB_NAME": "bert-pretrain",
        "STITCHFLEET_POD_UID": "abc",
        "STITCHFLEET_ATTEMPT": "2",
        "STITCHFLEET_LABELS": "cost=42",
        "STITCHFLEET_LABELS_FILE": str(labels),
        "STITCHFLEET_DEVICE_KIND": "NVIDIA A100",
        "STITCHFLEET_DEVICE_COUNT": "1",
        "OMPI_COMM_WORLD_RANK": "3",
        "OMPI_COMM_WORLD_SIZE": "8",
    }.items():
        monkeypatch.setenv(name, value)
    found = JobIdentity.from_environment("r1", framework="tensorflow", nonsense=1, image=None)
    assert (found.cluster, found.namespace, found.name, found.uid) == ("prod-7", "research", "bert-pretrain", "abc")
    assert (found.attempt, found.rank, found.world_size, found.run_id) == (2, 3, 8, "r1")
    assert (found.device_kind, found.device_count) == ("NVIDIA A100", 8)
    assert found.labels == {"team": "nlp", "app": "bert", "cost": "42"}
    assert (found.framework, found.image) == ("tensorflow", "")


def test_identity_on_a_laptop(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("STITCHFLEET_", "KUBERNETES_", "OMPI_", "HOROVOD_", "PMI_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("STITCHFLEET_ATTEMPT", "two")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(sys, "argv", ["/home/ada/train.py"])
    found = JobIdentity.from_environment("r1")
    assert (found.name, found.attempt, found.rank, found.world_size) == ("train", 0, 0, 1)
    assert (found.device_kind, found.device_count) == ("cpu", 1)
    assert found.cluster
    assert found.user


@pytest.mark.parametrize("change", [{"rank": "0"}, {"rank": True}, {"name": None}, {"labels": [1]}])
def test_an_identity_of_the_wrong_types_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        JobIdentity.from_json({**identity().to_json(), **change})


def test_the_recording_side_needs_the_standard_library_only() -> None:
    code = (
        "import sys; import stitchfleet.telemetry.pod.recording, stitchfleet.telemetry.statistics.savings\n"
        "outside = {name.split('.')[0] for name in sys.modules} - set(sys.stdlib_module_names) - {'stitchfleet', '__main__'}\n"
        "print(sorted(name for name in outside if not name.startswith('_')))"
    )
    out = subprocess.run([sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n" + code],
                         capture_output=True, text=True, check=True)  # fmt: skip
    assert out.stdout.strip() == "[]"
