"""Runs a training workload and writes what its variables hold between steps, or starts each step from what another run wrote.

python states.py --write FILE [--follow FILE] [--nudge SEED] [--reverse] SCRIPT ARGUMENTS...

Two runs that differ by one rounding do not stay together: what is compared are single steps from the same state. A run that
follows takes as many steps as it is given states, each from the other's state, so that both draw the same dropout too.

A file of states: float32 of all floating-point variables in the order of their names, after step 0, 1, 2...; a step that was cut
off leaves less than a whole state at its end.
"""

from __future__ import annotations

import argparse
import gc
import json
import runpy
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

MOST_BYTES = 1 << 30
"""Of a file of states; later ones are left out."""


def variables_of_the_job() -> list[tf.Variable]:
    """float32 variables, optimizer's too, by name. Found without a call of TensorFlow, which would be seen as the job's."""
    found = {
        id(one): one
        for one in gc.get_objects()
        if issubclass(type(one), tf.Variable) and one.dtype.base_dtype == tf.float32
    }
    named = sorted(found.values(), key=lambda variable: variable.name)
    names = [variable.name for variable in named]
    assert len(set(names)) == len(names), names
    return named


def nudged(values: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Each value one unit in the last place up or down."""
    towards = np.where(draw.random(values.shape) < 0.5, -np.inf, np.inf).astype(np.float32)
    return np.nextafter(values, towards)


class Follower:
    """Puts a state into the variables, the weights nudged where that is wanted."""

    def __init__(self, path: Path, variables: list[tf.Variable], nudge: int | None) -> None:
        self.variables = variables
        self.sizes = [variable.shape.num_elements() for variable in variables]
        self.states = np.memmap(path, np.float32, "r")
        self.states = self.states[: len(self.states) // sum(self.sizes) * sum(self.sizes)].reshape(-1, sum(self.sizes))
        self.draw = None if nudge is None else np.random.default_rng(nudge)

    def split(self, state: np.ndarray) -> list[np.ndarray]:
        return np.split(state, np.cumsum(self.sizes)[:-1])

    def begin(self, step: int) -> None:
        for variable, values in zip(self.variables, self.split(self.states[step - 1])):
            if self.draw is not None and variable.trainable:
                values = nudged(values, self.draw)
            variable.assign(values.reshape(variable.shape))


def make_run(options: argparse.Namespace, step_log: Callable[..., Any]) -> Callable[..., None]:
    """What takes the place of `steps.run`."""

    def run(
        step: Callable[..., Any], batches: Iterable[tuple[Any, ...]], arguments: argparse.Namespace, *of_ranks: object
    ) -> None:
        follower: Follower | None = None
        variables: list[tf.Variable] = []
        with options.write.open("wb", buffering=0) as states, step_log(arguments.log) as book:
            for number, batch in zip(range(arguments.steps), batches):
                if follower is not None:
                    if number > len(follower.states):
                        break
                    follower.begin(number)
                if options.reverse:
                    batch = tuple(tf.reverse(part, [0]) for part in batch)
                book(lambda batch=batch: float(step(*batch)))  # type: ignore[misc]
                if number == 0:  # the optimizer makes its variables in the first step
                    variables = variables_of_the_job()
                    names = {variable.name: variable.shape.num_elements() for variable in variables}
                    options.write.with_suffix(".json").write_text(json.dumps(names))
                    if options.follow:
                        follower = Follower(options.follow, variables, options.nudge)
                if states.tell() < MOST_BYTES:
                    states.write(np.concatenate([variable.numpy().reshape(-1) for variable in variables]).tobytes())

    return run


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--write", type=Path, required=True, help="file for the states")
    parser.add_argument("--follow", type=Path, help="states that the steps start from")
    parser.add_argument("--nudge", type=int, metavar="SEED", help="each weight one unit in the last place off")
    parser.add_argument("--reverse", action="store_true", help="the examples of each batch in the opposite order")
    parser.add_argument("script")
    options, rest = parser.parse_known_args()
    sys.path.insert(0, str(Path(options.script).parent))
    import steps

    steps.run = make_run(options, steps.step_log)
    sys.argv = [options.script, *rest]
    runpy.run_path(options.script, run_name="__main__")


if __name__ == "__main__":
    main()
