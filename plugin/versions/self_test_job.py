"""The job that the self-test trains: a few weights, by a `tf.function` and by a v1 session.

    self_test_job.py SECONDS               trains until both are stitched, for at most SECONDS seconds
    self_test_job.py SECONDS STEPS STEPS   trains for these numbers of steps: of the function, of the session

Prints {"steps": [of the function, of the session], "values": [the weights' sums and losses]} as JSON. Uses TensorFlow's public
interface alone, except that it asks the plugin, if that is active, whether the functions are stitched.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

STEPS_MORE = 40
"""Steps after the last change of phase: some pairs of blocks of both arms."""
ROWS, WIDTH = 2048, 128


def data() -> tuple[Any, Any]:
    """Inputs [ROWS, WIDTH] and targets [ROWS, 1], float32."""
    random = np.random.default_rng(7)
    inputs = random.standard_normal((ROWS, WIDTH), dtype=np.float32)
    return inputs, np.tanh(inputs @ random.standard_normal((WIDTH, 1), dtype=np.float32) / WIDTH**0.5)


def loss_of(inputs: Any, targets: Any, weights: Any, scale: Any) -> Any:
    """The loss (a scalar) of a layer, a normalization, an activation and a mean square, of which clusters are made. weights:
    [WIDTH, WIDTH]; scale: [WIDTH]."""
    hidden = tf.matmul(inputs, weights)
    mean = tf.reduce_mean(hidden, axis=1, keepdims=True)
    spread = tf.reduce_mean(tf.square(hidden - mean), axis=1, keepdims=True)
    hidden = tf.tanh((hidden - mean) * tf.math.rsqrt(spread + 1e-3) * scale)
    return tf.reduce_mean(tf.square(tf.reduce_mean(hidden, axis=1, keepdims=True) - targets))


def train(step: Callable[[], float], name: str, seconds: float, steps: int) -> tuple[int, float]:
    """Calls `step` `steps` times; if `steps` is 0, until STEPS_MORE steps after the plugin has decided on the function `name`,
    for at most `seconds` seconds. Returns (number of steps, last loss)."""
    done, more, loss = 0, STEPS_MORE, 0.0
    end = time.monotonic() + seconds
    while done < steps if steps else more and time.monotonic() < end:
        loss = step()
        done += 1
        if not steps and is_settled(name):
            more -= 1
    return done, loss


def is_settled(name: str) -> bool:
    """Whether the plugin has decided on the training function `name`: it runs stitched, or stays plain. A plugin that has switched
    itself off, or is not there, decides nothing."""
    activation: Any = sys.modules.get("stitchfleet.plugin.entry.activation")
    if activation is None or activation.JOB is None:
        return True
    return any(
        program.name == name and program.phase.value in ("stitched", "plain", "reverted")
        for program in activation.JOB.programs
    )


def train_function(seconds: float, steps: int) -> tuple[int, list[float]]:
    """Trains by a `tf.function`. Returns (number of steps, [last loss, sum of the weights, sum of the scale])."""
    inputs, targets = map(tf.constant, data())
    weights, scale = tf.Variable(tf.eye(WIDTH)), tf.Variable(tf.ones([WIDTH]))
    speeds = [tf.Variable(tf.zeros_like(weights)), tf.Variable(tf.zeros_like(scale))]

    @tf.function  # type: ignore[untyped-decorator]
    def self_test_step() -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(inputs, targets, weights, scale)
        for variable, speed, gradient in zip((weights, scale), speeds, tape.gradient(loss, [weights, scale])):
            speed.assign(0.9 * speed + gradient)
            variable.assign_sub(0.05 * speed)
        return loss

    done, loss = train(lambda: float(self_test_step()), "self_test_step", seconds, steps)
    return done, [loss, float(tf.reduce_sum(weights)), float(tf.reduce_sum(scale))]


def train_session(seconds: float, steps: int) -> tuple[int, list[float]]:
    """Trains by a v1 session. Returns (number of steps, [last loss, sum of the weights, sum of the scale])."""
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        inputs, targets = map(tf.constant, data())
        weights = v1.get_variable("weights", initializer=np.eye(WIDTH, dtype=np.float32), use_resource=True)
        scale = v1.get_variable("scale", initializer=np.ones(WIDTH, np.float32), use_resource=True)
        loss = loss_of(inputs, targets, weights, scale)
        update = v1.train.AdamOptimizer(0.002).minimize(
            loss, name="self_test_session"
        )  # by which the plugin names its program
        fetches = [tf.identity(loss, name="self_test_session_loss"), update]
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            done, last = train(lambda: float(session.run(fetches)[0]), "self_test_session", seconds, steps)
            return done, [last, *map(float, session.run([tf.reduce_sum(weights), tf.reduce_sum(scale)]))]


def main(seconds: float, steps: tuple[int, int]) -> None:
    """Trains by both and prints the JSON document that the module's docstring describes. steps: as `train` takes them, of the
    function and of the session."""
    done = [train_function(seconds, steps[0]), train_session(seconds, steps[1])]
    print(
        json.dumps({"steps": [count for count, _ in done], "values": [value for _, found in done for value in found]})
    )


if __name__ == "__main__":
    main(float(sys.argv[1]), (int(sys.argv[2]), int(sys.argv[3])) if len(sys.argv) > 2 else (0, 0))
