"""What elastic.py must have computed, in one plain process. elastic_replay.py RESULT: prints the losses of RESULT's rank as JSON.

RESULT is a file that elastic.py wrote. In each of its steps the gradients are the mean over as many ranks as there were.
"""

import json
import pathlib
import sys

import model
import tensorflow as tf
from elastic import elastic_model


def step_of_all_ranks(loss_of, variables, optimizer):
    """A function that trains on the inputs of all ranks, a list, by the mean of their gradients. It returns each rank's loss."""

    @tf.function
    def train(xs):
        losses, gradients = [], []
        for x in xs:
            with tf.GradientTape() as tape:
                losses.append(loss_of(x))
            gradients.append(tape.gradient(losses[-1], variables))
        means = [tf.add_n(parts) / len(xs) for parts in zip(*gradients)]
        optimizer.apply_gradients(zip(means, variables))
        return losses

    return train


def main():
    found = json.loads(pathlib.Path(sys.argv[1]).read_text())
    train = step_of_all_ranks(*elastic_model())
    losses = []
    for step in range(int(max(found["steps"], key=int)) + 1):
        size = found["steps"][str(step)][1]
        losses.append(float(train([tf.constant(model.data(rank)) for rank in range(size)])[found["rank"]]))
    print(json.dumps(losses))


if __name__ == "__main__":
    main()
