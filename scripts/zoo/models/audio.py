"""kapre (Keunwoo Choi): a network on log-mel spectrograms that are made within it, through `fit`."""

from job import fit, integers, normal, options, tf
from kapre.composed import get_melspectrogram_layer

arguments = options()
layers = tf.keras.layers
first = get_melspectrogram_layer(
    input_shape=(8000, 1), n_fft=512, hop_length=128, sample_rate=8000, n_mels=64, return_decibel=True
)
model = tf.keras.Sequential([first, layers.BatchNormalization()])
for width in (16, 32, 64):
    for layer in (
        layers.Conv2D(width, 3, padding="same"),
        layers.BatchNormalization(),
        layers.ELU(),
        layers.MaxPool2D(2),
        layers.Dropout(0.1),
    ):
        model.add(layer)
for layer in (layers.GlobalAveragePooling2D(), layers.Dense(10)):
    model.add(layer)
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
fit(model, normal(64, 8000, 1), integers(10, 64), arguments, 16, loss)
