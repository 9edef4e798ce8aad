"""Which steps tie all ranks together, and who sees that they stop doing so."""

from __future__ import annotations

import sys
import types

import pytest

from stitchfleet.plugin.ranks import joins
from stitchfleet.plugin.ranks.collectives import Operator, operator_of, steps_per_collective

ALLREDUCE = "HorovodAllreduce"


@pytest.mark.parametrize(
    ("nodes", "steps"),
    [
        pytest.param(
            {"x": Operator("MatMul", ["y"]), "y": Operator("Const", []), "r": Operator(ALLREDUCE, ["x"])}, 1, id="plain"
        ),
        pytest.param({"x": Operator("MatMul", [])}, 0, id="no collective"),
        pytest.param({"r": Operator(ALLREDUCE, [], 1)}, 0, id="of a process set"),
        pytest.param({"r": Operator(ALLREDUCE, [], 1), "q": Operator(ALLREDUCE, [])}, 1, id="one of both"),
        pytest.param({"r": Operator("HorovodSize", [])}, 0, id="no collective at all"),
        pytest.param(
            {"s": Operator("Switch", []), "pivot": Operator("Identity", ["s"]), "r": Operator(ALLREDUCE, ["pivot"])},
            0,
            id="branch",
        ),
        pytest.param(
            {"n": Operator("HorovodSize", []), "one": Operator("Const", []), "p": Operator("Greater", ["n", "one"])}
            | {"x": Operator("MatMul", []), "s": Operator("Switch", ["x", "p"]), "r": Operator(ALLREDUCE, ["s"])},
            1,
            id="if there are several ranks",
        ),
        pytest.param(
            {"n": Operator("HorovodSize", [], 1), "one": Operator("Const", []), "p": Operator("Greater", ["n", "one"])}
            | {"x": Operator("MatMul", []), "s": Operator("Switch", ["x", "p"]), "r": Operator(ALLREDUCE, ["s"])},
            0,
            id="by the size of a process set",
        ),
        pytest.param(
            {
                "n": Operator("HorovodSize", []),
                "t": Operator("ReadVariableOp", []),
                "p": Operator("Greater", ["n", "t"]),
            }
            | {"x": Operator("MatMul", []), "s": Operator("Switch", ["x", "p"]), "r": Operator(ALLREDUCE, ["s"])},
            0,
            id="by a variable",
        ),
        pytest.param(
            {"n": Operator("HorovodSize", []), "one": Operator("Const", []), "p": Operator("Greater", ["n", "one"])}
            | {
                "v": Operator("ReadVariableOp", []),
                "outer": Operator("Switch", ["x", "v"]),
                "x": Operator("MatMul", []),
            }
            | {"s": Operator("Switch", ["outer", "p"]), "r": Operator(ALLREDUCE, ["s"])},
            0,
            id="within a branch by a variable",
        ),
        pytest.param(
            {"s": Operator("Switch", []), "m": Operator("Merge", ["s"]), "r": Operator(ALLREDUCE, ["m"])},
            1,
            id="after a branch",
        ),
        pytest.param(
            {"e": Operator("Enter", []), "n": Operator("Merge", ["e", "i"]), "s": Operator("Switch", ["n"])}
            | {"i": Operator("NextIteration", ["s"]), "x": Operator("Exit", ["s"]), "r": Operator(ALLREDUCE, ["x"])},
            1,
            id="after a loop",
        ),
        pytest.param(
            {"e": Operator("Enter", []), "n": Operator("Merge", ["e", "i"]), "more": Operator("Less", ["n"])}
            | {
                "c": Operator("LoopCond", ["more"]),
                "s": Operator("Switch", ["n", "c"]),
                "r": Operator(ALLREDUCE, ["s"]),
            }
            | {"i": Operator("NextIteration", ["r"])},
            1,
            id="in a loop",
        ),
    ],
)
def test_a_collective_of_all_ranks_in_each_step(nodes: dict[str, Operator], steps: int) -> None:
    assert steps_per_collective(nodes) == steps


def one(value: int) -> Operator:
    return Operator("Const", [], value=value)


def counting(**other: Operator) -> dict[str, Operator]:
    """A step that sums up gradients, and reduces them when its counter has come to 4. other: operators that are different."""
    return {
        "counter": Operator("_Arg", []),
        "gradient": Operator("MatMul", []),
        "one": one(1),
        "raised": Operator("AssignAddVariableOp", ["counter", "one", "gradient"]),
        "read": Operator("ReadVariableOp", ["counter", "raised"]),
        "four": one(4),
        "equal": Operator("Equal", ["read", "four"]),
        "pred_id": Operator("Identity", ["equal"]),
        "of_gradient": Operator("Switch", ["gradient", "pred_id"]),
        "reduced": Operator(ALLREDUCE, ["of_gradient"]),
        "of_counter": Operator("Switch", ["counter", "equal"]),
        "nought": one(0),
        "set_back": Operator("AssignVariableOp", ["of_counter", "nought", "reduced"]),
        "merged": Operator("Merge", ["reduced", "of_gradient"]),
        **other,
    }


@pytest.mark.parametrize(
    ("nodes", "steps"),
    [
        pytest.param(counting(), 4, id="counted"),
        pytest.param(counting(equal=Operator("Equal", ["four", "read"])), 4, id="the constant first"),
        pytest.param(
            counting(
                counter=Operator("VariableV2", []),
                raised=Operator("AssignAdd", ["counter", "one", "gradient"]),
                read=Operator("Identity", ["counter", "raised"]),
                of_counter=Operator("RefSwitch", ["counter", "equal"]),
                set_back=Operator("Assign", ["of_counter", "nought", "reduced"]),
            ),
            4,
            id="a reference",
        ),
        pytest.param(
            counting(size=Operator("HorovodSize", []), several=Operator("Greater", ["size", "one"]))
            | {"inner": Operator("Switch", ["of_gradient", "several"]), "reduced": Operator(ALLREDUCE, ["inner"])},
            4,
            id="counted, and if there are several ranks",
        ),
        pytest.param(
            counting(again=Operator(ALLREDUCE, ["gradient"])), 1, id="another gradient is reduced in each step"
        ),
        pytest.param(counting(one=one(2)), 0, id="raised by two"),
        pytest.param(counting(nought=one(1)), 0, id="set to one"),
        pytest.param(
            counting(four=Operator("ReadVariableOp", ["limit"]), limit=Operator("_Arg", [])), 0, id="no constant"
        ),
        pytest.param(counting(equal=Operator("Greater", ["read", "four"])), 0, id="not when, but from when on"),
        pytest.param(counting(set_back=Operator("NoOp", [])), 0, id="never set back"),
        pytest.param(counting(raised=Operator("NoOp", [])), 0, id="never raised"),
        pytest.param(counting(twice=Operator("AssignAddVariableOp", ["counter", "one"])), 0, id="raised twice"),
        pytest.param(counting(call=Operator("PartitionedCall", ["counter", "one"])), 0, id="given to a function"),
        pytest.param(
            counting(other=Operator("_Arg", []), of_one=Operator("Switch", ["one", "other"]))
            | {"raised": Operator("AssignAddVariableOp", ["counter", "of_one"])},
            0,
            id="raised in a branch",
        ),
        pytest.param(
            counting(of_one=Operator("Switch", ["one", "equal"]))
            | {"raised": Operator("AssignAddVariableOp", ["counter", "of_one"])},
            0,
            id="raised by what it decides",
        ),
        pytest.param(
            counting(other=Operator("_Arg", []), of_other=Operator("Switch", ["counter", "other"]))
            | {"set_back": Operator("AssignVariableOp", ["of_other", "nought"])},
            0,
            id="set back by something else",
        ),
    ],
)
def test_a_collective_that_a_counter_lets_run(nodes: dict[str, Operator], steps: int) -> None:
    assert steps_per_collective(nodes) == steps


def test_the_constants_of_a_graph() -> None:
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        for name, value in {"three": 3, "nought": 0, "far": 1 << 20}.items():
            tf.constant(value, name=name)
        tf.constant(-7, tf.int64, name="minus")
        tf.constant(2.0, name="real")
        tf.constant([5], name="vector")
    found = {node.name: operator_of(node).value for node in graph.as_graph_def().node}
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


@pytest.mark.parametrize(
    ("members", "workers", "steps"), [(2, 2, 1), (4, 2, 1), (3, 2, 0), (2, 0, 0), (1, 2, 0), (None, 2, 0)]
)
def test_a_strategy_s_collective_is_of_all_workers_by_its_members(
    members: int | None, workers: int, steps: int
) -> None:
    """Each worker has equally many devices in it. Without a strategy nobody knows whose they are."""
    nodes = {
        "x": Operator("MatMul", []),
        "members": Operator("Const", [], value=members),
        "r": Operator("CollectiveReduceV2", ["x", "members", "key", "instance"]),
    }
    assert steps_per_collective(nodes, workers) == steps
    guarded = {**nodes, "s": Operator("Switch", ["x", "p"]), "p": Operator("ReadVariableOp", [])}
    guarded["r"] = Operator("CollectiveReduceV2", ["s", "members", "key", "instance"])
    assert steps_per_collective(guarded, workers) == 0
