"""The other ways to call what tf.function has traced: a concrete function, a gradient outside, a SavedModel's signature,
wrap_function, steps in a MirroredStrategy's threads, a step inside a py_function. Prints each one's results."""

import json
import tempfile

import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
x = tf.random.stateless_normal([32, 32], [1, 2])
v = tf.Variable(x)
seen = {}


def body(t):
    y = tf.nn.softmax(tf.tanh(t) * 2.0 + v)
    return tf.reduce_mean(tf.exp(-y) * y)


def often(name, call, times=40):
    seen[name] = [float(call(x * (0.01 * i))) for i in range(times)]


concrete = tf.function(body, input_signature=[tf.TensorSpec([32, 32])]).get_concrete_function()
often("concrete", concrete)

outer = tf.function(lambda t: tf.reduce_sum(tf.nn.gelu(t) * tf.sigmoid(t) + v))


def gradient(t):
    with tf.GradientTape() as tape:
        tape.watch(t)
        loss = outer(t)
    return tf.reduce_sum(tape.gradient(loss, t))


often("gradient", gradient)


class Module(tf.Module):
    def __init__(self):
        self.v = v

    @tf.function(input_signature=[tf.TensorSpec([32, 32])])
    def served(self, t):
        return body(t)


with tempfile.TemporaryDirectory() as folder:
    module = Module()
    tf.saved_model.save(module, folder, signatures=module.served)
    loaded = tf.saved_model.load(folder)
    signature = loaded.signatures["serving_default"]
    often("signature", lambda t: next(iter(signature(t).values())))
    often("loaded", loaded.served)

wrapped = tf.compat.v1.wrap_function(lambda t: tf.reduce_sum(tf.exp(-t) * tf.tanh(t)), [tf.TensorSpec([32, 32])])
often("wrapped", wrapped)

strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
replica_step = tf.function(lambda t: tf.reduce_sum(tf.exp(-t) * tf.sigmoid(t) + 1.0))
often("replicas", lambda t: strategy.reduce("SUM", strategy.run(replica_step, args=(t,)), axis=None))
distributed = tf.function(
    lambda t: strategy.reduce("SUM", strategy.run(lambda u: tf.reduce_sum(tf.exp(-u) * u), args=(t,)), axis=None)
)
often("distributed", distributed)

inner = tf.function(lambda t: tf.reduce_sum(tf.exp(-t) * tf.nn.relu(t) + 2.0))
often("py_function", lambda t: tf.py_function(inner, [t], tf.float32))
print(json.dumps(seen))
