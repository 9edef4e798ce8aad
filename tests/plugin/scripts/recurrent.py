"""A Keras LSTM and a GRU, whose bodies TensorFlow does not inline, trained by `fit`; prints the losses of the epochs.

recurrent.py EPOCHS [SECONDS]: a callback of its own pauses so long after 13 steps.
"""

import json
import sys

import numpy as np
import tensorflow as tf
from resting import rest

tf.keras.utils.set_random_seed(5)
model = tf.keras.Sequential(
    [
        tf.keras.layers.Input((12, 8)),
        tf.keras.layers.LSTM(16, return_sequences=True),
        tf.keras.layers.GRU(16),
        tf.keras.layers.Dense(1),
    ]
)
model.compile(tf.keras.optimizers.SGD(0.05), "mse")
x = np.random.rand(128, 12, 8).astype("float32")
pause = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0


class Pause(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if int(self.model.optimizer.iterations) == 13:
            rest(pause)


history = model.fit(
    x, x.sum((1, 2))[:, None] / 48, batch_size=32, epochs=int(sys.argv[1]), verbose=0, callbacks=[Pause()]
)
print(json.dumps(history.history["loss"]))
