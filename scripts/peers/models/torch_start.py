"""What the scripts of PyTorch share: ways of compiling, the weights, a training step."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import start
import torch
from torch import nn

_NAMES = {"kernel": "weight", "embeddings": "weight", "gamma": "weight", "beta": "bias"}
_NAMES |= {"moving_mean": "running_mean", "moving_variance": "running_var"}


def options(description: str | None, modes: tuple[str, ...] = ("train", "infer")) -> argparse.ArgumentParser:
    """A parser with the options of every peer, and --compile."""
    parser = start.options(description, modes)
    parser.add_argument(
        "--compile",
        choices=("default", "max-autotune"),
        help="run the step under torch.compile in this mode; default: eager",
    )
    return parser


def compiled(function: Callable[..., Any], arguments: argparse.Namespace) -> Callable[..., Any]:
    """`function` as the options say: eager, or one graph under torch.compile."""
    if arguments.compile is None:
        return function
    return torch.compile(function, fullgraph=True, mode=arguments.compile)  # type: ignore[no-any-return]


def load(model: nn.Module, weights: Mapping[str, np.ndarray]) -> None:
    """Gives `model` Keras' weights: the same names but for what Keras calls a layer's own; kernels have their outputs first.
    Raises KeyError if one of the model's has none."""
    found: dict[str, torch.Tensor] = {}
    for path, value in weights.items():
        *places, last = path.split("/")
        if last == "kernel":
            value = value.transpose(3, 2, 0, 1) if value.ndim == 4 else value.T
        found[".".join([*places, _NAMES.get(last, last)])] = torch.from_numpy(np.ascontiguousarray(value))
    for name, tensor in model.state_dict().items():
        if not name.endswith("num_batches_tracked"):
            tensor.copy_(found.pop(name))
    assert not found, f"weights without a place: {sorted(found)}"


def run(
    loss_of: Callable[..., torch.Tensor],
    optimizer: torch.optim.Optimizer,
    batches: Sequence[tuple[Any, ...]],
    arguments: argparse.Namespace,
) -> None:
    """The job: trains, or asks for `loss_of` alone (--mode infer)."""
    loss_of = compiled(loss_of, arguments)

    def train(*batch: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(*batch)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def infer(*batch: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            return loss_of(*batch)

    start.run(train if arguments.mode == "train" else infer, batches, arguments)
