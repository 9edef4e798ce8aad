"""Functions that several threads call first, and at once.

threads.py [SECONDS]: after some calls all threads pause for so long.
"""

import json
import sys
import threading

import tensorflow as tf
from resting import rest

pause = float(sys.argv[1]) if len(sys.argv) > 1 else 0.0

v = tf.Variable(tf.random.stateless_normal([64, 64], [1, 2]))


@tf.function
def step(t):
    y = tf.nn.softmax(tf.tanh(t) * 2.0 + v)
    return tf.reduce_mean(tf.exp(-y) * y)


x = tf.ones([64, 64])
results = [[] for _ in range(4)]
barrier = threading.Barrier(len(results))
rested = threading.Barrier(len(results), action=lambda: rest(pause))


def work(number):
    barrier.wait()
    for i in range(150):
        if i == 24:
            rested.wait()
        results[number].append(float(step(x * (0.01 * i))))


threads = [threading.Thread(target=work, args=(number,)) for number in range(len(results))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps(results))
