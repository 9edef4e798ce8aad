"""Larq (Plumerai): a network with binary weights and activations, through `fit`."""

import larq as lq
from job import fit, integers, normal, options, tf

arguments = options()
binary = {
    "input_quantizer": "ste_sign",
    "kernel_quantizer": "ste_sign",
    "kernel_constraint": "weight_clip",
    "use_bias": False,
}
layers = [
    lq.layers.QuantConv2D(32, 3, **{**binary, "input_quantizer": None}, input_shape=(32, 32, 3)),
    tf.keras.layers.BatchNormalization(scale=False),
]
for width in (64, 64, 128):
    layers += [
        lq.layers.QuantConv2D(width, 3, padding="same", **binary),
        tf.keras.layers.MaxPool2D(2),
        tf.keras.layers.BatchNormalization(scale=False),
    ]
layers += [
    tf.keras.layers.Flatten(),
    lq.layers.QuantDense(10, **binary),
    tf.keras.layers.BatchNormalization(scale=False),
    tf.keras.layers.Activation("softmax"),
]
model = tf.keras.Sequential(layers)
fit(
    model,
    normal(256, 32, 32, 3),
    integers(10, 256),
    arguments,
    32,
    "sparse_categorical_crossentropy",
    metrics=["accuracy"],
)
