"""A Hamiltonian Monte Carlo sampler: a plain TensorFlow program whose step is a loop with small products.

The posterior of a logistic regression with 20 coefficients and 2,000 observations, 8 chains, 10 leapfrog steps in a while loop,
each with a product of 8x20 with 20x2000 and one back. Neal 2011, "MCMC Using Hamiltonian Dynamics".
"""

from __future__ import annotations

import argparse
import itertools

import steps
import tensorflow as tf

CHAINS, COEFFICIENTS, OBSERVATIONS, LEAPS = 8, 20, 2000, 10


def parser() -> argparse.ArgumentParser:
    """The options of the command line."""
    return steps.make_parser(__doc__, modes=("train",), steps=2000)


def observed(seed: int) -> tuple[tf.Tensor, tf.Tensor]:
    """(the design, [OBSERVATIONS, COEFFICIENTS]; the labels, 0 or 1, [OBSERVATIONS]), float32."""
    design = tf.random.stateless_normal([OBSERVATIONS, COEFFICIENTS], (seed, 1))
    truth = tf.random.stateless_normal([COEFFICIENTS, 1], (seed, 2))
    chance = tf.sigmoid(tf.matmul(design, truth))[:, 0]
    return design, tf.cast(tf.random.stateless_uniform([OBSERVATIONS], (seed, 3)) < chance, tf.float32)


def draws(seed: int) -> list[tuple[tf.Tensor, tf.Tensor]]:
    """(momentum, normal, [CHAINS, COEFFICIENTS]; chance to accept, uniform, [CHAINS]) of 64 steps, float32."""
    return [
        (
            tf.random.stateless_normal([CHAINS, COEFFICIENTS], (seed, 2 * k + 4)),
            tf.random.stateless_uniform([CHAINS], (seed, 2 * k + 5)),
        )
        for k in range(64)
    ]


def main() -> None:
    arguments = parser().parse_args()
    design, labels = observed(arguments.seed)
    transposed = tf.transpose(design)
    position = tf.Variable(tf.zeros([CHAINS, COEFFICIENTS]))
    size = tf.Variable(0.02)

    def energy(at: tf.Tensor) -> tf.Tensor:
        logits = tf.matmul(at, transposed)
        return tf.reduce_sum(tf.nn.softplus(logits) - labels * logits, axis=1) + 0.5 * tf.reduce_sum(at**2, axis=1)

    def slope(at: tf.Tensor) -> tf.Tensor:
        return tf.matmul(tf.sigmoid(tf.matmul(at, transposed)) - labels, design) + at

    @tf.function(jit_compile=arguments.xla or None)
    def step(momentum: tf.Tensor, chance: tf.Tensor) -> tf.Tensor:
        at, speed = tf.identity(position), momentum - 0.5 * size * slope(position)
        for _ in tf.range(LEAPS - 1):
            at = at + size * speed
            speed = speed - size * slope(at)
        at = at + size * speed
        speed = speed - 0.5 * size * slope(at)
        before, after = energy(position), energy(at)
        change = before - after + 0.5 * tf.reduce_sum(momentum**2 - speed**2, axis=1)
        accepted = tf.math.log(chance) < change
        position.assign(tf.where(accepted[:, None], at, position))
        rate = tf.reduce_mean(tf.cast(accepted, tf.float32))
        size.assign(size * tf.exp(0.02 * (rate - 0.8)))
        return tf.reduce_mean(tf.where(accepted, after, before))

    steps.run(step, itertools.cycle(draws(arguments.seed)), arguments)


if __name__ == "__main__":
    main()
