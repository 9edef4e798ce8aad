"""The kernels that `scripts/bench --kernels-cpu` measures, as TensorFlow functions. To add one, add a row to CASES."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Arrays = list[npt.NDArray[Any]]
BYTES = 4  # of a float
ROW = 256  # elements of a row: BERT's hidden size
CLASSES = 8000
ADAM_TENSORS = 75

_BERT_LAYER = [(ROW, ROW), (ROW,)] * 4 + [
    (ROW,),
    (ROW,),
    (ROW, 4 * ROW),
    (4 * ROW,),
    (4 * ROW, ROW),
    (ROW,),
    (ROW,),
    (ROW,),
]
BERT_SHAPES = [
    (8000, ROW),
    (128, ROW),
    (ROW,),
    (ROW,),
    *_BERT_LAYER * 4,
    (ROW, ROW),
    (ROW,),
    (ROW,),
    (ROW,),
    (8000,),
    (ROW,),
    (ROW,),
]
"""The 75 variables of a BERT of 4 layers of 256: 5.3 million elements."""


@dataclass(frozen=True)
class Case:
    """One kernel.

    function: maps tensors to tensors. inputs(size, rng): makes the arrays; the main one, the first, has about `size` bytes.
    least_bytes: smallest size that makes sense. in_place: whether a job would have the tensors in variables: the contestants
    overwrite them; `function` takes and returns them. mask: the value of masked elements, or a saturated one; None if it makes no
    difference.
    """

    name: str
    function: Callable[..., Any]
    inputs: Callable[[int, np.random.Generator], Arrays]
    least_bytes: int = 0
    in_place: bool = False
    mask: float | None = None

    def masked(self, inputs: Arrays, rng: np.random.Generator) -> Arrays:
        """A copy of `inputs` in which a random half of the main tensor's elements is masked."""
        hidden = rng.random(inputs[0].shape) < 0.5
        return [np.where(hidden, np.float32(self.mask or 0.0), inputs[0]), *inputs[1:]]


def _rows(size: int, rng: np.random.Generator, count: int = 1, row: int = ROW) -> Arrays:
    rows = max(1, size // BYTES // row)
    return [_normal(rng, rows, row) for _ in range(count)]


def _normal(rng: np.random.Generator, *shape: int) -> npt.NDArray[np.float32]:
    return rng.standard_normal(shape, np.float32)


def _vectors(rng: np.random.Generator, count: int) -> Arrays:
    return [_normal(rng, ROW) for _ in range(count)]


def layer_norm(x: Any, scale: Any, shift: Any) -> Any:
    """The layer normalization of each row. x: [rows, columns]. scale, shift: [columns]."""
    import tensorflow as tf

    mean = tf.reduce_mean(x, -1, keepdims=True)
    centred = x - mean
    variance = tf.reduce_mean(tf.square(centred), -1, keepdims=True)
    return centred * tf.math.rsqrt(variance + 1e-6) * scale + shift


def layer_norm_gradient(x: Any, dy: Any, scale: Any, mean: Any, deviation: Any) -> Any:
    """(dx, gradient of scale, gradient of shift) of `layer_norm`. x, dy: [rows, columns]. mean, deviation: [rows, 1], the mean and
    the reciprocal deviation that the forward pass has kept."""
    import tensorflow as tf

    normal = (x - mean) * deviation
    d_normal = dy * scale
    first = tf.reduce_mean(d_normal, -1, keepdims=True)
    second = tf.reduce_mean(d_normal * normal, -1, keepdims=True)
    dx = (d_normal - first - normal * second) * deviation
    return dx, tf.reduce_sum(dy * normal, 0), tf.reduce_sum(dy, 0)


def softmax(x: Any) -> Any:
    import tensorflow as tf

    return tf.nn.softmax(x)


def gelu(x: Any) -> Any:
    import tensorflow as tf

    return tf.nn.gelu(x, approximate=True)


def gelu_gradient(x: Any, dy: Any) -> Any:
    """The gradient of `gelu` (its tanh form) with respect to x, of the shape of x and dy."""
    import tensorflow as tf

    inner = 0.7978845608 * (x + 0.044715 * x * x * x)
    t = tf.tanh(inner)
    slope = 0.7978845608 * (1.0 + 3 * 0.044715 * x * x)
    return dy * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * slope)


def dropout_bias_residual(x: Any, bias: Any, mask: Any, residual: Any) -> Any:
    """dropout(x + bias, rate 0.1) + residual. x, residual: [rows, columns]. bias: [columns]. mask: bool [rows, columns], False
    for elements that are dropped."""
    import tensorflow as tf

    return tf.where(mask, (x + bias) * (1.0 / 0.9), 0.0) + residual


def cross_entropy(logits: Any, labels: Any) -> Any:
    """(the loss of each row, [rows]; the gradient of the logits). logits: [rows, classes]. labels: int32 [rows]."""
    import tensorflow as tf

    return tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(features=logits, labels=labels)


def column_sum(x: Any) -> Any:
    import tensorflow as tf

    return tf.reduce_sum(x, 0)


def full_sum(x: Any) -> Any:
    """The sum of the squares of all elements, a scalar."""
    import tensorflow as tf

    return tf.reduce_sum(tf.square(x))


BETAS = (0.9, 0.999, 1e-7)


def adam(rate: Any, *tensors: Any) -> Any:
    """One step of Adam. tensors: weight, mean, square and gradient of each variable in turn. Returns weight, mean and square of
    each."""
    import tensorflow as tf

    first, second, epsilon = BETAS
    results = []
    for weight, mean, square, gradient in zip(*(tensors[k::4] for k in range(4)), strict=True):
        mean = mean + (gradient - mean) * (1 - first)
        square = square + (gradient * gradient - square) * (1 - second)
        results += [weight - rate * mean / (tf.sqrt(square) + epsilon), mean, square]
    return results


def adam_inputs(size: int, rng: np.random.Generator) -> Arrays:
    """The inputs of `adam`: the rate and ADAM_TENSORS variables in the proportions of a BERT's, with about `size` bytes of weights in
    all; each variable has one dimension."""
    whole = sum(math.prod(shape) for shape in BERT_SHAPES)
    found: Arrays = [np.array(1e-3, np.float32)]
    for shape in BERT_SHAPES[:ADAM_TENSORS]:
        elements = max(1, round(math.prod(shape) * (size / BYTES) / whole))
        found += [
            _normal(rng, elements),
            _normal(rng, elements),
            rng.random(elements, np.float32),
            _normal(rng, elements),
        ]
    return found


def transpose(*order: int) -> Callable[[Any], Any]:
    """The transpose of a tensor whose dimension i comes from its dimension order[i]."""

    def transposed(x: Any) -> Any:
        import tensorflow as tf

        return tf.transpose(x, order)

    return transposed


def roll(x: Any) -> Any:
    """The cyclic shift of shifted windows (Swin, Liu et al. 2021). x: [images, rows, columns, channels]."""
    import tensorflow as tf

    return tf.roll(x, [-3, -3], [1, 2])


def _of_shape(*shape: int) -> Callable[[int, np.random.Generator], Arrays]:
    """A tensor whose one unknown dimension (-1) is as large as the size allows."""
    known = -math.prod(shape)

    def make(size: int, rng: np.random.Generator) -> Arrays:
        free = max(1, size // BYTES // known)
        return [_normal(rng, *(free if extent < 0 else extent for extent in shape))]

    return make


def _labels(size: int, rng: np.random.Generator) -> Arrays:
    (logits,) = _rows(size, rng, row=CLASSES)
    return [logits, rng.integers(0, CLASSES, logits.shape[0]).astype(np.int32)]


def _dropout_inputs(size: int, rng: np.random.Generator) -> Arrays:
    x, residual = _rows(size, rng, 2)
    return [x, *_vectors(rng, 1), rng.random(x.shape) < 0.9, residual]


def _gradient_inputs(size: int, rng: np.random.Generator) -> Arrays:
    x, dy = _rows(size, rng, 2)
    return [x, dy, *_vectors(rng, 1), _normal(rng, x.shape[0], 1), rng.random((x.shape[0], 1), np.float32) + 0.5]


CASES: Sequence[Case] = (
    Case("layer_norm", layer_norm, lambda size, rng: [*_rows(size, rng), *_vectors(rng, 2)]),
    Case("layer_norm_gradient", layer_norm_gradient, _gradient_inputs),
    Case("softmax", softmax, _rows, mask=-1e9),
    Case("gelu", gelu, _rows, mask=-100.0),
    Case("gelu_gradient", gelu_gradient, lambda size, rng: _rows(size, rng, 2), mask=-100.0),
    Case("dropout_bias_residual", dropout_bias_residual, _dropout_inputs),
    Case("cross_entropy", cross_entropy, _labels, least_bytes=CLASSES * BYTES, mask=-100.0),
    Case("adam_75", adam, adam_inputs, in_place=True),
    Case("column_sum", column_sum, _rows),
    Case("full_sum", full_sum, _rows),
    Case("transpose_heads", transpose(0, 2, 1, 3), _of_shape(-1, 128, 4, 64), least_bytes=2**17),
    Case("transpose_matrices", transpose(0, 2, 1), _of_shape(-1, 128, 64), least_bytes=2**15),
    Case("transpose_rows", transpose(1, 0, 2), _of_shape(8, -1, 676), least_bytes=2**15),
    Case("transpose_channels", transpose(0, 3, 1, 2), _of_shape(-1, 32, 32, 16), least_bytes=2**16),
    Case("transpose_time", transpose(1, 0, 2), _of_shape(-1, 100, 32), least_bytes=2**14),
    Case("roll_windows", roll, _of_shape(-1, 28, 28, 32), least_bytes=2**17),
)
