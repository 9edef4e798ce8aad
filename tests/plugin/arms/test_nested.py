"""Functions that TensorFlow does not inline, as Keras' LSTM and GRU have them: stitched in the stitched arm, plain in the plain."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from stitchfleet.plugin.arms.nested_calls import MARK_OPTIMIZER, Mark, mark_calls

from ..conftest import Plugin, RunJob, switched_off_while_stitched
from ..job.test_faults import COLD, QUICK, main_program, relative_difference

KEPT_OUT = "PartitionedCall"
"""Counted among the operators that stayed out: the calls are there, TensorFlow has not inlined them."""


def call_graph(**attributes: bool) -> Any:
    """A GraphDef with one call node."""
    from tensorflow.core.framework import graph_pb2

    graph: Any = graph_pb2.GraphDef()
    node = graph.node.add(name="call", op="StatefulPartitionedCall")
    node.attr["f"].func.name = "body"
    for name, value in attributes.items():
        node.attr[name].b = value
    return graph


def configuration(graph: Any) -> Any:
    from tensorflow.core.protobuf import config_pb2

    return config_pb2.ConfigProto.FromString(graph.node[0].attr["config_proto"].s)


def test_a_marked_call_names_its_program_generation_and_function() -> None:
    graph = call_graph()
    assert mark_calls(graph, "train\nstep", 3) == 1
    (optimizer,) = configuration(graph).graph_options.rewrite_options.custom_optimizers
    assert optimizer.name == MARK_OPTIMIZER
    assert Mark.decode(optimizer.parameter_map["mark"].s.decode()) == Mark("train\nstep", 3, "body")


def test_what_the_user_configured_stays_in_a_marked_call_and_a_second_marking_changes_nothing() -> None:
    graph = call_graph()
    config = configuration(graph)
    config.graph_options.rewrite_options.layout_optimizer = 2
    config.allow_soft_placement = True
    graph.node[0].attr["config_proto"].s = config.SerializeToString()
    mark_calls(graph, "train", 0)
    marked = graph.SerializeToString(deterministic=True)
    assert mark_calls(graph, "train", 0) == 0
    assert graph.SerializeToString(deterministic=True) == marked
    kept = configuration(graph)
    del kept.graph_options.rewrite_options.custom_optimizers[:]
    assert kept == config


def test_a_function_that_xla_compiles_whole_is_not_marked() -> None:
    graph = call_graph(_XlaMustCompile=True)
    assert mark_calls(graph, "train", 0) == 0
    assert mark_calls(call_graph(_XlaMustCompile=False), "train", 0) == 1


def test_only_the_marked_body_is_offered_with_a_mark(plugin: Plugin) -> None:
    """The same function, called marked and as it is: its body is offered twice, with the mark and without, nested ones likewise."""
    import tensorflow as tf
    from tensorflow.core.framework import graph_pb2

    seen: list[tuple[str, bool]] = []
    marking = False

    def offered(data: bytes, preserve: list[str]) -> bytes | None:
        graph: Any = graph_pb2.GraphDef.FromString(data)
        mark = plugin.library.arm_mark()
        ops = {node.op for node in graph.node}
        seen.extend((op, bool(mark)) for op in ("Sin", "Cos", "Tan") if op in ops)
        if (marking or mark) and mark_calls(graph, "outer", 0):
            return bytes(graph.SerializeToString())
        return None

    not_inlined = {"_noinline": True}
    innermost = tf.function(lambda x: tf.tan(x) + x * 2.0 - tf.exp(x), experimental_attributes=not_inlined)
    inner = tf.function(lambda x: tf.cos(x) + innermost(x * 0.5) * 3.0, experimental_attributes=not_inlined)

    def outer(x: Any) -> Any:
        return tf.sin(x) + inner(x + 1.0) * 2.0

    plugin.library.set_rewrite(offered)
    try:
        x = tf.ones([4])
        plain = tf.function(outer)(x)
        assert {*seen} == {("Sin", False), ("Cos", False), ("Tan", False)}
        seen.clear()
        marking = True
        marked = tf.function(outer)(x)
        assert {*seen} == {("Sin", False), ("Cos", True), ("Tan", True)}
        seen.clear()
        marking = False
        again = tf.function(outer)(x)
        assert {*seen} == {("Sin", False), ("Cos", False), ("Tan", False)}, "a mark outlived its graph"
    finally:
        plugin.library.set_rewrite(plugin.offered)
    assert plain.numpy().tolist() == marked.numpy().tolist() == again.numpy().tolist()


def nested_calls_of(job_summary: dict[str, Any]) -> int:
    """Calls of stitched kernels of the clusters that stand in a loop: only the recurrent layers' bodies have one.

    Such a cluster runs once for each of the 12 points in time, and so more often than there are steps.
    """
    steps = sum(program["steps"] for program in job_summary["programs"])
    executables = [entry for cluster in job_summary["clusters"] for entry in cluster["executables"]]
    counts = [entry["calls"].get("stitched", 0) for entry in executables]
    return sum(count for count in counts if count > 2 * steps)


@pytest.mark.slow
def test_an_lstm_and_a_gru_are_stitched_inside_and_their_losses_agree(run_job: RunJob, run_plain: RunJob) -> None:
    job = run_job("recurrent.py", "100", COLD, environment=QUICK)
    assert job.code == 0, job.err
    assert main_program(job)["phase"] == "stitched", job.err
    assert job.summary["stayed_out"]["no row in the operator table"][KEPT_OUT] >= 4
    assert nested_calls_of(job.summary) > 1000
    assert not job.summary["reverts"]
    assert relative_difference(job.result, run_plain("recurrent.py", "100").result) < 1e-3


@pytest.mark.slow
def test_the_two_arms_of_an_lstm_and_a_gru_are_equal_bit_for_bit_without_kernels(
    run_job: RunJob, run_plain: RunJob
) -> None:
    job = run_job("recurrent.py", "12", mode="alternate", environment=QUICK)
    assert job.code == 0, job.err
    assert int(str(main_program(job)["steps_stitched"])) > 10
    assert job.result == run_plain("recurrent.py", "12").result


@pytest.mark.slow
def test_switched_off_an_lstm_and_a_gru_go_back_to_plain(cache: pathlib.Path, tmp_path: pathlib.Path) -> None:
    job = switched_off_while_stitched(tmp_path, cache, QUICK, "recurrent.py", "500", COLD)
    assert job.code == 0, job.err
    program: dict[str, Any] = main_program(job)
    assert program["reason"] == "switched off from outside", job.err
    assert 0 < program["steps_stitched"] < 1900
    # Not a kernel ran after the last stitched step: each of a loop's runs 12 times in a step at most.
    for cluster in job.summary["clusters"]:
        for entry in cluster["executables"]:
            assert sum(entry["calls"].values()) <= 12 * cluster["instances"] * program["steps_stitched"]
