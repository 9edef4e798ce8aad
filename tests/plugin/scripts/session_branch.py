"""A v1 session on the default graph whose optimizer, which makes variables of its own, stands in a branch: it sums gradients up and
takes every second step, as gradient accumulation is written; prints the losses, and what there was of TensorFlow before it began."""

import json
import sys

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

before = context.context_safe()
v1 = tf.compat.v1
v1.disable_eager_execution()
v1.set_random_seed(5)
x = v1.placeholder(tf.float32, [None, 16])
w = v1.get_variable("w", [16, 16], initializer=v1.glorot_uniform_initializer(seed=1))
summed = v1.get_variable("summed", [16, 16], initializer=v1.zeros_initializer(), trainable=False)
counter = v1.get_variable("counter", [], tf.int32, v1.zeros_initializer(), trainable=False)
loss = tf.reduce_mean(tf.square(tf.nn.softmax(tf.tanh(tf.matmul(x, w)) * 2.0) - x))
optimizer = v1.train.MomentumOptimizer(0.5, 0.9)
((gradient, _),) = optimizer.compute_gradients(loss, [w])


def take_step():
    with tf.control_dependencies([optimizer.apply_gradients([(summed.read_value(), w)])]):
        return tf.group(summed.assign(tf.zeros_like(summed)), counter.assign(0))


with tf.control_dependencies([summed.assign_add(gradient), counter.assign_add(1)]):
    train = tf.cond(tf.equal(counter.read_value(), 2), take_step, tf.no_op)
losses = []
with v1.Session() as session:
    session.run(v1.global_variables_initializer())
    for _ in range(int(sys.argv[1])):
        losses.append(float(session.run([loss, train], {x: np.random.RandomState(0).rand(32, 16)})[0]))
print(json.dumps({"losses": losses, "before": repr(before)}))
