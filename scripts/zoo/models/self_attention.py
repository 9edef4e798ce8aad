"""Attention layers of keras-self-attention (CyberZHG) over an LSTM, through `fit`."""

import os

os.environ["TF_KERAS"] = "1"
from job import fit, integers, options, tf
from keras_self_attention import SeqSelfAttention

arguments = options()
layers = tf.keras.layers
model = tf.keras.Sequential(
    [
        layers.Embedding(2000, 64),
        layers.Bidirectional(layers.LSTM(64, return_sequences=True)),
        SeqSelfAttention(units=32, attention_activation="sigmoid"),
        layers.GlobalMaxPool1D(),
        layers.Dense(2),
    ]
)
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
fit(model, integers(2000, 256, 60), integers(2, 256), arguments, 32, loss)
