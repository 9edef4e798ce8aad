"""One of several workers of a MultiWorkerMirroredStrategy, each on batches of its own; prints its losses and a digest of its weights.

workers.py STEPS [SECONDS [WAY]]: after some steps the loop pauses for so long. WAY: "loop" (a tf.function around `strategy.run`)
or "fit" (Keras). TF_CONFIG says which worker this is.
"""

import hashlib
import json
import os
import sys

import tensorflow as tf
from resting import rest

steps = int(sys.argv[1])
pause = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
way = sys.argv[3] if len(sys.argv) > 3 else "loop"
strategy = tf.distribute.MultiWorkerMirroredStrategy()
task = json.loads(os.environ["TF_CONFIG"])["task"]
worker = task["index"] + (
    task["type"] == "worker" and strategy.cluster_resolver.cluster_spec().as_dict().get("chief") is not None
)

with strategy.scope():
    tf.keras.utils.set_random_seed(7)
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Dense(64, activation="gelu"),
            tf.keras.layers.LayerNormalization(),
            tf.keras.layers.Dense(64, activation="tanh"),
            tf.keras.layers.LayerNormalization(),
        ]
    )
    model.build([None, 64])
    optimizer = tf.keras.optimizers.Adam(0.001)
examples = tf.random.stateless_normal([256, 64], [worker, 3])


@tf.function
def train(x):
    def one(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - x))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    return strategy.reduce("MEAN", strategy.run(one, args=(x,)), axis=None)


losses = []
if way == "loop":
    for i in range(steps):
        if i == 12:
            rest(pause)
        losses.append(float(train(examples)))
else:

    class Noted(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs):
            if len(losses) == 12:
                rest(pause)
            losses.append(float(logs["loss"]))

    with strategy.scope():
        model.compile(optimizer, "mse")
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    batches = tf.data.Dataset.from_tensors((examples, examples)).repeat(steps).with_options(options)
    model.fit(batches, epochs=1, steps_per_epoch=steps, verbose=0, callbacks=[Noted()])
weights = b"".join(variable.numpy().tobytes() for variable in model.trainable_variables)
print(json.dumps({"worker": worker, "losses": losses, "weights": hashlib.sha256(weights).hexdigest()}))
