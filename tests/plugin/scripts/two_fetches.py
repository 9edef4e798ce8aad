"""Two training fetch sets of one v1 session, in turn. TensorFlow is asked to optimize their graphs in one pass.

two_fetches.py ROUNDS [SECONDS]: after some rounds it pauses for so long.
"""

import json
import sys

import numpy as np
import tensorflow as tf
from resting import rest

v1 = tf.compat.v1
rounds = int(sys.argv[1])
pause = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0


def network(inputs, name, outputs):
    hidden = inputs
    for layer, units in enumerate((96, 96, outputs)):
        start = v1.glorot_uniform_initializer(seed=layer + 1)
        hidden = hidden @ v1.get_variable(f"{name}{layer}", [hidden.shape[1], units], initializer=start)
        if layer < 2:
            hidden = tf.nn.gelu(hidden)
            mean, variance = tf.nn.moments(hidden, [-1], keepdims=True)
            hidden = (hidden - mean) * tf.math.rsqrt(variance + 1e-6)
    return hidden


config = v1.ConfigProto()
config.graph_options.rewrite_options.meta_optimizer_iterations = 1
with tf.Graph().as_default(), v1.Session(config=config) as session:
    x = v1.placeholder(tf.float32, [128, 16])
    losses = [tf.reduce_mean(tf.square(network(x, name, 16) - x)) for name in ("encoder", "decoder")]
    train = [
        v1.train.AdamOptimizer(1e-3).minimize(loss, name=f"train_{name}")
        for loss, name in zip(losses, ("encoder", "decoder"))
    ]
    session.run(v1.global_variables_initializer())
    data = np.random.default_rng(3).standard_normal((128, 16)).astype(np.float32)
    seen = []
    for number in range(rounds):
        if number == 24:
            rest(pause)
        seen.append([float(session.run([loss, step], {x: data})[0]) for loss, step in zip(losses, train)])
print(json.dumps(seen))
