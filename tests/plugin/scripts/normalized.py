"""Keras `fit` of convolutions, batch normalizations, swish and pools, which TensorFlow fuses and hands to oneDNN."""

import hashlib
import json

import numpy as np
import tensorflow as tf

tf.keras.utils.set_random_seed(1)
layers = tf.keras.layers
model = tf.keras.Sequential(
    [
        *(layers.Conv2D(8, 3, input_shape=(16, 16, 3)), layers.BatchNormalization(), layers.ReLU()),
        *(layers.AveragePooling2D(2), layers.Conv2D(8, 3), layers.BatchNormalization(), layers.Activation("gelu")),
        *(layers.MaxPooling2D(), layers.BatchNormalization(), layers.Activation("swish")),
        *(layers.Flatten(), layers.Dropout(0.3), layers.Dense(10, activation="softmax")),
    ]
)
x = np.random.default_rng(0).standard_normal([64, 16, 16, 3]).astype("float32")
y = np.random.default_rng(1).integers(0, 10, 64)
model.compile(tf.keras.optimizers.Adam(1e-2), "sparse_categorical_crossentropy")
seen = []


class Weights(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        weights = b"".join(weight.tobytes() for weight in model.get_weights())
        seen.append([float(logs["loss"]), hashlib.sha256(weights).hexdigest()])


model.fit(x, y, epochs=5, batch_size=16, verbose=0, callbacks=[Weights()])
print(json.dumps([*seen, model.predict(x, verbose=0)[0].tolist()]))
