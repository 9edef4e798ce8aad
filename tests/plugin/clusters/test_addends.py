"""The order of addends in a fallback is that of the job's graph, whichever of them TensorFlow may write over there."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from stitchfleet.plugin.clusters import addends
from stitchfleet.plugin.graph.placed_graph import PlacedGraph


def graph_of(**nodes: str) -> PlacedGraph:
    """A graph of float nodes: name -> op and its inputs, separated by blanks."""
    from tensorflow.core.framework import graph_pb2
    from tensorflow.python.framework import tensor_util

    graph: Any = graph_pb2.GraphDef()
    for name, text in nodes.items():
        op, *inputs = text.split()
        node = graph.node.add(name=name, op=op, input=inputs)
        if op == "Const":
            node.attr["value"].tensor.CopyFrom(tensor_util.make_tensor_proto([0]))
    return PlacedGraph(graph)


def order_of(graph: PlacedGraph) -> list[str]:
    ports = addends.in_order(graph, graph.by_name["sum"])
    return [graph.nodes[port.node].name for port in ports]


def test_the_first_operand_that_may_be_written_over_comes_first() -> None:
    leaves = {"x": "Placeholder", "y": "Placeholder"}
    assert order_of(graph_of(**leaves, c="Mul x y", a="Mul x x", b="Mul y y", sum="AddN c a b")) == ["c", "a", "b"]
    # a variable's value, what another one reads too, and what is only another shape of such
    held = graph_of(
        **leaves, a="ReadVariableOp x", b="Mul x y", b2="Neg b", c="Reshape y x", d="Mul y y", sum="AddN a b c d"
    )
    assert order_of(held) == ["d", "b", "c", "a"]
    assert order_of(graph_of(**leaves, a="Identity x", b="Const", c="Placeholder", sum="AddN c b a")) == ["c", "b", "a"]


def test_a_reduction_with_computed_axes_passes_its_operand_on() -> None:
    """The gradients of both operands of x * x are one tensor, each summed over what was broadcast, mostly nothing."""
    nodes = {"x": "Placeholder", "g": "Mul x x", "axes": "Unique x", "one": "Const", "c": "Neg x"}
    shared = graph_of(**nodes, a="Sum g axes", b="Sum g axes", sum="AddN a b c")
    assert order_of(shared) == ["c", "b", "a"]
    assert order_of(graph_of(**nodes, a="Sum g one", b="Sum g one", sum="AddN a b c")) == ["a", "b", "c"]


def test_where_all_buffers_are_members_results_the_order_is_tensorflows() -> None:
    graph = graph_of(x="Placeholder", p="Neg x", a="Reshape p x", b="Exp x", c="Abs x", sum="AddN a b c")
    inside = {graph.by_name[name] for name in ("p", "a", "b", "c", "sum")}
    assert addends.come_from_within(graph, graph.by_name["sum"], inside)
    for outside in ("p", "a", "c"):
        members = inside - {graph.by_name[outside]}
        assert not addends.come_from_within(graph, graph.by_name["sum"], members), outside


def sum_by_tensorflow(operands: list[str], may_write_over: dict[str, bool]) -> list[str]:
    """The order in which AddN's kernel adds up."""
    found = list(operands)
    first = next((k for k, name in enumerate(found) if may_write_over[name]), 0)
    found[0], found[first] = found[first], found[0]
    return found


@pytest.mark.parametrize("count", [3, 4, 5])
def test_whatever_may_be_written_over_the_order_is_kept(count: int) -> None:
    """Each operand is held, its operator's own, or one of the two: nobody knows which."""
    from tensorflow.core.framework import function_pb2, node_def_pb2

    node: Any = node_def_pb2.NodeDef(name="sum", op="AddN")
    node.attr["N"].i = count
    names = [f"a{k}" for k in range(count)]
    for kinds in itertools.product(("held", "own", "either"), repeat=count):
        function: Any = function_pb2.FunctionDef()
        held, own = [kind == "held" for kind in kinds], [kind == "own" for kind in kinds]
        last = addends.keep_order(function, "sum", node, names, held, own)
        unknown = [name for name, kind in zip(names, kinds) if kind == "either"]
        for guess in itertools.product((False, True), repeat=len(unknown)):
            may_write_over = dict(zip(names, own)) | dict(zip(unknown, guess))
            done = {name: [name] for name in names}
            for added in [*function.node_def, None]:
                operands = list(added.input) if added is not None else last
                order = sum_by_tensorflow(operands, may_write_over)
                result = f"{added.name}:sum:0" if added is not None else "sum"
                done[result] = [name for operand in order for name in done[operand]]
                may_write_over[result] = True
            assert [frozenset(done["sum"][:2]), *done["sum"][2:]] == [frozenset(names[:2]), *names[2:]], (kinds, guess)
