"""CRNN, which reads a line of text in a picture: a plain TensorFlow program, inference, one picture per step.

Shi, Bai and Yao 2015, "An End-to-End Trainable Neural Network for Image-based Sequence Recognition": seven convolutions (64, 128,
256, 256, 512, 512, 512; batch normalization after the fifth and sixth), two bidirectional LSTMs of 256, scores of letters and a blank
for each column of the picture, decoded greedily. Pictures of 32 x 256 show words of the Python standard library in a 5 x 7 font, with
noise. The weights are random: the time of a step does not depend on the text that it reads.
"""

from __future__ import annotations

import numpy as np
import steps
import tensorflow as tf
import text
from recurrent import LETTERS, BidirectionalStack

HEIGHT, WIDTH = 32, 256
GLYPHS = (
    "7E1111117E 7F49494936 3E41414122 7F4141221C 7F49494941 7F09090901 3E4149497A 7F0808087F 00417F4100 2040413F01 "
    "7F08142241 7F40404040 7F020C027F 7F0408107F 3E4141413E 7F09090906 3E4151215E 7F09192946 4649494931 01017F0101 "
    "3F4040403F 1F2040201F 3F4038403F 6314081463 0708700807 6151494543 3E5149453E 00427F4000 4261514946 2141454B31 "
    "1814127F10 2745454539 3C4A494930 0171090503 3649494936 064949291E"
).split()
"""The columns of each letter in LETTERS, left to right, one byte each, lowest bit at the top."""
SCALE = 3


class Crnn(tf.keras.Model):
    """The network: float32 [batch, 32, width, 1] -> log-probabilities, float32 [batch, width / 4 - 1, letters and blank]."""

    def __init__(self) -> None:
        super().__init__()
        self.features = [
            self.convolution(64),
            tf.keras.layers.MaxPool2D(2, 2),
            self.convolution(128),
            tf.keras.layers.MaxPool2D(2, 2),
            self.convolution(256),
            self.convolution(256),
            tf.keras.layers.MaxPool2D((2, 1), (2, 1)),
            self.convolution(512, activation=None),
            tf.keras.layers.BatchNormalization(),
            tf.keras.layers.ReLU(),
            self.convolution(512, activation=None),
            tf.keras.layers.BatchNormalization(),
            tf.keras.layers.ReLU(),
            tf.keras.layers.MaxPool2D((2, 1), (2, 1)),
            self.convolution(512, kernel=2, padding="valid"),
        ]
        self.sequence = BidirectionalStack(2, 256)
        self.letters = tf.keras.layers.Dense(len(LETTERS) + 1)

    @staticmethod
    def convolution(
        filters: int, kernel: int = 3, padding: str = "same", activation: str | None = "relu"
    ) -> tf.keras.layers.Conv2D:
        # He initialization, so that the outputs for different pictures still differ after seven layers of random weights.
        return tf.keras.layers.Conv2D(
            filters, kernel, padding=padding, activation=activation, kernel_initializer="he_normal"
        )

    def call(self, pictures: tf.Tensor, training: bool = False) -> tf.Tensor:
        x = pictures
        for layer in self.features:
            x = layer(x, training=training) if isinstance(layer, tf.keras.layers.BatchNormalization) else layer(x)
        return tf.nn.log_softmax(self.letters(self.sequence(tf.squeeze(x, axis=1))))


def ink(columns: bytes, scale: int) -> np.ndarray:
    """uint8 [7 scale, scale per column], 1 where a dot is: columns as in GLYPHS, each dot `scale` pixels wide and high."""
    bits = (np.frombuffer(columns, np.uint8) >> np.arange(7, dtype=np.uint8)[:, np.newaxis]) & 1
    return bits.repeat(scale, axis=0).repeat(scale, axis=1)


def draw(word: str, random: np.random.Generator) -> np.ndarray:
    """float32 [HEIGHT, WIDTH, 1], about -1 to 1: as much of the word as fits, at a random offset, with noise."""
    columns: list[int] = []
    for letter in word:
        columns += [*bytes.fromhex(GLYPHS[LETTERS.index(letter)]), 0]
    dots = ink(bytes(columns), SCALE)[:, : WIDTH - 8]
    picture = np.full([HEIGHT, WIDTH], -0.8, np.float32)
    top, left = random.integers(1, HEIGHT - len(dots)), random.integers(0, 8)
    picture[top : top + len(dots), left : left + dots.shape[1]] += 1.6 * dots
    return (picture + random.normal(0.0, 0.1, picture.shape)).astype(np.float32)[..., np.newaxis]


def pictures(batch: int, seed: int, count: int = 256) -> tf.data.Dataset:
    """An endless dataset of float32 [batch, HEIGHT, WIDTH, 1], from `count` pictures."""
    random = np.random.default_rng(seed)
    words = sorted({word for word in text.read_words(200_000) if len(word) >= 6 and set(word) <= set(LETTERS)})
    drawn = np.stack([draw(word, random) for word in random.choice(words, count)])
    return steps.feed(tf.data.Dataset.from_tensor_slices((drawn,)).repeat().batch(batch, drop_remainder=True))


def main() -> None:
    parser = steps.make_parser(__doc__, modes=("infer",))
    parser.add_argument("--batch", type=int, default=1)
    arguments = parser.parse_args()

    tf.keras.utils.set_random_seed(arguments.seed)
    model = Crnn()

    @tf.function(jit_compile=arguments.xla or None)
    def read(pictures: tf.Tensor) -> tf.Tensor:
        """The mean log-probability of the likeliest letter in each column."""
        return tf.reduce_mean(tf.reduce_max(model(pictures), axis=-1))

    steps.run(read, pictures(arguments.batch, arguments.seed), arguments)


if __name__ == "__main__":
    main()
