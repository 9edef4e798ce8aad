"""Two training functions in turn, a critic's and a generator's, and an evaluation now and then.

gan.py ROUNDS [SECONDS]: after some rounds it pauses for so long.
"""

import json
import sys

import tensorflow as tf
from resting import rest

tf.keras.utils.set_random_seed(1)
rounds = int(sys.argv[1])
pause = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
layers = tf.keras.layers


def network(outputs):
    return tf.keras.Sequential(
        [
            *(layers.Dense(96, activation="gelu"), layers.LayerNormalization(), layers.Dense(96, activation="gelu")),
            layers.Dense(outputs),
        ]
    )


generator, critic = network(16), network(1)
noise = tf.random.stateless_normal([128, 8], [1, 2])
real = tf.random.stateless_normal([128, 16], [3, 4])
generator(noise), critic(real)
optimizers = [tf.keras.optimizers.Adam(1e-3) for _ in range(2)]
mean = tf.keras.metrics.Mean()


def loss_of(fake):
    return tf.reduce_mean(tf.nn.softplus(-critic(fake)))


@tf.function
def train_critic():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.nn.softplus(-critic(real)) + tf.nn.softplus(critic(generator(noise))))
    optimizers[0].apply_gradients(zip(tape.gradient(loss, critic.trainable_variables), critic.trainable_variables))
    return loss


@tf.function
def train_generator():
    with tf.GradientTape() as tape:
        loss = loss_of(generator(noise))
    variables = generator.trainable_variables
    optimizers[1].apply_gradients(zip(tape.gradient(loss, variables), variables))
    return loss


@tf.function
def evaluate():
    mean.update_state(loss_of(generator(noise)))
    return mean.result()


losses = []
for number in range(rounds):
    if number == 24:  # the evaluation has run often enough to have asked for its kernels
        rest(pause)
    losses.append([float(train_critic()), float(train_generator())])
    if number % 4 == 0:
        losses[-1].append(float(evaluate()))
print(json.dumps(losses))
