"""A v1 session with a hook-driven MonitoredSession and legacy Adam."""

import tensorflow as tf
from training import BATCH, WIDTH, train

v1 = tf.compat.v1
with tf.Graph().as_default():
    v1.set_random_seed(5)
    x, y = v1.placeholder(tf.float32, [BATCH, WIDTH]), v1.placeholder(tf.int32, [BATCH])

    def dense(value, width, name):
        shape = [value.shape[-1], width]
        return tf.matmul(value, v1.get_variable(name, shape, initializer=v1.glorot_uniform_initializer(seed=1)))

    hidden = dense(x, 512, "first")
    mean, variance = tf.nn.moments(hidden, [-1], keepdims=True)
    hidden = tf.tanh((hidden - mean) * tf.math.rsqrt(variance + 1e-5))
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, dense(hidden, 10, "second")))
    step = v1.train.get_or_create_global_step()
    update = v1.train.AdamOptimizer(1e-4).minimize(loss, global_step=step)
    with v1.train.MonitoredTrainingSession() as session:
        train(lambda inputs, labels: session.run([loss, update], {x: inputs, y: labels})[0])
