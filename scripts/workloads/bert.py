"""BERT as a masked language model on the text of the Python standard library: a plain TensorFlow program.

L4 H256 A4 I1024, batch 8 x 128, vocabulary 8,000, dropout 0.1, Keras' Adam, a custom loop around one tf.function. The text is cut
into full windows; --padded: each example is a function of its own length, padded, as in a fine-tuning job. --mixed: Keras' policy
mixed_bfloat16, with the loss in float32. Devlin et al. 2018, "BERT: Pre-training of Deep Bidirectional Transformers for Language
Understanding".
"""

from __future__ import annotations

import argparse

import numpy as np
import steps
import tensorflow as tf
import text
from distributed import Ranks, add_option
from layers import Block, padding_mask


class Bert(tf.keras.Model):
    def __init__(
        self, vocabulary: int, hidden: int, layers: int, heads: int, inner: int, length: int, dropout: float
    ) -> None:
        super().__init__()
        self.words = tf.keras.layers.Embedding(vocabulary, hidden)
        self.positions = self.add_weight(name="positions", shape=[length, hidden], initializer="uniform")
        self.norm = tf.keras.layers.LayerNormalization(epsilon=1e-12)
        self.dropout = tf.keras.layers.Dropout(dropout)
        gelu = tf.keras.activations.gelu
        self.blocks = [Block(hidden, heads, inner, dropout, gelu, 1e-12) for _ in range(layers)]
        self.transform = tf.keras.layers.Dense(hidden, activation=gelu)
        self.transform_norm = tf.keras.layers.LayerNormalization(epsilon=1e-12)
        self.output_bias = self.add_weight(name="output_bias", shape=[vocabulary], initializer="zeros")

    def call(self, tokens: tf.Tensor, training: bool = False) -> tf.Tensor:
        mask = padding_mask(tokens, text.PADDING)
        x = self.dropout(self.norm(self.words(tokens) + self.positions), training=training)
        for block in self.blocks:
            x = block(x, mask, training=training)
        x = self.transform_norm(self.transform(x))
        words = tf.cast(self.words.embeddings, x.dtype)  # Keras casts all variables but embeddings
        return tf.matmul(x, words, transpose_b=True) + self.output_bias


def masked_batches(examples: np.ndarray, batch: int, seed: int) -> tf.data.Dataset:
    """A dataset of (tokens with 15% masked, true tokens, weight of each position), of shape [batch, length] each. examples: int32
    [examples, length]."""

    def mask(index: tf.Tensor, tokens: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        chosen = tf.random.stateless_uniform(tf.shape(tokens), tf.stack([seed, tf.cast(index, tf.int32)])) < 0.15
        chosen = tf.logical_and(chosen, tf.not_equal(tokens, text.PADDING))
        return tf.where(chosen, text.MASK, tokens), tokens, tf.cast(chosen, tf.float32)

    rows = tf.data.Dataset.from_tensor_slices(examples)
    batches = rows.shuffle(20_000, seed=seed).repeat().batch(batch, drop_remainder=True)
    return steps.feed(batches.enumerate().map(mask))


def parser() -> argparse.ArgumentParser:
    """The options of the command line."""
    parser = steps.make_parser(__doc__)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--inner", type=int, default=1024)
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--padded", action="store_true", help="use padded functions instead of full windows")
    parser.add_argument("--mixed", action="store_true", help="compute in bfloat16, keep the weights in float32")
    add_option(parser)
    return parser


def build(arguments: argparse.Namespace) -> Bert:
    """The model, with weights by the seed."""
    tf.keras.utils.set_random_seed(arguments.seed)
    if arguments.mixed:
        tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    return Bert(
        arguments.vocabulary,
        arguments.hidden,
        arguments.layers,
        arguments.heads,
        arguments.inner,
        arguments.length,
        arguments.dropout,
    )


def data(arguments: argparse.Namespace, rank: int = 0) -> tf.data.Dataset:
    """The batches of a rank."""
    cut = text.padded_functions if arguments.padded else text.token_windows
    return masked_batches(cut(arguments.vocabulary, arguments.length), arguments.batch, arguments.seed + rank)


def main() -> None:
    arguments = parser().parse_args()
    ranks = Ranks(arguments.horovod)
    model = build(arguments)
    optimizer = tf.keras.optimizers.Adam(1e-4)

    def loss_of(tokens: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor, training: bool) -> tf.Tensor:
        logits = tf.cast(model(tokens, training=training), tf.float32)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        return tf.reduce_sum(losses * weights) / tf.reduce_sum(weights)

    # XLA compiles no collective: with several ranks it gets the forward and the backward pass, not the whole step.
    training_loss = tf.function(loss_of, jit_compile=True) if arguments.xla and arguments.horovod else loss_of

    @tf.function(jit_compile=(arguments.xla and not arguments.horovod) or None)
    def train(tokens: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = training_loss(tokens, labels, weights, training=True)
        gradients = ranks.gradients(tape, loss, model.trainable_variables, dense=True)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    @tf.function(jit_compile=arguments.xla or None)
    def infer(tokens: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        return loss_of(tokens, labels, weights, training=False)

    steps.run(
        train if arguments.mode == "train" else infer,
        data(arguments, ranks.rank),
        arguments,
        ranks,
        lambda: ranks.broadcast(model, optimizer),
    )


if __name__ == "__main__":
    main()
