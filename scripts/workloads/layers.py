"""Attention, and the blocks of BERT, the Transformer and the language model. Plain Keras layers."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

OUT_OF_SIGHT = -1e9
"""Added to the scores of positions that must not be attended to."""


class Attention(tf.keras.layers.Layer):
    """Multi-head scaled dot-product attention (Vaswani et al. 2017, section 3.2.2) of x, [batch, length, hidden], to memory, [batch,
    source length, hidden]. `mask` is added to the scores, [batch, heads, length, source length]. The result has the shape of x."""

    def __init__(self, hidden: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.size = heads, hidden // heads
        self.query, self.key, self.value, self.out = (tf.keras.layers.Dense(hidden) for _ in range(4))
        self.dropout = tf.keras.layers.Dropout(dropout)

    def split(self, x: tf.Tensor) -> tf.Tensor:
        """[batch, length, hidden] -> [batch, heads, length, size]."""
        shape = tf.shape(x)
        return tf.transpose(tf.reshape(x, [shape[0], shape[1], self.heads, self.size]), [0, 2, 1, 3])

    def attend(
        self, x: tf.Tensor, query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, mask: tf.Tensor, training: bool
    ) -> tf.Tensor:
        """Attention with query, key and value already split, [batch, heads, length, size]. The result has the shape of x."""
        scores = tf.matmul(query, key, transpose_b=True) / tf.sqrt(tf.cast(self.size, query.dtype))
        weights = self.dropout(tf.nn.softmax(scores + tf.cast(mask, scores.dtype)), training=training)
        merged = tf.transpose(tf.matmul(weights, value), [0, 2, 1, 3])
        return self.out(tf.reshape(merged, tf.shape(x)))

    def call(self, x: tf.Tensor, memory: tf.Tensor, mask: tf.Tensor, training: bool) -> tf.Tensor:
        query, key, value = self.split(self.query(x)), self.split(self.key(memory)), self.split(self.value(memory))
        return self.attend(x, query, key, value, mask, training)


class Block(tf.keras.layers.Layer):
    """A layer of an encoder, which maps [batch, length, hidden] to the same shape: self-attention and a feed-forward net of `inner`
    units, each added to its input and then normalized."""

    def __init__(
        self,
        hidden: int,
        heads: int,
        inner: int,
        dropout: float,
        activation: str | Callable[[tf.Tensor], tf.Tensor] = "relu",
        epsilon: float = 1e-6,
    ) -> None:
        super().__init__()
        self.attention = Attention(hidden, heads, dropout)
        self.grow = tf.keras.layers.Dense(inner, activation=activation)
        self.shrink = tf.keras.layers.Dense(hidden)
        self.first_norm = tf.keras.layers.LayerNormalization(epsilon=epsilon)
        self.second_norm = tf.keras.layers.LayerNormalization(epsilon=epsilon)
        self.dropout = tf.keras.layers.Dropout(dropout)

    def call(self, x: tf.Tensor, mask: tf.Tensor, training: bool) -> tf.Tensor:
        x = self.first_norm(x + self.dropout(self.attention(x, x, mask, training=training), training=training))
        return self.second_norm(x + self.dropout(self.shrink(self.grow(x)), training=training))


def padding_mask(tokens: tf.Tensor, padding: int) -> tf.Tensor:
    """A mask for Attention, float32 [batch, 1, 1, length], with which no position attends to padding: OUT_OF_SIGHT there, else 0.
    tokens: [batch, length]; those equal to `padding` are padding."""
    attended = tf.cast(tf.not_equal(tokens, padding), tf.float32)
    return (1.0 - attended[:, tf.newaxis, tf.newaxis, :]) * OUT_OF_SIGHT


def causal_mask(length: tf.Tensor | int) -> tf.Tensor:
    """A mask for Attention, float32 [length, length], with which no position attends to later ones: OUT_OF_SIGHT there, else 0."""
    return (1.0 - tf.linalg.band_part(tf.ones([length, length]), -1, 0)) * OUT_OF_SIGHT
