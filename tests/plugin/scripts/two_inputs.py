"""Keras `fit` on arrays of integers: two inputs (ids of an embedding, which `fit` makes floats, and numbers), dropout, batch norm,
concatenation, and labels that are integers; prints the losses of the epochs.

two_inputs.py EPOCHS [SECONDS]: a callback of its own pauses so long after 13 and after 123 steps.
"""

import json
import sys

import numpy as np
import tensorflow as tf
from resting import rest

WORDS, CLASSES = 60, 7
tf.keras.utils.set_random_seed(11)
ids = tf.keras.layers.Input((12,))
numbers = tf.keras.layers.Input((16,))
words = tf.keras.layers.Embedding(WORDS, 8)(ids)
words = tf.keras.layers.Dropout(0.2)(tf.keras.layers.Flatten()(words))
dense = tf.keras.layers.BatchNormalization()(tf.keras.layers.Dense(32, activation="gelu")(numbers))
both = tf.keras.layers.Concatenate()([words, tf.keras.layers.Dropout(0.2)(dense)])
both = tf.keras.layers.BatchNormalization()(tf.keras.layers.Dense(48, activation="relu")(both))
model = tf.keras.Model([ids, numbers], tf.keras.layers.Dense(CLASSES)(both))
model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
random = np.random.default_rng(3)
x = [random.integers(0, WORDS, (640, 12)), random.random((640, 16), dtype=np.float32)]
y = (x[0].sum(1) + (x[1][:, 0] > 0.5)) % CLASSES
pause = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0


class Pause(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if int(self.model.optimizer.iterations) in (13, 123):
            rest(pause)


history = model.fit(x, y, batch_size=32, epochs=int(sys.argv[1]), verbose=0, callbacks=[Pause()])
print(json.dumps(history.history["loss"]))
