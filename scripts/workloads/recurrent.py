"""Shared by the two recognizers: stacked bidirectional LSTMs, and the letters that they write."""

from __future__ import annotations

import tensorflow as tf

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
"""The letters in the pictures and in the recordings."""


class BidirectionalStack(tf.keras.layers.Layer):
    """`layers` bidirectional LSTMs of `units` each, one after the other: [batch, time, features] -> [batch, time, 2 units]."""

    def __init__(self, layers: int, units: int) -> None:
        super().__init__()
        self.layers = [
            tf.keras.layers.Bidirectional(tf.keras.layers.LSTM(units, return_sequences=True)) for _ in range(layers)
        ]

    def call(self, x: tf.Tensor) -> tf.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x
