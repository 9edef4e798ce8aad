"""tf_geometric (Jun Hu): attention over a sparse graph."""

import tf_geometric as tfg
from job import integers, normal, options, tf, train

arguments = options()
nodes = 1500
x, edges, labels = normal(nodes, 64), integers(nodes, 2, 8 * nodes), integers(10, nodes)
first, second = (
    tfg.layers.GAT(64, activation=tf.nn.elu, num_heads=8, attention_units=8),
    tfg.layers.GAT(10, num_heads=1, attention_units=1),
)


def loss_of(x, edges, labels):
    found = second([first([x, edges], training=True), edges], training=True)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, found))


batch = tuple(map(tf.constant, (x, edges, labels)))
variables = lambda: [*first.trainable_variables, *second.trainable_variables]  # noqa: E731
train(loss_of, variables, tf.keras.optimizers.Adam(5e-3), (batch for _ in range(arguments.steps)), arguments)
