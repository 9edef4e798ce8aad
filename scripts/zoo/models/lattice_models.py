"""TensorFlow Lattice: calibrators, monotonic lattices in an ensemble, through `fit`."""

import numpy as np
import tensorflow_lattice as tfl
from job import fit, integers, normal, options, tf

arguments = options()
inputs, found = [], []
for _ in range(8):
    given = tf.keras.Input((1,))
    inputs.append(given)
    found.append(
        tfl.layers.PWLCalibration(np.linspace(-3, 3, 20), output_min=0.0, output_max=1.0, monotonicity="increasing")(
            given
        )
    )
lattices = [
    tfl.layers.Lattice([2] * 4, monotonicities=["increasing"] * 4, output_min=0.0, output_max=1.0)(
        [found[(i + k) % 8] for k in range(4)]
    )
    for i in range(8)
]
output = tfl.layers.PWLCalibration(np.linspace(0, 1, 10), output_min=0.0, output_max=1.0)(
    tf.keras.layers.Average()(lattices)
)
model = tf.keras.Model(inputs, output)
data = [normal(4096, 1) for _ in range(8)]
fit(model, data, integers(2, 4096).astype("float32"), arguments, 256, "mse", tf.keras.optimizers.legacy.Adam(0.01))
