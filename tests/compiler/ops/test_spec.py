"""The verifier finds what breaks a graph, and says where, what was given and what was expected."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from stitchfleet.compiler.ir.graph import DType, Graph, GraphBuilder, Literal
from stitchfleet.compiler.ops.infer import GraphError
from stitchfleet.compiler.ops.table import build
from stitchfleet.compiler.ops.verify import verify, verify_if_asked

from ..strategies import graphs


def _graph() -> Graph:
    builder = GraphBuilder("g")
    x = build(builder, "parameter", (), number=0, shape=(4, 8), dtype=DType.F32)
    y = build(builder, "exp", (x,), name="layer/exp")
    return builder.finish((build(builder, "reduce", (y,), kind="sum", dimensions=(1,)),))


def _with(graph: Graph, index: int, **changes: object) -> Graph:
    nodes = list(graph.nodes)
    nodes[index] = replace(nodes[index], **changes)  # type: ignore[arg-type]
    return replace(graph, nodes=tuple(nodes))


def test_a_graph_built_by_the_table_verifies() -> None:
    verify(_graph())


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs(max_ops=40))
def test_drawn_graphs_verify(graph: Graph) -> None:
    verify(graph)


@pytest.mark.parametrize(
    ("index", "changes", "expected"),
    [
        (1, {"operands": (2,)}, "%1 = exp (layer/exp): given operand %2, expected an earlier node (%0 to %0)"),
        (1, {"operands": (1,)}, "given operand %1, expected an earlier node"),
        (1, {"operands": ()}, "given 0 operands, expected 1"),
        (1, {"operands": (-1,)}, "given operand %-1"),
        (1, {"op": "expp"}, "not in the op table"),
        (1, {"shape": (8, 4)}, "given result f32[8,4], expected f32[4,8]"),
        (1, {"dtype": DType.F64}, "given result f64[4,8], expected f32[4,8]"),
        (2, {"attributes": {"kind": "sum"}}, "attribute dimensions=None"),
        (2, {"attributes": {"kind": "sum", "dimensions": (2,)}}, "distinct dimensions in [0, 2)"),
        (0, {"attributes": {"number": 1}}, "given parameter numbers [1], expected 0 to 0"),
    ],
)
def test_what_is_broken_is_named(index: int, changes: dict[str, object], expected: str) -> None:
    with pytest.raises(GraphError) as caught:
        verify(_with(_graph(), index, **changes))
    assert expected in str(caught.value)


def test_outputs_must_be_nodes() -> None:
    with pytest.raises(GraphError, match="given output %7"):
        verify(replace(_graph(), outputs=(7,)))


def test_bodies_of_reductions_are_verified_too() -> None:
    body = GraphBuilder("body")
    a, b = (build(body, "parameter", (), number=i, shape=(), dtype=DType.F32) for i in range(2))
    total = build(body, "add", (a, b))
    broken = _with(body.finish((total,)), 2, operands=(0, 5))
    builder = GraphBuilder("g")
    x = build(builder, "parameter", (), number=0, shape=(4,), dtype=DType.F32)
    zero = build(builder, "constant", (), literal=Literal(np.zeros((), np.float32)))
    y = build(builder, "reduce_general", (x, zero), dimensions=(0,), body=broken, result=0)
    with pytest.raises(GraphError, match="graph body, %2 = add: given operand %5"):
        verify(builder.finish((y,)))


def test_stages_verify_only_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = _with(_graph(), 1, shape=(8, 4))
    monkeypatch.delenv("STITCHFLEET_VERIFY", raising=False)
    assert verify_if_asked(broken) is broken
    monkeypatch.setenv("STITCHFLEET_VERIFY", "1")
    with pytest.raises(GraphError):
        verify_if_asked(broken)
