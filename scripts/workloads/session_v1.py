"""A text classifier in the style of TensorFlow 1: a graph, a MonitoredTrainingSession, tf.compat.v1's Adam.

It predicts which module of the Python standard library 64 words are from. Embeddings of 128, their mean and their maximum, two dense
layers of 512 and 256 with batch normalization (moving averages kept by update ops) and dropout, batch 64, vocabulary 8,000.
A plain TensorFlow program. --xla sets the session's global_jit_level, since jit_compile is for tf.function.
"""

from __future__ import annotations

import argparse
import os
import sys

if "--xla" in sys.argv:  # XLA clusters for the CPU only with this flag, which TensorFlow reads when it is imported
    os.environ["TF_XLA_FLAGS"] = f"{os.environ.get('TF_XLA_FLAGS', '')} --tf_xla_cpu_global_jit".strip()

import numpy as np
import steps
import tensorflow as tf
import text

v1 = tf.compat.v1
CLASSES = 32


def examples(length: int, vocabulary: int) -> tuple[np.ndarray, np.ndarray]:
    """(windows of the CLASSES longest modules, int32 [windows, length]; the module of each, int32 [windows])."""
    longest = sorted((text.words_of(module) for module in text.modules()), key=len, reverse=True)[:CLASSES]
    ids = text.number_words((word for words in longest for word in words), vocabulary)
    windows, labels = [], []
    for label, words in enumerate(longest):
        tokens = text.tokens_of(words, ids)
        cut = tokens[: len(tokens) // length * length].reshape(-1, length)
        windows.append(cut)
        labels.append(np.full(len(cut), label, np.int32))
    return np.concatenate(windows), np.concatenate(labels)


def dense(x: tf.Tensor, units: int, name: str) -> tf.Tensor:
    with v1.variable_scope(name):
        kernel = v1.get_variable("kernel", [x.shape[-1], units], initializer=v1.glorot_uniform_initializer())
        return tf.nn.bias_add(
            tf.matmul(x, kernel), v1.get_variable("bias", [units], initializer=v1.zeros_initializer())
        )


def normalize(x: tf.Tensor, training: bool, name: str, momentum: float = 0.99) -> tf.Tensor:
    """Batch normalization. In training it adds the updates of its moving averages to UPDATE_OPS."""
    with v1.variable_scope(name):
        shape = [x.shape[-1]]
        scale = v1.get_variable("gamma", shape, initializer=v1.ones_initializer())
        offset = v1.get_variable("beta", shape, initializer=v1.zeros_initializer())
        mean = v1.get_variable("moving_mean", shape, initializer=v1.zeros_initializer(), trainable=False)
        variance = v1.get_variable("moving_variance", shape, initializer=v1.ones_initializer(), trainable=False)
        if not training:
            return tf.nn.batch_normalization(x, mean, variance, offset, scale, 1e-3)
        batch_mean, batch_variance = tf.nn.moments(x, axes=[0])
        for moving, value in ((mean, batch_mean), (variance, batch_variance)):
            update = v1.assign_sub(moving, (moving - value) * (1.0 - momentum))
            v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, update)
        return tf.nn.batch_normalization(x, batch_mean, batch_variance, offset, scale, 1e-3)


def logits_of(tokens: tf.Tensor, arguments: argparse.Namespace) -> tf.Tensor:
    training = arguments.mode == "train"
    table = v1.get_variable(
        "words", [arguments.vocabulary, arguments.embedding], initializer=v1.random_normal_initializer(stddev=0.05)
    )
    words = tf.nn.embedding_lookup(table, tokens)
    x = tf.concat([tf.reduce_mean(words, axis=1), tf.reduce_max(words, axis=1)], axis=-1)
    for number, units in enumerate((arguments.hidden, arguments.hidden // 2)):
        x = tf.nn.relu(normalize(dense(x, units, f"dense_{number}"), training, f"norm_{number}"))
        if training:
            x = v1.nn.dropout(x, rate=arguments.dropout)
    return dense(x, CLASSES, "logits")


def main() -> None:
    parser = steps.make_parser(__doc__)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--embedding", type=int, default=128)
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--hidden", type=int, default=512, help="of the first dense layer; the second has half as many")
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--old-variables", action="store_true", help="use reference variables, not resources")
    arguments = parser.parse_args()

    with tf.Graph().as_default():
        v1.set_random_seed(arguments.seed)
        v1.get_variable_scope().set_use_resource(not arguments.old_variables)
        data = tf.data.Dataset.from_tensor_slices(examples(arguments.length, arguments.vocabulary))
        shuffled = data.shuffle(50_000, seed=arguments.seed).repeat().batch(arguments.batch, drop_remainder=True)
        tokens, labels = v1.data.make_one_shot_iterator(steps.feed(shuffled)).get_next()
        logits = logits_of(tokens, arguments)
        loss = v1.losses.sparse_softmax_cross_entropy(labels, logits)
        step = v1.train.get_or_create_global_step()
        fetches = {"loss": loss}
        if arguments.mode == "train":
            with tf.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
                fetches["train"] = v1.train.AdamOptimizer(1e-3).minimize(loss, global_step=step)
        config = v1.ConfigProto()
        if arguments.xla:
            config.graph_options.optimizer_options.global_jit_level = v1.OptimizerOptions.ON_2
        with v1.train.MonitoredTrainingSession(config=config) as session, steps.step_log(arguments.log) as book:
            for _ in range(arguments.steps):
                book(lambda: float(session.run(fetches)["loss"]))


if __name__ == "__main__":
    main()
