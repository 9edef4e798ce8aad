"""TensorFlow Recommenders: a deep and cross ranking network, and retrieval with two towers."""

import tensorflow_recommenders as tfrs
from job import batches, integers, normal, options, tf, train

arguments = options("cross", "towers")
layers = tf.keras.layers
if arguments.model == "cross":
    tables = [layers.Embedding(1000, 16) for _ in range(16)]
    crosses = [tfrs.layers.dcn.Cross(projection_dim=32) for _ in range(3)]
    head = tf.keras.Sequential([layers.Dense(256, "relu"), layers.Dense(64, "relu"), layers.Dense(1)])

    def loss_of(ids, dense, labels):
        first = tf.concat([*(table(ids[:, i]) for i, table in enumerate(tables)), dense], 1)
        x = first
        for cross in crosses:
            x = cross(first, x)
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, head(x)[:, 0]))

    parts = [*tables, *crosses, head]
    data = batches(integers(1000, 2048, 16), normal(2048, 13), integers(2, 2048).astype("float32"), size=512)
else:
    users, items = (
        tf.keras.Sequential([layers.Embedding(5000, 64), layers.Dense(128, "relu"), layers.Dense(64)]) for _ in range(2)
    )
    task = tfrs.tasks.Retrieval(temperature=0.1)

    def loss_of(user, item):
        return task(users(user), items(item), compute_metrics=False)

    parts = [users, items]
    data = batches(integers(5000, 2048), integers(4999, 2048), size=512)
train(
    loss_of,
    lambda: [v for part in parts for v in part.trainable_variables],
    tf.keras.optimizers.Adagrad(0.05),
    data,
    arguments,
)
