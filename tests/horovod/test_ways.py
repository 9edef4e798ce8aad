"""Horovod's ways to reduce gradients: stitched alike on all ranks if each step holds a collective of all, else plain."""

from __future__ import annotations

import collections
import pathlib
import re

import numpy as np
import pytest

from .conftest import RunRanks
from .test_faults import check_numbers
from .test_two_ranks import SECONDS, STEPS, check_two_ranks, training

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("way", "mpi"), [("compression", False), ("sparse", False), ("adasum", True)])
def test_gradients_of_every_step(run_ranks: RunRanks, way: str, mpi: bool) -> None:
    """Gloo has no Adasum."""
    environment = {"WAY": way}
    plain = run_ranks("ways", STEPS, how="plain", environment=environment, mpi=mpi)
    assert plain.code == 0, plain.err
    check_two_ranks(plain, run_ranks("ways", STEPS, SECONDS, environment=environment, mpi=mpi))


@pytest.mark.parametrize(
    ("script", "environment"),
    [
        pytest.param("fit", {"PASSES": "4"}, id="fit"),
        pytest.param("fit", {"EXECUTION": "4"}, id="four steps in a call"),
        pytest.param("fit", {"EXECUTION": "2", "PASSES": "4"}, id="two steps in a call"),
        pytest.param("monitored", {"PASSES": "2"}, id="monitored"),
        pytest.param("monitored", {"PASSES": "2", "CONTROL_FLOW": "1"}, id="monitored, branches of TensorFlow 1"),
    ],
)
def test_gradients_of_several_steps_together(run_ranks: RunRanks, script: str, environment: dict[str, str]) -> None:
    plain = run_ranks(script, STEPS, how="plain", environment=environment)
    assert plain.code == 0, plain.err
    done = run_ranks(script, STEPS, SECONDS, environment=environment)
    # rank 0 logs every ten steps: an operator of every second step may not be verified there when the ranks agree on their kernels
    check_two_ranks(plain, done, least=0.6 if script == "monitored" else 0.9)
    assert len({training(summary)["stitched_from_step"] for summary in done.of_ranks}) == 1


@pytest.mark.parametrize("script", ["tape", "fit", "monitored"])
def test_horovod_names_its_tensors_as_in_plain(run_ranks: RunRanks, tmp_path: pathlib.Path, script: str) -> None:
    """By these names it finds what belongs together on all ranks."""

    def names(how: str, *words: object) -> collections.Counter[str]:
        timeline = tmp_path / f"{how}.json"
        done = run_ranks(script, STEPS, *words, how=how, environment={"HOROVOD_TIMELINE": str(timeline)})
        assert done.code == 0, done.err
        if how != "plain":
            assert training(done.summary)["steps_stitched"] > 100
        return collections.Counter(re.findall(r'"process_name".*?"name": *"([^"]+)"', timeline.read_text()))

    plain = names("plain")
    assert len(plain) > 1
    assert names("around", SECONDS) == plain


@pytest.mark.parametrize("way", ["set", "eager", "seldom"])
def test_steps_without_a_collective_of_all_ranks_are_plain(run_ranks: RunRanks, way: str) -> None:
    environment = {"WAY": way, "HOROVOD_DYNAMIC_PROCESS_SETS": "1"}
    plain = run_ranks("ways", 200, how="plain", environment=environment)
    done = run_ranks("ways", 200, SECONDS, environment=environment)
    assert plain.code == 0, plain.err
    assert np.isfinite(plain.results[0]["losses"]).all()
    check_numbers(plain, done)
    for summary in done.of_ranks:
        assert summary["calls"]["stitched"] == 0
        (train,) = [program for program in summary["programs"] if program["name"] == "train"]
        assert train["reason"].startswith("its steps hold no collective of all ranks")
