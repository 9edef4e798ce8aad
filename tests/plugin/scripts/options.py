"""Prints the process's optimizer and threading options before, during and after training."""

import json

import tensorflow as tf

v = tf.Variable(tf.ones([8]))


@tf.function
def step(x):
    v.assign_sub(tf.tanh(v) * x)
    return tf.reduce_sum(v)


def options():
    config = tf.config
    return [
        {key: str(value) for key, value in sorted(config.optimizer.get_experimental_options().items())},
        str(config.optimizer.get_jit()),
        config.threading.get_inter_op_parallelism_threads(),
        config.threading.get_intra_op_parallelism_threads(),
        config.experimental.is_op_determinism_enabled()
        if hasattr(config.experimental, "is_op_determinism_enabled")
        else None,
    ]


found = [options()]
for i in range(60):
    step(tf.constant(0.01))
    if i % 20 == 0:
        found.append(options())
tf.config.optimizer.set_experimental_options({"constant_folding": False})
for _ in range(20):
    step(tf.constant(0.01))
found.append(options())
print(json.dumps(found))
