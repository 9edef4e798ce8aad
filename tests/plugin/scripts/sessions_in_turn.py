"""A search over settings, as one writes it with v1 sessions: a graph and a session for each, with the same names in all.

sessions_in_turn.py GRAPHS STEPS. Prints the last loss of each as JSON.
"""

import json
import sys

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
v1.disable_eager_execution()
graphs, steps = int(sys.argv[1]), int(sys.argv[2])
data = np.random.default_rng(3).standard_normal((32, 16)).astype(np.float32)
last = []
for k in range(graphs):
    with tf.Graph().as_default():
        v1.set_random_seed(5)
        x = v1.placeholder(tf.float32, (32, 16), name="x")
        w = v1.get_variable("w", (16, 16), initializer=v1.glorot_uniform_initializer())
        h = v1.nn.dropout(tf.tanh(x @ w), rate=0.1)
        h = h * 0.5 + tf.exp(-h * h) if k % 2 else tf.sigmoid(h) - h / 3.0
        loss = tf.reduce_mean(tf.square(h), name="loss")
        train = v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss, name="train")
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for _ in range(steps):
                _, value = session.run((train, loss), {x: data})
    last.append(float(value))
print(json.dumps(last))
