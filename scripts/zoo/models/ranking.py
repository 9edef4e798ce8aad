"""TensorFlow Ranking: a network with a listwise loss, through `fit`."""

import tensorflow_ranking as tfr
from job import fit, integers, normal, options, tf

arguments = options()
lists, items, features = 512, 50, 64
inputs = tf.keras.Input((items, features))
x = tf.keras.layers.BatchNormalization()(inputs)
for width in (256, 128, 64):
    x = tf.keras.layers.Dense(width)(x)
    x = tf.keras.layers.BatchNormalization()(x)
    x = tf.keras.layers.Activation("relu")(x)
    x = tf.keras.layers.Dropout(0.2)(x)
model = tf.keras.Model(inputs, tf.squeeze(tf.keras.layers.Dense(1)(x), -1))
relevance = integers(5, lists, items).astype("float32")
fit(model, normal(lists, items, features), relevance, arguments, 32, tfr.keras.losses.ApproxNDCGLoss(), "adagrad")
