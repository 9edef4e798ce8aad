"""Keras `fit` with dropout, a LayerNorm at Keras' default epsilon and a smaller last batch; prints the losses of the epochs.

keras_fit.py EPOCHS [SECONDS]: a callback of its own pauses so long after 13 and after 123 steps.
"""

import json
import sys

import numpy as np
import tensorflow as tf
from resting import rest

tf.keras.utils.set_random_seed(11)
model = tf.keras.Sequential(
    [
        tf.keras.layers.Input((16,)),
        tf.keras.layers.Dense(32, activation="gelu"),
        tf.keras.layers.LayerNormalization(),
        tf.keras.layers.Dropout(0.2),
        tf.keras.layers.Dense(1),
    ]
)
model.compile("adam", "mse")
x = np.random.rand(700, 16).astype("float32")
pause = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0


class Pause(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if int(self.model.optimizer.iterations) in (13, 123):
            rest(pause)


history = model.fit(x, x.sum(1, keepdims=True), batch_size=32, epochs=int(sys.argv[1]), verbose=0, callbacks=[Pause()])
print(json.dumps(history.history["loss"]))
