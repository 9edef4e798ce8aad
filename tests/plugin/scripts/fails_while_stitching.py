"""A seeded job in which the plugin itself fails while it rewrites the stitched arm's graph."""

import json

import tensorflow as tf

try:
    from stitchfleet.plugin.entry import activation
    from stitchfleet.plugin.stitching import stitcher
except ImportError:
    activation = None
if activation is not None and activation.JOB is not None:

    def fail(*arguments, **options):
        raise RuntimeError("put in by the test")

    stitcher.find_clusters = fail

tf.random.set_seed(1)


@tf.function
def step(x):
    return tf.reduce_sum(tf.nn.dropout(tf.exp(x) * 2.0, 0.5) + 1.0)


print(json.dumps([float(step(tf.ones([8, 8]))) for _ in range(20)]))
