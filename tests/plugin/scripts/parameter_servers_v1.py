"""Training with a parameter server as TF1 has it: two tasks of this process, variables placed on the first by replica_device_setter,
the step on the second, in a session of the second's server. Prints the losses and the weights."""

import json
import socket
import sys

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
v1.disable_eager_execution()
steps = int(sys.argv[1])


def address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


cluster = tf.train.ClusterSpec({"ps": [address()], "worker": [address()]})
parameters = tf.distribute.Server(cluster, "ps", 0)
worker = tf.distribute.Server(cluster, "worker", 0)
with tf.Graph().as_default():
    with v1.device(v1.train.replica_device_setter(cluster=cluster, worker_device="/job:worker/task:0")):
        x, y = v1.placeholder(tf.float32, [32, 16]), v1.placeholder(tf.float32, [32])
        weights = v1.get_variable(
            "weights", [16, 8], initializer=v1.constant_initializer(0.1), use_resource="--ref" not in sys.argv
        )
        bias = v1.get_variable("bias", [8], initializer=v1.zeros_initializer(), use_resource="--ref" not in sys.argv)
        hidden = tf.nn.softplus(tf.matmul(x, weights) + bias)
        found = tf.reduce_sum(tf.tanh(hidden) * 0.5 + tf.sigmoid(hidden), axis=1)
        loss = tf.reduce_mean(tf.square(found - y))
        step = v1.train.get_or_create_global_step()
        train = v1.train.AdamOptimizer(0.01).minimize(loss, global_step=step)
        initialize = v1.global_variables_initializer()
    rng = np.random.default_rng(1)
    losses = []
    with v1.Session(worker.target) as session:
        session.run(initialize)
        for _ in range(steps):
            data = rng.standard_normal((32, 16)).astype(np.float32)
            losses.append(float(session.run([loss, train], {x: data, y: data.sum(1)})[0]))
        print(json.dumps([losses[:3], losses[-1], float(session.run(tf.reduce_sum(weights)))]))
