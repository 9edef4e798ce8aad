"""A Transformer that writes Python from its documentation: a plain TensorFlow program.

Encoder and decoder of 2 layers each, hidden 256, 4 heads, inner 1024, batch 8 x 64, vocabulary 8,000, dropout 0.1, label smoothing
0.1, Adam with the warm-up schedule: Vaswani et al. 2017, "Attention Is All You Need", at a smaller size. Source: docstrings of the
Python standard library; target: the code of their functions.

--mode train: a training step. infer: the smoothed loss of given targets. decode: targets written greedily, word by word, with the
keys and values of earlier words kept.
"""

from __future__ import annotations

import numpy as np
import steps
import tensorflow as tf
import text
from layers import Attention, Block, causal_mask, padding_mask

BEGIN = text.MASK  # this workload masks no words, so the number is free


def sinusoids(length: int, hidden: int) -> np.ndarray:
    """Position encodings, float32 [length, hidden] (section 3.5)."""
    rates = 10000.0 ** (-np.arange(0, hidden, 2) / hidden)
    angles = np.arange(length)[:, np.newaxis] * rates[np.newaxis]
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, hidden).astype(np.float32)


class DecoderBlock(tf.keras.layers.Layer):
    """A layer of the decoder: causal self-attention, attention to the source, a feed-forward net; each added to its input, then
    normalized."""

    def __init__(self, hidden: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.own = Attention(hidden, heads, dropout)
        self.source = Attention(hidden, heads, dropout)
        self.grow = tf.keras.layers.Dense(inner, activation="relu")
        self.shrink = tf.keras.layers.Dense(hidden)
        self.norms = [tf.keras.layers.LayerNormalization(epsilon=1e-6) for _ in range(3)]
        self.dropout = tf.keras.layers.Dropout(dropout)

    def call(
        self, x: tf.Tensor, memory: tf.Tensor, own_mask: tf.Tensor, source_mask: tf.Tensor, training: bool
    ) -> tf.Tensor:
        x = self.norms[0](x + self.dropout(self.own(x, x, own_mask, training=training), training=training))
        x = self.norms[1](x + self.dropout(self.source(x, memory, source_mask, training=training), training=training))
        return self.norms[2](x + self.dropout(self.shrink(self.grow(x)), training=training))

    def one_word(
        self, x: tf.Tensor, here: tf.Tensor, kept: tuple[tf.Tensor, ...], source_mask: tf.Tensor, own_mask: tf.Tensor
    ) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
        """Applies the block to one new word, x [batch, 1, hidden]. here: float32 [length, 1], 1 at the word's position. kept: keys
        and values of the words so far, and those of the source, [batch, heads, length, size] each. Returns (x, the new `kept`)."""
        keys, values, source_keys, source_values = kept
        own, source = self.own, self.source
        keys = keys + own.split(own.key(x)) * here
        values = values + own.split(own.value(x)) * here
        x = self.norms[0](x + own.attend(x, own.split(own.query(x)), keys, values, own_mask, False))
        query = source.split(source.query(x))
        x = self.norms[1](x + source.attend(x, query, source_keys, source_values, source_mask, False))
        return self.norms[2](x + self.shrink(self.grow(x))), (keys, values, source_keys, source_values)


class Transformer(tf.keras.Model):
    def __init__(
        self, vocabulary: int, hidden: int, layers: int, heads: int, inner: int, length: int, dropout: float
    ) -> None:
        super().__init__()
        self.hidden, self.heads, self.length = hidden, heads, length
        # One matrix for both inputs and, transposed, for the output (section 3.4).
        self.words = tf.keras.layers.Embedding(
            vocabulary, hidden, embeddings_initializer=tf.random_normal_initializer(stddev=hidden**-0.5)
        )
        self.positions = tf.constant(sinusoids(length, hidden))
        self.dropout = tf.keras.layers.Dropout(dropout)
        self.encoder = [Block(hidden, heads, inner, dropout) for _ in range(layers)]
        self.decoder = [DecoderBlock(hidden, heads, inner, dropout) for _ in range(layers)]

    def embed(self, tokens: tf.Tensor, positions: tf.Tensor, training: bool) -> tf.Tensor:
        return self.dropout(self.words(tokens) * self.hidden**0.5 + positions, training=training)

    def encode(self, source: tf.Tensor, mask: tf.Tensor, training: bool) -> tf.Tensor:
        x = self.embed(source, self.positions, training)
        for block in self.encoder:
            x = block(x, mask, training=training)
        return x

    def logits(self, x: tf.Tensor) -> tf.Tensor:
        return tf.matmul(x, self.words.embeddings, transpose_b=True)

    def call(self, source: tf.Tensor, given: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Logits [batch, length, vocabulary] of each target word, from the words before it in `given`."""
        source_mask = padding_mask(source, text.PADDING)
        memory = self.encode(source, source_mask, training)
        x = self.embed(given, self.positions, training)
        own_mask = causal_mask(self.length)
        for block in self.decoder:
            x = block(x, memory, own_mask, source_mask, training=training)
        return self.logits(x)

    def decode(self, source: tf.Tensor) -> tf.Tensor:
        """The mean log-probability of the words of greedy decoding, `length` for each source."""
        source_mask = padding_mask(source, text.PADDING)
        memory = self.encode(source, source_mask, training=False)
        batch = tf.shape(source)[0]
        empty = tf.zeros([batch, self.heads, self.length, self.hidden // self.heads])
        kept = tuple(
            (empty, empty, block.source.split(block.source.key(memory)), block.source.split(block.source.value(memory)))
            for block in self.decoder
        )

        def write(position: tf.Tensor, word: tf.Tensor, total: tf.Tensor, kept: tuple) -> tuple:
            here = tf.one_hot(position, self.length)[:, tf.newaxis]
            own_mask = tf.cast(tf.range(self.length) > position, tf.float32) * -1e9
            x = self.embed(word[:, tf.newaxis], tf.gather(self.positions, position), training=False)
            fresh = []
            for block, state in zip(self.decoder, kept):
                x, state = block.one_word(x, here, state, source_mask, own_mask)
                fresh.append(state)
            scores = tf.nn.log_softmax(self.logits(x[:, 0]))
            total += tf.reduce_mean(tf.reduce_max(scores, axis=-1))
            return position + 1, tf.argmax(scores, axis=-1, output_type=tf.int32), total, tuple(fresh)

        _, _, total, _ = tf.while_loop(
            lambda position, *_: position < self.length,
            write,
            (tf.constant(0), tf.fill([batch], BEGIN), tf.constant(0.0), kept),
            maximum_iterations=self.length,
        )
        return total / self.length


class WarmUp(tf.keras.optimizers.schedules.LearningRateSchedule):
    """hidden^-0.5 min(step^-0.5, step warm_up^-1.5), section 5.3."""

    def __init__(self, hidden: int, warm_up: int) -> None:
        super().__init__()
        self.scale, self.warm_up = hidden**-0.5, warm_up

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        step = tf.cast(step, tf.float32) + 1.0
        return self.scale * tf.minimum(tf.math.rsqrt(step), step * self.warm_up**-1.5)


def smoothed_loss(logits: tf.Tensor, target: tf.Tensor, smoothing: float) -> tf.Tensor:
    """Cross-entropy with label smoothing (section 5.4), mean over real words: the true word has 1 - smoothing, the others share the
    rest."""
    vocabulary = logits.shape[-1]
    others = smoothing / (vocabulary - 1)
    wanted = tf.one_hot(target, vocabulary, on_value=1.0 - smoothing, off_value=others)
    losses = tf.nn.softmax_cross_entropy_with_logits(wanted, logits)
    weights = tf.cast(tf.not_equal(target, text.PADDING), tf.float32)
    return tf.reduce_sum(losses * weights) / tf.reduce_sum(weights)


def pairs(batch: int, length: int, vocabulary: int, seed: int) -> tf.data.Dataset:
    """A dataset of (source, the decoder's input, its target), int32 [batch, length] each."""
    found = [(text.words_of(documentation), text.words_of(code)) for documentation, code in text.documented_code()]
    ids = text.number_words((word for pair in found for words in pair for word in words), vocabulary)

    def padded(words: list[str]) -> np.ndarray:
        tokens = text.tokens_of(words[:length], ids)
        return np.pad(tokens, (0, length - len(tokens)), constant_values=text.PADDING)

    source = np.stack([padded(documentation) for documentation, _ in found])
    target = np.stack([padded(code) for _, code in found])
    given = np.concatenate([np.full([len(target), 1], BEGIN, np.int32), target[:, :-1]], axis=1)
    examples = tf.data.Dataset.from_tensor_slices((source, given, target))
    return steps.feed(examples.shuffle(20_000, seed=seed).repeat().batch(batch, drop_remainder=True))


def main() -> None:
    parser = steps.make_parser(__doc__, modes=("train", "infer", "decode"))
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--inner", type=int, default=1024)
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--smoothing", type=float, default=0.1)
    parser.add_argument("--warm-up", type=int, default=4000)
    arguments = parser.parse_args()

    tf.keras.utils.set_random_seed(arguments.seed)
    model = Transformer(
        arguments.vocabulary,
        arguments.hidden,
        arguments.layers,
        arguments.heads,
        arguments.inner,
        arguments.length,
        arguments.dropout,
    )
    rate = WarmUp(arguments.hidden, arguments.warm_up)
    optimizer = tf.keras.optimizers.Adam(rate, beta_1=0.9, beta_2=0.98, epsilon=1e-9)

    @tf.function(jit_compile=arguments.xla or None)
    def train(source: tf.Tensor, given: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = smoothed_loss(model(source, given, training=True), target, arguments.smoothing)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    @tf.function(jit_compile=arguments.xla or None)
    def infer(source: tf.Tensor, given: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        return smoothed_loss(model(source, given), target, arguments.smoothing)

    @tf.function(jit_compile=arguments.xla or None)
    def decode(source: tf.Tensor, given: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        return model.decode(source)

    step = {"train": train, "infer": infer, "decode": decode}[arguments.mode]
    steps.run(step, pairs(arguments.batch, arguments.length, arguments.vocabulary, arguments.seed), arguments)


if __name__ == "__main__":
    main()
