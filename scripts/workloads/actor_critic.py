"""One update of a soft actor-critic: a plain TensorFlow program of small steps.

Two critics, their targets and an actor, each 256-256 with ReLU, batch 256, 17 observations, 6 actions; Keras' Adam for all three, a
learned temperature, targets updated by Polyak averaging. Some 70 variables, products of 256x256, and hundreds of small operators
between them. Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications".
"""

from __future__ import annotations

import itertools
import math

import steps
import tensorflow as tf

OBSERVATIONS, ACTIONS, BATCH = 17, 6, 256
DISCOUNT, POLYAK = 0.99, 0.005


def network(inputs: int, outputs: int) -> tf.keras.Model:
    dense = tf.keras.layers.Dense
    return tf.keras.Sequential([dense(256, "relu", input_shape=(inputs,)), dense(256, "relu"), dense(outputs)])


def main() -> None:
    arguments = steps.make_parser(__doc__, modes=("train",), steps=2000).parse_args()
    tf.keras.utils.set_random_seed(arguments.seed)
    actor = network(OBSERVATIONS, 2 * ACTIONS)
    critics = [network(OBSERVATIONS + ACTIONS, 1) for _ in range(2)]
    targets = [network(OBSERVATIONS + ACTIONS, 1) for _ in range(2)]
    log_temperature = tf.Variable(0.0)
    of_critics = [weight for critic in critics for weight in critic.trainable_variables]
    of_targets = [weight for target in targets for weight in target.trainable_variables]
    for target, weight in zip(of_targets, of_critics):
        target.assign(weight)
    optimizers = [tf.keras.optimizers.Adam(3e-4) for _ in range(3)]
    for optimizer, variables in zip(optimizers, (of_critics, actor.trainable_variables, [log_temperature])):
        optimizer.build(variables)

    def act(observation: tf.Tensor, noise: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """(actions in (-1, 1), the logarithm of their density)."""
        mean, log_deviation = tf.split(actor(observation), 2, axis=-1)
        log_deviation = tf.clip_by_value(log_deviation, -20.0, 2.0)
        before = mean + tf.exp(log_deviation) * noise
        density = -0.5 * noise**2 - log_deviation - 0.5 * math.log(2 * math.pi)
        squash = 2.0 * (math.log(2.0) - before - tf.nn.softplus(-2.0 * before))
        return tf.tanh(before), tf.reduce_sum(density - squash, axis=-1, keepdims=True)

    def values(models: list[tf.keras.Model], observation: tf.Tensor, action: tf.Tensor) -> list[tf.Tensor]:
        return [model(tf.concat([observation, action], axis=-1)) for model in models]

    @tf.function(jit_compile=arguments.xla or None)
    def step(
        observation: tf.Tensor, action: tf.Tensor, reward: tf.Tensor, after: tf.Tensor, noises: tf.Tensor
    ) -> tf.Tensor:
        temperature = tf.exp(log_temperature)
        next_action, next_density = act(after, noises[0])
        lowest = tf.minimum(*values(targets, after, next_action)) - temperature * next_density
        wanted = tf.stop_gradient(reward + DISCOUNT * lowest)
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_mean((value - wanted) ** 2) for value in values(critics, observation, action)])
        optimizers[0].apply_gradients(zip(tape.gradient(loss, of_critics), of_critics))
        with tf.GradientTape() as tape:
            mine, density = act(observation, noises[1])
            actor_loss = tf.reduce_mean(temperature * density - tf.minimum(*values(critics, observation, mine)))
        weights = actor.trainable_variables
        optimizers[1].apply_gradients(zip(tape.gradient(actor_loss, weights), weights))
        with tf.GradientTape() as tape:
            temperature_loss = -tf.reduce_mean(log_temperature * tf.stop_gradient(density - ACTIONS))
        optimizers[2].apply_gradients([(tape.gradient(temperature_loss, log_temperature), log_temperature)])
        for target, weight in zip(of_targets, of_critics):
            target.assign((1.0 - POLYAK) * target + POLYAK * weight)
        return loss

    def batches() -> itertools.chain[tuple[tf.Tensor, ...]]:
        def draw(number: int, *shape: int) -> tf.Tensor:
            return tf.random.stateless_normal(shape, (arguments.seed, number))

        made = [
            (
                draw(8 * k, BATCH, OBSERVATIONS), tf.tanh(draw(8 * k + 1, BATCH, ACTIONS)), draw(8 * k + 2, BATCH, 1),
                draw(8 * k + 3, BATCH, OBSERVATIONS), draw(8 * k + 4, 2, BATCH, ACTIONS),
            )
            for k in range(16)
        ]  # fmt: skip
        return itertools.chain.from_iterable(itertools.repeat(made))

    steps.run(step, batches(), arguments)


if __name__ == "__main__":
    main()
