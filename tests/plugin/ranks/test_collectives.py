"""Which steps tie all ranks together, and who sees that they stop doing so."""

from __future__ import annotations

import sys
import types

import pytest

from stitchfleet.plugin.ranks import joins
from stitchfleet.plugin.ranks.collectives import Node, ties_all_ranks

ALLREDUCE = "HorovodAllreduce"


@pytest.mark.parametrize(
    ("nodes", "ties"),
    [
        pytest.param(
            {"x": Node("MatMul", ["y"]), "y": Node("Const", []), "r": Node(ALLREDUCE, ["x"])}, True, id="plain"
        ),
        pytest.param({"x": Node("MatMul", [])}, False, id="no collective"),
        pytest.param({"r": Node(ALLREDUCE, [], 1)}, False, id="of a process set"),
        pytest.param({"r": Node(ALLREDUCE, [], 1), "q": Node(ALLREDUCE, [])}, True, id="one of both"),
        pytest.param({"r": Node("HorovodSize", [])}, False, id="no collective at all"),
        pytest.param(
            {"s": Node("Switch", []), "pivot": Node("Identity", ["s"]), "r": Node(ALLREDUCE, ["pivot"])},
            False,
            id="branch",
        ),
        pytest.param(
            {"n": Node("HorovodSize", []), "one": Node("Const", []), "p": Node("Greater", ["n", "one"])}
            | {"x": Node("MatMul", []), "s": Node("Switch", ["x", "p"]), "r": Node(ALLREDUCE, ["s"])},
            True,
            id="if there are several ranks",
        ),
        pytest.param(
            {"n": Node("HorovodSize", [], 1), "one": Node("Const", []), "p": Node("Greater", ["n", "one"])}
            | {"x": Node("MatMul", []), "s": Node("Switch", ["x", "p"]), "r": Node(ALLREDUCE, ["s"])},
            False,
            id="by the size of a process set",
        ),
        pytest.param(
            {"n": Node("HorovodSize", []), "t": Node("ReadVariableOp", []), "p": Node("Greater", ["n", "t"])}
            | {"x": Node("MatMul", []), "s": Node("Switch", ["x", "p"]), "r": Node(ALLREDUCE, ["s"])},
            False,
            id="by a variable",
        ),
        pytest.param(
            {"n": Node("HorovodSize", []), "one": Node("Const", []), "p": Node("Greater", ["n", "one"])}
            | {"v": Node("ReadVariableOp", []), "outer": Node("Switch", ["x", "v"]), "x": Node("MatMul", [])}
            | {"s": Node("Switch", ["outer", "p"]), "r": Node(ALLREDUCE, ["s"])},
            False,
            id="within a branch by a variable",
        ),
        pytest.param(
            {"s": Node("Switch", []), "m": Node("Merge", ["s"]), "r": Node(ALLREDUCE, ["m"])}, True, id="after a branch"
        ),
        pytest.param(
            {"e": Node("Enter", []), "n": Node("Merge", ["e", "i"]), "s": Node("Switch", ["n"])}
            | {"i": Node("NextIteration", ["s"]), "x": Node("Exit", ["s"]), "r": Node(ALLREDUCE, ["x"])},
            True,
            id="after a loop",
        ),
    ],
)
def test_a_collective_of_all_ranks_in_each_step(nodes: dict[str, Node], ties: bool) -> None:
    assert ties_all_ranks(nodes, nodes.__getitem__) is ties


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
