"""Random numbers inside kernels: TensorFlow's own, bit for bit, where an operator has a seed; fresh ones where it has none."""

from __future__ import annotations

import numpy as np
import pytest

from stitchfleet.plugin.clusters import bodies
from stitchfleet.plugin.graph import to_hlo
from stitchfleet.plugin.graph.tf_ops import RANDOM_UNIFORM, UNIFORM_BITS

from ..conftest import RunJob
from ..job.test_faults import COLD, QUICK, main_program


@pytest.mark.parametrize("dtype", sorted(UNIFORM_BITS))
@pytest.mark.parametrize("shape", [(7,), (3, 5), (40, 33), (0, 4)])
def test_a_uniform_operator_spelled_out_gives_tensorflows_numbers(shape: tuple[int, ...], dtype: int) -> None:
    import tensorflow as tf
    from tensorflow.core.framework import function_pb2, node_def_pb2
    from tensorflow.python.ops import gen_stateless_random_ops_v2 as stateless

    library = function_pb2.FunctionDefLibrary()
    function = library.function.add()
    function.signature.name = "body"
    for name, given in (("shape", 3), ("key", 23), ("counter", 23), ("algorithm", 3)):
        function.signature.input_arg.add(name=name, type=given)
    function.signature.output_arg.add(name="r0", type=dtype)
    node = node_def_pb2.NodeDef(op=RANDOM_UNIFORM)
    node.attr["dtype"].type, node.attr["Tshape"].type = dtype, 3
    bodies._spell_out_uniform(function, "n0", node, ["shape", "key", "counter", "algorithm"])
    function.ret["r0"] = "n0:output:0"
    inputs = [
        tf.constant(shape, tf.int32),
        tf.constant([0xFEDCBA9876543210], tf.uint64),
        tf.constant([(1 << 64) - 3, 17], tf.uint64),
        tf.constant(1),
    ]
    (actual,) = tf.function(to_hlo.body_function(library.SerializeToString()), autograph=False)(*inputs)
    expected = stateless.stateless_random_uniform_v2(*inputs, dtype=tf.as_dtype(dtype))
    assert actual.dtype == expected.dtype
    np.testing.assert_array_equal(np.asarray(actual), expected.numpy())


@pytest.mark.slow
def test_dropout_is_drawn_inside_kernels_and_a_seed_gives_the_plain_jobs_numbers(
    run_job: RunJob, run_plain: RunJob
) -> None:
    job = run_job("drops.py", "120", COLD, environment=QUICK)
    assert job.code == 0, job.err
    assert main_program(job)["phase"] == "stitched", job.err
    drawing = [cluster for cluster in job.summary["clusters"] if "StatelessRandomUniformV2" in cluster["ops"]]
    assert drawing
    assert all(cluster["state"] == "stitched" for cluster in drawing)
    assert set(job.summary["stayed_out"].get("random numbers", {})) <= {"StitchfleetRandomStream"}  # key and counter
    seeded, total, fresh, other_total = np.array(job.result).T
    plain = np.array(run_plain("drops.py", "120").result).T
    np.testing.assert_array_equal(seeded, plain[0])  # a count: exact
    np.testing.assert_allclose(total, plain[1], rtol=1e-4, atol=1e-2)
    assert abs(fresh.mean() - 0.75) < 0.005  # 384,000 draws: a deviation of 0.0007
    assert len(set(other_total)) == len(other_total)
    assert not np.array_equal(other_total, plain[3])
