"""The verifier: checks a graph against the op table. It runs between stages in tests and under STITCHFLEET_VERIFY=1."""

from __future__ import annotations

import os
from typing import Final

from ..ir.graph import Graph
from .infer import GraphError, NewNode
from .table import OPS, infer_node

VERIFY_VARIABLE: Final = "STITCHFLEET_VERIFY"


def verify(graph: Graph) -> None:
    """Checks a graph. Raises GraphError, which names the node, what was given and what was expected, unless

    - each operand is an earlier node (so the order is topological), and each op has its row's arity;
    - each shape and dtype is what the row infers from the operands and attributes;
    - the parameters are numbered 0, 1, ... without a gap, and the outputs are nodes.
    """
    numbers: list[int] = []
    for i, node in enumerate(graph.nodes):
        where = f"graph {graph.name}, %{i} = {node.op}" + (f" ({node.name})" if node.name else "")
        if node.op not in OPS:
            raise GraphError(f"{where}: given an op that is not in the op table, expected one of {len(OPS)} ops")
        wrong = [operand for operand in node.operands if not 0 <= operand < i]
        if wrong:
            raise GraphError(f"{where}: given operand %{wrong[0]}, expected an earlier node (%0 to %{i - 1})")
        sources = tuple(graph.nodes[operand] for operand in node.operands)
        try:
            shape, dtype = infer_node(NewNode(node.op, sources, node.attributes, node.shape, node.dtype))
        except GraphError as error:
            raise GraphError(f"{where}: {error}") from None
        if (shape, dtype) != (node.shape, node.dtype):
            expected = f"{dtype.value}[{','.join(map(str, shape))}]"
            raise GraphError(f"{where}: given result {node.type_text}, expected {expected}")
        if node.op == "parameter":
            numbers.append(int(node.attributes["number"]))  # type: ignore[arg-type]
        body = node.attributes.get("body")
        if isinstance(body, Graph):
            verify(body)
    if sorted(numbers) != list(range(len(numbers))):
        raise GraphError(
            f"graph {graph.name}: given parameter numbers {sorted(numbers)}, expected 0 to {len(numbers) - 1}"
        )
    for output in graph.outputs:
        if not 0 <= output < len(graph.nodes):
            raise GraphError(f"graph {graph.name}: given output %{output}, expected a node below %{len(graph.nodes)}")


def verify_if_asked(graph: Graph) -> Graph:
    """Returns `graph`, after `verify` if the environment variable STITCHFLEET_VERIFY is 1. For use between stages."""
    if os.environ.get(VERIFY_VARIABLE) == "1":
        verify(graph)
    return graph
