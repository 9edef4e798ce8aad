"""keras-tcn (Philippe Remy): a temporal convolutional network, through `fit`."""

from job import fit, normal, options, tf
from tcn import TCN

arguments = options()
inputs = tf.keras.Input((200, 8))
x = TCN(48, kernel_size=3, dilations=(1, 2, 4, 8, 16), dropout_rate=0.1, use_layer_norm=True, return_sequences=False)(
    inputs
)
model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(x))
fit(model, normal(256, 200, 8), normal(256, 1), arguments, 32, "mse")
