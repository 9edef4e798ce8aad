"""More ways to run a graph, each often enough to be stitched: more_ways.py WAY ... Prints the results by way."""

import json
import os
import sys
import tempfile

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
TIMES = 40
x = np.random.default_rng(0).random([32, 16], dtype=np.float32)


def body(t):
    y = tf.nn.softmax(tf.tanh(t) * 2.0)
    return tf.reduce_mean(tf.exp(-y) * y)


def v1_loss():
    v1.set_random_seed(3)
    inputs = v1.placeholder(tf.float32, [32, 16], name="inputs")
    weights = v1.get_variable("weights", [16, 4], initializer=v1.glorot_uniform_initializer(seed=1))
    loss = tf.identity(body(inputs @ weights), name="loss")
    return inputs, loss, v1.train.AdamOptimizer(0.01).minimize(loss, name="train")


def keras_model(**options):
    tf.keras.utils.set_random_seed(1)
    model = tf.keras.Sequential(
        [tf.keras.layers.Dense(16, activation="gelu", input_shape=(16,)), tf.keras.layers.Dense(1)]
    )
    model.compile("adam", "mse", **options)
    return model


def interactive_session():
    with tf.Graph().as_default():
        inputs, loss, train = v1_loss()
        session = v1.InteractiveSession()
        v1.global_variables_initializer().run()
        for _ in range(TIMES):
            train.run({inputs: x})
            yield loss.eval({inputs: x})
        session.close()


def train_on_batch():
    model = keras_model()
    for _ in range(TIMES):
        yield model.train_on_batch(x, x[:, :1])


def run_eagerly():
    yield from keras_model(run_eagerly=True).fit(x, x[:, :1], epochs=TIMES, verbose=0, shuffle=False).history["loss"]


def evaluate():
    model = keras_model()
    for number in range(TIMES):
        yield model.evaluate(x * number, x[:, :1], verbose=0)


def predict():
    model = keras_model()
    for number in range(TIMES):
        yield model.predict(x * number, verbose=0).sum()


def test_on_batch():
    model = keras_model()
    for number in range(TIMES):
        yield model.test_on_batch(x * number, x[:, :1])


def predict_on_batch():
    model = keras_model()
    for number in range(TIMES):
        yield np.asarray(model.predict_on_batch(x * number)).sum()


def backend_function():
    with tf.Graph().as_default():
        inputs = v1.placeholder(tf.float32, [32, 16])
        step = v1.keras.backend.function([inputs], [body(inputs)])
        for number in range(TIMES):
            yield step([x * number])[0]


def one_device():
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    step = tf.function(lambda t: strategy.run(body, args=(t,)))
    for number in range(TIMES):
        yield step(tf.constant(x * number))


def one_worker():
    os.environ["TF_CONFIG"] = json.dumps(
        {"cluster": {"worker": ["localhost:0"]}, "task": {"type": "worker", "index": 0}}
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    step = tf.function(lambda t: strategy.reduce("SUM", strategy.run(body, args=(t,)), axis=None))
    for number in range(TIMES):
        yield step(tf.constant(x * number))


def central_storage():
    strategy = tf.distribute.experimental.CentralStorageStrategy(["CPU:0"], parameter_device="CPU:0")
    step = tf.function(lambda t: strategy.reduce("SUM", strategy.run(body, args=(t,)), axis=None))
    for number in range(TIMES):
        yield step(tf.constant(x * number))


def numpy_function():
    inner = tf.function(body)
    outer = tf.function(lambda t: tf.numpy_function(lambda u: inner(tf.constant(u)).numpy(), [t], tf.float32))
    for number in range(TIMES):
        yield outer(tf.constant(x * number))


def saved_model_in_a_session():
    with tempfile.TemporaryDirectory() as folder:
        with tf.Graph().as_default(), v1.Session() as session:
            inputs, loss, _ = v1_loss()
            session.run(v1.global_variables_initializer())
            v1.saved_model.simple_save(session, f"{folder}/model", {"x": inputs}, {"loss": loss})
        with tf.Graph().as_default(), v1.Session() as session:
            v1.saved_model.load(session, ["serve"], f"{folder}/model")
            for number in range(TIMES):
                yield session.run("loss:0", {"inputs:0": x * number})


def supervisor():
    with tempfile.TemporaryDirectory() as folder, tf.Graph().as_default():
        inputs, loss, train = v1_loss()
        supervisor = v1.train.Supervisor(logdir=folder, save_model_secs=0, save_summaries_secs=0)
        with supervisor.managed_session() as session:
            for _ in range(TIMES):
                yield session.run([loss, train], {inputs: x})[0]


def monitored_training_session():
    with tf.Graph().as_default():
        v1.train.get_or_create_global_step()
        inputs, loss, train = v1_loss()
        with v1.train.MonitoredTrainingSession() as session:
            for _ in range(TIMES):
                yield session.run([loss, train], {inputs: x})[0]


def estimator():
    os.environ.pop("TF_CONFIG", None)  # of `one_worker`

    def model(features, labels, mode):
        v1.set_random_seed(3)
        weights = v1.get_variable("weights", [16, 4], initializer=v1.glorot_uniform_initializer(seed=1))
        loss = body(features @ weights)
        v1.add_to_collection("losses", loss)
        train = v1.train.AdamOptimizer(0.01).minimize(loss, v1.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)

    seen = []

    class Losses(v1.train.SessionRunHook):
        def before_run(self, context):
            return v1.train.SessionRunArgs(context.session.graph.get_collection("losses")[0])

        def after_run(self, context, values):
            seen.append(values.results)

    with tempfile.TemporaryDirectory() as folder:
        tf.estimator.Estimator(model, folder).train(
            lambda: tf.data.Dataset.from_tensors((x, x[:, :1])).repeat(), [Losses()], steps=TIMES
        )
        yield from seen


def map_fn():
    for number in range(TIMES):
        yield tf.reduce_sum(tf.map_fn(body, tf.constant(x[:4] * number)))


def dataset_map():
    numbers = tf.data.Dataset.range(TIMES).map(lambda number: body(tf.constant(x) * tf.cast(number, tf.float32)))
    yield from numbers


print(json.dumps({way: [float(value) for value in globals()[way]()] for way in sys.argv[1:]}))
