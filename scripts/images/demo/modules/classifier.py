"""The model that train.py trains. It lies in a folder of its own, which the image names in PYTHONPATH."""

from __future__ import annotations

import tensorflow as tf

TOKENS, LENGTH, WIDTH, CLASSES = 2000, 64, 128, 8


def make_model() -> tf.keras.Model:
    tokens = tf.keras.Input((LENGTH,), dtype="int32")
    x = tf.keras.layers.Embedding(TOKENS, WIDTH)(tokens)
    for _ in range(2):
        y = tf.keras.layers.LayerNormalization(epsilon=1e-6)(x)
        y = tf.keras.layers.Dense(4 * WIDTH, activation="gelu")(y)
        x = x + tf.keras.layers.Dense(WIDTH)(y)
    x = tf.keras.layers.LayerNormalization(epsilon=1e-6)(x)
    pooled = tf.keras.layers.GlobalAveragePooling1D()(x)
    return tf.keras.Model(tokens, tf.keras.layers.Dense(CLASSES)(pooled))
