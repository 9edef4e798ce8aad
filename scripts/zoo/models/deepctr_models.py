"""Click prediction with DeepCTR's models, through `fit`. It asks for the Keras within TensorFlow, which left it."""

import sys

import numpy as np
import tensorflow as tf

for part in ("layers", "models", "backend", "regularizers", "initializers", "utils", "activations"):
    sys.modules[f"tensorflow.python.keras.{part}"] = getattr(tf.keras, part)
import tensorflow.python.keras as within

within.backend = tf.keras.backend
from deepctr.feature_column import DenseFeat, SparseFeat, VarLenSparseFeat, get_feature_names
from deepctr.models import DIN, AutoInt, DCNMix, DeepFM, xDeepFM
from job import fit, integers, normal, options

MODELS = {"deepfm": DeepFM, "xdeepfm": xDeepFM, "autoint": AutoInt, "dcn": DCNMix, "din": DIN}
arguments = options(*MODELS)
rows, batch = 4096, 512
if arguments.model == "din":
    columns = [
        SparseFeat("user", 100, embedding_dim=16),
        SparseFeat("item", 500, embedding_dim=16),
        DenseFeat("price", 1),
    ]
    history = SparseFeat("hist_item", 500, embedding_dim=16, embedding_name="item")
    columns.append(VarLenSparseFeat(history, maxlen=20, length_name="length"))
    features = {
        "user": integers(100, rows),
        "item": integers(500, rows),
        "price": normal(rows),
        "hist_item": integers(500, rows, 20),
        "length": integers(19, rows) + 1,
    }
    model = DIN(columns, ["item"], dnn_hidden_units=(128, 64), att_activation="sigmoid", att_hidden_size=(64, 16))
else:
    sparse = [SparseFeat(f"C{i}", 1000, embedding_dim=16) for i in range(26)]
    dense = [DenseFeat(f"I{i}", 1) for i in range(13)]
    columns = sparse + dense
    features = {f"C{i}": integers(1000, rows) for i in range(26)} | {f"I{i}": normal(rows) for i in range(13)}
    model = MODELS[arguments.model](columns, columns, dnn_hidden_units=(128, 64), task="binary")
inputs = {name: features[name] for name in get_feature_names(columns)}
fit(model, inputs, integers(2, rows).astype(np.float32), arguments, batch, "binary_crossentropy", metrics=["AUC"])
