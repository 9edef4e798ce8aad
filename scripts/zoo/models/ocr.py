"""keras-ocr (Fausto Morales): its text recognizer (a spatial transformer, a CRNN) with the CTC loss, through `fit`."""

import numpy as np
from job import fit, integers, normal, options
from keras_ocr import recognition

arguments = options()
parameters = {**recognition.DEFAULT_BUILD_PARAMS, "height": 31, "width": 120}
_, _, model, _ = recognition.build_model("abcdefghijklmnopqrstuvwxyz", **parameters)
rows = 32
images, labels = normal(rows, 31, 120, 1), integers(26, rows, 28).astype("float64")
times, lengths = np.full([rows, 1], 28.0), np.full([rows, 1], 6.0)
fit(
    model,
    [images, labels, times, lengths],
    np.zeros([rows, 1], np.float32),
    arguments,
    8,
    lambda _, found: found,
    "rmsprop",
)
