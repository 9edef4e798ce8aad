"""Keras 2 `fit` in a job whose ranks may leave and join (hvd.elastic.KerasState and its callbacks).

elastic_fit.py FOLDER STEPS [SECONDS]: as elastic.py, with the same results. An epoch has BATCHES batches, in the order of the
rank's rows; a step's loss is the mean of its epoch's so far, as Keras gives it. The world changes between epochs.
elastic_fit.py --replay RESULT: prints the losses of RESULT's rank as JSON, computed in one plain process.
"""

import json
import os
import pathlib
import sys

import horovod.tensorflow.keras as hvd
import model
import tensorflow as tf
from elastic import digest, stitched_steps
from elastic_replay import step_of_all_ranks

BATCHES, ROWS = 16, 32


class Steps(tf.keras.callbacks.Callback):
    """Notes each step, and changes the world once `steps` steps were taken in the first one. Of an epoch that another rank's leaving
    cut short, the steps are noted anew."""

    def __init__(self, state, steps, pause):
        super().__init__()
        self.state, self.steps, self.pause = state, steps, pause
        self.log, self.taken, self.before = {}, 0, 0

    def on_train_batch_begin(self, batch, logs=None):
        if self.taken == 14:
            model.rest(self.pause)
        self.before, _ = stitched_steps("train_function")

    def on_train_batch_end(self, batch, logs=None):
        self.taken += 1
        count, is_stitched = stitched_steps("train_function")
        step = self.state.epoch * BATCHES + batch
        weights = digest(self.model.variables)
        self.log[step] = [logs["loss"], hvd.size(), int(is_stitched and count > self.before), weights]

    def on_epoch_begin(self, epoch, logs=None):
        is_first = hvd.size() == self.state.first_size
        if is_first and self.state.epoch * BATCHES >= self.steps and hvd.rank() == hvd.size() - 1:
            pathlib.Path(os.environ["HOSTS"]).write_text(os.environ["NEXT_HOSTS"])

    def on_epoch_end(self, epoch, logs=None):
        self.state.together += BATCHES * (hvd.size() != self.state.first_size)
        self.model.stop_training = self.state.together >= self.steps


def train(folder, steps, pause):
    hvd.init()
    network, optimizer = model.keras_network()
    optimizer = hvd.DistributedOptimizer(optimizer)
    optimizer._create_all_weights(network.trainable_variables)
    network.compile(optimizer, "mse")
    state = hvd.elastic.KerasState(network, epoch=0, together=0, first_size=0)
    noted = Steps(state, steps, pause)

    @hvd.elastic.run
    def run(state):
        state.first_size = state.first_size or hvd.size()
        x = model.data(hvd.rank(), BATCHES * ROWS)
        # the state's epoch is counted before it is committed, where a change of the world ends the fit
        callbacks = [
            noted,
            hvd.elastic.UpdateEpochStateCallback(state),
            hvd.elastic.CommitStateCallback(state, 1 << 30),
        ]
        network.fit(x, x, batch_size=ROWS, shuffle=False, epochs=1 << 20, verbose=0, callbacks=callbacks)

    run(state)
    weights = digest([*network.variables, *optimizer.variables()])
    found = {"rank": hvd.rank(), "pid": os.getpid(), "weights": weights, "steps": noted.log}
    pathlib.Path(folder, f"{os.getpid()}.json").write_text(json.dumps(found))


def replay(result):
    found = json.loads(pathlib.Path(result).read_text())
    network, optimizer = model.keras_network()

    def loss_of(x):
        return tf.reduce_mean(tf.square(network(x, training=True) - x))

    train_on = step_of_all_ranks(loss_of, network.trainable_variables, optimizer)
    losses, epoch = [], []
    for step in range(int(max(found["steps"], key=int)) + 1):
        size, batch = found["steps"][str(step)][1], step % BATCHES
        rows = slice(batch * ROWS, (batch + 1) * ROWS)
        xs = [tf.constant(model.data(rank, BATCHES * ROWS)[rows]) for rank in range(size)]
        epoch = [] if batch == 0 else epoch
        epoch.append(float(train_on(xs)[found["rank"]]))
        losses.append(sum(epoch) / len(epoch))
    print(json.dumps(losses))


if __name__ == "__main__":
    replay(sys.argv[2]) if sys.argv[1] == "--replay" else train(*model.arguments())
