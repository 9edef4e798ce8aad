"""What the peers' scripts share: the options of every workload, the file that they start from, and the loop over its batches."""

from __future__ import annotations

import argparse
import itertools
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[2] / "workloads"))
from loop import make_parser, step_log


def options(description: str | None, modes: tuple[str, ...] = ("train", "infer")) -> argparse.ArgumentParser:
    """A parser with the options of every workload, and --start."""
    parser = make_parser(description, modes)
    parser.add_argument("--start", metavar="FILE", required=True, help="weights and batches that export.py has written")
    return parser


def read(path: str) -> tuple[dict[str, np.ndarray], list[tuple[np.ndarray, ...]]]:
    """(weights by name, batches) of a file that export.py has written."""
    with np.load(path) as file:
        found = {name: file[name] for name in file.files}
    weights = {name.partition("/")[2]: value for name, value in found.items() if name.startswith("weights/")}
    parts = [found[f"batches/{k}"] for k in range(sum(name.startswith("batches/") for name in found))]
    return weights, list(zip(*parts))


def run(step: Callable[..., Any], batches: Sequence[tuple[Any, ...]], arguments: argparse.Namespace) -> None:
    """Runs `arguments.steps` steps, each on the next batch, over and over. A step ends when its result has become a Python float."""
    with step_log(arguments.log) as book:
        for _, batch in zip(range(arguments.steps), itertools.cycle(batches)):
            book(lambda batch=batch: float(step(*batch)))  # type: ignore[misc]


def run_state(
    step: Callable[..., tuple[Any, Any]], state: Any, batches: Sequence[tuple[Any, ...]], arguments: argparse.Namespace
) -> None:
    """As `run`, for a step of JAX: (state, *batch) -> (the state afterwards, the loss)."""

    def stepped(*batch: Any) -> Any:
        nonlocal state
        state, loss = step(state, *batch)
        return loss

    run(stepped, batches, arguments)


def on_device(batches: Sequence[tuple[np.ndarray, ...]]) -> list[tuple[Any, ...]]:
    """The batches as arrays of JAX."""
    import jax.numpy as jnp

    return [tuple(map(jnp.asarray, batch)) for batch in batches]
