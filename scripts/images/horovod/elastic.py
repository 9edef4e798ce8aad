"""Trains the classifier on ranks that may leave and join while it runs.

horovodrun -np 1 --min-np 1 --max-np 2 --host-discovery-script HOSTS python elastic.py [--steps 400] [--seen-size 2]
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from classifier import CLASSES, LENGTH, TOKENS, make_model

COMMIT_STEPS = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seen-size", type=int, default=1, help="goes on until so many ranks have trained together")
    parser.add_argument("--after", type=int, default=100, help="steps that those take together at least")
    arguments = parser.parse_args()
    hvd.init()
    random = np.random.default_rng(7)
    tokens = random.integers(0, TOKENS, (512, LENGTH), dtype=np.int32)
    classes = (tokens.sum(axis=1) % CLASSES).astype(np.int32)
    tf.keras.utils.set_random_seed(7)
    model = make_model()
    optimizer = tf.keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def step(tokens: tf.Tensor, classes: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_of(classes, model(tokens, training=True))
        tape = hvd.DistributedGradientTape(tape, sparse_as_dense=True)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    @hvd.elastic.run
    def train(state: Any) -> None:
        print(f"{time.time():.2f} rank {hvd.rank()} of {hvd.size()} at step {state.step}", flush=True)
        while state.step < arguments.steps or state.together < arguments.after:
            rows = random.integers(0, len(tokens), arguments.batch)
            loss = step(tf.constant(tokens[rows]), tf.constant(classes[rows]))
            state.step += 1
            state.together += hvd.size() >= arguments.seen_size
            if state.step % COMMIT_STEPS == 0:
                state.commit()
            if state.step % 100 == 0:
                print(f"{time.time():.2f} rank {hvd.rank()} step {state.step} loss {float(loss):.4f}", flush=True)

    # Not TensorFlowState: in eager mode, Horovod 0.28.1's broadcasts when it is created, and a rank that joins waits for ever.
    train(hvd.elastic.TensorFlowKerasState(model, optimizer, step=0, together=0))
    weights = sum(float(tf.reduce_sum(tf.abs(variable))) for variable in model.trainable_variables)
    print(f"rank {hvd.rank()} of {hvd.size()} on {os.uname().nodename} ends with weights {weights:.6f}", flush=True)


if __name__ == "__main__":
    main()
