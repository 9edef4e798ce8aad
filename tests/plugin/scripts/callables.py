"""Graph mode without `Session.run`: callables of a session."""

import json

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
v1.disable_v2_behavior()
v1.set_random_seed(3)
rng = np.random.default_rng(0)
seen = []
with tf.Graph().as_default() as graph:
    inputs = v1.placeholder(tf.float32, [32, 16])
    weights = v1.get_variable("v", [16, 4], initializer=v1.glorot_uniform_initializer(seed=1))
    y = tf.nn.softmax(tf.matmul(inputs, weights))
    loss = tf.reduce_mean(tf.exp(-y) * tf.tanh(y))
    train = v1.train.AdamOptimizer(0.01).minimize(loss)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        step = session.make_callable([loss, train], feed_list=[inputs])
        only_train = session.make_callable(train, feed_list=[inputs])
        only_loss = session.make_callable(loss, feed_list=[inputs])
        before = len(graph.get_operations())
        x = rng.random([32, 16], dtype=np.float32)
        for _ in range(80):
            seen.append(float(step(x)[0]))
            assert only_train(x) is None
            seen.append(float(only_loss(x)))
        assert len(graph.get_operations()) == before, "the graph lists operations that are not the user's"
print(json.dumps(seen))
