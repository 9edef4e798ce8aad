"""Operands for which TensorFlow's operators raise errors: a stitched job raises them too, in TensorFlow's words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stitchfleet.plugin.clusters.clusters import ClusterPlan, find_clusters
from stitchfleet.plugin.graph import to_hlo
from stitchfleet.plugin.graph.placed_graph import PlacedGraph

from ..conftest import Plugin, RunJob
from ..job.test_faults import COLD, QUICK, main_program, relative_difference

Array = np.ndarray[Any, Any]
TABLE = np.arange(24, dtype=np.float32).reshape(4, 3, 2)
ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)


def gather(axis: int, batch_dims: int = 0) -> Callable[..., Any]:
    import tensorflow as tf

    return lambda table, at: tf.gather(table, at, axis=axis, batch_dims=batch_dims) * 2.0


def cross_entropy(logits: Any, labels: Any) -> Any:
    import tensorflow as tf

    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits) * 2.0


def segment_sum(values: Any, segments: Any) -> Any:
    import tensorflow as tf

    return tf.math.unsorted_segment_sum(values * 2.0, segments, 3)


def gather_vectors(table: Any, at: Any) -> Any:
    import tensorflow as tf

    return tf.gather_nd(tf.tanh(table), at) * 2.0


def scatter_vectors(updates: Any, at: Any) -> Any:
    import tensorflow as tf

    return tf.scatter_nd(at, tf.tanh(updates), tf.constant([3, 5, 3])[: at.shape[-1] + 1]) * 2.0


def integers(name: str) -> Callable[..., Any]:
    import tensorflow as tf

    return lambda a, b: tf.raw_ops.Add(x=getattr(tf.raw_ops, name)(x=a, y=b), y=a)


CASES: dict[str, tuple[Callable[..., Any], Array, list[Any], list[Any]]] = {
    # what is computed, its first operand, second ones that TensorFlow computes with, and ones that it refuses
    "gather": (gather(0), TABLE, [[0, 3, 1], [], [[3], [0]]], [[0, 4], [-1], [[1, 2], [2, 2**30]]]),
    "gather of the last axis": (gather(-1), TABLE, [[0, 1, 1, 0]], [[2], [0, -1]]),
    "gather of each row": (gather(1, 1), ROWS, [[[0], [1], [2], [2]]], [[[0], [1], [2], [3]]]),
    "cross-entropy": (cross_entropy, ROWS, [[0, 1, 2, 0]], [[0, 1, 3, 0], [-1, 0, 0, 0]]),
    "segments": (segment_sum, ROWS, [[0, 0, 2, 1], [-1, 1, -7, 2]], [[0, 1, 2, 3]]),
    "gather of vectors": (
        *(gather_vectors, TABLE),
        [[[0, 2], [3, 0]], [[3]], [[[1, 1, 1]], [[0, 2, 0]]], np.zeros((2, 0)), np.zeros((0, 2))],
        [[[0, 3]], [[4, 0]], [[-1, 0]], [[0, 0, 2]]],
    ),
    "scatter of vectors": (
        *(scatter_vectors, ROWS),
        [[[0, 4], [2, 0], [0, 4], [1, 1]], [[2, 3], [2, 3], [2, 3], [2, 3]]],
        [[[0, 5], [0, 0], [0, 0], [0, 0]], [[0, 0], [3, 0], [0, 0], [0, 0]], [[0, 0], [0, 0], [0, -1], [0, 0]]],
    ),
    "floor division": (integers("FloorDiv"), np.array([7, -8, 9]), [[2, -3, 1]], [[2, 0, 1]]),
    "remainder": (integers("FloorMod"), np.array([7, -8, 9]), [[2, -3, 1]], [[0, 5, 1]]),
    "power": (integers("Pow"), np.array([7, -8, 9]), [[2, 0, 1]], [[2, -1, 1]]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_body_says_when_tensorflow_would_refuse(plugin: Plugin, case: str) -> None:
    import tensorflow as tf

    compute, first, accepted, refused = CASES[case]
    dtype = np.int64 if first.dtype == np.int64 else np.int32
    for operand, is_accepted in [*((x, True) for x in accepted), *((x, False) for x in refused)]:
        second = np.array(operand, dtype)
        plain = tf.function(compute, autograph=False)
        stitched = tf.function(compute, autograph=False)
        plugin.active, plugin.clusters = True, []
        try:
            if is_accepted:
                result = stitched(tf.constant(first), tf.constant(second))
            else:
                with pytest.raises(tf.errors.InvalidArgumentError):
                    stitched(tf.constant(first), tf.constant(second))
        finally:
            plugin.active = False
        (cluster,) = plugin.clusters
        assert cluster.demands
        assert plugin.graph is not None
        arguments = [plugin.graph.nodes[port.node].proto.attr["index"].i for port in cluster.arguments]
        operands = [(first, second)[int(number)] for number in arguments]
        *values, met = tf.function(to_hlo.body_function(cluster.body), autograph=False, jit_compile=True)(*operands)
        assert bool(met) == is_accepted
        if is_accepted:
            np.testing.assert_allclose(np.asarray(values[0]), result.numpy(), rtol=1e-6)
            np.testing.assert_allclose(result.numpy(), plain(tf.constant(first), tf.constant(second)).numpy())


@pytest.mark.parametrize("axis", [np.int32(0), np.int32(-1), np.int64(1), np.int64(-3)])
def test_a_gather_whose_axis_is_an_argument_demands_indices_of_that_axis(plugin: Plugin, axis: Any) -> None:
    import tensorflow as tf

    def compute(table: Any, at: Any, axis: Any) -> Any:
        return tf.raw_ops.GatherV2(params=table, indices=at, axis=axis) * 2.0

    last = TABLE.shape[axis] - 1
    for at in ([0, last, 0], [[0], [last]], [0, last + 1], [-1, 0]):
        is_accepted = np.min(at) >= 0 and np.max(at) <= last
        operands = (TABLE, np.array(at, np.int32), axis)
        plugin.active, plugin.clusters = True, []
        try:
            if is_accepted:
                result = tf.function(compute, autograph=False)(*map(tf.constant, operands)).numpy()
            else:
                with pytest.raises(tf.errors.InvalidArgumentError):
                    tf.function(compute, autograph=False)(*map(tf.constant, operands))
        finally:
            plugin.active = False
        (cluster,) = plugin.clusters
        assert cluster.demands
        assert cluster.value_arguments  # the body is lowered for this axis
        assert plugin.graph is not None
        given = [operands[plugin.graph.nodes[port.node].proto.attr["index"].i] for port in cluster.arguments]
        *values, met = tf.function(to_hlo.body_function(cluster.body), autograph=False, jit_compile=True)(*given)
        assert bool(met) == is_accepted
        if is_accepted:
            np.testing.assert_array_equal(np.asarray(values[0]), result)
            np.testing.assert_array_equal(result, 2 * np.take(TABLE, at, axis=axis))


def test_a_gather_in_a_loop_is_stitched_there_though_its_axis_waits_for_the_loop(plugin: Plugin) -> None:
    import tensorflow as tf

    def compute(table: Any, at: Any) -> Any:
        def body(i: Any, total: Any) -> Any:
            return i + 1, total + tf.exp(tf.gather(tf.tanh(total), at, axis=1)) * 0.5

        return tf.while_loop(lambda i, total: i < 3, body, (0, table))[1]

    operands = tf.constant(TABLE), tf.constant([2, 0, 1])
    plugin.active, plugin.clusters = True, []
    try:
        result = tf.function(compute, autograph=False)(*operands)
    finally:
        plugin.active = False
    assert any(cluster.op_counts.get("GatherV2") for cluster in plugin.clusters)
    np.testing.assert_allclose(result, tf.function(compute, autograph=False)(*operands))


def softmax_loss(logits: Array, labels: Array) -> Array:
    rows = (
        np.log(np.exp(logits).sum(-1)) - logits[range(len(logits)), np.where((labels >= 0) & (labels < 3), labels, 0)]
    )
    return np.where((labels >= 0) & (labels < 3), rows, np.nan)


def segments_there(values: Array, segments: Array) -> Array:
    sums = np.zeros((3, 3), np.float32)
    for row, segment in zip(values, segments, strict=True):
        if 0 <= segment < 3:
            sums[segment] += 2 * row
    return sums


def vectors_there(updates: Array, at: Array) -> Array:
    sums = np.zeros((3, 5, 3), np.float32)
    for row, (i, k) in zip(updates, at, strict=True):
        if 0 <= i < 3 and 0 <= k < 5:
            sums[i, k] += 2 * np.tanh(row)
    return sums


ON_GPU: dict[str, tuple[list[Any], Callable[[Array, Array], Array]]] = {
    # a second operand that TensorFlow refuses on the processor, and what its documentation says of a GPU
    "gather": (
        [[1, 4], [-1, 2]],
        lambda x, at: 2 * np.pad(x, ((0, 1), (0, 0), (0, 0)))[np.clip(at % 8, 0, 4)],
    ),
    "gather of the last axis": (
        [0, 2, -1, 1],
        lambda x, at: 2 * np.pad(x, ((0, 0), (0, 0), (0, 1)))[..., np.clip(at % 8, 0, 2)],
    ),
    "cross-entropy": ([0, -1, 3, 2], lambda x, at: 2 * softmax_loss(x, at)),
    "segments": ([0, 3, -1, 2], segments_there),
    "scatter of vectors": ([[0, 4], [2, 5], [-1, 0], [0, 4]], vectors_there),
}


def planned_on_gpu(plugin: Plugin, compute: Callable[..., Any], first: Array, second: Array) -> ClusterPlan:
    """Of the graph of a function of two operands, as if it were placed on a GPU."""
    import tensorflow as tf

    plugin.active, plugin.clusters = True, []
    try:
        tf.function(compute, autograph=False)(tf.constant(first), tf.constant(second))
    finally:
        plugin.active = False
    assert plugin.graph is not None
    for node in plugin.graph.graph.node:
        node.device = "/device:GPU:0" if node.device else ""
    return find_clusters(PlacedGraph(plugin.graph.graph), plugin.definitions, set(), remote=True)


@pytest.mark.parametrize("case", ON_GPU)
def test_a_body_for_a_gpu_computes_what_tensorflow_documents_for_it(plugin: Plugin, case: str) -> None:
    import tensorflow as tf

    operand, documented = ON_GPU[case]
    compute, first, accepted, _ = CASES[case]
    second = np.array(operand, np.int32)
    (cluster,) = planned_on_gpu(plugin, compute, first, np.array(accepted[-1], np.int32)).clusters
    assert not cluster.demands
    assert plugin.graph is not None
    arguments = [plugin.graph.nodes[port.node].proto.attr["index"].i for port in cluster.arguments]
    operands = [(first, second)[int(number)] for number in arguments]
    (value,) = tf.function(to_hlo.body_function(cluster.body), autograph=False, jit_compile=True)(*operands)
    np.testing.assert_allclose(np.asarray(value), documented(first, second), rtol=1e-6)


@pytest.mark.parametrize("case", ["gather of each row", "gather of vectors", "floor division", "power"])
def test_what_has_no_documented_result_on_a_gpu_stays_there(plugin: Plugin, case: str) -> None:
    compute, first, accepted, _ = CASES[case]
    plan = planned_on_gpu(
        plugin, compute, first, np.array(accepted[0], np.int64 if first.dtype == np.int64 else np.int32)
    )
    stays = plan.left_out["what it computes on a GPU for operands that the processor refuses is not documented"]
    assert set(stays) & {"GatherV2", "GatherNd", "FloorDiv", "Pow"}


def test_a_gather_whose_axis_is_an_argument_stays_on_a_gpu(plugin: Plugin) -> None:
    import tensorflow as tf

    axis = tf.Variable(1)
    plan = planned_on_gpu(
        plugin, lambda x, at: tf.raw_ops.GatherV2(params=x, indices=at, axis=axis + 0) * 2.0, TABLE, np.array([0, 1])
    )
    stays = plan.left_out["what it computes on a GPU for operands that the processor refuses is not documented"]
    assert "GatherV2" in stays


def test_a_division_by_a_constant_demands_nothing(plugin: Plugin) -> None:
    import tensorflow as tf

    plugin.active, plugin.clusters = True, []
    try:
        tf.function(lambda x: tf.cast((x // 3) % 5 + x, tf.float32), autograph=False)(tf.constant([1, 7, 30]))
    finally:
        plugin.active = False
    (cluster,) = plugin.clusters
    assert not cluster.demands
    assert cluster.body == cluster.fallback
    # Asking a NodeDef for an attribute that it has not makes an empty one, on which TensorFlow's lowering fails.
    assert plugin.graph is not None
    assert all(value.WhichOneof("value") for node in plugin.graph.graph.node for value in node.attr.values())


@pytest.mark.slow
def test_a_stitched_job_raises_tensorflows_errors_and_goes_on(run_job: RunJob, run_plain: RunJob) -> None:
    job = run_job("looks_up.py", "300", COLD, environment=QUICK)
    assert job.code == 0, job.err
    assert main_program(job)["phase"] == "stitched", job.err
    of_tables = [cluster for cluster in job.summary["clusters"] if "ResourceGather" in cluster["ops"]]
    assert [cluster["state"] for cluster in of_tables] == ["stitched"], job.err
    plain = run_plain("looks_up.py", "300").result
    assert all(node and reason for node, reason in plain["errors"])
    assert job.result["errors"] == plain["errors"]
    assert len(job.result["losses"]) == len(plain["losses"]) == 310
    assert relative_difference(job.result["losses"], plain["losses"]) < 1e-3
