"""What the scripts of this folder share: the data of a rank, and what it says at its end.

The scripts know nothing of stitchfleet. Each writes FOLDER/RANK.json with its losses and a digest of its weights' bits.

Momentum, not Adam: rounding must not grow while they train, or nothing can be compared. Inputs that differ by one unit in the last
place moved a loss of tape.py within 240 plain steps by 37% with Adam(0.01), by 3.7e-7 with SGD(0.05, momentum=0.9).
"""

import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np

WIDTH = 64


def data(rank, rows=512):
    """The rank's own rows: float32 (rows, WIDTH)."""
    return np.random.default_rng(100 + rank).random((rows, WIDTH), dtype=np.float32)


def keras_network():
    """A Keras network of WIDTH numbers to as many, and its optimizer, with the same values in each process."""
    import tensorflow as tf

    tf.keras.utils.set_random_seed(11)
    network = tf.keras.Sequential(
        [
            tf.keras.layers.Input((WIDTH,)),
            tf.keras.layers.Dense(64, activation="gelu"),
            tf.keras.layers.LayerNormalization(epsilon=1e-5),
            tf.keras.layers.Dense(WIDTH),
        ]
    )
    return network, tf.keras.optimizers.legacy.SGD(0.05, momentum=0.9)


def finish(folder, rank, losses, weights):
    """weights: arrays."""
    digest = hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in weights)).hexdigest()
    found = {"rank": rank, "losses": [float(loss) for loss in losses], "weights": digest}
    pathlib.Path(folder, f"{rank}.json").write_text(json.dumps(found))


REST_SECONDS = 2.0 * max(1.0, float(os.environ.get("STITCHFLEET_TEST_PACE", "1")))


def _work_beside_the_ranks():
    """Processor seconds of all processes that this rank and those of the same launcher have started: one rank's compile service
    works for all. Not of the ranks' own threads: Horovod's never rests."""
    parents, seconds = {}, {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
            seconds[int(entry.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    ranks = {child for child, parent in parents.items() if parent == os.getppid()}
    below, growing = set(ranks), True
    while growing:
        more = {child for child, parent in parents.items() if parent in below} - below
        below |= more
        growing = bool(more)
    return sum(seconds.get(child, 0.0) for child in below - ranks)


def _rank():
    return os.environ.get("HOROVOD_RANK") or os.environ["OMPI_COMM_WORLD_RANK"]


def fault(number):
    """What FAULT asks for on the rank FAULT_RANK: "kill N" or "stop N" before step N; stopped for 5 seconds."""
    kind, _, step = os.environ.get("FAULT", "").partition(" ")
    if kind and int(step) == number and _rank() == os.environ.get("FAULT_RANK", "1"):
        if kind == "stop":
            subprocess.Popen(["sh", "-c", f"sleep 5; kill -CONT {os.getpid()}"])
        os.kill(os.getpid(), signal.SIGKILL if kind == "kill" else signal.SIGSTOP)


def rest(longest):
    """Returns when the processes that the ranks have started are at rest, or after `longest` seconds; 0: at once."""
    end = time.monotonic() + longest
    used, since = _work_beside_the_ranks(), time.monotonic()
    while time.monotonic() < end:
        time.sleep(min(0.1, longest))
        now = _work_beside_the_ranks()
        if now - used > 0.05 or now < used:
            used, since = now, time.monotonic()
        elif time.monotonic() - since >= REST_SECONDS:
            return


def arguments():
    """FOLDER STEPS [SECONDS]: for the results, how many steps, how long to pause after step 14."""
    return sys.argv[1], int(sys.argv[2]), float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
