"""What leads to a collective is handed on: in the graph, and in the order in which TensorFlow's executor runs it."""

from __future__ import annotations

from typing import Any

import pytest

from stitchfleet.plugin.clusters.collectives_first import HAND_ON_OP, MOST_BETWEEN, hand_on_first
from stitchfleet.plugin.clusters.rewrite import STITCH_OP, UPDATE_OP

from ..conftest import Plugin

CPU, GPU = "/device:CPU:0", "/device:GPU:0"


def graph_of(*nodes: tuple[str, str, list[str]], device: str = CPU) -> Any:
    from tensorflow.core.framework import graph_pb2

    graph: Any = graph_pb2.GraphDef()
    for name, op, inputs in nodes:
        node = graph.node.add(name=name, op=op, input=inputs, device=device)
        if op == STITCH_OP:
            node.attr["Tout"].list.type.extend([1, 19, 9])
    return graph


def inputs_of(graph: Any) -> dict[str, list[str]]:
    return {node.name: list(node.input) for node in graph.node}


def test_collectives_and_what_leads_only_to_them_read_what_is_handed_on() -> None:
    graph = graph_of(
        ("x", "Placeholder", []),
        ("s", STITCH_OP, ["x"]),
        ("bias", "HorovodAllreduce", ["s:2"]),
        ("weight", "MatMul", ["x", "s:1"]),
        ("cast", "Cast", ["weight"]),
        ("gathered", "HorovodAllgather", ["cast"]),
        ("input", "MatMul", ["s:1", "s"]),
        ("kept", "Neg", ["input"]),
        ("after", "NoOp", ["^input"]),
        ("t", STITCH_OP, ["s"]),
        ("reduced", "HorovodAllreduce", ["t:1"]),
        ("also", "HorovodAllreduce", ["t"]),
    )
    assert hand_on_first(graph) == 1  # nothing but collectives read t
    found = inputs_of(graph)
    assert found["s/stitchfleet_all"] == ["s", "s:1", "s:2"]
    assert found["s/stitchfleet_first"] == ["s/stitchfleet_all", "s/stitchfleet_all:1", "s/stitchfleet_all:2"]
    assert found["bias"] == ["s/stitchfleet_first:2"]
    assert found["weight"] == ["x", "s/stitchfleet_first:1"]
    assert found["input"] == ["s/stitchfleet_all:1", "s/stitchfleet_all"]
    assert found["t"] == ["s/stitchfleet_first"]
    assert found["reduced"] == ["t:1"]
    for node, types in zip(list(graph.node)[-2:], ([1, 19, 9], [1, 19, 9])):
        assert (node.op, node.device, list(node.attr["T"].list.type)) == (HAND_ON_OP, CPU, types)


def test_an_operator_that_leads_to_anything_else_reads_the_stitch_op() -> None:
    begin = [("x", "Placeholder", []), ("s", STITCH_OP, ["x"]), ("m", "MatMul", ["s", "s:1"]), ("o", "Neg", ["s"])]
    collective = ("c", "HorovodAllreduce", ["m"])
    assert hand_on_first(graph_of(*begin, collective)) == 1
    graph = graph_of(*begin, collective, ("norm", "L2Loss", ["m"]))
    assert hand_on_first(graph) == 1
    assert inputs_of(graph)["m"] == ["s", "s:1"]
    assert inputs_of(graph)["c"] == ["m/stitchfleet_first"]
    assert hand_on_first(graph_of(*begin, collective, ("after", "NoOp", ["^m"]))) == 0
    assert hand_on_first(graph_of(*begin, ("t", STITCH_OP, ["m"]), ("c", "HorovodAllreduce", ["t"]))) == 1
    assert hand_on_first(graph_of(*begin, ("t", UPDATE_OP, ["m"]), ("c", "HorovodAllreduce", ["t"]))) == 0
    assert hand_on_first(graph_of(*begin)) == 0
    assert hand_on_first(graph_of(*begin, collective, device=GPU)) == 0
    for between, added in ((MOST_BETWEEN - 1, 1), (MOST_BETWEEN, 0)):
        chain = [(f"n{k}", "Neg", [f"n{k - 1}" if k else "m"]) for k in range(between)]
        assert hand_on_first(graph_of(*begin, *chain, ("c", "HorovodAllreduce", [chain[-1][0]]))) == added


def test_ways_part_behind_an_operator_of_tensorflow_too() -> None:
    """A gradient's Reshape that two products read, and a product that a Stitch op reads whose sums are reduced."""
    graph = graph_of(
        ("x", "Placeholder", []),
        ("s", STITCH_OP, ["x"]),
        ("gradient", "Reshape", ["s", "x"]),
        ("weight", "MatMul", ["x", "gradient"]),
        ("c", "HorovodAllreduce", ["weight"]),
        ("input", "MatMul", ["gradient", "x"]),
        ("sums", STITCH_OP, ["input"]),
        ("d", "HorovodAllreduce", ["sums"]),
        ("t", STITCH_OP, ["input"]),
        ("o", "Neg", ["t"]),
    )
    for node in graph.node:
        node.attr["T"].type = 1
    assert hand_on_first(graph) == 2
    found = inputs_of(graph)
    assert found["weight"] == ["x", "gradient/stitchfleet_first"]
    assert found["input"] == ["gradient", "x"]
    assert found["sums"] == ["input/stitchfleet_first"]
    assert found["t"] == ["input"]
    assert all(list(node.attr["T"].list.type) == [1] for node in list(graph.node)[-2:])


def test_nothing_is_handed_on_behind_what_is_there_before_the_step() -> None:
    graph = graph_of(
        ("v", "VarHandleOp", []),
        ("read", "ReadVariableOp", ["v"]),
        ("k", "Const", []),
        ("c", "HorovodAllreduce", ["read"]),
        ("d", "HorovodAllreduce", ["k"]),
        ("o", "AddV2", ["read", "k"]),
    )
    assert hand_on_first(graph) == 0


def test_the_branch_in_which_horovod_reduces_leads_to_a_collective() -> None:
    """`_allreduce_cond`: a world of one rank hands the gradient on."""
    graph = graph_of(
        ("x", "Placeholder", []),
        ("s", STITCH_OP, ["x"]),
        ("o", "Neg", ["s"]),
        ("m", "MatMul", ["s", "s:1"]),
        ("branch", "Switch", ["m", "x"]),
        ("c", "HorovodAllreduce", ["branch:1"]),
        ("alone", "Identity", ["branch"]),
        ("reduced", "Merge", ["c", "alone"]),
    )
    assert hand_on_first(graph) == 1
    assert inputs_of(graph)["m"] == ["s/stitchfleet_first", "s/stitchfleet_first:1"]
    assert inputs_of(graph)["o"] == ["s/stitchfleet_all"]


def test_a_long_chain_and_a_loop_are_looked_at_once() -> None:
    chain = [(f"n{k}", "Neg", [f"n{k - 1}"]) for k in range(1, 5000)]
    loop = [("merge", "Merge", ["n0", "next"]), ("next", "NextIteration", ["merge"])]
    begin = [("n0", STITCH_OP, []), *loop, *chain, ("other", "Neg", ["n0"])]
    assert hand_on_first(graph_of(*begin, ("c", "HorovodAllreduce", ["n4999"]))) == 0


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("first", ["one", "two", "three"])
def test_the_executor_runs_what_is_handed_on_first(plugin: Plugin, first: str, is_async: bool) -> None:
    """Whichever it is, and also if the source is asynchronous, as the Stitch op is."""
    import numpy as np
    import tensorflow as tf
    from tensorflow.core.framework import attr_value_pb2

    seen: list[str] = []

    def noted(name: str) -> Any:
        def function(x: Any) -> Any:
            seen.append(name)
            return x

        return function

    with tf.Graph().as_default() as graph:
        queue = tf.queue.FIFOQueue(5, [tf.float32], [()])
        source = queue.dequeue() if is_async else tf.numpy_function(noted("source"), [np.float32(3)], tf.float32)
        types = attr_value_pb2.AttrValue(list=attr_value_pb2.AttrValue.ListValue(type=[tf.float32.as_datatype_enum]))

        def handed_on(value: Any) -> Any:
            return graph.create_op(HAND_ON_OP, [value], [tf.float32], attrs={"T": types}).outputs[0]

        to_all = handed_on(source)
        results = [
            tf.numpy_function(noted(name), [handed_on(to_all) if name == first else to_all], tf.float32)
            for name in ("one", "two", "three")
        ]
        config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=1, use_per_session_threads=True)
        with tf.compat.v1.Session(config=config) as session:
            for _ in range(5):
                session.run(queue.enqueue(np.float32(3)))
                assert session.run(results) == [3, 3, 3]
    seen = [name for name in seen if name != "source"]
    assert seen[::3] == [first] * 5
    assert sorted(seen) == sorted(["one", "two", "three"] * 5)
