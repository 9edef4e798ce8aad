"""Writes what a model's peers start from: its weights and its first batches, as one of the workloads' scripts makes them.

    python export.py bert FILE [options of bert.py]

FILE is an .npz: `weights/NAME`, and `batches/0`, `batches/1`, ..., one for each element of a batch, all batches stacked. Weights of
Keras layers are named by the attributes that lead to them: `blocks/0/attention/query/kernel`.
"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "workloads"))

BATCHES = 64
_OF_LAYERS = ("kernel", "bias", "gamma", "beta", "moving_mean", "moving_variance", "embeddings")


def weights_of(layer: Any, path: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """The name and value of each weight of a Keras layer, and of the layers in its attributes."""
    for name in _OF_LAYERS:
        if isinstance(value := getattr(layer, name, None), tf.Variable) or hasattr(value, "assign"):
            yield path + name, np.asarray(value)
    for name, value in vars(layer).items():
        if name.startswith("_") or name in _OF_LAYERS:
            continue
        listed = enumerate(value) if isinstance(value, (list, tuple)) else [(None, value)]
        for number, each in listed:
            place = path + (name if number is None else f"{name}/{number}")
            if isinstance(each, tf.keras.layers.Layer):
                yield from weights_of(each, f"{place}/")
            elif hasattr(each, "assign"):
                yield place, np.asarray(each)


def main() -> None:
    name, file, *words = sys.argv[1:]
    if name == "sampler":
        import sampler

        seed = sampler.parser().parse_args(words).seed
        weights = dict(zip(("design", "labels"), map(np.asarray, sampler.observed(seed))))
        batches = sampler.draws(seed)
    else:
        module: Any = __import__(name)
        arguments = module.parser().parse_args(words)
        model = module.build(arguments)
        batches = list(module.data(arguments).take(BATCHES))
        model(batches[0][0])  # makes the weights
        weights = dict(weights_of(model))
    stacked = {f"batches/{k}": np.stack(part) for k, part in enumerate(zip(*batches))}
    np.savez(file, **{f"weights/{key}": value for key, value in weights.items()}, **stacked)


if __name__ == "__main__":
    main()
