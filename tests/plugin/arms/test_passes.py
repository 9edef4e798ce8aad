"""A graph is rewritten after TensorFlow's last pass over it."""

from __future__ import annotations

from typing import Any

import pytest

from stitchfleet.plugin.arms import switch
from stitchfleet.plugin.arms.nested_calls import Mark, mark_calls
from stitchfleet.plugin.arms.passes import passes_of
from stitchfleet.plugin.arms.switch import Arm, RunningStep
from stitchfleet.plugin.base.settings import Settings
from stitchfleet.plugin.job.program import Program

from ..conftest import Plugin


def config_of(iterations: int) -> Any:
    """A ConfigProto with RewriterConfig.meta_optimizer_iterations: 0 (none given), 1 or 2."""
    from tensorflow.core.protobuf import config_pb2

    config: Any = config_pb2.ConfigProto()
    config.graph_options.rewrite_options.meta_optimizer_iterations = iterations
    return config


@pytest.fixture
def offered(plugin: Plugin) -> Any:
    """A function that calls a traced function once; it returns the graphs that were offered, if there are so many passes."""
    import tensorflow as tf
    from tensorflow.core.framework import graph_pb2

    def note(compute: Any, passes: int) -> list[Any]:
        found: list[bytes] = []

        def rewrite(data: bytes, _preserve: list[str]) -> None:
            found.append(data)

        plugin.library.set_rewrite(rewrite, lambda: passes)
        try:
            tf.function(compute)(tf.ones([4]))
        finally:
            plugin.library.set_rewrite(plugin.offered)
        return [graph_pb2.GraphDef.FromString(data) for data in found]

    return note


def fused_late(x: Any) -> Any:
    """TensorFlow fuses the two operators after its first pass has made 1 / x a reciprocal and 1 + x its logarithm's."""
    import tensorflow as tf

    return tf.math.log(1.0 / tf.nn.sigmoid(x) + 1.0) * x


def test_of_two_passes_the_last_one_counts(offered: Any) -> None:
    first, last = offered(fused_late, 1)
    (only,) = offered(fused_late, 2)
    assert {node.op for node in last.node} == {node.op for node in only.node} != {node.op for node in first.node}


def test_graphs_one_after_the_other_are_offered_once_each(offered: Any) -> None:
    """The third one is small: TensorFlow's second pass does not reach it. The graphs after it are not taken for its second pass."""
    import tensorflow as tf

    for compute in (fused_late, lambda x: tf.exp(x) * tf.sin(x) + x, tf.exp, fused_late, fused_late):
        assert len(offered(compute, 2)) == (0 if compute is tf.exp else 1)


@pytest.mark.parametrize(("iterations", "passes"), [(0, 2), (1, 1), (2, 2)])
def test_a_configuration_says_how_many_passes_there_are(iterations: int, passes: int) -> None:
    from tensorflow.core.framework import graph_pb2
    from tensorflow.core.protobuf import config_pb2
    from tensorflow.python.eager import context

    config = config_of(iterations)
    assert passes_of(config) == passes
    program = Program("step", "function", Settings())
    options = context.FunctionCallOptions(config_proto=config)
    with RunningStep(program, Arm.STITCHED, options):
        assert switch.passes() == passes
    graph: Any = graph_pb2.GraphDef()
    node = graph.node.add(name="call", op="PartitionedCall")
    node.attr["config_proto"].s = config.SerializeToString()
    mark_calls(graph, "step", 0)
    marked = config_pb2.ConfigProto.FromString(node.attr["config_proto"].s)
    (optimizer,) = marked.graph_options.rewrite_options.custom_optimizers
    assert Mark.decode(optimizer.parameter_map["mark"].s.decode()).passes == passes
