"""The operators' definitions."""

from __future__ import annotations

from typing import Any

from stitchfleet.plugin.graph.placed_graph import OpDefinitions


def test_an_attribute_that_a_node_does_not_state_has_its_default_and_is_not_added_by_a_look_at_it() -> None:
    from tensorflow.core.framework import graph_pb2, types_pb2

    definitions = OpDefinitions()
    graph: Any = graph_pb2.GraphDef()
    node = graph.node.add(name="s", op="Shape", input=["x"])
    node.attr["T"].type = types_pb2.DT_HALF
    assert definitions.inputs(node) == [("input", 0, types_pb2.DT_HALF)]
    assert definitions.outputs(node) == [("output", 0, types_pb2.DT_INT32)]
    assert set(node.attr) == {"T"}
    definitions.add_defaults(node)
    assert (node.attr["T"].type, node.attr["out_type"].type) == (types_pb2.DT_HALF, types_pb2.DT_INT32)
