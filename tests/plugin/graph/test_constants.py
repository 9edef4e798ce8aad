"""What a constant waits for, its readers wait for instead, unless they run after it anyway."""

from __future__ import annotations

from typing import Any

from stitchfleet.plugin.graph.constants import drop_unread, free_constants


def freed(**nodes: str) -> dict[str, list[str]]:
    """Name -> inputs of a graph's nodes after its constants were freed. A node is given as its op and its inputs, separated by
    blanks."""
    from tensorflow.core.framework import graph_pb2

    graph: Any = graph_pb2.GraphDef()
    for name, text in nodes.items():
        op, *inputs = text.split()
        graph.node.add(name=name, op=op, input=inputs)
    free_constants(graph)
    return {node.name: list(node.input) for node in graph.node}


def test_a_reader_waits_for_what_the_constant_waited_for() -> None:
    found = freed(x="Placeholder", y="Placeholder", assign="Assign y y", two="Const ^assign", z="Mul x two")
    assert found["two"] == []
    assert found["z"] == ["x", "two", "^assign"]


def test_a_constant_that_waits_for_a_constant_hands_on_all_that_both_wait_for() -> None:
    found = freed(
        x="Placeholder", a="Neg x", b="Abs x", one="Const ^a", two="Const ^one ^b", y="Placeholder", z="Mul y two"
    )
    assert found["z"] == ["y", "two", "^a", "^b"]


def test_a_reader_that_runs_later_anyway_gets_no_edge() -> None:
    """As the shape of a gradient that constant folding has made a constant, waiting for the operands whose shape it was."""
    found = freed(
        **{"x": "Placeholder", "y": "Neg x", "shape": "Const ^x ^y", "z": "Exp y", "reshaped": "Reshape z shape"},
        at_once="Reshape y shape",
        later="Reshape x shape ^z",
    )
    assert (found["reshaped"], found["at_once"]) == (["z", "shape"], ["y", "shape"])
    assert found["later"] == ["x", "shape", "^z"]


def test_after_a_merge_only_what_is_before_all_of_its_operands_has_run() -> None:
    nodes = {"x": "Placeholder", "p": "Placeholder", "s": "Switch x p", "a": "Neg s", "b": "Exp s:1", "m": "Merge a b"}
    assert freed(**nodes, one="Const ^a", z="Mul m one")["z"] == ["m", "one", "^a"]
    assert freed(**nodes, one="Const ^s", z="Mul m one")["z"] == ["m", "one"]
    assert freed(**nodes, w="Identity m ^b", one="Const ^b", z="Mul w one")["z"] == ["w", "one"]


def test_a_constant_of_a_merge_or_in_a_graph_with_loops_stays() -> None:
    nodes = {"x": "Placeholder", "p": "Placeholder", "s": "Switch x p", "one": "Const ^s", "a": "Neg s:1"}
    assert freed(**nodes, m="Merge one a")["one"] == ["^s"]
    assert freed(**nodes, e="Enter x")["one"] == ["^s"]


def test_the_shape_of_what_runs_earlier_is_not_waited_for() -> None:
    nodes = {"x": "Placeholder", "w": "Placeholder", "y": "Mul x w", "shapes": "ShapeN x w", "one": "Const ^shapes"}
    assert freed(**nodes, z="Mul y one")["z"] == ["y", "one"]
    assert freed(**nodes, z="Mul x one")["z"] == ["x", "one", "^shapes"]
    nodes = {"x": "Placeholder", "p": "Placeholder", "s": "Switch x p", "shape": "Shape s", "one": "Const ^shape"}
    assert freed(**nodes, z="Mul s:1 one")["z"] == ["s:1", "one", "^shape"]


def test_an_operator_that_tensorflow_joins_if_it_waits_for_nothing_gets_no_wait() -> None:
    """As the gradient of a filter, under tf.control_dependencies of a batch norm's updates: it is joined with that of the bias."""
    nodes = {"x": "Placeholder", "g": "Placeholder", "update": "Assign x x", "sizes": "Const ^update"}
    found = freed(**nodes, filter="Conv2DBackpropFilter x sizes g", other="Mul g sizes")
    assert found["sizes"] == ["^update"]
    assert (found["filter"], found["other"]) == (["x", "sizes", "g"], ["g", "sizes"])
    assert (
        freed(**nodes, update_first="Identity g ^update", filter="Conv2DBackpropFilter x sizes update_first")["sizes"]
        == []
    )


def test_constants_that_nothing_reads_or_waits_for_are_dropped() -> None:
    from tensorflow.core.framework import graph_pb2

    graph: Any = graph_pb2.GraphDef()
    for name, op, inputs in (
        *(("unread", "Const", []), ("read", "Const", []), ("waited", "Const", []), ("fetched", "Const", [])),
        *(("x", "Neg", ["read:0", "^waited"]), ("assign", "Assign", [])),
    ):
        graph.node.add(name=name, op=op, input=inputs)
    assert drop_unread(graph, {"fetched"}) == 1
    assert [node.name for node in graph.node] == ["read", "waited", "fetched", "x", "assign"]
    assert drop_unread(graph, {"fetched"}) == 0
