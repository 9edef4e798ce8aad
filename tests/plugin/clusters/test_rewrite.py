"""What a graph goes through before its clusters are looked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stitchfleet.plugin.base.settings import read_settings
from stitchfleet.plugin.clusters.clusters import find_clusters
from stitchfleet.plugin.graph import fused
from stitchfleet.plugin.graph.placed_graph import OpDefinitions, PlacedGraph
from stitchfleet.plugin.graph.tf_ops import COMPILED_BY_XLA

from ..conftest import Plugin


@pytest.mark.parametrize(
    ("given", "on_cpu", "on_gpu"),
    [({}, 2, 1), ({"STITCHFLEET_REMOTE": "1"}, 1, 1), ({"STITCHFLEET_REMOTE": "0"}, 2, 2)],
)
def test_clusters_that_no_path_connects_become_one_on_a_gpu(given: dict[str, str], on_cpu: int, on_gpu: int) -> None:
    import tensorflow as tf

    settings = read_settings(given, pytest.fail)
    assert read_settings(settings.environment(), pytest.fail).remote == settings.remote, "a job inherits it"
    with tf.Graph().as_default() as graph:
        x, y = (tf.compat.v1.placeholder(tf.float32, [4, 4], name=name) for name in "xy")
        for z in (x, y):
            tf.exp(tf.tanh(z)) * tf.sigmoid(z) + 1.0
    for kind, count in (("CPU", on_cpu), ("GPU", on_gpu)):
        definition = graph.as_graph_def()
        for node in definition.node:
            node.device = f"/job:localhost/replica:0/task:0/device:{kind}:0"
        plan = find_clusters(PlacedGraph(definition), OpDefinitions(), (), remote=settings.remote)
        assert len(plan.clusters) == count, kind


def test_the_scratch_of_a_batch_normalization_is_handed_to_nobody(plugin: Plugin) -> None:
    """Its shape is each implementation's own, so that the guard would find a kernel's wrong."""
    import tensorflow as tf

    first, last = tf.keras.layers.Dense(8), tf.keras.layers.Dense(1)
    gamma, beta = tf.Variable(tf.ones([8])), tf.Variable(tf.zeros([8]))
    x = tf.constant(np.random.default_rng(0).standard_normal([6, 8]), tf.float32)

    def layer(rows: Any) -> Any:
        """A normalization of rows as Keras 2 computes it: as that of a batch of one, with the rows as its channels."""
        images = tf.reshape(rows, [1, 6, 8, 1])
        scale, offset = tf.ones([6]), tf.zeros([6])
        normalized, _, _ = tf.compat.v1.nn.fused_batch_norm(images, scale, offset, data_format="NCHW")
        return tf.reshape(normalized, [6, 8]) * gamma + beta

    last(layer(first(x)))

    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(last(layer(first(x)))))
        return tape.gradient(loss, [gamma, beta, *first.trainable_variables])

    expected, actual = plugin.both(step)
    for one, other in zip(tf.nest.flatten(expected), tf.nest.flatten(actual), strict=True):
        np.testing.assert_allclose(
            other, one, rtol=1e-5, atol=1e-5
        )  # oneDNN has operators of its own outside functions
    assert plugin.graph is not None
    forward = {node.index for node in plugin.graph.nodes if node.op == "FusedBatchNormV3"}
    assert forward & {i for cluster in plugin.clusters for i in cluster.members}
    assert not [
        port for cluster in plugin.clusters for port in cluster.results if port.node in forward and port.index == 5
    ]


@pytest.mark.parametrize("sides", [0, 1])
@pytest.mark.parametrize("activation", ["Identity", "Relu"])
def test_a_fused_batch_normalization_is_taken_apart(plugin: Plugin, sides: int, activation: str) -> None:
    """TensorFlow's own optimizer makes it of a normalization and what follows it."""
    from tensorflow.core.framework import graph_pb2

    graph: Any = graph_pb2.GraphDef()
    for name in ("x", "scale", "offset", "mean", "variance", "side", "before"):
        graph.node.add(name=name, op="Placeholder")
    node = graph.node.add(name="n", op="_FusedBatchNormEx", device="/device:CPU:0")
    node.input.extend(["x", "scale", "offset", "mean", "variance", *["side"] * sides, "^before"])
    for name in ("T", "U"):
        node.attr[name].type = 1
    node.attr["epsilon"].f = 0.25
    node.attr["is_training"].b = True
    node.attr["num_side_inputs"].i = sides
    node.attr["activation_mode"].s = activation.encode()
    reader = graph.node.add(name="r", op="AddV2", input=["n", "n:1", "^n"])
    given = graph_pb2.GraphDef.FromString(graph.SerializeToString())
    assert fused.take_apart(graph) == 1
    nodes = {node.name: node for node in graph.node}
    norm = nodes["n/stitchfleet_norm"]
    assert (norm.op, norm.device) == ("FusedBatchNormV3", "/device:CPU:0")
    assert list(norm.input) == ["x", "scale", "offset", "mean", "variance", "^before"]
    assert norm.attr["epsilon"].f == 0.25
    assert norm.attr["is_training"].b
    assert "activation_mode" not in norm.attr
    source = "n/stitchfleet_norm"
    if sides:
        assert list(nodes["n/stitchfleet_sum"].input) == [source, "side"]
        source = "n/stitchfleet_sum"
    assert (node.op, list(node.input), node.attr["T"].type) == (activation, [source], 1)
    assert list(reader.input) == ["n", "n/stitchfleet_norm:1", "^n"]
    assert fused.restore(graph) == 1
    assert graph == given


def test_a_composition_is_taken_apart_and_put_together_again_unless_a_part_is_read_elsewhere(plugin: Plugin) -> None:
    from tensorflow.core.framework import graph_pb2

    graph: Any = graph_pb2.GraphDef()
    graph.node.add(name="x", op="Placeholder")
    node = graph.node.add(name="n", op="_UnaryOpsComposition", device="/device:CPU:0", input=["x:1", "^x"])
    node.attr["T"].type = 1
    node.attr["op_names"].list.s.extend([b"Neg", b"Exp", b"Tanh"])
    graph.node.add(name="r", op="AddV2", input=["n", "n", "^n"])
    given = graph_pb2.GraphDef.FromString(graph.SerializeToString())
    assert fused.take_apart(graph) == 1
    assert {node.name: (node.op, list(node.input)) for node in graph.node} == {
        "x": ("Placeholder", []),
        "n/stitchfleet_part_0": ("Neg", ["x:1", "^x"]),
        "n/stitchfleet_part_1": ("Exp", ["n/stitchfleet_part_0"]),
        "n": ("Tanh", ["n/stitchfleet_part_1"]),
        "r": ("AddV2", ["n", "n", "^n"]),
    }
    apart = graph_pb2.GraphDef.FromString(graph.SerializeToString())
    assert fused.restore(graph) == 1
    assert graph == given
    apart.node.add(name="s", op="Abs", input=["n/stitchfleet_part_1"])
    assert fused.restore(apart) == 0


@pytest.mark.parametrize(("op", "parts"), [("_MklSwish", ["Sigmoid"]), ("_MklFusedMish", ["Softplus", "Tanh"])])
def test_an_operator_that_multiplies_its_operand_by_a_function_of_it_is_taken_apart(op: str, parts: list[str]) -> None:
    from tensorflow.core.framework import graph_pb2

    graph: Any = graph_pb2.GraphDef()
    graph.node.add(name="x", op="Placeholder")
    node = graph.node.add(name="n", op=op, device="/device:CPU:0", input=["x:1", "^x"])
    node.attr["T"].type = 1
    given: Any = graph_pb2.GraphDef.FromString(graph.SerializeToString())
    assert fused.take_apart(graph) == 1
    assert [made.op for made in graph.node] == ["Placeholder", "Mul", *parts]
    assert list(graph.node[2].input) == ["x:1", "^x"]
    assert list(graph.node[1].input) == [graph.node[-1].name, "x:1"]
    assert fused.restore(graph) == 1
    assert graph == given


@pytest.mark.parametrize("spelled", ["by Keras", "as an operator"])
def test_a_normalization_and_its_activation_are_one_cluster(plugin: Plugin, spelled: str) -> None:
    """Keras 2 normalizes by the operator, Keras 3 in inference by a reciprocal root, a product and a difference."""
    import tensorflow as tf

    tf.keras.utils.set_random_seed(1)
    first, last = tf.keras.layers.Conv2D(8, 3), tf.keras.layers.Conv2D(4, 3)
    layer = tf.keras.layers.BatchNormalization()
    ones, zeros = tf.Variable(tf.ones([8])), tf.Variable(tf.zeros([8]))

    def normalized(x: Any) -> Any:
        if spelled == "by Keras":
            return layer(x, training=False)
        return tf.compat.v1.nn.fused_batch_norm(x, ones, zeros, mean=zeros, variance=ones, is_training=False)[0]

    def model() -> Any:
        return last(tf.nn.relu(normalized(first(x))))

    x = tf.constant(np.random.default_rng(0).standard_normal([2, 16, 16, 3]), tf.float32)
    model()
    expected, actual = plugin.both(model)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
    assert plugin.graph is not None
    ops = [{plugin.graph.nodes[i].op for i in cluster.members} for cluster in plugin.clusters]
    in_parts = {"Rsqrt", "Mul", "Sub", "AddV2"}
    assert any({"FusedBatchNormV3", "Relu"} <= found for found in ops) or (
        spelled == "by Keras" and any(in_parts | {"Relu"} == found for found in ops)
    ), ops


def test_a_call_that_the_job_has_compiled_by_xla_is_left_alone_and_says_so() -> None:
    """As Keras' grouped convolutions are; no missing row of the operator table keeps it out."""
    import tensorflow as tf

    @tf.function(jit_compile=True)
    def compiled(x: Any) -> Any:
        return tf.tanh(x) * 3.0

    with tf.Graph().as_default() as graph, tf.device("/CPU:0"):
        x = tf.compat.v1.placeholder(tf.float32, [8, 4])
        tf.identity(compiled(tf.sin(x) * 2.0), name="fetched")
    definition = graph.as_graph_def()
    (call,) = [node for node in definition.node if "PartitionedCall" in node.op]
    plan = find_clusters(PlacedGraph(definition), OpDefinitions(), {"fetched"})
    assert plan.left_out_nodes[call.name] == COMPILED_BY_XLA


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int32"])
def test_a_lone_cast_of_halves_is_worth_a_kernel(plugin: Plugin, dtype: str) -> None:
    """As of a weight that a product of mixed precision reads."""
    import tensorflow as tf

    x, w = tf.random.stateless_normal([64, 32], [1, 2]), tf.ones([32, 16], dtype)
    expected, actual = plugin.both(lambda: (tf.linalg.matmul(tf.cast(x, dtype), w),))
    assert [dict(cluster.op_counts) for cluster in plugin.clusters] == ([] if dtype == "int32" else [{"Cast": 1}])
    np.testing.assert_array_equal(actual[-1][0], expected[-1][0])
