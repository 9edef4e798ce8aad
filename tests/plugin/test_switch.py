"""The two arms of a job are one job: taken in turn with nothing stitched, they equal the plain run bit for bit."""

from __future__ import annotations

import pytest

from .conftest import RunJob

IN_TURN = {"STITCHFLEET_BLOCK_STEPS": "10", "STITCHFLEET_PAIRS": "50"}


def test_a_loop_with_seeded_dropout_taken_in_turn_equals_the_plain_run_bit_for_bit(
    run_job: RunJob, run_plain: RunJob
) -> None:
    plain = run_plain("loop.py", "120")
    in_turn = run_job("loop.py", "120", mode="alternate", environment=IN_TURN)
    assert in_turn.code == 0, in_turn.err
    main = in_turn.summary["programs"][0]
    assert main["steps_stitched"] >= 40
    assert main["steps_plain"] >= 40
    assert in_turn.result == plain.result


def test_every_seeded_random_operator_continues_its_stream_in_the_other_arm(run_job: RunJob, run_plain: RunJob) -> None:
    environment = {"STITCHFLEET_BLOCK_STEPS": "2", "STITCHFLEET_PAIRS": "50"}
    plain = run_plain("random_ops.py", "40")
    in_turn = run_job("random_ops.py", "40", mode="alternate", environment=environment)
    assert in_turn.summary["programs"][0]["steps_stitched"] >= 10
    assert in_turn.result == plain.result


@pytest.mark.slow
def test_keras_fit_taken_in_turn_equals_the_plain_run_bit_for_bit(run_job: RunJob, run_plain: RunJob) -> None:
    plain = run_plain("keras_fit.py", "5")
    in_turn = run_job("keras_fit.py", "5", mode="alternate", environment=IN_TURN)
    assert in_turn.summary["programs"][0]["steps_stitched"] >= 30, in_turn.err
    assert in_turn.result == plain.result


@pytest.mark.slow
def test_a_monitored_session_taken_in_turn_equals_the_plain_run_bit_for_bit(run_job: RunJob, run_plain: RunJob) -> None:
    plain = run_plain("monitored.py", "80")
    in_turn = run_job("monitored.py", "80", mode="alternate", environment=IN_TURN)
    main = next(p for p in in_turn.summary["programs"] if p["name"] == in_turn.summary["main"])
    assert main["kind"] == "session"
    assert main["steps_stitched"] >= 30, in_turn.err
    assert in_turn.result == plain.result


def test_a_plain_session_taken_in_turn_equals_the_plain_run_bit_for_bit(run_job: RunJob, run_plain: RunJob) -> None:
    plain = run_plain("plain_session.py", "80")
    in_turn = run_job("plain_session.py", "80", mode="alternate", environment=IN_TURN)
    main = next(p for p in in_turn.summary["programs"] if p["name"] == in_turn.summary["main"])
    assert main["steps_stitched"] >= 30, in_turn.err
    assert in_turn.result == plain.result


@pytest.mark.slow
def test_a_seeded_random_operator_in_a_nested_function_keeps_its_stream(run_job: RunJob, run_plain: RunJob) -> None:
    """Its body has an executor in each arm; until those share a stream too, such a job stays plain and says why."""
    plain = run_plain("nested_random.py", "60")
    in_turn = run_job("nested_random.py", "60", mode="alternate", environment=IN_TURN)
    assert in_turn.code == 0, in_turn.err
    assert in_turn.result == plain.result
    assert "seeded random operator" in in_turn.summary["programs"][0]["reason"]


@pytest.mark.slow
def test_graphs_of_the_same_names_one_after_another_are_programs_of_their_own(
    run_job: RunJob, run_plain: RunJob
) -> None:
    plain = run_plain("sessions_in_turn.py", "4", "40")
    in_turn = run_job("sessions_in_turn.py", "4", "40", mode="alternate", environment=IN_TURN)
    assert in_turn.code == 0, in_turn.err
    trained = [p for p in in_turn.summary["programs"] if p["steps_stitched"] >= 10]
    assert len(trained) == 4, in_turn.err
    assert in_turn.result == plain.result
