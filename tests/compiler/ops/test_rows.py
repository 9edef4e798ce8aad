"""A row of the op table is all that the compiler knows of an op: one that is added there is planned, compiled and checked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from stitchfleet.compiler.check.judge import judge
from stitchfleet.compiler.check.random_inputs import REGIMES, random_inputs
from stitchfleet.compiler.ir.graph import Array, DType, Graph, GraphBuilder, Node
from stitchfleet.compiler.ops import infer, propagation, slicing, table
from stitchfleet.compiler.ops.attributes import attribute
from stitchfleet.compiler.ops.errors import ComputedNode, ErrorBound
from stitchfleet.compiler.ops.interpreter import evaluate
from stitchfleet.compiler.ops.table import OPS, Cost, OpRow, build
from stitchfleet.compiler.ops.verify import verify

from ..native import build_all, complaint


def _cube_text(node: Node, operand_dtypes: Sequence[DType], operands: Sequence[str]) -> str:
    del node, operand_dtypes
    return "({0} * {0} * {0})".format(*operands)


def _cube_error(step: ComputedNode) -> ErrorBound:
    (x,), (bound,) = step.values, step.bounds
    return 3 * np.abs(x) ** 2 * bound + 3 * np.abs(x) * bound**2 + np.asarray(bound) ** 3


def _diagonal_type(node: infer.NewNode) -> infer.ShapeAndType:
    (source,) = node.operands
    if len(source.shape) != 2 or source.shape[0] != source.shape[1]:
        raise node.fail(source.type_text, "a square matrix")
    return source.shape[:1], source.dtype


def _diagonal_elements(graph: Graph, node: Node, request: propagation.ElementRequest) -> propagation.ElementAnswer:
    (index,) = request.position
    return propagation.Forward(propagation.ElementRequest(node.operands[0], (index, index), request.guard))


def _diagonal(node: Node, sources: Sequence[Node], values: Sequence[Array]) -> Array:
    del node, sources
    return np.diagonal(values[0])


@pytest.fixture
def two_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    """`cube`, element-wise, and `diagonal`, which moves elements."""
    floats = infer.elementwise(infer.is_float, "a float dtype")
    cube = OpRow(
        "cube",
        1,
        Cost.LIGHT,
        floats,
        lambda node, sources, values: values[0] ** 3,
        propagation.elementwise,
        slicing.elementwise,
        error=_cube_error,
        ulps=2.0,
        expression=_cube_text,
    )
    diagonal = OpRow(
        "diagonal",
        1,
        Cost.MOVEMENT,
        _diagonal_type,
        _diagonal,
        _diagonal_elements,
        None,
        table.FIRST_OPERAND,
        lambda step: np.diagonal(np.broadcast_to(step.bounds[0], step.values[0].shape)),
    )
    for row in (cube, diagonal):
        monkeypatch.setitem(table._ROWS, row.name, row)


def _graph() -> Graph:
    """The cubes' rows are summed, and their diagonal is added."""
    builder = GraphBuilder("traces")
    x = build(builder, "parameter", (), number=0, shape=(96, 96), dtype=DType.F32)
    cubes = build(builder, "cube", (x,))
    sums = build(builder, "reduce", (cubes,), kind="sum", dimensions=(1,))
    return builder.finish((build(builder, "add", (sums, build(builder, "diagonal", (cubes,)))),))


def test_an_op_is_added_by_one_row(two_ops: None) -> None:
    graph = _graph()
    verify(graph)
    inputs = random_inputs(graph, np.random.default_rng(1), REGIMES[0])
    assert judge(graph, inputs, evaluate(graph, inputs)).ok
    (built,) = build_all([graph])
    for regime in REGIMES:
        assert complaint(built, regime, 2) is None


def test_a_wrong_text_in_a_row_is_seen(two_ops: None, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = _graph()
    wrong = {**vars(OPS["cube"]), "expression": lambda node, dtypes, operands: f"({operands[0]} * {operands[0]})"}
    monkeypatch.setitem(table._ROWS, "cube", OpRow(**wrong))
    (built,) = build_all([graph])
    assert complaint(built, REGIMES[0], 2) is not None


def test_every_row_says_how_its_elements_are_had() -> None:
    """What a row computes in passing it has a text or a propagation for; what it only moves, no text."""
    for row in OPS.values():
        assert row.elementwise == (row.expression is not None), row.name
        assert row.is_reduction == (row.cost is Cost.REDUCE or row.name in ("reduce_window", "scan", "scatter")), (
            row.name
        )
        if row.cost is Cost.MOVEMENT:
            assert row.moves is not None, row.name
            assert row.ulps == 0, row.name
        if row.is_leaf:
            assert row.moves is None, row.name
            assert row.slicing is None, row.name


def test_an_attribute_of_another_type_is_an_error_of_the_program() -> None:
    builder = GraphBuilder("one")
    x = build(builder, "iota", (), shape=(4,), dtype=DType.S32, dimension=0)
    with pytest.raises(AssertionError, match=r"iota\.dimension"):
        attribute(builder.nodes[x], "dimension", tuple)
