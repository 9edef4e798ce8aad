"""A plain v1 Session, gradient descent by hand; prints the losses."""

import json
import sys

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
with tf.Graph().as_default():
    v1.set_random_seed(5)
    x = v1.placeholder(tf.float32, [None, 16])
    w = v1.get_variable("w", [16, 16], initializer=v1.glorot_uniform_initializer(seed=1))
    loss = tf.reduce_mean(tf.square(tf.nn.softmax(tf.tanh(tf.matmul(x, w)) * 2.0) - x))
    train = v1.train.GradientDescentOptimizer(0.5).minimize(loss)
    losses = []
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for _ in range(int(sys.argv[1])):
            losses.append(float(session.run([loss, train], {x: np.random.RandomState(0).rand(32, 16)})[0]))
print(json.dumps(losses))
