"""`scripts/bench --calls`: what a call of a traced function takes with TensorFlow's lookup of its trace, and with the kept answers of
plugin/entry/trace_lookup.

One process and one trace of each function; only the lookup differs. Both ways take turns in blocks of calls, in random order, so
that changes of the machine affect both alike. The functions are training steps of stacks of dense layers with Adam, whose variables
and slots are what a step captures, one that only adds, and one that takes its batch from an iterator, as Keras' `fit` does.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any, Final, NamedTuple

from stitchfleet.plugin.entry import trace_lookup
from stitchfleet.plugin.versions import places

from . import machine
from .figures import Ratio, paired_ratio

FORMAT: Final = 1
ROUNDS: Final = 40
BLOCK_S: Final = 0.05
"""About the length of a block of calls, in seconds."""
STACKS: Final = ((3, 32), (10, 64), (40, 128), (100, 128))
"""Layers and units of the stacks of dense layers."""
_NAMES: Final = ("call_function", "trace_function")


@dataclass(frozen=True)
class CallFigures:
    """Of one function. captures: their number. Microseconds: medians over the blocks. ratio: TensorFlow's over ours."""

    what: str
    captures: int
    tensorflow_us: float
    kept_us: float
    ratio: Ratio | None


class Timed(NamedTuple):
    """A traced function and what it is called with."""

    traced: Any
    given: tuple[Any, ...]

    def __call__(self) -> Any:
        return self.traced(*self.given)

    @property
    def captures(self) -> int:
        """How many tensors its trace captures."""
        return len(self.traced.get_concrete_function(*self.given).captured_inputs)


def functions() -> dict[str, Timed]:
    """What is timed, by its name; each has been called once. Imports TensorFlow."""
    import tensorflow as tf

    def add(x: Any) -> Any:
        return x + 1.0

    def add_next(iterator: Any) -> Any:
        x, y = next(iterator)
        return x + y

    one = tf.ones([3, 3])
    endless = iter(tf.data.Dataset.from_tensors((one, one)).repeat())
    found = {
        "one addition": Timed(tf.function(add), (one,)),
        "an iterator": Timed(tf.function(add_next), (endless,)),
        **{f"{layers} layers of {units}": _training_step(layers, units) for layers, units in STACKS},
    }
    for each in found.values():
        each()
    return found


def _training_step(layers: int, units: int) -> Timed:
    import tensorflow as tf

    dense = [tf.keras.layers.Dense(units, activation="relu") for _ in range(layers)]
    model = tf.keras.Sequential([*dense, tf.keras.layers.Dense(1)])
    optimizer = tf.keras.optimizers.Adam(1e-3)

    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x) - y))
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        return loss

    return Timed(tf.function(step), (tf.random.normal([16, units], seed=1), tf.random.normal([16, 1], seed=2)))


def measure(tracing: ModuleType, rounds: int, say: Callable[[str], None]) -> list[CallFigures]:
    """The figures of all functions, over `rounds` pairs of blocks each. tracing: TensorFlow's module, which is left as it was."""
    before = {name: getattr(tracing, name) for name in _NAMES}
    trace_lookup.install(tracing)
    ways = {"tensorflow": before, "kept": {name: getattr(tracing, name) for name in _NAMES}}

    def choose(way: str) -> None:
        for name, function in ways[way].items():
            setattr(tracing, name, function)

    def block(way: str, function: Timed, calls: int) -> float:
        choose(way)
        function()
        start = time.perf_counter()
        for _ in range(calls):
            function()
        return (time.perf_counter() - start) / calls * 1e6

    order, found = random.Random(0), []
    try:
        for what, function in functions().items():
            say(f"{what}: {rounds} pairs of blocks")
            calls = max(2, int(BLOCK_S * 1e6 / min(block("tensorflow", function, 5) for _ in range(3))))
            times: dict[str, dict[int, float]] = {way: {} for way in ways}
            for number in range(rounds):
                for way in order.sample(list(ways), 2):
                    times[way][number] = block(way, function, calls)
            medians = {way: statistics.median(of.values()) for way, of in times.items()}
            ratio = paired_ratio(times["tensorflow"], times["kept"])
            found.append(CallFigures(what, function.captures, medians["tensorflow"], medians["kept"], ratio))
    finally:
        choose("tensorflow")
    return found


def table(figures: Sequence[CallFigures]) -> list[str]:
    """The lines that the command prints."""
    lines = [f"{'function':>20} {'captures':>9} {'TensorFlow':>12} {'kept':>10}  TensorFlow / kept"]
    for each in figures:
        ratio = f"{each.ratio.value:.2f} ({each.ratio.low:.2f} to {each.ratio.high:.2f})" if each.ratio else "-"
        times = f"{each.tensorflow_us:>9.0f} us {each.kept_us:>7.0f} us"
        lines.append(f"{each.what:>20} {each.captures:>9} {times}  {ratio}")
    return lines


def main(words: Sequence[str] = ()) -> int:
    """The command. Returns exit code 0; 1 if this TensorFlow looks traces up in another way; 2 for a mistake on the command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench --calls",
        description="What the call of a tf.function takes with TensorFlow's lookup of its trace, and with answers that are kept.",
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help="pairs of blocks (default %(default)s)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the figures to FILE")
    arguments = parser.parse_args(list(words))
    if arguments.rounds < 2:
        parser.error("--rounds: at least 2 are needed for an interval")
    if arguments.json is not None and not arguments.json.absolute().parent.is_dir():
        parser.error(f"--json: there is no folder {arguments.json.absolute().parent}")
    tracing = places.tracing_module()
    if tracing is None:
        print("scripts/bench --calls: TensorFlow looks traces up in this way since 2.14", file=sys.stderr)
        return 1
    figures = measure(tracing, arguments.rounds, lambda line: print(line, file=sys.stderr, flush=True))
    print("\n".join(table(figures)))
    if arguments.json is not None:
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        document = {"format": FORMAT, "when": when, "machine": machine.facts(), "versions": machine.versions()}
        document["functions"] = [asdict(each) for each in figures]
        arguments.json.write_text(json.dumps(document, indent=2) + "\n")
    return 0
