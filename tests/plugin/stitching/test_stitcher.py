"""The graph that an arm gets."""

from __future__ import annotations

from typing import Any

from stitchfleet.plugin.arms.switch import Arm, RunningStep
from stitchfleet.plugin.base.settings import Settings
from stitchfleet.plugin.job.program import Program
from stitchfleet.plugin.stitching.stitcher import Stitcher


def test_without_clusters_only_the_calls_are_marked() -> None:
    """What the graph was prepared for its clusters with, here a fused operator in parts, does not stay."""
    from tensorflow.core.framework import graph_pb2

    graph: Any = graph_pb2.GraphDef()
    graph.node.add(name="x", op="Placeholder", device="/device:CPU:0").attr["dtype"].type = 1
    fused = graph.node.add(name="y", op="_UnaryOpsComposition", device="/device:CPU:0", input=["x"])
    fused.attr["T"].type = 1
    fused.attr["op_names"].list.s.extend([b"Exp", b"Tanh"])
    call = graph.node.add(name="call", op="StatefulPartitionedCall", device="/device:CPU:0", input=["y"])
    call.attr["f"].func.name = "body"
    with RunningStep(Program("step", "function", Settings()), Arm.STITCHED):
        stitched = Stitcher(Settings()).offered(graph.SerializeToString(), [])
        without = Stitcher(Settings(disable_clusters=("",))).offered(graph.SerializeToString(), [])
    assert stitched is not None
    assert [node.op for node in graph_pb2.GraphDef.FromString(stitched).node if "Stitch" in node.op]
    assert without is not None
    found = graph_pb2.GraphDef.FromString(without)
    assert "config_proto" in found.node[2].attr
    assert list(found.node[:2]) == list(graph.node[:2])
