"""Prints the tracebacks of errors that TensorFlow raises in steps, as the user sees them."""

import re
import traceback

import tensorflow as tf
import tensorflow.compat.v1 as v1


def show(call):
    try:
        call()
    except Exception:
        print(re.sub(r"__autograph_generated_file\w+", "GENERATED", traceback.format_exc()))


@tf.function
def picks(a, i):
    b = tf.nn.softmax(tf.exp(a) * 2.0) + 1.0
    return tf.gather(b, i, axis=0, name="picked")


a = tf.ones([4, 4])
for _ in range(8):
    picks(a, tf.constant([1]))
show(lambda: picks(a, tf.constant([7])))
show(lambda: picks.get_concrete_function(a, tf.constant([1]))(a, tf.constant([7])))


@tf.function
def does_not_fit(b):
    return tf.ones([2, 3]) @ b


show(lambda: does_not_fit(tf.ones([2, 2])))
model = tf.keras.Sequential([tf.keras.layers.Embedding(4, 3), tf.keras.layers.Dense(2)])
model.compile("sgd", "mse")
show(lambda: model.fit(tf.constant([[9]]), tf.constant([[[1.0, 2.0]]]), verbose=0))
with tf.Graph().as_default():
    index = v1.placeholder(tf.int32, [1])
    y = tf.gather(tf.exp(tf.ones([4])), index)
    with v1.Session() as session:
        show(lambda: session.run(y, {index: [9]}))
