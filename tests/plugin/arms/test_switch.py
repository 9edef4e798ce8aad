"""The two arms of a job are one job: taken in turn with nothing stitched, they equal the plain run bit for bit."""

from __future__ import annotations

import pathlib
import re

import pytest

from ...marks import slow
from ..conftest import ROOT, SCRIPTS, RunJob, keras_major
from ..job.test_faults import COLD, QUICK, relative_difference

IN_TURN = {"STITCHFLEET_BLOCK_STEPS": "10", "STITCHFLEET_PAIRS": "50"}


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_plain_session_taken_in_turn_equals_the_plain_run_bit_for_bit(run_job: RunJob, run_plain: RunJob) -> None:
    plain = run_plain("plain_session.py", "80")
    in_turn = run_job("plain_session.py", "80", mode="alternate", environment=IN_TURN)
    main = next(p for p in in_turn.summary["programs"] if p["name"] == in_turn.summary["main"])
    assert main["steps_stitched"] >= 30, in_turn.err
    assert in_turn.result == plain.result


@pytest.mark.costly
def test_a_graph_is_built_as_it_is_without_us(run_job: RunJob, run_plain: RunJob) -> None:
    """Nothing of ours makes TensorFlow's eager context before the script says that it wants none."""
    plain = run_plain("session_branch.py", "60")
    job = run_job("session_branch.py", "60", mode="alternate", environment=IN_TURN, start=True)
    assert job.code == 0, job.err
    assert job.result == plain.result
    assert job.result["before"] == "None"


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


@pytest.mark.costly
@pytest.mark.parametrize("way", ["function", "session"])
def test_every_seeded_random_operator_has_one_stream_in_both_graphs(
    run_job: RunJob, run_plain: RunJob, way: str
) -> None:
    environment = {"STITCHFLEET_BLOCK_STEPS": "2", "STITCHFLEET_PAIRS": "50"}
    in_turn = run_job("random_ops.py", "40", way, mode="fallback", environment=environment)
    assert in_turn.summary["programs"][0]["steps_stitched"] >= 10
    assert in_turn.result == run_plain("random_ops.py", "40", way).result


@pytest.mark.costly
def test_traces_of_one_function_draw_from_streams_of_their_own_and_set_seed_begins_them_again(
    run_job: RunJob, run_plain: RunJob
) -> None:
    environment = {"STITCHFLEET_BLOCK_STEPS": "2", "STITCHFLEET_PAIRS": "50"}
    in_turn = run_job("streams.py", mode="fallback", environment=environment)
    assert in_turn.code == 0, in_turn.err
    assert all(program["steps_stitched"] for program in in_turn.summary["programs"])
    assert in_turn.result == run_plain("streams.py").result


@pytest.mark.parametrize("script", ["normalized.py", "callables.py", slow("graph_fit.py"), "calls.py", "sums.py"])
def test_until_a_kernel_runs_every_number_is_the_plain_graphs_own(
    run_job: RunJob, run_plain: RunJob, script: str
) -> None:
    """The stitched graph, its stitch ops on TensorFlow's operators. Each script calls functions in other ways."""
    if script == "graph_fit.py" and keras_major() > 2:
        pytest.skip("Keras 3 has no graph mode")
    in_turn = run_job(script, mode="fallback", environment={"STITCHFLEET_BLOCK_STEPS": "3", "STITCHFLEET_PAIRS": "50"})
    assert in_turn.code == 0, in_turn.err
    assert in_turn.summary["health"] == "good"
    assert in_turn.summary["calls"]["fallback"] > 20
    often = [program for program in in_turn.summary["programs"] if program["steps"] > 8]
    assert all(program["steps_stitched"] > 5 for program in often), often
    assert in_turn.result == run_plain(script).result
    if script == "calls.py":  # each way to call what tf.function has traced is a step
        assert [(program["name"], program["steps"]) for program in in_turn.summary["programs"]] == [
            ("body", 40),
            ("<lambda>", 40),
            ("gradient of <lambda>", 40),
            ("signature_wrapper_served", 40),
            ("restored_function_body", 40),
            ("wrapped_function", 40),
            ("<lambda>_2", 40),
            ("<lambda>_3", 40),
            ("<lambda>_4", 40),
        ]


def test_threads_that_call_a_function_at_once_share_one_program_and_reach_its_stitched_phase(
    run_job: RunJob, run_plain: RunJob
) -> None:
    job = run_job("threads.py", mode="fallback", environment=IN_TURN)
    assert [(program["name"], program["steps"], program["phase"]) for program in job.summary["programs"]] == [
        ("step", 600, "stitched")
    ]
    assert job.summary["programs"][0]["steps_stitched"] > 100
    assert job.result == run_plain("threads.py").result


@pytest.mark.slow
@pytest.mark.parametrize("kernels", [slow("new"), "kept"])
def test_threads_run_kernels_that_are_new_and_kernels_that_were_kept(
    run_job: RunJob, run_plain: RunJob, cache: pathlib.Path, tmp_path: pathlib.Path, kernels: str
) -> None:
    own = None
    if kernels == "new":  # the library is there, kernels are not
        own = tmp_path / "no-kernels"
        own.mkdir(mode=0o700)
        (own / "native").symlink_to(cache / "native")
    job = run_job("threads.py", COLD, environment=QUICK, with_cache=own)
    assert job.code == 0, job.err
    assert [(program["name"], program["steps"], program["phase"]) for program in job.summary["programs"]] == [
        ("step", 600, "stitched")
    ], job.err
    assert job.summary["programs"][0]["steps_stitched"] > 100
    assert job.summary["calls"]["stitched"] > 100
    for ours, plain in zip(job.result, run_plain("threads.py").result, strict=True):
        assert relative_difference(ours, plain) < 1e-4


@pytest.mark.slow
def test_folds_with_a_new_model_and_the_same_seed_are_the_plain_runs_own(run_job: RunJob, run_plain: RunJob) -> None:
    """After clear_session, with Keras' dropout and with one whose rate is annealed as a Python float."""
    job = run_job("folds.py", mode="fallback", environment={"STITCHFLEET_BLOCK_STEPS": "2", "STITCHFLEET_PAIRS": "50"})
    assert job.code == 0, job.err
    often = [program for program in job.summary["programs"] if program["steps"] > 12]
    assert len(often) >= 6, "a fit and a step of each fold"
    assert all(program["steps_stitched"] > 4 for program in often), often
    assert job.result == run_plain("folds.py").result


def test_no_traceback_shows_a_frame_of_ours(run_job: RunJob, run_plain: RunJob) -> None:
    ours = run_job("tracebacks.py", mode="fallback")
    assert "stitchfleet/plugin" not in ours.out.replace(str(ROOT), "")
    frames = [line for line in ours.out.splitlines() if not line.startswith("  File") or "tracebacks.py" in line]
    expected = [
        line
        for line in run_plain("tracebacks.py").out.splitlines()
        if not line.startswith("  File") or "tracebacks.py" in line
    ]
    assert [line for line in frames if "Error" in line] == [line for line in expected if "Error" in line]


def test_a_failure_of_ours_in_the_stitched_arms_graph_leaves_the_jobs_random_numbers_alone(
    run_job: RunJob, run_plain: RunJob
) -> None:
    job = run_job("fails_while_stitching.py")
    assert "put in by the test" in job.summary["health"]
    assert job.result == run_plain("fails_while_stitching.py").result


def test_ways_to_run_a_graph_that_stay_plain_say_why(run_job: RunJob, run_plain: RunJob) -> None:
    job = run_job("other_ways.py", mode="fallback")
    assert job.code == 0, job.err
    found = {program["name"]: (program["reason"], program["steps"]) for program in job.summary["programs"]}
    assert found.pop("<lambda>") == ("compiled whole by XLA (jit_compile=True)", 10)
    assert found.pop("<lambda>_2") == ("compiled whole by XLA (jit_compile=True)", 10)
    assert (
        found.pop("partial_run of mul")
        == found.pop("partial_run of Tanh")
        == (
            "a step of partial_run is spread over several calls",
            10,
        )
    )
    assert not any("enqueue" in name for name in found), "a queue runner's thread is no step"
    assert job.result == run_plain("other_ways.py").result


KERAS = (
    dict.fromkeys(("train_on_batch", "test_on_batch"), "one_step_on_data")
    | dict.fromkeys(("predict", "predict_on_batch"), "one_step_on_data_distributed")
    | {"evaluate": "multi_step_on_iterator"}
    if keras_major() > 2
    else {"train_on_batch": "train_function"}
    | dict.fromkeys(("evaluate", "test_on_batch"), "test_function")
    | dict.fromkeys(("predict", "predict_on_batch"), "predict_function")
)
"""The function that Keras calls for each of its ways."""
MORE_WAYS = {
    # one worker comes first: its strategy has to be made before anything runs
    "one_worker": [("<lambda>", "stitched", "")],
    "interactive_session": [("train", "stitched", ""), ("loss", "stitched", "")],
    "train_on_batch": [(KERAS["train_on_batch"], "stitched", "")],
    "run_eagerly": [],
    "evaluate": [(KERAS["evaluate"], "stitched", "")],
    "predict": [(KERAS["predict"], "stitched", "")],
    "test_on_batch": [(KERAS["test_on_batch"], "stitched", "")],
    "predict_on_batch": [(KERAS["predict_on_batch"], "stitched", "")],
    "backend_function": [("Mean", "stitched", "")],
    "one_device": [("<lambda>", "stitched", "")],
    "central_storage": [("<lambda>", "stitched", "")],
    "numpy_function": [("<lambda>", "stitched", ""), ("body", "stitched", "")],
    "saved_model_in_a_session": [("loss", "stitched", "")],
    "supervisor": [("loss", "plain", "the session's graph is finalized")],
    "monitored_training_session": [("loss", "stitched", "")],
    "estimator": [("Adam", "stitched", "")],
    "map_fn": [],
    "dataset_map": [],
}
"""A way of more_ways.py -> (name without its number, phase, reason) of the programs that run 40 steps. None: TensorFlow runs no graph
in each step."""
WITH_KERAS_2 = ("backend_function", "estimator")
"""The ways that only a TensorFlow with Keras 2 has."""


@pytest.mark.costly
@pytest.mark.parametrize("part", [slice(0, 10), slice(10, None)], ids=["first", "second"])
def test_each_further_way_to_run_a_graph_is_stitched_or_stays_plain_as_the_page_says(
    run_job: RunJob, run_plain: RunJob, part: slice
) -> None:
    """In two jobs, since a job's summary keeps the latest 32 programs of functions and graphs that are gone (job.KEPT_GONE)."""
    environment = {"STITCHFLEET_BLOCK_STEPS": "3", "STITCHFLEET_PAIRS": "50"}
    ways = [way for way in [*MORE_WAYS][part] if way not in WITH_KERAS_2 or keras_major() == 2]
    job = run_job("more_ways.py", *ways, mode="fallback", environment=environment)
    assert job.code == 0, job.err
    programs = [program for program in job.summary["programs"] if program["steps"] >= 40]
    found = [(re.sub(r"_\d+$", "", p["name"]), p["phase"], p["reason"]) for p in programs]
    assert found == [program for way in ways for program in MORE_WAYS[way]]
    assert all(p["steps_stitched"] >= 15 for p in programs if p["phase"] == "stitched")
    assert job.result == run_plain("more_ways.py", *ways).result


def test_the_pages_table_of_ways_names_tests_that_are_there_and_says_what_they_find() -> None:
    section = (ROOT / "docs" / "stitching.md").read_text().split("## Ways to run a graph")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:2] == "| "]
    assert len(rows) > 25
    tests = "".join(path.read_text() for path in (ROOT / "tests" / "plugin").rglob("test_*.py"))
    said = {}
    for _, outcome, test in rows[1:]:
        name, _, case = test.strip("`").partition("` `")
        assert f"def {name}(" in tests, name
        assert outcome.partition(":")[0] in ("stitched", "plain"), outcome
        if case in MORE_WAYS:
            said[case] = outcome
        elif case:
            assert any(re.search(rf"\b{case}\b", path.read_text()) for path in SCRIPTS.glob("*.py")), case
    assert said.keys() == MORE_WAYS.keys()
    for case, programs in MORE_WAYS.items():
        assert said[case].startswith("stitched" if programs and programs[0][1] == "stitched" else "plain")
        assert all(reason in said[case] for _, _, reason in programs)


@pytest.mark.slow
@pytest.mark.parametrize("variables", [(), ("--ref",)], ids=["resources", "references"])
def test_a_session_of_a_server_stays_plain_and_says_why(
    run_job: RunJob, run_plain: RunJob, variables: tuple[str, ...]
) -> None:
    """A parameter server's parts of the graph belong to another process, which knows no stitch op."""
    job = run_job("parameter_servers_v1.py", "40", *variables, mode="fallback")
    assert job.code == 0, job.err
    (main,) = [program for program in job.summary["programs"] if program["steps"] == 40]
    assert main["reason"] == "its session is a server's, which hands parts of the graph to other processes"
    assert main["steps_stitched"] == 0
    assert job.result == run_plain("parameter_servers_v1.py", "40", *variables).result


@pytest.mark.slow
def test_steps_on_a_parameter_servers_workers_stay_plain_and_the_coordinators_own_are_stitched(
    run_job: RunJob, run_plain: RunJob
) -> None:
    job = run_job("parameter_servers.py", "60")
    assert job.code == 0, job.err
    programs = {program["name"]: program for program in job.summary["programs"]}
    assert "runs on a server's devices" in programs["step"]["reason"]
    assert programs["step"]["steps"] == 60
    assert programs["<lambda>"]["clusters"] == 1
    assert job.result == run_plain("parameter_servers.py", "60").result
