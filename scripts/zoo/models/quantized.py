"""TensorFlow Model Optimization: training that is aware of quantization, through `fit`."""

import tensorflow_model_optimization as tfmot
from job import fit, integers, normal, options, tf

arguments = options()
model = tf.keras.Sequential(
    [
        tf.keras.layers.Conv2D(32, 3, activation="relu", input_shape=(32, 32, 3)),
        tf.keras.layers.Conv2D(64, 3, strides=2),
        tf.keras.layers.BatchNormalization(),
        tf.keras.layers.ReLU(),
        tf.keras.layers.Conv2D(64, 3),
        tf.keras.layers.BatchNormalization(),
        tf.keras.layers.ReLU(),
        tf.keras.layers.GlobalAveragePooling2D(),
        tf.keras.layers.Dense(10),
    ]
)
model = tfmot.quantization.keras.quantize_model(model)
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
fit(
    model,
    normal(256, 32, 32, 3),
    integers(10, 256),
    arguments,
    32,
    loss,
    tf.keras.optimizers.legacy.Adam(1e-3),
    metrics=["accuracy"],
)
