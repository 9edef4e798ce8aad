"""What people do around a training step: training_ways.py WAY [FOLDER]. Prints the losses as JSON.

Each way trains a small network, rests until its kernels are there, and trains on. FOLDER: for what a way writes.
"""

import json
import pathlib
import subprocess
import sys

import numpy as np
import tensorflow as tf
from resting import rest

STEPS = 120
RESTS = (STEPS // 4, STEPS // 2)
"""The second is for what runs in later steps only: an update that a loss scale had skipped."""
draw = np.random.default_rng(0)
x = draw.random([32, 24], dtype=np.float32)
y = (x @ draw.random([24, 4], dtype=np.float32)).astype(np.float32)
words = tf.constant([f"word {int(20 * value)}" for value in x[:, 0]])


def network():
    return tf.keras.Sequential(
        [
            tf.keras.layers.Dense(64, activation="gelu"),
            tf.keras.layers.LayerNormalization(),
            tf.keras.layers.Dropout(0.1),
            tf.keras.layers.Dense(32, activation="tanh"),
            tf.keras.layers.Dense(4, dtype="float32"),
        ]
    )


def fitted(folder, *callbacks, model=None):
    """Losses of epochs of one step each."""
    model = model or network()
    model.compile("adam", "mse")

    class Rest(tf.keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch in RESTS:
                rest(90)

    history = model.fit(x, y, batch_size=32, epochs=STEPS, verbose=0, shuffle=False, callbacks=[Rest(), *callbacks])
    return history.history["loss"]


def losses_of(train_step, after=lambda number: None):
    """Losses of a loop that people write. after: called with each step's number."""
    losses = []
    for number in range(STEPS):
        if number in RESTS:
            rest(90)
        losses.append(float(train_step()))
        after(number)
    return losses


def trained(loss_of, variables):
    """Losses of a training function. variables: asked for after the first call of loss_of."""
    optimizer = tf.keras.optimizers.Adam(0.01)

    @tf.function
    def train_step():
        with tf.GradientTape() as tape:
            loss = loss_of()
        weights = variables()
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        return loss

    return losses_of(train_step)


def of_policy(name):
    def way(folder):
        tf.keras.mixed_precision.set_global_policy(name)
        return fitted(folder)

    return way


def graph_rewrite(folder):
    tf.config.optimizer.set_experimental_options({"auto_mixed_precision_onednn_bfloat16": True})
    return fitted(folder)


def check_numerics(folder):
    tf.debugging.enable_check_numerics()
    return fitted(folder)


def callbacks(folder):
    """Checkpoints, the best of which is restored in the middle, a schedule of the rate, and an early end."""
    best = str(folder / "best.weights.h5")
    kept = tf.keras.callbacks.ModelCheckpoint(best, monitor="loss", save_best_only=True, save_weights_only=True)
    rate = tf.keras.callbacks.ReduceLROnPlateau("loss", patience=3)
    stop = tf.keras.callbacks.EarlyStopping("loss", patience=STEPS)
    model = network()
    losses = fitted(folder, kept, rate, stop, model=model)
    model.load_weights(best)
    return losses + fitted(folder, model=model)


def checkpoints(folder):
    """A `tf.train.Checkpoint` of model and optimizer, restored every 20 steps."""
    model, optimizer = network(), tf.keras.optimizers.Adam(0.01)
    saved = {}

    @tf.function
    def train_step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        return loss

    def after(number):
        if number == 10:
            saved["checkpoint"] = tf.train.Checkpoint(model=model, optimizer=optimizer)
            saved["path"] = saved["checkpoint"].save(str(folder / "checkpoint"))
        elif number % 20 == 15 and saved:
            saved["checkpoint"].restore(saved["path"])

    return losses_of(train_step, after)


def profiler(folder):
    """Traces that the user takes, before and after the kernels are there."""

    class Traces(tf.keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch % 40 == 10:
                tf.profiler.experimental.start(str(folder / f"trace {epoch}"))
            elif epoch % 40 == 13:
                tf.profiler.experimental.stop()

    losses = fitted(folder, Traces())
    assert len([*folder.rglob("*.xplane.pb")]) == 3
    return losses


def tables(folder):
    """Strings, looked up in the step: a vocabulary and a table."""
    lookup = tf.keras.layers.StringLookup(vocabulary=sorted(set(words.numpy())))
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(
            tf.constant(sorted(set(words.numpy()))), tf.range(len(set(words.numpy())), dtype=tf.int64)
        ),
        -1,
    )
    embedding, model = tf.keras.layers.Embedding(32, 24), network()

    def loss_of():
        ids = lookup(tf.strings.lower(words)) + table.lookup(words) // 8
        return tf.reduce_mean(tf.square(model(embedding(ids) + x, training=True) - y))

    return trained(loss_of, lambda: embedding.trainable_variables + model.trainable_variables)


def ragged(folder):
    """Rows of different lengths, averaged and padded."""
    rows = tf.RaggedTensor.from_row_lengths(tf.range(64) % 20, [1, 3] * 16)
    embedding, model = tf.keras.layers.Embedding(32, 24), network()
    embedding.build(None)

    def loss_of():
        values = tf.ragged.map_flat_values(tf.nn.embedding_lookup, embedding.embeddings, rows)
        mean = tf.reduce_mean(tf.tanh(values), axis=1) + 0.1 * tf.reduce_sum(values.to_tensor(), axis=1)
        return tf.reduce_mean(tf.square(model(mean + x, training=True) - y))

    return trained(loss_of, lambda: [embedding.embeddings, *model.trainable_variables])


def sparse(folder):
    """A sparse matrix times a dense one, as in graph networks, and sparse logits."""
    matrix = tf.sparse.from_dense(np.where(draw.random([32, 32]) < 0.2, 1.0, 0.0).astype(np.float32))
    model = network()

    def loss_of():
        mixed = tf.sparse.sparse_dense_matmul(tf.sparse.softmax(matrix), tf.constant(x))
        return tf.reduce_mean(tf.square(model(tf.tanh(mixed) + x, training=True) - y))

    return trained(loss_of, lambda: model.trainable_variables)


CUSTOM_OP = """
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
using namespace tensorflow;
REGISTER_OP("UsersOwnClip").Input("x: float").Output("y: float").SetShapeFn([](shape_inference::InferenceContext* c) {
  c->set_output(0, c->input(0));
  return OkStatus();
});
class UsersOwnClip : public OpKernel {
 public:
  explicit UsersOwnClip(OpKernelConstruction* context) : OpKernel(context) {}
  void Compute(OpKernelContext* context) override {
    const Tensor& x = context->input(0);
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, x.shape(), &y));
    const auto from = x.flat<float>();
    auto to = y->flat<float>();
    for (int64_t i = 0; i < from.size(); ++i) to(i) = from(i) < 0 ? -from(i) : from(i);
  }
};
REGISTER_KERNEL_BUILDER(Name("UsersOwnClip").Device(DEVICE_CPU), UsersOwnClip);
"""


def custom_op(folder):
    """An operator that the user built, with its gradient, between operators that are stitched."""
    source, library = folder / "op.cc", folder / "op.so"
    source.write_text(CUSTOM_OP)
    flags = [*tf.sysconfig.get_compile_flags(), *tf.sysconfig.get_link_flags()]
    subprocess.run(
        ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", str(source), "-o", str(library), *flags], check=True
    )
    own = tf.load_op_library(str(library))

    @tf.RegisterGradient("UsersOwnClip")
    def _gradient(op, gradient):
        return gradient * tf.sign(op.inputs[0])

    model = network()

    def loss_of():
        made = model(tf.tanh(x) * 2.0, training=True)
        return tf.reduce_mean(tf.square(tf.tanh(own.users_own_clip(made * 1.5 - 0.1)) * 3.0 - y))

    return trained(loss_of, lambda: model.trainable_variables)


def optimizers(folder):
    """Two models with an optimizer each, in one function."""
    first, second = network(), network()
    others = [tf.keras.optimizers.SGD(0.01, momentum=0.9, nesterov=True), tf.keras.optimizers.RMSprop(0.001)]

    @tf.function
    def train_step():
        total = 0.0
        for model, optimizer in zip((first, second), others):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
            weights = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
            total += loss
        return total

    return losses_of(train_step)


WAYS = {
    "mixed_float16": of_policy("mixed_float16"),
    "mixed_bfloat16": of_policy("mixed_bfloat16"),
    **{
        way.__name__: way
        for way in (
            *(graph_rewrite, check_numerics, callbacks, checkpoints, profiler),
            *(tables, ragged, sparse, custom_op, optimizers),
        )
    },
}

tf.keras.utils.set_random_seed(1)
print(json.dumps(WAYS[sys.argv[1]](pathlib.Path(sys.argv[2]))))
