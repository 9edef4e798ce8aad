"""Real TensorFlow functions, lowered by TensorFlow: run as a program, it writes for each its HLO, inputs and eager
results to a file.

Why a program: TensorFlow in the test process would cost every test its import and its threads. Run by the fixture in
test_hlo_tensorflow.py: `python tensorflow_functions.py OUTPUT.pickle`.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {}
NAMES = (
    *("layer_norm_moments", "layer_norm_fused", "layer_norm_fused_gradient", "batch_norm_inference", "softmax"),
    *("softmax_gradient", "log_softmax", "gelu_tanh", "gelu_erf", "gelu_gradient", "sparse_cross_entropy"),
    *("cross_entropy_gradient", "adam", "argmax", "argmin_integers", "one_hot", "gather", "gather_axis_1"),
    *("gather_nd", "gather_gradient", "scatter_nd", "scatter_update", "scatter_sub", "segment_max", "max_pool"),
    *("max_pool_gradient", "max_pool_gradient_3d"),
    *("average_pool", "average_pool_gradient", "cumsum_reverse_exclusive", "cumprod", "pad", "pad_reflect"),
    *("strided_slice", "strided_slice_gradient", "strided_slice_negative", "bf16_sum", "f16_softmax", "f64_chain"),
    *("casts", "saturating_cast", "integer_arithmetic", "floor_division", "bit_operations", "booleans", "where_nan"),
    *("transpose_tile", "reverse_roll", "stack_unstack", "einsum_outer", "reduce_many", "reduce_product", "logsumexp"),
    *("l2_normalize", "huber", "dropout_apply", "rounding", "trigonometry", "activations", "norm_clip", "bitcast"),
    *("space_to_batch", "batch_to_space", "space_to_depth", "matrix_diagonal", "mirror_pad_gradient", "roll"),
    *("outer_products", "matrix_with_vectors", "dots_of_vectors", "double_products"),
    *("depthwise", "depthwise_gradients", "depthwise_multiplied_gradients"),
    *("matrix_band", "constants", "zero_extent", "scalar_only", "clip_nan"),
)


def define() -> None:
    """Fills FUNCTIONS. In a function so that importing this module does not import TensorFlow."""
    import numpy as np
    import tensorflow as tf

    rng = np.random.default_rng(7)

    def f32(*shape: int) -> Any:
        return tf.constant(rng.standard_normal(shape), tf.float32)

    def positive(*shape: int) -> Any:
        return tf.constant(rng.uniform(0.1, 2.0, shape), tf.float32)

    def s32(low: int, high: int, *shape: int) -> Any:
        return tf.constant(rng.integers(low, high, shape), tf.int32)

    def add(name: str, function: Callable[..., Any], *arguments: Any) -> None:
        FUNCTIONS[name] = (function, arguments)

    def gradient(function: Callable[..., Any], count: int = 1) -> Callable[..., Any]:
        """The gradients of the sum of squares of `function` by its first `count` arguments."""

        def run(*arguments: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(arguments[:count])
                loss = tf.reduce_sum(tf.square(function(*arguments)))
            return [tf.convert_to_tensor(g) for g in tape.gradient(loss, arguments[:count])]

        return run

    def moments_norm(x: Any, scale: Any, offset: Any) -> Any:
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        return tf.nn.batch_normalization(x, mean, variance, offset, scale, 1e-6)

    def fused_norm(x: Any, scale: Any, offset: Any) -> Any:
        """As Keras 2.15's LayerNormalization at its default epsilon."""
        rows = x.shape[0]
        folded = tf.reshape(x, (1, rows, x.shape[1], 1))
        y, _, _ = tf.compat.v1.nn.fused_batch_norm(
            folded, tf.ones(rows), tf.zeros(rows), epsilon=1e-3, data_format="NCHW", is_training=True
        )
        return tf.reshape(y, x.shape) * scale + offset

    def fused_norm_nhwc(x: Any, scale: Any, offset: Any) -> Any:
        """TensorFlow's CPU has the gradient in NHWC only."""
        rows = x.shape[0]
        folded = tf.reshape(tf.transpose(x), (1, x.shape[1], 1, rows))
        y, _, _ = tf.compat.v1.nn.fused_batch_norm(folded, tf.ones(rows), tf.zeros(rows), epsilon=1e-3)
        return tf.transpose(tf.reshape(y, (x.shape[1], rows))) * scale + offset

    add("layer_norm_moments", moments_norm, f32(6, 40), f32(40), f32(40))
    add("layer_norm_fused", fused_norm_nhwc, f32(6, 40) + 3, f32(40), f32(40))
    add("layer_norm_fused_gradient", gradient(fused_norm_nhwc, 3), f32(6, 40), f32(40), f32(40))
    add(
        "batch_norm_inference",
        lambda x, s, b, m, v: tf.compat.v1.nn.fused_batch_norm(x, s, b, m, v, 1e-3, is_training=False)[0],
        *(f32(2, 3, 3, 5), f32(5), f32(5), f32(5), positive(5)),
    )
    add("softmax", tf.nn.softmax, 4 * f32(5, 33))
    add("softmax_gradient", gradient(tf.nn.softmax), f32(5, 33))
    add("log_softmax", tf.nn.log_softmax, 4 * f32(5, 33))
    add("gelu_tanh", lambda x: tf.nn.gelu(x, approximate=True), 3 * f32(7, 19))
    add("gelu_erf", tf.nn.gelu, 3 * f32(7, 19))
    add("gelu_gradient", gradient(tf.nn.gelu), f32(7, 19))
    add(
        "sparse_cross_entropy",
        lambda x, y: tf.nn.sparse_softmax_cross_entropy_with_logits(y, x),
        *(f32(9, 21), s32(0, 21, 9)),
    )
    add(
        "cross_entropy_gradient",
        gradient(lambda x, y: tf.nn.softmax_cross_entropy_with_logits(tf.nn.softmax(y), x)),
        *(f32(9, 21), f32(9, 21)),
    )

    def adam(p: Any, g: Any, m: Any, v: Any, step: Any) -> Any:
        m = m + (g - m) * (1 - 0.9)
        v = v + (tf.square(g) - v) * (1 - 0.999)
        t = tf.cast(step + 1, tf.float32)
        rate = 1e-3 * tf.sqrt(1 - tf.pow(0.999, t)) / (1 - tf.pow(0.9, t))
        return p - m * rate / (tf.sqrt(v) + 1e-7), m, v

    add("adam", adam, f32(11, 13), f32(11, 13), f32(11, 13), positive(11, 13), tf.constant(3, tf.int64))
    add("argmax", lambda x: (tf.argmax(x, -1), tf.argmax(x, 0, tf.int32)), f32(7, 12))
    add("argmin_integers", lambda x: tf.argmin(x, 1), s32(0, 4, 6, 10))
    add("one_hot", lambda y: tf.one_hot(y, 10, 2.0, -1.0), s32(-1, 11, 6, 2))
    add("gather", tf.gather, f32(30, 8), s32(0, 30, 3, 4))
    add("gather_axis_1", lambda x, i: tf.gather(x, i, axis=1), f32(3, 9, 5), s32(0, 9, 4))
    add("gather_nd", tf.gather_nd, f32(6, 7, 3), s32(0, 6, 5, 2))
    add("gather_gradient", gradient(tf.gather), f32(12, 4), s32(0, 12, 9))
    add("scatter_nd", lambda i, u: tf.scatter_nd(i, u, (8, 3)), s32(0, 8, 6, 1), f32(6, 3))
    permutation = tf.constant(rng.permutation(8)[:5, None], tf.int32)
    add("scatter_update", tf.tensor_scatter_nd_update, f32(8, 3), permutation, f32(5, 3))
    add("scatter_sub", tf.tensor_scatter_nd_sub, f32(8, 3), s32(0, 8, 6, 1), f32(6, 3))
    add("segment_max", lambda x, i: tf.math.unsorted_segment_max(x, i, 4), f32(10, 3), s32(0, 4, 10))
    add("max_pool", lambda x: tf.nn.max_pool2d(x, 3, 2, "SAME"), f32(2, 9, 8, 3))
    add("average_pool", lambda x: tf.nn.avg_pool2d(x, 3, 2, "SAME"), f32(2, 9, 8, 3))
    add("average_pool_gradient", gradient(lambda x: tf.nn.avg_pool2d(x, 2, 2, "VALID")), f32(2, 8, 8, 3))
    add("cumsum_reverse_exclusive", lambda x: tf.cumsum(x, 1, exclusive=True, reverse=True), f32(3, 17))
    add("cumprod", lambda x: tf.math.cumprod(x, 0), positive(9, 4))
    add("pad", lambda x: tf.pad(x, [[1, 2], [0, 3]], constant_values=7), f32(4, 5))
    add("pad_reflect", lambda x: tf.pad(x, [[2, 1], [1, 1]], "REFLECT"), f32(4, 5))
    add("strided_slice", lambda x: x[1:6:2, ::3], f32(7, 10))
    add("strided_slice_gradient", gradient(lambda x: x[1:6:2, ::3]), f32(7, 10))
    add("strided_slice_negative", lambda x: x[::-1, 8:2:-2], f32(7, 10))
    add("bf16_sum", lambda x: tf.reduce_sum(tf.cast(x, tf.bfloat16) * tf.bfloat16.as_numpy_dtype(1.5), 1), f32(4, 50))
    add("f16_softmax", lambda x: tf.nn.softmax(tf.cast(x, tf.float16)), f32(4, 30))
    add("f64_chain", lambda x: tf.exp(tf.sin(tf.cast(x, tf.float64)) / 3), f32(4, 30))
    add(
        "casts",
        lambda x: [tf.cast(x, t) for t in (tf.int32, tf.int8, tf.int64, tf.bool, tf.float16, tf.bfloat16)],
        tf.constant([-100.7, -1.5, -0.2, 0.0, 0.4, 2.5, 99.9]),
    )
    add(
        "saturating_cast",
        lambda x: tf.saturate_cast(x, tf.uint8),
        tf.constant([-5.0, 0.0, 3.7, 254.2, 300.0, 1e6]),
    )
    add(
        "integer_arithmetic",
        lambda a, b: (a + b, a - b, a * b, -a, abs(a), tf.sign(a)),
        s32(-99, 99, 20),
        s32(-9, 9, 20),
    )
    add("floor_division", lambda a, b: (a // b, a % b, tf.truncatediv(a, b)), s32(-99, 99, 20), s32(1, 9, 20))
    bitwise = tf.bitwise
    add(
        "bit_operations",
        lambda a, b: (
            *(bitwise.bitwise_and(a, b), bitwise.bitwise_or(a, b), bitwise.bitwise_xor(a, b), bitwise.invert(a)),
            *(bitwise.left_shift(a, b), bitwise.right_shift(a, b), tf.raw_ops.PopulationCount(x=a)),
        ),
        *(s32(-(2**30), 2**30, 20), s32(0, 31, 20)),
    )
    add(
        "booleans",
        lambda a, b: (tf.reduce_all(a > b, 0), tf.reduce_any(a > b, 1), tf.math.logical_xor(a > 0, ~(b > 0))),
        *(f32(5, 4), f32(5, 4)),
    )
    add("where_nan", lambda x: tf.where(tf.math.is_nan(tf.math.log(x)), -1.0, tf.math.log(tf.abs(x))), f32(5, 6))
    add("transpose_tile", lambda x: tf.tile(tf.transpose(x, (2, 0, 1)), (1, 2, 3)), f32(3, 4, 5))
    add("reverse_roll", lambda x: tf.roll(tf.reverse(x, [1]), 2, 0), f32(5, 6))
    add(
        "stack_unstack",
        lambda x, y: tf.concat([tf.stack([x, y], 1)[:, 0], tf.split(y, 2, 0)[1]], 0),
        f32(4, 6),
        f32(4, 6),
    )
    add("einsum_outer", lambda x, y: x[:, :, None] * y[:, None, :], f32(3, 4), f32(3, 5))
    add(
        "reduce_many",
        lambda x: (
            *(tf.reduce_sum(x, (0, 2)), tf.reduce_mean(x), tf.reduce_max(x, 1), tf.reduce_min(x, (1, 2), True)),
            *(tf.math.reduce_std(x, 0), tf.reduce_sum(tf.cast(x * 9, tf.int32), 2)),
        ),
        f32(6, 7, 8),
    )
    add("reduce_product", lambda x: tf.reduce_prod(x, 1), positive(6, 9))
    add("logsumexp", lambda x: tf.reduce_logsumexp(x, 1), 9 * f32(6, 30))
    add("l2_normalize", lambda x: tf.nn.l2_normalize(x, -1), f32(6, 30))

    def huber(x: Any, y: Any) -> Any:
        error = tf.abs(x - y)
        return tf.reduce_mean(tf.where(error <= 1, 0.5 * error * error, error - 0.5))

    add("huber", huber, 2 * f32(40), f32(40))
    add(
        "dropout_apply",
        lambda x, u: tf.where(u >= 0.1, x / (1 - 0.1), 0),
        *(f32(8, 16), tf.constant(rng.uniform(0, 1, (8, 16)), tf.float32)),
    )
    add(
        "rounding",
        lambda x: (tf.floor(x), tf.math.ceil(x), tf.round(x), tf.math.rint(x), tf.math.floormod(x, 0.7)),
        5 * f32(50),
    )
    add(
        "trigonometry",
        lambda x: (
            tf.sin(x),
            tf.cos(x),
            tf.tan(x),
            tf.atan(x),
            tf.atan2(x, 0.5),
            tf.sinh(x),
            tf.asinh(x),
            tf.acosh(x + 9),
        ),
        f32(60),
    )
    add(
        "activations",
        lambda x: (
            *(tf.nn.relu(x), tf.nn.relu6(x), tf.nn.elu(x), tf.nn.selu(x), tf.nn.softplus(x), tf.nn.sigmoid(x)),
            *(
                tf.nn.swish(x),
                tf.nn.leaky_relu(x),
                tf.tanh(x),
                tf.nn.softsign(x),
                tf.math.expm1(x),
                tf.math.log1p(x * x),
            ),
        ),
        4 * f32(60),
    )
    add("norm_clip", lambda x, y: tf.clip_by_global_norm([x, y], 0.5)[0], f32(8, 9), f32(30))
    add("bitcast", lambda x: (tf.bitcast(x, tf.int32), tf.bitcast(tf.bitcast(x, tf.int32) & ~1, tf.float32)), f32(9))
    add("matrix_band", lambda x: tf.linalg.band_part(x, 1, 2) + tf.eye(6), f32(6, 6))
    add(
        "space_to_batch",
        gradient(lambda x: tf.space_to_batch(x, [2, 3], [[1, 0], [2, 1]])),
        f32(2, 5, 6, 3),
    )
    add("batch_to_space", gradient(lambda x: tf.batch_to_space(x, [2, 3], [[1, 0], [2, 1]])), f32(12, 3, 4, 3))
    add(
        "space_to_depth",
        lambda x: (
            tf.nn.space_to_depth(x, 2),
            tf.nn.depth_to_space(x, 2),
            tf.nn.depth_to_space(tf.nn.space_to_depth(x, 2), 4),
        ),
        f32(2, 6, 4, 4),
    )
    add("roll", gradient(lambda x: tf.roll(x, [-3, 2, 9], [0, 1, 1])), f32(7, 5, 4))
    add("matrix_diagonal", gradient(lambda x: tf.linalg.diag(x, k=1) + 1.0), f32(3, 6))
    add("mirror_pad_gradient", gradient(lambda x: tf.pad(x, [[1, 2], [2, 1]], "REFLECT")), f32(5, 6))
    add("depthwise", lambda x, w: tf.nn.depthwise_conv2d(x, w, [1, 1, 1, 1], "SAME"), f32(2, 9, 8, 6), f32(3, 2, 6, 1))
    for name, multiplier, stride, padding in (("", 1, 2, "SAME"), ("multiplied_", 3, 1, "VALID")):
        add(
            f"depthwise_{name}gradients",
            gradient(lambda x, w, s=stride, p=padding: tf.nn.depthwise_conv2d(tf.tanh(x), w, [1, s, s, 1], p), count=2),
            *(f32(2, 9, 8, 6), f32(3, 3, 6, multiplier)),
        )
    add(
        "outer_products",
        lambda x, y: (
            tf.matmul(x[:, :, :1], y[:, :1, :]),
            tf.matmul(x[:, :1, :], y[:, :, :1], transpose_a=True, transpose_b=True),
            tf.matmul(x[0, :, :1], y[1, :1, :]),
            tf.matmul(x[:, :, :1] * 0.0, y[:, :1, :] * -1.0),
        ),
        f32(3, 5, 4),
        f32(3, 7, 6),
    )
    add(
        "matrix_with_vectors",
        lambda x, y: (
            tf.matmul(x, y[:, :4, :1]),
            tf.matmul(x, y[:, :5, :1], transpose_a=True),
            tf.matmul(x[:, :, :1], y[:, :5], transpose_a=True),
            tf.matmul(x[:, :1], y[:, :, :4], transpose_b=True),
            tf.linalg.matvec(x[:, None], y[:, :1, :4]),
        ),
        f32(3, 5, 4),
        f32(3, 7, 6),
    )
    add("dots_of_vectors", lambda x, y: tf.matmul(x[:, :1], y[:, :, :1]), f32(6, 3, 40), f32(6, 40, 2))
    add(
        "double_products",
        lambda x, y: (tf.matmul(x, y[:, :1], transpose_b=True), tf.matmul(x[..., :1], y[:, :1])),
        tf.constant(rng.standard_normal((2, 5, 9))),
        tf.constant(rng.standard_normal((2, 4, 9))),
    )
    # Arrays, not tensors: those would be captured as arguments.
    table = rng.standard_normal((20, 30)).astype(np.float32)
    half = rng.standard_normal(9).astype(tf.bfloat16.as_numpy_dtype)
    flags = rng.random(9) < 0.5
    add("constants", lambda x: (x + table, tf.where(flags, half, tf.cast(7, tf.bfloat16))), f32(20, 30))
    add("zero_extent", lambda x: tf.reduce_sum(x[:, :0], 1) + tf.concat([tf.exp(x)[0, :0], x[:, 0]], 0), f32(3, 4))
    add(
        "scalar_only",
        lambda x, y: tf.maximum(x, y) ** 1.7 + tf.cast(x > y, tf.float32),
        tf.constant(1.5),
        tf.constant(2.5),
    )
    add("clip_nan", lambda x: tf.clip_by_value(x, -1, 1), tf.constant([np.nan, np.inf, -np.inf, 0.3, 5.0], tf.float32))
    add("max_pool_gradient", gradient(lambda x: tf.nn.max_pool2d(x, 3, 2, "SAME")), f32(2, 9, 8, 3))
    add("max_pool_gradient_3d", gradient(lambda x: tf.nn.max_pool3d(x, 2, 2, "VALID")), f32(1, 4, 5, 4, 3))
    assert set(FUNCTIONS) == set(NAMES), set(FUNCTIONS) ^ set(NAMES)


def run(function: Callable[..., Any], *arguments: Any) -> Any:
    """Hides the function's optional arguments from tf.function, which would lower them too."""
    return function(*arguments)


def main(path: str) -> None:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import numpy as np
    import tensorflow as tf

    tf.config.threading.set_inter_op_parallelism_threads(1)
    define()
    found: dict[str, Any] = {}
    for name in NAMES:
        function, arguments = FUNCTIONS[name]
        plain = tf.function(partial(run, function), autograph=False)
        compiled = tf.function(partial(run, function), autograph=False, jit_compile=True)
        lowered = compiled.experimental_get_compiler_ir(*arguments)
        outputs = tf.nest.flatten(plain(*arguments))
        found[name] = {
            "proto": lowered(stage="hlo_serialized"),
            "text": lowered(stage="hlo"),
            "inputs": [np.asarray(argument) for argument in arguments],
            "outputs": [np.asarray(output) for output in outputs],
        }
    with open(path, "wb") as file:
        pickle.dump(found, file)


if __name__ == "__main__":
    main(sys.argv[1])
