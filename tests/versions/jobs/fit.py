"""Keras' `fit`, as `tf.keras` has it: normalization, dropout, Adam, a metric."""

import tensorflow as tf
from training import BATCH, train

keras = tf.keras
tf.random.set_seed(5)  # Keras' own set_random_seed fails with tf_keras 2.16 on Python 3.12
model = keras.Sequential(
    [
        keras.layers.Dense(512, kernel_initializer=keras.initializers.GlorotUniform(seed=1)),
        keras.layers.LayerNormalization(),
        keras.layers.Activation("gelu"),
        keras.layers.Dropout(0.1, seed=2),
        keras.layers.Dense(10, kernel_initializer=keras.initializers.GlorotUniform(seed=3)),
    ]
)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(1e-4), loss, metrics=["accuracy"])


def step(inputs, labels):
    return model.fit(inputs, labels, batch_size=BATCH // 4, shuffle=False, verbose=0).history["loss"][0]


train(step)
