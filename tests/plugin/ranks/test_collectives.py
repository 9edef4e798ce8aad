"""Which steps tie all ranks together, and who sees that they stop doing so."""

from __future__ import annotations

import sys
import types

import pytest

from stitchfleet.plugin.ranks import joins
from stitchfleet.plugin.ranks.collectives import Node, node_of, steps_per_collective

ALLREDUCE = "HorovodAllreduce"


@pytest.mark.parametrize(
    ("nodes", "steps"),
    [
        pytest.param({"x": Node("MatMul", ["y"]), "y": Node("Const", []), "r": Node(ALLREDUCE, ["x"])}, 1, id="plain"),
        pytest.param({"x": Node("MatMul", [])}, 0, id="no collective"),
        pytest.param({"r": Node(ALLREDUCE, [], 1)}, 0, id="of a process set"),
        pytest.param({"r": Node(ALLREDUCE, [], 1), "q": Node(ALLREDUCE, [])}, 1, id="one of both"),
        pytest.param({"r": Node("HorovodSize", [])}, 0, id="no collective at all"),
        pytest.param(
            {"s": Node("Switch", []), "pivot": Node("Identity", ["s"]), "r": Node(ALLREDUCE, ["pivot"])},
            0,
            id="branch",
        ),
        pytest.param(
            {"n": Node("HorovodSize", []), "one": Node("Const", []), "p": Node("Greater", ["n", "one"])}
            | {"x": Node("MatMul", []), "s": Node("Switch", ["x", "p"]), "r": Node(ALLREDUCE, ["s"])},
            1,
            id="if there are several ranks",
        ),
        pytest.param(
            {"n": Node("HorovodSize", [], 1), "one": Node("Const", []), "p": Node("Greater", ["n", "one"])}
            | {"x": Node("MatMul", []), "s": Node("Switch", ["x", "p"]), "r": Node(ALLREDUCE, ["s"])},
            0,
            id="by the size of a process set",
        ),
        pytest.param(
            {"n": Node("HorovodSize", []), "t": Node("ReadVariableOp", []), "p": Node("Greater", ["n", "t"])}
            | {"x": Node("MatMul", []), "s": Node("Switch", ["x", "p"]), "r": Node(ALLREDUCE, ["s"])},
            0,
            id="by a variable",
        ),
        pytest.param(
            {"n": Node("HorovodSize", []), "one": Node("Const", []), "p": Node("Greater", ["n", "one"])}
            | {"v": Node("ReadVariableOp", []), "outer": Node("Switch", ["x", "v"]), "x": Node("MatMul", [])}
            | {"s": Node("Switch", ["outer", "p"]), "r": Node(ALLREDUCE, ["s"])},
            0,
            id="within a branch by a variable",
        ),
        pytest.param(
            {"s": Node("Switch", []), "m": Node("Merge", ["s"]), "r": Node(ALLREDUCE, ["m"])}, 1, id="after a branch"
        ),
        pytest.param(
            {"e": Node("Enter", []), "n": Node("Merge", ["e", "i"]), "s": Node("Switch", ["n"])}
            | {"i": Node("NextIteration", ["s"]), "x": Node("Exit", ["s"]), "r": Node(ALLREDUCE, ["x"])},
            1,
            id="after a loop",
        ),
        pytest.param(
            {"e": Node("Enter", []), "n": Node("Merge", ["e", "i"]), "more": Node("Less", ["n"])}
            | {"c": Node("LoopCond", ["more"]), "s": Node("Switch", ["n", "c"]), "r": Node(ALLREDUCE, ["s"])}
            | {"i": Node("NextIteration", ["r"])},
            1,
            id="in a loop",
        ),
    ],
)
def test_a_collective_of_all_ranks_in_each_step(nodes: dict[str, Node], steps: int) -> None:
    assert steps_per_collective(nodes) == steps


def one(value: int) -> Node:
    return Node("Const", [], value=value)


def counting(**other: Node) -> dict[str, Node]:
    """A step that sums up gradients, and reduces them when its counter has come to 4. other: operators that are different."""
    return {
        "counter": Node("_Arg", []),
        "gradient": Node("MatMul", []),
        "one": one(1),
        "raised": Node("AssignAddVariableOp", ["counter", "one", "gradient"]),
        "read": Node("ReadVariableOp", ["counter", "raised"]),
        "four": one(4),
        "equal": Node("Equal", ["read", "four"]),
        "pred_id": Node("Identity", ["equal"]),
        "of_gradient": Node("Switch", ["gradient", "pred_id"]),
        "reduced": Node(ALLREDUCE, ["of_gradient"]),
        "of_counter": Node("Switch", ["counter", "equal"]),
        "nought": one(0),
        "set_back": Node("AssignVariableOp", ["of_counter", "nought", "reduced"]),
        "merged": Node("Merge", ["reduced", "of_gradient"]),
        **other,
    }


@pytest.mark.parametrize(
    ("nodes", "steps"),
    [
        pytest.param(counting(), 4, id="counted"),
        pytest.param(counting(equal=Node("Equal", ["four", "read"])), 4, id="the constant first"),
        pytest.param(
            counting(
                counter=Node("VariableV2", []),
                raised=Node("AssignAdd", ["counter", "one", "gradient"]),
                read=Node("Identity", ["counter", "raised"]),
                of_counter=Node("RefSwitch", ["counter", "equal"]),
                set_back=Node("Assign", ["of_counter", "nought", "reduced"]),
            ),
            4,
            id="a reference",
        ),
        pytest.param(
            counting(size=Node("HorovodSize", []), several=Node("Greater", ["size", "one"]))
            | {"inner": Node("Switch", ["of_gradient", "several"]), "reduced": Node(ALLREDUCE, ["inner"])},
            4,
            id="counted, and if there are several ranks",
        ),
        pytest.param(counting(again=Node(ALLREDUCE, ["gradient"])), 1, id="another gradient is reduced in each step"),
        pytest.param(counting(one=one(2)), 0, id="raised by two"),
        pytest.param(counting(nought=one(1)), 0, id="set to one"),
        pytest.param(counting(four=Node("ReadVariableOp", ["limit"]), limit=Node("_Arg", [])), 0, id="no constant"),
        pytest.param(counting(equal=Node("Greater", ["read", "four"])), 0, id="not when, but from when on"),
        pytest.param(counting(set_back=Node("NoOp", [])), 0, id="never set back"),
        pytest.param(counting(raised=Node("NoOp", [])), 0, id="never raised"),
        pytest.param(counting(twice=Node("AssignAddVariableOp", ["counter", "one"])), 0, id="raised twice"),
        pytest.param(counting(call=Node("PartitionedCall", ["counter", "one"])), 0, id="given to a function"),
        pytest.param(
            counting(other=Node("_Arg", []), of_one=Node("Switch", ["one", "other"]))
            | {"raised": Node("AssignAddVariableOp", ["counter", "of_one"])},
            0,
            id="raised in a branch",
        ),
        pytest.param(
            counting(of_one=Node("Switch", ["one", "equal"]))
            | {"raised": Node("AssignAddVariableOp", ["counter", "of_one"])},
            0,
            id="raised by what it decides",
        ),
        pytest.param(
            counting(other=Node("_Arg", []), of_other=Node("Switch", ["counter", "other"]))
            | {"set_back": Node("AssignVariableOp", ["of_other", "nought"])},
            0,
            id="set back by something else",
        ),
    ],
)
def test_a_collective_that_a_counter_lets_run(nodes: dict[str, Node], steps: int) -> None:
    assert steps_per_collective(nodes) == steps


def test_the_constants_of_a_graph() -> None:
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        for name, value in {"three": 3, "nought": 0, "far": 1 << 20}.items():
            tf.constant(value, name=name)
        tf.constant(-7, tf.int64, name="minus")
        tf.constant(2.0, name="real")
        tf.constant([5], name="vector")
    found = {node.name: node_of(node).value for node in graph.as_graph_def().node}
    assert found == {"three": 3, "nought": 0, "far": 1 << 20, "minus": -7, "real": None, "vector": None}


def test_a_join_is_seen_before_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []
    operators = types.SimpleNamespace(horovod_join=lambda: happened.append("joins"))
    module = types.ModuleType("horovod.tensorflow.mpi_ops")
    module.MPI_LIB = operators  # type: ignore[attr-defined]
    monkeypatch.delitem(sys.modules, "horovod.tensorflow.mpi_ops", raising=False)
    assert not joins.watch(lambda: None)
    monkeypatch.setitem(sys.modules, "horovod.tensorflow.mpi_ops", module)
    assert joins.watch(lambda: happened.append("noted"))
    assert joins.watch(lambda: happened.append("noted twice"))
    operators.horovod_join()
    assert happened == ["noted", "joins"]
