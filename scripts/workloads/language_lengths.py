"""A language model with batches as long as their longest function: a plain TensorFlow program.

A causal Transformer of 2 layers of 128 (4 heads, inner 512) that predicts the next word of functions in the Python standard library.
A batch has eight functions of 12 to 96 words, padded to the longest of the eight, so the length changes from step to step, as in most
language jobs; one tf.function serves all lengths (input_signature with unknown dimensions). Keras' Adam, dropout 0.1.
"""

from __future__ import annotations

import numpy as np
import steps
import tensorflow as tf
import text
from layers import Block, causal_mask, padding_mask


class LanguageModel(tf.keras.Model):
    def __init__(
        self, vocabulary: int, hidden: int, layers: int, heads: int, inner: int, longest: int, dropout: float
    ) -> None:
        super().__init__()
        self.words = tf.keras.layers.Embedding(vocabulary, hidden)
        self.positions = self.add_weight(name="positions", shape=[longest, hidden], initializer="uniform")
        self.dropout = tf.keras.layers.Dropout(dropout)
        self.blocks = [
            Block(hidden, heads, inner, dropout, activation=tf.keras.activations.gelu) for _ in range(layers)
        ]
        self.out = tf.keras.layers.Dense(vocabulary)

    def call(self, tokens: tf.Tensor, training: bool = False) -> tf.Tensor:
        length = tf.shape(tokens)[1]
        mask = tf.minimum(causal_mask(length), padding_mask(tokens, text.PADDING))
        x = self.dropout(self.words(tokens) + self.positions[:length], training=training)
        for block in self.blocks:
            x = block(x, mask, training=training)
        return self.out(x)


def batches(batch: int, shortest: int, longest: int, vocabulary: int, seed: int) -> tf.data.Dataset:
    """A dataset of (words, next words), int32 [batch, length] each; the length differs from batch to batch."""
    functions = [words for _, code in text.documented_code() if len(words := text.words_of(code)) >= shortest]
    ids = text.number_words((word for words in functions for word in words), vocabulary)
    tokens = [text.tokens_of(words[: longest + 1], ids) for words in functions]
    ends = np.cumsum([len(function) for function in tokens])
    # A ragged tensor holds all functions in one array.
    ragged = tf.RaggedTensor.from_row_limits(np.concatenate(tokens), ends)
    examples = tf.data.Dataset.from_tensor_slices(ragged).shuffle(20_000, seed=seed).repeat()
    padded = examples.batch(batch, drop_remainder=True).map(lambda words: words.to_tensor(text.PADDING))
    return steps.feed(padded.map(lambda words: (words[:, :-1], words[:, 1:])))


def main() -> None:
    parser = steps.make_parser(__doc__)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--shortest", type=int, default=12)
    parser.add_argument("--longest", type=int, default=96)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--inner", type=int, default=512)
    parser.add_argument("--vocabulary", type=int, default=4000)
    parser.add_argument("--dropout", type=float, default=0.1)
    arguments = parser.parse_args()

    tf.keras.utils.set_random_seed(arguments.seed)
    model = LanguageModel(
        arguments.vocabulary,
        arguments.hidden,
        arguments.layers,
        arguments.heads,
        arguments.inner,
        arguments.longest,
        arguments.dropout,
    )
    optimizer = tf.keras.optimizers.Adam(1e-3)
    signature = [tf.TensorSpec([None, None], tf.int32)] * 2

    def loss_of(tokens: tf.Tensor, wanted: tf.Tensor, training: bool) -> tf.Tensor:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(wanted, model(tokens, training=training))
        weights = tf.cast(tf.not_equal(wanted, text.PADDING), tf.float32)
        return tf.reduce_sum(losses * weights) / tf.reduce_sum(weights)

    @tf.function(input_signature=signature, jit_compile=arguments.xla or None)
    def train(tokens: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_of(tokens, wanted, training=True)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    @tf.function(input_signature=signature, jit_compile=arguments.xla or None)
    def infer(tokens: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
        return loss_of(tokens, wanted, training=False)

    step = train if arguments.mode == "train" else infer
    data = batches(arguments.batch, arguments.shortest, arguments.longest, arguments.vocabulary, arguments.seed)
    steps.run(step, data, arguments)


if __name__ == "__main__":
    main()
