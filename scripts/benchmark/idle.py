"""The overhead of an iteration with the plugin active and nothing switched on (`scripts/bench --idle`).

Two processes cannot show a difference of 1% on a shared machine: they drift apart by more. So one process, started under
`stitchfleet run --mode idle`, calls the same training step in pairs through the plugin's wrapper and through TensorFlow's own method
beneath it, in random order within each pair. The estimate is the trimmed mean log ratio of the pairs with Student's t interval.
Separate processes beside the job (the shipper) disturb both calls alike, so they are not in the figure.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from stitchfleet.telemetry.statistics.student import two_sided_quantile

STEP_WIDTHS = {"small": 96, "middle": 320, "large": 640}
"""Width of the step's two dense layers, for about 1, 5 and 30 ms on two cores; the measured length is printed."""
SECONDS_PER_STEP_SIZE = 20.0


@dataclass(frozen=True)
class IdleFigures:
    """The figures of one step size. cost, low, high: the overhead and its 95% bounds, as shares of an iteration. pairs: their number.
    wrapper_us: the median difference in microseconds."""

    step: str
    pairs: int
    plain_ms: float
    cost: float
    low: float
    high: float
    wrapper_us: float


def compare(wrapped: list[float], plain: list[float]) -> tuple[float, float, float]:
    """(cost, low, high): the trimmed mean of the paired log ratios as a share, with its 95% interval (Student's t). wrapped, plain:
    the times of each pair's two steps, above 0.

    The tenth of the pairs with the largest and with the smallest ratios is left out: a step that another process has interrupted says
    nothing about the plugin, and affects both arms alike.
    """
    ratios = sorted(math.log(a / b) for a, b in zip(wrapped, plain, strict=True))
    cut = len(ratios) // 10
    kept = ratios[cut : len(ratios) - cut]
    # the variance of a trimmed mean: winsorized, over n and the squared share kept (Tukey and McLaughlin 1963)
    winsorised = [kept[0]] * cut + kept + [kept[-1]] * cut
    centre = statistics.fmean(kept)
    error = statistics.stdev(winsorised) / ((1 - 2 * cut / len(ratios)) * math.sqrt(len(ratios)))
    half = two_sided_quantile(0.95, len(kept) - 1) * error
    return math.expm1(centre), math.expm1(centre - half), math.expm1(centre + half)


def job() -> None:
    """The main function of the measured process, which runs under `stitchfleet run --mode idle`. Prints JSON."""
    import tensorflow as tf

    call: Any = type(tf.function(lambda: None)).__call__
    beneath = call.__wrapped__  # the plugin's wrapper keeps TensorFlow's method there (functools.wraps)
    order = random.Random(0)
    found = []
    for name, width in STEP_WIDTHS.items():
        weights = [tf.Variable(tf.random.normal([width, width], seed=k)) for k in range(2)]
        given = tf.random.normal([width, width], seed=2)

        def train_step(x: tf.Tensor, weights: list[tf.Variable] = weights) -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(tf.matmul(tf.nn.gelu(tf.matmul(x, weights[0])), weights[1])))
            for weight, gradient in zip(weights, tape.gradient(loss, weights)):
                weight.assign_sub(1e-3 * gradient)
            return loss

        traced: Any = tf.function(train_step)

        def timed(method: Any, x: tf.Tensor = given, step: Any = traced) -> float:
            start = time.perf_counter()
            method(step, x).numpy()
            return time.perf_counter() - start

        for _ in range(20):
            timed(call), timed(beneath)
        wrapped: list[float] = []
        plain: list[float] = []
        end = time.perf_counter() + SECONDS_PER_STEP_SIZE
        while time.perf_counter() < end:
            if order.random() < 0.5:
                wrapped.append(timed(call))
                plain.append(timed(beneath))
            else:
                plain.append(timed(beneath))
                wrapped.append(timed(call))
        cost, low, high = compare(wrapped, plain)
        median = statistics.median(plain)
        difference = statistics.median(a - b for a, b in zip(wrapped, plain, strict=True))
        found.append(IdleFigures(name, len(plain), 1e3 * median, cost, low, high, 1e6 * difference))
    print(json.dumps([asdict(figures) for figures in found]))


def measure() -> dict[str, Any]:
    """Runs the job and returns its figures."""
    with tempfile.TemporaryDirectory(prefix="stitchfleet-idle-") as folder:
        command = [sys.executable, "-m", "stitchfleet.plugin.command", "run", "--mode", "idle", "--quiet"]
        command += ["--database", f"sqlite:///{folder}/stitchfleet.db", "--", sys.executable, "-m", __name__]
        root = pathlib.Path(__file__).resolve().parents[2]
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "STITCHFLEET_DATA": f"{folder}/records"}
        shown = subprocess.run(command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return {"figures": json.loads(shown.stdout.splitlines()[-1])}


def main(words: Sequence[str] = ()) -> int:
    """`scripts/bench --idle [--json FILE]`. Exit code 0, or 2 for a mistake on the command line."""
    parser = argparse.ArgumentParser(prog="scripts/bench --idle", description="Measure the overhead of an idle plugin.")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the figures to FILE")
    arguments = parser.parse_args(list(words))
    print(
        f"one process, by turns through the plugin and beneath it, {SECONDS_PER_STEP_SIZE:.0f} s for each size of step"
    )
    measured = measure()
    print(f"{'step':>8} {'pairs':>7} {'plain ms':>9} {'cost':>8}  95% interval        added to the median step")
    for row in measured["figures"]:
        interval = f"{row['low']:+.2%} to {row['high']:+.2%}"
        cost = f"{row['cost']:>+8.2%}  {interval:<18}"
        print(f"{row['step']:>8} {row['pairs']:>7} {row['plain_ms']:>9.2f} {cost} {row['wrapper_us']:>8.1f} us")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(measured, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    job()
