"""A small network trained by an optimizer of Keras': optimizers.py STEPS OPTIMIZER [SECONDS [EMBEDDING]].

OPTIMIZER: a class of tf.keras.optimizers, or legacy.NAME. EMBEDDING 1: with an embedding, so with sparse gradients. Prints JSON: the
losses, and sums over each variable of model and optimizer at the end.
"""

import json
import sys

import tensorflow as tf
from resting import rest

steps, name = int(sys.argv[1]), sys.argv[2]
pause = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
with_embedding = len(sys.argv) > 4 and sys.argv[4] == "1"
extra = {"SGD": {"momentum": 0.9, "nesterov": True}, "RMSprop": {"momentum": 0.5, "centered": True}}
extra["Adam"] = {"amsgrad": name.endswith("Amsgrad")}
name = name.removesuffix("Amsgrad")
module = tf.keras.optimizers.legacy if name.startswith("legacy.") else tf.keras.optimizers
kind = name.removeprefix("legacy.")
tf.keras.utils.set_random_seed(5)
layers = [tf.keras.layers.Dense(48, activation="relu"), tf.keras.layers.Dense(33), tf.keras.layers.Dense(1)]
if with_embedding:
    layers.insert(0, tf.keras.layers.Embedding(50, 8, input_length=12))
    layers.insert(1, tf.keras.layers.Flatten())
model = tf.keras.Sequential(layers)
optimizer = getattr(module, kind)(0.01, **extra.get(kind, {}))
x = tf.random.uniform([64, 12], maxval=50, dtype=tf.int32, seed=1)
if not with_embedding:
    x = tf.cast(x, tf.float32) / 50.0
y = tf.reduce_sum(tf.cast(x, tf.float32), axis=1, keepdims=True) / 100.0


@tf.function
def train(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
    variables = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
    return loss


losses = []
for i in range(steps):
    if i == 12:
        rest(pause)
    losses.append(float(train(x, y)))
stored = [*model.variables, *(optimizer.variables() if callable(optimizer.variables) else optimizer.variables)]
sums = [float(tf.reduce_sum(tf.abs(tf.cast(v, tf.float64)))) for v in stored]
print(json.dumps({"losses": losses, "sums": sums, "iterations": int(optimizer.iterations.numpy())}))
