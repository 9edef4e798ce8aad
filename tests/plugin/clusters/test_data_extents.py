"""What has extents that the data decide stays in TensorFlow; what only stands beside it does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stitchfleet.plugin.clusters import data_extents
from stitchfleet.plugin.clusters.clusters import find_clusters
from stitchfleet.plugin.graph.control_flow import analyse
from stitchfleet.plugin.graph.placed_graph import OpDefinitions, PlacedGraph

from ..conftest import RunJob
from ..job.test_faults import COLD, QUICK, main_program


def decided(build: Any) -> set[str]:
    """The last parts of the names of the nodes that are found in a graph that `build` makes."""
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        build()
    definition = graph.as_graph_def()
    for node in definition.node:
        node.device = "/job:localhost/replica:0/task:0/device:CPU:0"
    placed, definitions = PlacedGraph(definition), OpDefinitions()
    found = data_extents.decided_by_data(placed, definitions, analyse(placed).order)
    plan = find_clusters(placed, definitions, ())
    for cluster in plan.clusters:
        assert not found.intersection(cluster.members)
    return {placed.nodes[i].name for i in found}


def placeholder(shape: list[int], dtype: str = "float32") -> Any:
    import tensorflow as tf

    return tf.compat.v1.placeholder(dtype, shape)


def test_unique_ids_and_the_sums_of_their_rows() -> None:
    """A sparse gradient with its doubles added up, as legacy optimizers do."""
    import tensorflow as tf

    def build() -> None:
        rows, ids = placeholder([64, 8]) * 2.0, placeholder([64], "int32")
        unique, where = tf.unique(ids)
        count = tf.shape(unique)[0]
        summed = tf.math.unsorted_segment_sum(rows, where, count, name="summed")
        tf.negative(tf.math.exp(summed, name="exp"), name="step")
        tf.sqrt(tf.reduce_sum(summed, axis=1), name="lengths")
        tf.sqrt(tf.reduce_sum(summed, axis=0), name="columns")
        tf.square(tf.sin(rows, name="sin"), name="beside")
        tf.cast(where, tf.float32, name="places")  # as many as there are ids

    found = decided(build)
    assert {"summed", "exp", "step", "lengths", "Unique"} <= found
    assert not found & {"sin", "beside", "places", "mul", "columns"}


def test_a_mask_and_the_loss_over_what_it_takes() -> None:
    """The mean is a scalar: the step behind it, and the whole backward pass, has ordinary extents again."""
    import tensorflow as tf

    def build() -> None:
        x, mask = placeholder([64, 8]), placeholder([64], "bool")
        taken = tf.boolean_mask(x, mask)
        squares = tf.square(taken, name="squares")
        mean = tf.reduce_sum(squares, name="total") / tf.cast(tf.size(taken), tf.float32)
        tf.exp(mean + tf.reduce_sum(x), name="after")

    found = decided(build)
    assert {"squares", "total"} <= found
    assert "after" not in found
    assert not any("truediv" in name for name in found)


def test_what_is_made_to_such_an_extent() -> None:
    import tensorflow as tf

    def build() -> None:
        mask = placeholder([64], "bool")
        count = tf.shape(tf.where(mask))[0] * 2 + 1
        tf.exp(tf.fill(tf.stack([count, 4]), 1.0, name="filled"), name="exp")
        tf.matmul(
            tf.reshape(tf.random.normal([64]), tf.stack([count, -1]), name="shaped"),
            placeholder([3, 3]),
            name="product",
        )

    assert {"filled", "exp", "shaped", "product"} <= decided(build)


def test_a_product_over_such_an_extent_has_ordinary_ones() -> None:
    import tensorflow as tf

    def build() -> None:
        x, mask = placeholder([64, 8]), placeholder([64], "bool")
        taken = tf.boolean_mask(x, mask)
        weights = tf.matmul(taken, tf.sin(taken), transpose_a=True, name="weights")
        tf.exp(weights, name="after")

    found = decided(build)
    assert "weights" in found
    assert "after" not in found


def test_a_graph_without_them_is_left_alone() -> None:
    import tensorflow as tf

    assert decided(lambda: tf.reshape(tf.exp(placeholder([4, 4])), [tf.size(placeholder([2, 8]))])) == set()


@pytest.mark.slow
def test_a_job_with_unique_ids_is_stitched_at_once_and_says_what_stays(run_job: RunJob, run_plain: RunJob) -> None:
    job = run_job("unique_ids.py", "300", COLD, environment=QUICK)
    assert job.code == 0, job.err
    assert main_program(job)["phase"] == "stitched", job.err
    assert job.summary["stayed_out"][data_extents.REASON]
    assert all(len(cluster["executables"]) <= 2 for cluster in job.summary["clusters"])
    plain = np.asarray(run_plain("unique_ids.py", "300").result)
    np.testing.assert_allclose(np.asarray(job.result), plain, rtol=1e-4)
