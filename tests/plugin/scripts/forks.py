"""Forks a child that goes on training, and starts a process pool, as data loaders do; prints both results."""

import json
import multiprocessing
import os

import tensorflow as tf

v = tf.Variable(tf.ones([64]))


@tf.function
def step(x):
    v.assign(tf.tanh(v) * x + tf.nn.softmax(v))
    return tf.reduce_sum(v)


def square(x):
    return x * x


if __name__ == "__main__":
    first = [float(step(tf.ones([64]))) for _ in range(30)]
    with multiprocessing.get_context("fork").Pool(2) as pool:
        squares = pool.map(square, range(4))
    child = os.fork()
    if child == 0:
        os._exit(0 if square(3) == 9 else 1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    more = [float(step(tf.ones([64]))) for _ in range(30)]
    print(json.dumps([first, squares, code, more]))
