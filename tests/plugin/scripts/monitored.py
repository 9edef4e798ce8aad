"""A v1 MonitoredTrainingSession with its default hooks and a legacy Adam; prints the losses.

monitored.py STEPS [FOLDER [SECONDS]]: FOLDER for checkpoints ("": none); pauses so long after some steps.
"""

import json
import sys

import numpy as np
import tensorflow as tf
from resting import rest

v1 = tf.compat.v1
v1.disable_eager_execution()
v1.set_random_seed(5)
x = v1.placeholder(tf.float32, [None, 16])
w = v1.get_variable("w", [16, 16], initializer=v1.glorot_uniform_initializer(seed=1))
hidden = tf.nn.dropout(tf.nn.softmax(tf.matmul(x, w)), rate=0.1, seed=3)
mean, variance = tf.nn.moments(hidden, [-1], keepdims=True)
loss = tf.reduce_mean(tf.square((hidden - mean) * tf.math.rsqrt(variance + 1e-6) - x))
step = v1.train.get_or_create_global_step()
train = v1.train.AdamOptimizer(0.01).minimize(loss, global_step=step)
data = np.random.RandomState(0).rand(32, 16).astype("float32")
losses = []
with v1.train.MonitoredTrainingSession(checkpoint_dir=(sys.argv[2] if len(sys.argv) > 2 else "") or None) as session:
    for i in range(int(sys.argv[1])):
        if i == 14 and len(sys.argv) > 3:
            rest(float(sys.argv[3]))
        losses.append(float(session.run([loss, train], {x: data})[0]))
print(json.dumps(losses))
