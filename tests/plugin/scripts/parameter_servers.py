"""Training with tf.distribute's ParameterServerStrategy: a worker, a parameter server and the coordinator in this process. Prints the
losses and the weights."""

import json
import os
import socket
import sys

import numpy as np
import tensorflow as tf

steps = int(sys.argv[1])


def address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


cluster = {"worker": [address()], "ps": [address()], "chief": [address()]}
servers = [
    tf.distribute.Server(tf.train.ClusterSpec(cluster), job_name=job, task_index=0, protocol="grpc")
    for job in ("worker", "ps")
]
os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "chief", "index": 0}})
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    weights = tf.Variable(tf.fill([16, 8], 0.1))
    optimizer = tf.compat.v1.train.AdamOptimizer(0.01)  # Keras 3's optimizers know no parameter servers


def replica(x: tf.Tensor) -> tf.Tensor:
    with tf.GradientTape() as tape:
        hidden = tf.nn.softplus(tf.matmul(x, weights))
        found = tf.reduce_sum(tf.tanh(hidden) * 0.5 + tf.sigmoid(hidden), axis=1)
        loss = tf.reduce_mean(tf.square(found - tf.reduce_sum(x, axis=1)))
    optimizer.apply_gradients([(tape.gradient(loss, weights), weights)])
    return loss


@tf.function
def step(x: tf.Tensor) -> tf.Tensor:
    return strategy.run(replica, args=(x,))


rng = np.random.default_rng(1)
losses = []
for _ in range(steps):
    data = tf.constant(rng.standard_normal((32, 16)).astype(np.float32))
    losses.append(float(coordinator.schedule(step, args=(data,)).fetch()))
coordinator.join()
# On this process' own devices: an evaluation on the coordinator.
evaluate = tf.function(lambda x: tf.reduce_sum(tf.tanh(x) * tf.exp(-x)))
checked = [float(evaluate(tf.constant(data))) for _ in range(5)]
print(json.dumps([losses[:3], losses[-1], float(tf.reduce_sum(weights.read_value())), checked[-1]]), flush=True)
