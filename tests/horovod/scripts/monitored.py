"""A v1 MonitoredTrainingSession with DistributedOptimizer and BroadcastGlobalVariablesHook. monitored.py FOLDER STEPS [SECONDS]

Rank 0 alone has a hook that logs every 10 steps, as scripts do it: its fetches differ from the others' in those steps.
"""

import horovod.tensorflow as hvd
import model
import tensorflow as tf

v1 = tf.compat.v1
folder, steps, pause = model.arguments()
v1.disable_eager_execution()
hvd.init()
v1.set_random_seed(5)
x = v1.placeholder(tf.float32, [None, model.WIDTH])
w = v1.get_variable("w", [model.WIDTH, model.WIDTH], initializer=v1.glorot_uniform_initializer(seed=1))
hidden = tf.nn.gelu(tf.matmul(x, w))
mean, variance = tf.nn.moments(hidden, [-1], keepdims=True)
loss = tf.reduce_mean(tf.square((hidden - mean) * tf.math.rsqrt(variance + 1e-6) - x))
step = v1.train.get_or_create_global_step()
train = hvd.DistributedOptimizer(v1.train.MomentumOptimizer(0.05, 0.9)).minimize(loss, global_step=step)
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
