"""Speech recognition with attention: a plain TensorFlow program, inference, one utterance per step.

300 frames of 80 (log-mel energies every 10 ms), two convolutions of stride 2 x 2, three bidirectional LSTMs of 256, and a decoder
that attends to the frames and writes letter by letter: Chan et al. 2016, "Listen, Attend and Spell", with convolutions first as in
Zhang et al. 2017, "Very Deep Convolutional Networks for End-to-End Speech Recognition". The utterances are synthetic: each letter of
a word of the Python standard library has its own spectrum, held for some frames, with noise. The weights are random: the time of a
step does not depend on the utterance.
"""

from __future__ import annotations

import numpy as np
import steps
import tensorflow as tf
import text
from recurrent import LETTERS, BidirectionalStack

FRAMES, BANDS = 300, 80
BEGIN, END = len(LETTERS), len(LETTERS) + 1
TOKENS = len(LETTERS) + 2


class Listener(tf.keras.layers.Layer):
    """Two convolutions of stride 2 and bidirectional LSTMs: float32 [batch, FRAMES, BANDS] -> [batch, FRAMES / 4, 2 units]."""

    def __init__(self, layers: int, units: int, filters: int) -> None:
        super().__init__()
        self.convolutions = [
            tf.keras.layers.Conv2D(filters, 3, strides=2, padding="same", activation="relu") for _ in range(2)
        ]
        self.sequence = BidirectionalStack(layers, units)

    def call(self, frames: tf.Tensor) -> tf.Tensor:
        x = frames[..., tf.newaxis]
        for convolution in self.convolutions:
            x = convolution(x)
        shape = tf.shape(x)
        return self.sequence(tf.reshape(x, [shape[0], shape[1], x.shape[2] * x.shape[3]]))


class Speller(tf.keras.layers.Layer):
    """An LSTM that attends to the listener's output (additive attention, Bahdanau et al. 2015) and writes letters."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.letters = tf.keras.layers.Embedding(TOKENS, units)
        self.cell = tf.keras.layers.LSTMCell(units)
        self.memory = tf.keras.layers.Dense(units)
        self.query = tf.keras.layers.Dense(units, use_bias=False)
        self.score = tf.keras.layers.Dense(1, use_bias=False)
        self.out = tf.keras.layers.Dense(TOKENS)

    def call(self, heard: tf.Tensor, length: int) -> tf.Tensor:
        """float32 [batch]: the mean log-probability per letter of the greedily decoded transcript, of at most `length` letters.
        heard: the listener's output, [batch, time, features]."""
        batch = tf.shape(heard)[0]
        memory = self.memory(heard)
        first = [tf.zeros([batch, self.cell.units], heard.dtype)] * 2

        def write(position, letter, context, states, total, written):  # type: ignore[no-untyped-def]
            x, states = self.cell(tf.concat([self.letters(letter), context], axis=-1), states)
            energies = self.score(tf.tanh(memory + self.query(x)[:, tf.newaxis]))
            context = tf.reduce_sum(tf.nn.softmax(energies, axis=1) * heard, axis=1)
            scores = tf.nn.log_softmax(self.out(tf.concat([x, context], axis=-1)))
            running = tf.cast(tf.not_equal(letter, END), tf.float32)
            total += running * tf.reduce_max(scores, axis=-1)
            letter = tf.where(running > 0.0, tf.argmax(scores, axis=-1, output_type=tf.int32), END)
            return position + 1, letter, context, states, total, written + running

        start = (
            tf.constant(0),
            tf.fill([batch], BEGIN),
            tf.zeros([batch, heard.shape[2]]),
            first,
            tf.zeros([batch]),
            tf.zeros([batch]),
        )
        *_, total, written = tf.while_loop(
            lambda position, letter, *_: tf.logical_and(position < length, tf.reduce_any(tf.not_equal(letter, END))),
            write,
            start,
            maximum_iterations=length,
        )
        return total / written


def utterances(batch: int, seed: int, count: int = 128) -> tf.data.Dataset:
    """An endless dataset of float32 [batch, FRAMES, BANDS], from `count` utterances."""
    random = np.random.default_rng(seed)
    words = sorted({word for word in text.read_words(200_000) if len(word) >= 4 and set(word) <= set(LETTERS)})
    bands = np.arange(BANDS)
    # Three formants per letter, as bumps over the bands.
    formants = random.uniform(0, BANDS, [len(LETTERS), 3, 1])
    spectra = np.exp(-(((bands - formants) / 5.0) ** 2)).sum(axis=1)
    spoken = np.zeros([count, FRAMES, BANDS], np.float32)
    for row in range(count):
        frame = int(random.integers(0, 10))
        while frame < FRAMES:
            for letter in str(random.choice(words)):
                end = frame + int(random.integers(5, 12))
                spoken[row, frame:end] = spectra[LETTERS.index(letter)]
                frame = end
            frame += int(random.integers(3, 15))
    spoken += random.normal(0.0, 0.1, spoken.shape).astype(np.float32)
    return steps.feed(tf.data.Dataset.from_tensor_slices((spoken,)).repeat().batch(batch, drop_remainder=True))


def main() -> None:
    parser = steps.make_parser(__doc__, modes=("infer",))
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--letters", type=int, default=40, help="longest transcript (default 40)")
    arguments = parser.parse_args()

    tf.keras.utils.set_random_seed(arguments.seed)
    listener, speller = Listener(layers=3, units=256, filters=32), Speller(units=256)

    @tf.function(jit_compile=arguments.xla or None)
    def recognize(frames: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean(speller(listener(frames), length=arguments.letters))

    steps.run(recognize, utterances(arguments.batch, arguments.seed), arguments)


if __name__ == "__main__":
    main()
