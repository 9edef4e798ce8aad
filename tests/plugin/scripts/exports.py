"""Trains, then writes a SavedModel, a checkpoint and weights into the folder given; v1 and v2."""

import sys

import tensorflow as tf
from resting import rest

folder = sys.argv[1]


class Model(tf.Module):
    def __init__(self):
        super().__init__()
        self.w = tf.Variable(tf.eye(16))

    @tf.function(input_signature=[tf.TensorSpec([None, 16])])
    def __call__(self, x):
        y = tf.nn.softmax(tf.matmul(x, self.w))
        self.w.assign_sub(0.01 * tf.matmul(x, y, transpose_a=True))
        return tf.tanh(y) * 2.0


model = Model()
for i in range(120):
    if i == 12:
        rest(float(sys.argv[2]))
    model(tf.ones([8, 16]))
tf.saved_model.save(model, folder + "/saved")
tf.train.Checkpoint(model=model).save(folder + "/checkpoint/c")

v1 = tf.compat.v1
with tf.Graph().as_default():
    x = v1.placeholder(tf.float32, [None, 16])
    w = v1.get_variable("w", [16, 16])
    loss = tf.reduce_mean(tf.square(tf.nn.softmax(tf.matmul(x, w)) - 0.1))
    train = v1.train.AdamOptimizer(0.01).minimize(loss, global_step=v1.train.get_or_create_global_step())
    with v1.train.MonitoredTrainingSession(checkpoint_dir=folder + "/v1", save_checkpoint_steps=20) as session:
        for _ in range(60):
            session.run([loss, train], {x: [[0.5] * 16] * 4})
print(0)
