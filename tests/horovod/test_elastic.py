"""Elastic jobs (hvd.elastic.run): ranks join and leave, and all are stitched before and again after, in one arm at each step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from . import installation
from .conftest import SCRIPTS, Ranks, RunRanks
from .test_two_ranks import SECONDS, rows, training

pytestmark = pytest.mark.slow
STEPS = 1000

Steps = dict[int, list[Any]]
"""Step -> [loss, size of the world, whether it ran stitched, digest of the weights after it]."""


def steps_of(result: dict[str, Any]) -> Steps:
    return {int(step): facts for step, facts in result["steps"].items()}


def arms(steps: Steps, size: int) -> list[bool]:
    """The arms of the steps in the world of so many ranks."""
    return [bool(facts[2]) for _, facts in sorted(steps.items()) if facts[1] == size]


def check_alike(one: Steps, other: Steps) -> None:
    """The same weights, arms and sizes on two ranks in each step that both have taken."""
    assert one.keys() & other.keys()
    for step in sorted(one.keys() & other.keys()):
        assert one[step][1:] == other[step][1:], f"step {step}"


def check_numbers(done: Ranks, result: dict[str, Any]) -> None:
    """The losses of a rank that has taken all steps are those of one plain process."""
    file = done.folder / f"{result['pid']}.json"
    horovod = installation.install(lambda line: None)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(horovod), str(SCRIPTS), *filter(None, sys.path)])}
    replay = {"elastic": ["elastic_replay.py"], "elastic_fit": ["elastic_fit.py", "--replay"]}[done.script]
    command = [sys.executable, str(SCRIPTS / replay[0]), *replay[1:], str(file)]
    printed = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    losses = [facts[0] for _, facts in sorted(steps_of(result).items())]
    np.testing.assert_allclose(losses, json.loads(printed.splitlines()[-1]), rtol=1e-3, atol=1e-6)


LONGER_THAN_A_BLOCK = 40
"""Steps."""


def check_arms(done: Ranks, result: dict[str, Any], *sizes: int) -> None:
    """Each of the worlds of so many ranks began plain and ended stitched, or in one of the measurement's plain blocks."""
    for size in sizes:
        of_world = arms(steps_of(result), size)
        assert not of_world[0]
        assert any(of_world[-LONGER_THAN_A_BLOCK:]), f"the world of {size} ended plain: {done.err}"
        assert sum(of_world) > 100


@pytest.mark.parametrize(("script", "how"), [("elastic", "around"), ("elastic", "within"), ("elastic_fit", "around")])
def test_a_rank_that_joins(run_ranks: RunRanks, script: str, how: str) -> None:
    """The job begins on one rank."""
    environment = {"NEXT_HOSTS": "localhost:2\n"}
    done = run_ranks(script, STEPS, SECONDS, how=how, ranks=1, hosts=["localhost:1"], environment=environment)
    assert done.code == 0, done.err
    first, second = sorted(done.results, key=lambda result: -len(result["steps"]))
    assert {first["rank"], second["rank"]} == {0, 1}
    assert first["weights"] == second["weights"]
    check_alike(steps_of(first), steps_of(second))
    check_numbers(done, first)
    check_arms(done, first, 1, 2)
    assert [summary["rank"] for summary in done.of_ranks] == [0, 1]
    assert len({summary["run_id"] for summary in done.of_ranks}) == 1
    assert sorted(summary["worlds"] for summary in done.of_ranks) == [[1, 2], [2]]
    for summary in done.of_ranks:
        assert summary["health"] == "good"
        assert training(summary)["phase"] == "stitched"
        assert len(summary["training_functions"]) == 1, "the broadcast of the weights does not train"
    of_iterations = rows(
        done, "SELECT DISTINCT j.rank, j.world_size FROM iteration_blocks b JOIN jobs j ON j.process_id = b.process_id"
    )
    assert sorted(of_iterations) == [(0, 1), (0, 2)]
    assert sorted(rows(done, "SELECT rank, world_size, device_count FROM jobs")) == [(0, 1, 1), (0, 2, 2), (1, 2, 2)]


def test_a_failure_of_ours_at_a_reset(run_ranks: RunRanks) -> None:
    """The rank that stays is plain from there on, and the one that joins finds nobody to agree with."""
    environment = {"NEXT_HOSTS": "localhost:2\n", "STITCHFLEET_TEST_FAIL_IN_WORLD": "2"}
    done = run_ranks("elastic", STEPS, SECONDS, ranks=1, hosts=["localhost:1"], environment=environment)
    assert done.code == 0, done.err
    first, second = sorted(done.results, key=lambda result: -len(result["steps"]))
    assert first["weights"] == second["weights"]
    check_alike(steps_of(first), steps_of(second))
    check_numbers(done, first)
    check_arms(done, first, 1)
    assert not any(arms(steps_of(first), 2))
    said = [line for line in done.err.splitlines() if "switched off, the job runs on without it" in line]
    assert len(said) == 1, done.err
    assert "a failure on purpose" in said[0]


def test_a_rank_that_is_killed(run_ranks: RunRanks) -> None:
    """Horovod takes no rank on a failed host again, so the two ranks are on two names of this machine."""
    hosts = ["localhost:1", "127.0.0.1:1"]
    done = run_ranks("elastic", STEPS, SECONDS, how="around", ranks=2, hosts=hosts)
    assert done.code == 0, done.err
    (left,) = done.results
    check_numbers(done, left)
    check_arms(done, left, 2, 1)
    assert done.summary["worlds"] == [2, 1]
    assert done.summary["health"] == "good"
    assert training(done.summary)["phase"] == "stitched"
