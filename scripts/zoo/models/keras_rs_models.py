"""A recommender of `keras_rs`, on Keras 3: embeddings of 12 columns and numbers, crossed (DCN) or multiplied in pairs (DLRM)."""

import keras
import keras_rs
import numpy as np
from job import fit, integers, normal, options

ROWS, COLUMNS, WORDS = 8192, 12, 1000
arguments = options("cross", "dot")
columns = [keras.Input((), dtype="int32", name=f"column_{i}") for i in range(COLUMNS)]
numbers = keras.Input((8,), name="numbers")
looked_up = [keras.layers.Embedding(WORDS, 16)(column) for column in columns]
dense = keras.layers.Dense(16, "relu")(keras.layers.BatchNormalization()(numbers))
if arguments.model == "cross":
    features = keras.layers.Concatenate()([*looked_up, dense])
    crossed = keras_rs.layers.FeatureCross(projection_dim=32)(features, features)
    crossed = keras_rs.layers.FeatureCross(projection_dim=32)(features, crossed)
else:
    crossed = keras.layers.Concatenate()([dense, keras_rs.layers.DotInteraction()([*looked_up, dense])])
for width in (128, 64):
    crossed = keras.layers.Dropout(0.1)(keras.layers.Dense(width, "relu")(crossed))
model = keras.Model([*columns, numbers], keras.layers.Dense(1, "sigmoid")(crossed))
inputs = [*np.moveaxis(integers(WORDS, ROWS, COLUMNS), 1, 0), normal(ROWS, 8)]
fit(model, inputs, integers(2, ROWS).astype("float32"), arguments, 512, "binary_crossentropy", metrics=["AUC"])
