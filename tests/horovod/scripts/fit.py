"""Keras 2 `fit` with Horovod's optimizer and callbacks. fit.py FOLDER STEPS [SECONDS]

In the environment, PASSES=2: gradients are reduced in every second step only; EXECUTION=4: so many steps in one call.
"""

import os

import horovod.tensorflow.keras as hvd
import model
import tensorflow as tf

folder, steps, pause = model.arguments()
hvd.init()
network, optimizer = model.keras_network()
passes, execution = (int(os.environ.get(name, "1")) for name in ("PASSES", "EXECUTION"))
optimizer = hvd.DistributedOptimizer(optimizer, backward_passes_per_step=passes)
network.compile(optimizer, "mse", steps_per_execution=execution)
x = model.data(hvd.rank())
losses = []


class Losses(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        losses.append(logs["loss"])
        if len(losses) == 14:
            model.rest(pause)


callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback(), Losses()]
per_epoch = len(x) // 32
network.fit(x, x, batch_size=32, epochs=-(-steps // per_epoch), verbose=0, callbacks=callbacks)
model.finish(folder, hvd.rank(), losses, network.get_weights())
