"""A v1 MonitoredTrainingSession with DistributedOptimizer and BroadcastGlobalVariablesHook. monitored.py FOLDER STEPS [SECONDS]

Rank 0 alone has a hook that logs every 10 steps, as scripts do it: its fetches differ from the others' in those steps.
In the environment, PASSES=2: gradients are reduced in every second step only; CONTROL_FLOW=1: branches are those of TensorFlow 1.
"""

import os

import horovod.tensorflow as hvd
import model
import tensorflow as tf

v1 = tf.compat.v1
folder, steps, pause = model.arguments()
v1.disable_eager_execution()
if os.environ.get("CONTROL_FLOW"):
    v1.disable_control_flow_v2()
hvd.init()
v1.set_random_seed(5)
x = v1.placeholder(tf.float32, [None, model.WIDTH])
w = v1.get_variable("w", [model.WIDTH, model.WIDTH], initializer=v1.glorot_uniform_initializer(seed=1))
hidden = tf.nn.gelu(tf.matmul(x, w))
mean, variance = tf.nn.moments(hidden, [-1], keepdims=True)
loss = tf.reduce_mean(tf.square((hidden - mean) * tf.math.rsqrt(variance + 1e-6) - x))
step = v1.train.get_or_create_global_step()
passes = int(os.environ.get("PASSES", "1"))
optimizer = hvd.DistributedOptimizer(v1.train.MomentumOptimizer(0.05, 0.9), backward_passes_per_step=passes)
train = optimizer.minimize(loss, global_step=step)
hooks = [hvd.BroadcastGlobalVariablesHook(0)]
if hvd.rank() == 0:
    hooks.append(v1.train.LoggingTensorHook({"mean": tf.reduce_mean(hidden)}, every_n_iter=10))
rows = model.data(hvd.rank())
losses = []
with v1.train.MonitoredTrainingSession(hooks=hooks) as session:
    for number in range(steps):
        if number == 14:
            model.rest(pause)
        losses.append(session.run([loss, train], {x: rows})[0])
    weights = session._tf_sess().run(w)
model.finish(folder, hvd.rank(), losses, [weights])
