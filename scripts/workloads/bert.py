"""BERT as a masked language model on the text of the Python standard library: a plain TensorFlow program.

L4 H256 A4 I1024, batch 8 x 128, vocabulary 8,000, dropout 0.1, Keras' Adam, a custom loop around one tf.function.
Devlin et al. 2018, "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding".
"""

from __future__ import annotations

import argparse
import json
import time

import tensorflow as tf
import text


class Attention(tf.keras.layers.Layer):
    def __init__(self, hidden: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.size = heads, hidden // heads
        self.query, self.key, self.value, self.out = (tf.keras.layers.Dense(hidden) for _ in range(4))
        self.dropout = tf.keras.layers.Dropout(dropout)

    def split(self, x: tf.Tensor) -> tf.Tensor:
        shape = tf.shape(x)
        return tf.transpose(tf.reshape(x, [shape[0], shape[1], self.heads, self.size]), [0, 2, 1, 3])

    def call(self, x: tf.Tensor, mask: tf.Tensor, training: bool) -> tf.Tensor:
        query, key, value = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = tf.matmul(query, key, transpose_b=True) / tf.sqrt(tf.cast(self.size, tf.float32)) + mask
        weights = self.dropout(tf.nn.softmax(scores), training=training)
        merged = tf.transpose(tf.matmul(weights, value), [0, 2, 1, 3])
        return self.out(tf.reshape(merged, tf.shape(x)))


class Block(tf.keras.layers.Layer):
    def __init__(self, hidden: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.attention = Attention(hidden, heads, dropout)
        self.grow = tf.keras.layers.Dense(inner, activation=tf.keras.activations.gelu)
        self.shrink = tf.keras.layers.Dense(hidden)
        self.first_norm = tf.keras.layers.LayerNormalization(epsilon=1e-12)
        self.second_norm = tf.keras.layers.LayerNormalization(epsilon=1e-12)
        self.dropout = tf.keras.layers.Dropout(dropout)

    def call(self, x: tf.Tensor, mask: tf.Tensor, training: bool) -> tf.Tensor:
        x = self.first_norm(x + self.dropout(self.attention(x, mask, training), training=training))
        return self.second_norm(x + self.dropout(self.shrink(self.grow(x)), training=training))


class Bert(tf.keras.Model):
    def __init__(
        self, vocabulary: int, hidden: int, layers: int, heads: int, inner: int, length: int, dropout: float
    ) -> None:
        super().__init__()
        self.words = tf.keras.layers.Embedding(vocabulary, hidden)
        self.positions = self.add_weight(name="positions", shape=[length, hidden], initializer="uniform")
        self.norm = tf.keras.layers.LayerNormalization(epsilon=1e-12)
        self.dropout = tf.keras.layers.Dropout(dropout)
        self.blocks = [Block(hidden, heads, inner, dropout) for _ in range(layers)]
        self.transform = tf.keras.layers.Dense(hidden, activation=tf.keras.activations.gelu)
        self.transform_norm = tf.keras.layers.LayerNormalization(epsilon=1e-12)
        self.output_bias = self.add_weight(name="output_bias", shape=[vocabulary], initializer="zeros")

    def call(self, tokens: tf.Tensor, training: bool = False) -> tf.Tensor:
        attended = tf.cast(tf.not_equal(tokens, text.PADDING), tf.float32)
        mask = (1.0 - attended[:, tf.newaxis, tf.newaxis, :]) * -1e9
        x = self.dropout(self.norm(self.words(tokens) + self.positions), training=training)
        for block in self.blocks:
            x = block(x, mask, training)
        x = self.transform_norm(self.transform(x))
        return tf.matmul(x, self.words.embeddings, transpose_b=True) + self.output_bias


def masked_batches(batch: int, length: int, vocabulary: int, seed: int) -> tf.data.Dataset:
    """(tokens with 15% masked, true tokens, weight of each position), of shape [batch, length] each."""

    def mask(index: tf.Tensor, tokens: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        chosen = tf.random.stateless_uniform(tf.shape(tokens), tf.stack([seed, tf.cast(index, tf.int32)])) < 0.15
        return tf.where(chosen, text.MASK, tokens), tokens, tf.cast(chosen, tf.float32)

    windows = tf.data.Dataset.from_tensor_slices(text.token_windows(vocabulary, length))
    batches = windows.shuffle(20_000, seed=seed).repeat().batch(batch, drop_remainder=True)
    options = tf.data.Options()
    options.autotune.enabled = False  # its thread, asleep for up to a minute, is waited for when training is ended early
    return batches.enumerate().map(mask).prefetch(2).with_options(options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--inner", type=int, default=1024)
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mode", choices=["train", "infer"], default="train")
    parser.add_argument("--xla", action="store_true", help="compile the step with XLA (jit_compile=True)")
    parser.add_argument("--log", metavar="FILE", help="write each step's loss, start (monotonic) and seconds as JSON")
    arguments = parser.parse_args()

    tf.keras.utils.set_random_seed(arguments.seed)
    model = Bert(
        arguments.vocabulary,
        arguments.hidden,
        arguments.layers,
        arguments.heads,
        arguments.inner,
        arguments.length,
        arguments.dropout,
    )
    optimizer = tf.keras.optimizers.Adam(1e-4)

    def loss_of(tokens: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor, training: bool) -> tf.Tensor:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(tokens, training=training))
        return tf.reduce_sum(losses * weights) / tf.reduce_sum(weights)

    @tf.function(jit_compile=arguments.xla or None)
    def train(tokens: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_of(tokens, labels, weights, training=True)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    @tf.function(jit_compile=arguments.xla or None)
    def infer(tokens: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        return loss_of(tokens, labels, weights, training=False)

    step = train if arguments.mode == "train" else infer
    losses, starts, seconds = [], [], []
    batches = masked_batches(arguments.batch, arguments.length, arguments.vocabulary, arguments.seed)
    try:
        for i, batch in enumerate(batches.take(arguments.steps)):
            start = time.monotonic()
            loss = float(step(*batch))
            seconds.append(time.monotonic() - start)
            starts.append(start)
            losses.append(loss)
            if i % 20 == 0 or i == arguments.steps - 1:
                print(f"step {i:5d}  loss {loss:.6f}  {seconds[-1] * 1e3:8.1f} ms", flush=True)
    except KeyboardInterrupt:  # training may be ended early; the log is written all the same
        pass
    if arguments.log:
        with open(arguments.log, "w", encoding="utf-8") as log:
            json.dump({"losses": losses, "starts": starts, "seconds": seconds}, log)


if __name__ == "__main__":
    main()
