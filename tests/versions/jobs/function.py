"""A `tf.function` with a GradientTape, clipped gradients and momentum written out."""

import numpy as np
import tensorflow as tf
from training import WIDTH, train

random = np.random.default_rng(0)
weights = [tf.Variable(random.standard_normal(shape, dtype=np.float32) * 0.1) for shape in ((WIDTH, 512), (512, 10))]
weights += [tf.Variable(tf.ones([512])), tf.Variable(tf.zeros([512]))]
speeds = [tf.Variable(tf.zeros_like(variable)) for variable in weights]


@tf.function
def train_step(inputs, labels):
    with tf.GradientTape() as tape:
        hidden = tf.matmul(inputs, weights[0])
        mean, variance = tf.nn.moments(hidden, [-1], keepdims=True)
        hidden = (hidden - mean) * tf.math.rsqrt(variance + 1e-5) * weights[2] + weights[3]
        hidden = 0.5 * hidden * (1.0 + tf.math.erf(hidden * 0.70710678))
        logits = tf.matmul(hidden, weights[1])
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
    for variable, speed, gradient in zip(weights, speeds, tape.gradient(loss, weights)):
        speed.assign(0.9 * speed + tf.clip_by_value(gradient, -1.0, 1.0))
        variable.assign_sub(0.003 * speed)
    return loss


train(lambda inputs, labels: train_step(tf.constant(inputs), tf.constant(labels)))
