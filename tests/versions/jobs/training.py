"""What the jobs share: how long to train, and what to say at the end.

    JOB.py FOLDER           trains until FOLDER/stop is there; feeds a large number once FOLDER/rare is there
    JOB.py FOLDER STEPS     trains for so many steps

Prints {"steps", "loss"} as JSON: those of the last step before the large number.
"""

import json
import os
import sys
import time
from importlib import metadata

import numpy as np

LARGE = 1e6
BATCH, WIDTH = 1024, 64


def data():
    """Inputs [BATCH, WIDTH] float32, labels [BATCH] int32, and the inputs with a large row."""
    random = np.random.default_rng(3)
    inputs = random.standard_normal((BATCH, WIDTH), dtype=np.float32)
    rare = inputs.copy()
    rare[0] = LARGE
    return inputs, random.integers(0, 10, BATCH).astype(np.int32), rare


def train(step):
    """Calls step(inputs, labels) -> loss until it is time to end, and prints the result."""
    folder, limit = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0
    inputs, labels, rare = data()
    steps, loss, is_rare = 0, float("nan"), False
    end = time.monotonic() + 600
    while time.monotonic() < end and (steps < limit if limit else not os.path.exists(os.path.join(folder, "stop"))):
        is_rare = is_rare or (not limit and os.path.exists(os.path.join(folder, "rare")))
        found = step(rare if is_rare else inputs, labels)
        if not is_rare:
            steps, loss = steps + 1, float(found)
    keras = metadata.version("tf_keras" if os.environ.get("TF_USE_LEGACY_KERAS") else "keras")
    print(json.dumps({"steps": steps, "loss": loss, "keras": keras}))
