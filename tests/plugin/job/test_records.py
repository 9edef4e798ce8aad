"""What a rank of an elastic job records when its rank changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stitchfleet.plugin.arms.switch import Arm
from stitchfleet.plugin.base.settings import Settings
from stitchfleet.plugin.job.program import Block, Program
from stitchfleet.plugin.job.records import Records


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
