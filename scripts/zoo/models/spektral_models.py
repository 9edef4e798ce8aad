"""Graph networks of Spektral on dense batches of graphs."""

import numpy as np
from job import batches, integers, normal, options, tf, train
from spektral import layers

arguments = options("gcn", "gat", "diffpool")
graphs, nodes, width = 64, 60, 32
a = (normal(graphs, nodes, nodes) > 1.3).astype("float32")
a = np.clip(a + a.transpose(0, 2, 1) + np.eye(nodes, dtype="float32"), 0.0, 1.0)
degree = a.sum(-1) ** -0.5
normalized = a * degree[:, None] * degree[:, :, None]
if arguments.model == "gat":
    parts = [layers.GATConv(32, attn_heads=4, activation="elu", dropout_rate=0.1) for _ in range(2)]
    given = a
elif arguments.model == "gcn":
    parts = [layers.GCNConv(128, "relu") for _ in range(3)]
    given = normalized
else:
    parts = [layers.GCNConv(64, "relu"), layers.DiffPool(16, channels=64), layers.GCNConv(64, "relu")]
    given = normalized
head = tf.keras.layers.Dense(10)


def loss_of(x, a, labels):
    for part in parts:
        found = part([x, a], training=True)
        x, a = (found[0], found[1]) if isinstance(found, (tuple, list)) else (found, a)
    logits = head(tf.reduce_max(x, 1))
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))


train(
    loss_of,
    lambda: [v for part in (*parts, head) for v in part.trainable_variables],
    tf.keras.optimizers.Adam(1e-3),
    batches(normal(graphs, nodes, width), given, integers(10, graphs), size=32),
    arguments,
)
