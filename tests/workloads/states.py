"""Runs a training workload and writes what its variables hold between steps, or starts each step from what another run wrote.

python states.py --write FILE [--follow FILE] [--nudge SEED] [--reverse] SCRIPT ARGUMENTS...

Two runs that differ by one rounding do not stay together: what is compared are single steps from the same state. A run that
follows takes as many steps as it is given states, each from the other's state, so that both draw the same dropout too.

A file of states: float32 of all floating-point variables in the order of their names, after step 0, 1, 2...; a step that was cut
off leaves less than a whole state at its end.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import tensorflow as tf

MOST_BYTES = 1 << 30
"""Of a file of states; later ones are left out."""


def objects_of(kind: type) -> list[Any]:
    """All that are alive. Found without a call of TensorFlow, which would be seen as the job's."""
    return [one for one in gc.get_objects() if issubclass(type(one), kind)]


class Variables:
    """The float32 variables of a job of functions, the optimizer's too, in the order of their names."""

    def __init__(self, found: list[tf.Variable]) -> None:
        found = [one for one in found if one.dtype.base_dtype == tf.float32]
        self.all = sorted({id(one): one for one in found}.values(), key=lambda variable: variable.name)
        self.sizes: dict[str, int] = {variable.name: variable.shape.num_elements() for variable in self.all}
        assert len(self.sizes) == len(self.all), sorted(variable.name for variable in self.all)

    def read(self) -> list[np.ndarray]:
        return [variable.numpy() for variable in self.all]

    def write(self, values: list[np.ndarray]) -> None:
        for variable, value in zip(self.all, values):
            variable.assign(value)


class SessionsVariables(Variables):
    """Those of a job that runs `session`. They are read and written below the methods that the plugin wraps, where such a run is not
    taken for a step."""

    def __init__(self, session: tf.compat.v1.Session) -> None:
        # What an update returns is a variable too, without an initializer.
        super().__init__([one for one in objects_of(tf.Variable) if one.initializer is not None])
        self.session = session

    def read(self) -> list[np.ndarray]:
        return self._run({}, [variable._as_graph_element()._as_tf_output() for variable in self.all], [])

    def write(self, values: list[np.ndarray]) -> None:
        """As `Variable.load` does it."""
        starts = [variable.initializer for variable in self.all]
        fed = {start.inputs[1]._as_tf_output(): value for start, value in zip(starts, values)}
        self._run(fed, [], [start._c_op for start in starts])

    def _run(self, fed: dict[Any, np.ndarray], fetched: list[Any], targets: list[Any]) -> list[np.ndarray]:
        from tensorflow.python.client import pywrap_tf_session

        found = pywrap_tf_session.TF_SessionRun_wrapper(self.session._session, None, fed, fetched, targets, None)
        return list(found)


def variables_of_the_job() -> Variables:
    sessions = objects_of(tf.compat.v1.Session)
    return SessionsVariables(*sessions) if sessions else Variables(objects_of(tf.Variable))


def nudged(values: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Each value one unit in the last place up or down."""
    towards = np.where(draw.random(values.shape) < 0.5, -np.inf, np.inf).astype(np.float32)
    return np.nextafter(values, towards)


class Follower:
    """Puts a state into the variables, the weights nudged where that is wanted."""

    def __init__(self, path: Path, variables: Variables, nudge: int | None) -> None:
        self.variables = variables
        size = sum(variables.sizes.values())
        self.states = np.memmap(path, np.float32, "r")
        self.states = self.states[: len(self.states) // size * size].reshape(-1, size)
        self.draw = None if nudge is None else np.random.default_rng(nudge)

    def begin(self, step: int) -> None:
        """Raises KeyboardInterrupt, which ends the job as Ctrl-C does, if there is no state to begin from."""
        if step > len(self.states):
            raise KeyboardInterrupt
        parts = np.split(self.states[step - 1], np.cumsum(list(self.variables.sizes.values()))[:-1])
        values = []
        for variable, part in zip(self.variables.all, parts):
            nudges = self.draw is not None and variable.trainable
            values.append((nudged(part, self.draw) if nudges else part).reshape(variable.shape))
        self.variables.write(values)


class Recorder:
    """What a job notes its steps in: writes the states, and begins steps from another run's."""

    def __init__(
        self, options: argparse.Namespace, book: Callable[[Callable[[], float]], None], states: BinaryIO
    ) -> None:
        self.options, self.book, self.states = options, book, states
        self.variables: Variables | None = None
        self.follower: Follower | None = None
        self.count = 0

    def __call__(self, step: Callable[[], float]) -> None:
        if self.follower is not None:
            self.follower.begin(self.count)
        self.book(step)
        self.count += 1
        if self.variables is None:  # the optimizer makes its variables in the first step
            self.variables = variables_of_the_job()
            self.options.write.with_suffix(".json").write_text(json.dumps(self.variables.sizes))
            if self.options.follow:
                self.follower = Follower(self.options.follow, self.variables, self.options.nudge)
        if self.states.tell() < MOST_BYTES:
            self.states.write(np.concatenate([values.reshape(-1) for values in self.variables.read()]).tobytes())


def put_in_place(options: argparse.Namespace, steps: Any) -> None:
    """Has the workloads' module `steps` record, and reverse the batches."""
    step_log, run = steps.step_log, steps.run

    @contextlib.contextmanager
    def recorded(*arguments: Any, **named: Any) -> Iterator[Recorder]:
        with step_log(*arguments, **named) as book, options.write.open("wb", buffering=0) as states:
            yield Recorder(options, book, states)

    def reversed_run(step: Callable[..., Any], *arguments: Any, **named: Any) -> None:
        run(lambda *batch: step(*(tf.reverse(part, [0]) for part in batch)), *arguments, **named)

    steps.step_log = recorded
    if options.reverse:
        steps.run = reversed_run


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

    put_in_place(options, steps)
    sys.argv = [options.script, *rest]
    runpy.run_path(options.script, run_name="__main__")


if __name__ == "__main__":
    main()
