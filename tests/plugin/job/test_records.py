"""What a job records at its end, and a rank of an elastic job when its rank changes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stitchfleet.plugin.arms.switch import Arm
from stitchfleet.plugin.base.settings import Settings
from stitchfleet.plugin.job import records as records_module
from stitchfleet.plugin.job.program import Block, Program, ProgramPhase, Ticket
from stitchfleet.plugin.job.records import Records
from stitchfleet.telemetry.database import access
from stitchfleet.telemetry.pod import recording


def test_a_rank_that_becomes_the_first_records_no_pair_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STITCHFLEET_RANK", "1")
    monkeypatch.setenv("STITCHFLEET_WORLD_SIZE", "2")
    records = Records(Settings(data=tmp_path), "run", tmp_path)
    program = Program("train", "function", Settings(data=tmp_path))
    program.trains, program.steps = True, 2
    records.iteration(program, 1, int(Arm.PLAIN), 1000)

    def complete_a_pair() -> None:
        number = program.pairs_completed
        program.pairs.append((Block(number, Arm.PLAIN, number), Block(number, Arm.STITCHED, number + 1)))
        program.pairs_completed += 1
        records.blocks(program)

    assert records.recorder is not None
    recorded: list[Any] = []
    monkeypatch.setattr(records.recorder, "arm_block", lambda *block: recorded.append(block[2]))
    complete_a_pair()
    records.note_world(0, 1, program, [program])
    assert records.identity.rank == 0
    assert recorded == []
    monkeypatch.setattr(records.recorder, "arm_block", lambda *block: recorded.append(block[2]))
    complete_a_pair()
    assert recorded == [1, 2]
    records.finish(program, [program], [])
    assert recorded == [1, 2]


def test_the_jobs_saving_weighs_functions_by_the_iterations_that_the_database_counts(tmp_path: Path) -> None:
    """Steps beside work of ours are in neither figure: one function may have more of them than the other."""
    records = Records(Settings(data=tmp_path), "run", tmp_path)
    for name, plain_ns, stitched_ns, disturbed in (("critic", 1000, 800, 0), ("generator", 500, 100, 30)):
        program = Program(name, "function", Settings(data=tmp_path))
        program.trains, program.steps = True, 2
        for number in range(4):
            blocks = Block(number, Arm.PLAIN, number), Block(number, Arm.STITCHED, number)
            for block, duration in zip(blocks, (plain_ns, stitched_ns), strict=True):
                block.durations_ns.append(duration)
            program.pairs.append(blocks)
        for number in range(60):
            ticket = Ticket(program, number, Arm.STITCHED, ProgramPhase.STITCHED, 0, True, None, 0)
            program.end(ticket, stitched_ns, quiet=number >= disturbed)
            records.iteration(
                program, number, int(Arm.STITCHED) if ticket.counted else recording.UNCOUNTED, stitched_ns
            )
    saving = records.saving_of_job()
    assert saving is not None
    assert saving.plain_ns == pytest.approx((60 * 1000 + 30 * 500) / 90)
    assert saving.stitched_ns == pytest.approx((60 * 800 + 30 * 100) / 90)


@pytest.fixture
def resting() -> Iterator[subprocess.Popen[bytes]]:
    """A shipper that the server has refused, and that rests for a minute before it asks again."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("is_dead", [False, True])
def test_in_a_pod_a_shipper_that_rests_or_is_gone_keeps_nothing_from_being_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resting: subprocess.Popen[bytes], is_dead: bool
) -> None:
    """The server is back, and the container ends with the job: what is not sent now is lost."""
    url = f"sqlite:///{tmp_path}/records.db"
    records = Records(Settings(data=tmp_path / "spool", database=url, payload=tmp_path), "run", tmp_path / "spool")
    monkeypatch.setattr(records, "_shipper", resting)
    monkeypatch.setattr(
        records_module, "HAND_OVER_SECONDS", 120.0
    )  # a shipper has the lowest priority, and makes the tables first
    if is_dead:
        resting.kill()
        resting.wait()
    program = Program("train", "function", Settings())
    program.trains, program.steps = True, 2
    for step in range(5):
        records.iteration(program, step, int(Arm.PLAIN), 1000)
    records.finish(program, [program], [])
    with access.open_engine(url).connect() as connection:
        (ended,) = connection.exec_driver_sql("SELECT count(*) FROM job_ends").one()
    assert ended == 1
