"""Two ranks of one job: what a user sees of them, however they are started."""

from __future__ import annotations

import pathlib
import re
import sqlite3
from typing import Any

import numpy as np
import pytest

from .conftest import Ranks, RunRanks

STEPS = 1500
FEW_STEPS = 600
"""Of the quick suite's job: as few as leave nine of ten calls to kernels."""
SECONDS = 30.0
"""Longest pause of a script until its kernels are there."""


def training(summary: dict[str, Any]) -> dict[str, Any]:
    return next(program for program in summary["programs"] if program["name"] in summary["training_functions"])


def rows(done: Ranks, query: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(done.folder / "records.db") as database:
        return database.execute(query).fetchall()


def kernels_made(summary: dict[str, Any]) -> int:
    """How many kernels the compile service of a rank has made, as its log says."""
    log = pathlib.Path(summary["records"]["folder"], "service.log").read_text()
    return sum(int(count) for count in re.findall(r"^(\d+) kernels made", log, re.MULTILINE))


def check_two_ranks(plain: Ranks, done: Ranks, least: float = 0.9) -> None:
    """What every stitched job of two ranks must have, beside the plain one from the same seed. least: share of the calls of stitch
    ops that run on kernels."""
    assert done.code == 0, done.err
    assert [result["rank"] for result in done.results] == [0, 1]
    assert done.results[0]["weights"] == done.results[1]["weights"]
    for result, beside in zip(done.results, plain.results):
        np.testing.assert_allclose(result["losses"], beside["losses"], rtol=1e-3, atol=1e-6)
    # one document, rank 0's first, with what every rank says
    assert [summary["rank"] for summary in done.of_ranks] == [0, 1]
    assert len({summary["run_id"] for summary in done.of_ranks}) == 1
    for summary in done.of_ranks:
        assert summary["health"] == "good"
        assert training(summary)["steps_stitched"] > 0
        calls = summary["calls"]
        assert calls["stitched"] >= least * sum(calls.values())
    # the same clusters on both ranks, with kernels that are made once
    names = [sorted(cluster["name"] for cluster in summary["clusters"]) for summary in done.of_ranks]
    assert names[1]
    assert set(names[0]) >= set(names[1])  # rank 0's hooks may fetch more, which cuts clusters
    if done.script != "monitored":
        assert names[0] == names[1]
    # one job: who each rank is, rank 0's iterations, the devices of both once
    assert rows(done, "SELECT rank, world_size, device_count FROM jobs ORDER BY rank") == [(0, 2, 2), (1, 2, 2)]
    of_iterations = rows(
        done, "SELECT DISTINCT j.rank FROM iteration_blocks b JOIN jobs j ON j.process_id = b.process_id"
    )
    assert of_iterations == [(0,)]


@pytest.mark.costly
def test_horovodrun_under_stitchfleet_run(run_ranks: RunRanks) -> None:
    plain = run_ranks("tape", FEW_STEPS, how="plain")
    assert plain.results[0]["weights"] == plain.results[1]["weights"]
    check_two_ranks(plain, run_ranks("tape", FEW_STEPS, SECONDS))


@pytest.mark.slow
@pytest.mark.parametrize("script", ["tape", "fit", "monitored"])
@pytest.mark.parametrize("how", ["around", "within"])
def test_each_way_to_train_and_to_start(run_ranks: RunRanks, script: str, how: str) -> None:
    done = run_ranks(script, STEPS, SECONDS, how=how)
    check_two_ranks(run_ranks(script, STEPS, how="plain"), done)


@pytest.mark.slow
def test_batches_of_other_sizes_on_one_rank(run_ranks: RunRanks) -> None:
    """The clusters and kernels of both ranks are the same all the same, and what one rank alone has is TensorFlow's."""
    short = {"SHORT": "25"}
    check_two_ranks(
        run_ranks("tape", STEPS, how="plain", environment=short), run_ranks("tape", STEPS, SECONDS, environment=short)
    )


@pytest.mark.slow
@pytest.mark.parametrize("how", ["around", "within"])
def test_rank_0_prints_for_all(run_ranks: RunRanks, how: str) -> None:
    done = run_ranks("tape", STEPS, SECONDS, how=how, quiet=False)
    assert done.err.count("what happened in run") == 1, done.err
    assert "rank 0 of 2" in done.err
    assert "ranks: 2 of 2 say the same" in done.err or "ranks: they do not say the same" in done.err


@pytest.mark.slow
def test_one_service_makes_the_kernels_of_both_ranks(run_ranks: RunRanks, no_kernels: pathlib.Path) -> None:
    done = run_ranks("tape", STEPS, SECONDS, with_cache=no_kernels)
    assert done.code == 0, done.err
    for summary in done.of_ranks:
        assert {entry["state"] for cluster in summary["clusters"] for entry in cluster["executables"]} == {"stitched"}
    made = sorted(kernels_made(summary) for summary in done.of_ranks)
    assert made[0] == 0 < made[1], made
