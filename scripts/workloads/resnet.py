"""A residual network that names the letter in a picture: a plain TensorFlow program, training or inference.

He et al. 2016, "Deep Residual Learning for Image Recognition": ResNet-18 (a convolution of 7x7, a maximum over 3x3, four stages of
two blocks of two 3x3 convolutions, each with batch normalization) for pictures of 64 x 64 in colour, with half of its channels (32,
64, 128 and 256; --width). Trained as usual: SGD with Nesterov's momentum, weight decay as an L2 term of each kernel, smoothed labels.
Pictures show one letter or digit of crnn.py's font in a random colour, size and place on a background that changes from corner to
corner, with noise; they reach the step as bytes, and the network scales them.
"""

from __future__ import annotations

import argparse

import numpy as np
import steps
import tensorflow as tf
from crnn import GLYPHS, ink

SIDE = 64
CLASSES = len(GLYPHS)
WEIGHT_DECAY = 1e-4


class Block(tf.keras.layers.Layer):
    """A residual block: two convolutions of 3x3 and what they were given, through a convolution of 1x1 if the shape changes."""

    def __init__(self, filters: int, stride: int) -> None:
        super().__init__()
        self.first = Normalized(filters, 3, stride)
        self.second = Normalized(filters, 3)
        self.shortcut = Normalized(filters, 1, stride) if stride != 1 else None

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        kept = x if self.shortcut is None else self.shortcut(x, training=training)
        return tf.nn.relu(self.second(tf.nn.relu(self.first(x, training=training)), training=training) + kept)


class Normalized(tf.keras.layers.Layer):
    """A convolution without bias, and batch normalization."""

    def __init__(self, filters: int, size: int, stride: int = 1) -> None:
        super().__init__()
        self.convolution = tf.keras.layers.Conv2D(
            filters, size, stride, padding="same", use_bias=False, kernel_initializer="he_normal",
            kernel_regularizer=tf.keras.regularizers.L2(WEIGHT_DECAY),
        )  # fmt: skip
        self.normalization = tf.keras.layers.BatchNormalization()

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        return self.normalization(self.convolution(x), training=training)


class ResNet(tf.keras.Model):
    """ResNet-18: uint8 [batch, SIDE, SIDE, 3] -> float32 [batch, CLASSES], the letters' scores.

    width: channels of the first stage.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = tf.keras.layers.Rescaling(1 / 127.5, offset=-1.0)
        self.stem = Normalized(width, 7, 2)
        self.pool = tf.keras.layers.MaxPool2D(3, 2, padding="same")
        self.blocks = [
            Block(width << stage, 2 if stage and not block else 1) for stage in range(4) for block in range(2)
        ]
        self.mean = tf.keras.layers.GlobalAveragePooling2D()
        self.scores = tf.keras.layers.Dense(CLASSES)

    def call(self, pictures: tf.Tensor, training: bool = False) -> tf.Tensor:
        x = self.pool(tf.nn.relu(self.stem(self.scale(pictures), training=training)))
        for block in self.blocks:
            x = block(x, training=training)
        return self.scores(self.mean(x))


def draw(letter: int, random: np.random.Generator) -> np.ndarray:
    """uint8 [SIDE, SIDE, 3]: the letter, five to eight times as large as its 5 x 7 dots."""
    dots = ink(bytes.fromhex(GLYPHS[letter]), int(random.integers(5, 9)))
    corners = random.uniform(0, 255, [2, 2, 3])
    along = np.linspace(0.0, 1.0, SIDE)
    weights = np.stack([1 - along, along])
    picture = np.einsum("ay,bx,abc->yxc", weights, weights, corners)
    top, left = (random.integers(0, SIDE - extent + 1) for extent in dots.shape)
    place = picture[top : top + dots.shape[0], left : left + dots.shape[1]]
    place[dots == 1] = random.uniform(0, 255, 3)
    return np.clip(picture + random.normal(0.0, 12.0, picture.shape), 0, 255).astype(np.uint8)


def pictures(batch: int, seed: int, count: int = 2048) -> tf.data.Dataset:
    """An endless dataset of (uint8 [batch, SIDE, SIDE, 3], int32 [batch]), from `count` pictures and their letters."""
    random = np.random.default_rng(seed)
    letters = random.integers(0, CLASSES, count).astype(np.int32)
    drawn = np.stack([draw(letter, random) for letter in letters])
    dataset = tf.data.Dataset.from_tensor_slices((drawn, letters)).shuffle(count, seed=seed).repeat()
    return steps.feed(dataset.batch(batch, drop_remainder=True))


def parser() -> argparse.ArgumentParser:
    """The options of the command line."""
    parser = steps.make_parser(__doc__)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--width", type=int, default=32, help="channels of the first stage (default 32; ResNet-18: 64)")
    return parser


def build(arguments: argparse.Namespace) -> ResNet:
    """The model, with weights by the seed."""
    tf.keras.utils.set_random_seed(arguments.seed)
    return ResNet(arguments.width)


def data(arguments: argparse.Namespace) -> tf.data.Dataset:
    """The batches."""
    return pictures(arguments.batch, arguments.seed)


def main() -> None:
    arguments = parser().parse_args()
    model = build(arguments)
    optimizer = tf.keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True)
    measure = tf.keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1)

    @tf.function(jit_compile=arguments.xla or None)
    def train(pictures: tf.Tensor, letters: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            scores = model(pictures, training=True)
            loss = measure(tf.one_hot(letters, CLASSES), scores)
            loss_and_decay = tf.add_n([loss, *model.losses])
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss_and_decay, variables), variables))
        return loss

    @tf.function(jit_compile=arguments.xla or None)
    def infer(pictures: tf.Tensor, letters: tf.Tensor) -> tf.Tensor:
        """The mean log-probability of the likeliest letter."""
        return tf.reduce_mean(tf.reduce_max(tf.nn.log_softmax(model(pictures)), axis=-1))

    step = train if arguments.mode == "train" else infer
    steps.run(step, data(arguments), arguments)


if __name__ == "__main__":
    main()
