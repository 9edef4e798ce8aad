"""The functions of the micro cases, written as a PyTorch user writes them, for TorchInductor to compile.

`FUNCTIONS` maps the name of a case's function to its alternatives: all compute the same results from the same arguments, and the
fastest one counts. Results are one tensor or a flat tuple of tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch._higher_order_ops.foreach_map import foreach_map

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LAYER_NORM_EPSILON = 1e-6
BATCH_NORM_EPSILON = 1e-3
MEAN_DECAY, SQUARE_DECAY, ADAM_EPSILON = 0.9, 0.999, 1e-7
KEPT_SHARE = 0.9


def layer_norm(x: Any, scale: Any, shift: Any) -> Any:
    """Normalizes each row of `x`."""
    return F.layer_norm(x, (x.shape[-1],), scale, shift, LAYER_NORM_EPSILON)


def layer_norm_gradient(x: Any, dy: Any, scale: Any, mean: Any, deviation: Any) -> tuple[Any, ...]:
    """Returns the gradients of a layer norm with respect to `x`, scale and shift."""
    normal = (x - mean) * deviation
    d_normal = dy * scale
    first = d_normal.mean(-1, keepdim=True)
    second = (d_normal * normal).mean(-1, keepdim=True)
    return (d_normal - first - normal * second) * deviation, (dy * normal).sum(0), dy.sum(0)


def layer_norm_gradient_native(x: Any, dy: Any, scale: Any, mean: Any, deviation: Any) -> tuple[Any, ...]:
    """Returns the same as `layer_norm_gradient`, by PyTorch's own operator for it."""
    result: tuple[Any, ...] = torch.ops.aten.native_layer_norm_backward(
        dy, x, [x.shape[-1]], mean, deviation, scale, scale, [True, True, True]
    )
    return result


def softmax(x: Any) -> Any:
    """Returns the softmax of each row."""
    return F.softmax(x, dim=-1)


def adam(rate: Any, *tensors: Any) -> tuple[Any, ...]:
    """Applies a step of Adam to each variable; `tensors` holds weight, mean, square and gradient of each in turn."""
    results: list[Any] = []
    rate = rate.reshape(())
    for weight, mean, square, gradient in zip(tensors[0::4], tensors[1::4], tensors[2::4], tensors[3::4]):
        mean = mean + (gradient - mean) * (1 - MEAN_DECAY)
        square = square + (gradient * gradient - square) * (1 - SQUARE_DECAY)
        results += [weight - rate * mean / (square.sqrt() + ADAM_EPSILON), mean, square]
    return tuple(results)


def adam_foreach(rate: Any, *tensors: Any) -> tuple[Any, ...]:
    """Returns the same as `adam`, by operators on lists of tensors, which Inductor fuses across the variables."""
    weights, means, squares, gradients = (list(tensors[at::4]) for at in range(4))
    means = torch._foreach_add(means, torch._foreach_mul(torch._foreach_sub(gradients, means), 1 - MEAN_DECAY))
    changes = torch._foreach_sub(torch._foreach_mul(gradients, gradients), squares)
    squares = torch._foreach_add(squares, torch._foreach_mul(changes, 1 - SQUARE_DECAY))
    divisors = torch._foreach_add(torch._foreach_sqrt(squares), ADAM_EPSILON)
    weights = torch._foreach_sub(weights, torch._foreach_div(torch._foreach_mul(means, rate.reshape(())), divisors))
    return tuple(each for group in zip(weights, means, squares) for each in group)


def row_mean(x: Any) -> Any:
    """Subtracts from each row its mean."""
    return x - x.mean(-1, keepdim=True)


def column_mean(x: Any) -> Any:
    """Subtracts from each column its mean."""
    return x - x.mean(0)


def batch_norm(x: Any, scale: Any, shift: Any) -> tuple[Any, ...]:
    """Normalizes the channels, the last dimension of `x`; returns also their means and biased variances."""
    variance, mean = torch.var_mean(x, (0, 1, 2), correction=0)
    return (x - mean) * (variance + BATCH_NORM_EPSILON).rsqrt() * scale + shift, mean, variance


def batch_norm_running(x: Any, scale: Any, shift: Any) -> tuple[Any, ...]:
    """Returns the same as `batch_norm`, by `F.batch_norm` on a channels-last tensor; a momentum of 1 leaves the batch's own mean and
    unbiased variance in the running statistics."""
    mean, variance = torch.zeros_like(scale), torch.ones_like(scale)
    y = F.batch_norm(
        x.permute(0, 3, 1, 2), mean, variance, scale, shift, training=True, momentum=1.0, eps=BATCH_NORM_EPSILON
    )
    count = x.shape[0] * x.shape[1] * x.shape[2]
    return y.permute(0, 2, 3, 1), mean, variance * ((count - 1) / count)


def power_broadcast_add(a: Any, b: Any, x: Any) -> Any:
    """Adds a power of two vectors to each column of `x`."""
    return torch.pow(a, b).unsqueeze(-1) + x


def chain(x: Any) -> Any:
    """Applies a short chain of pointwise operators."""
    return torch.tanh(x * 2 + 1) * x


def chains(*tensors: Any) -> tuple[Any, ...]:
    """Applies the chain to each tensor."""
    return tuple(chain(x) for x in tensors)


def chains_foreach(*tensors: Any) -> tuple[Any, ...]:
    """Returns the same as `chains`, by an operator on a list of tensors, which Inductor fuses across the tensors."""
    return tuple(foreach_map(chain, list(tensors)))


def bias_gelu(x: Any, bias: Any) -> Any:
    """Adds a bias and applies GELU."""
    return F.gelu(x + bias, approximate="tanh")


def cross_entropy(logits: Any, labels: Any) -> tuple[Any, ...]:
    """Returns the loss of each row and its gradient with respect to the logits."""
    labels = labels.long()
    loss = F.cross_entropy(logits, labels, reduction="none")
    return loss, F.softmax(logits, dim=-1) - F.one_hot(labels, logits.shape[-1])


def cross_entropy_logarithms(logits: Any, labels: Any) -> tuple[Any, ...]:
    """Returns the same as `cross_entropy`, both results from the logarithms of the probabilities."""
    logarithms = F.log_softmax(logits, dim=-1)
    labels = labels.unsqueeze(-1)
    loss = -logarithms.gather(-1, labels.long()).squeeze(-1)
    return loss, logarithms.exp() - (torch.arange(logits.shape[-1], device=logits.device) == labels).to(logits.dtype)


def dropout_bias_residual(x: Any, bias: Any, mask: Any, residual: Any) -> Any:
    """Adds a bias, drops what the mask leaves out and adds a residual."""
    return torch.where(mask, (x + bias) * (1 / KEPT_SHARE), 0.0) + residual


def column_sum(x: Any) -> Any:
    """Returns the sum of each column."""
    return x.sum(0)


def full_sum(x: Any) -> Any:
    """Returns the sum of all squares."""
    return (x * x).sum()


FUNCTIONS: Mapping[str, tuple[Callable[..., Any], ...]] = {
    "layer_norm": (layer_norm,),
    "layer_norm_gradient": (layer_norm_gradient, layer_norm_gradient_native),
    "softmax": (softmax,),
    "adam": (adam_foreach, adam),
    "row_mean": (row_mean,),
    "column_mean": (column_mean,),
    "batch_norm": (batch_norm, batch_norm_running),
    "power_broadcast_add": (power_broadcast_add,),
    "chains": (chains_foreach, chains),
    "bias_gelu": (bias_gelu,),
    "cross_entropy": (cross_entropy, cross_entropy_logarithms),
    "dropout_bias_residual": (dropout_bias_residual,),
    "column_sum": (column_sum,),
    "full_sum": (full_sum,),
}
COMBINED: Mapping[str, Callable[..., Any]] = {"adam": adam, "chains": chains}
"""The plain functions of many tensors, of which Inductor can combine the kernels."""
