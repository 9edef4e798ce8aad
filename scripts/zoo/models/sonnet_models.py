"""DeepMind's Sonnet: a VQ-VAE, and a deep LSTM."""

import sonnet as snt
from job import batches, integers, normal, options, steps, tf

arguments = options("vqvae", "lstm")
optimizer = snt.optimizers.Adam(3e-4)
if arguments.model == "vqvae":
    down = snt.Sequential([snt.Conv2D(32, 4, 2), tf.nn.relu, snt.Conv2D(64, 4, 2), tf.nn.relu, snt.Conv2D(32, 1)])
    up = snt.Sequential([snt.Conv2DTranspose(64, 4, stride=2), tf.nn.relu, snt.Conv2DTranspose(3, 4, stride=2)])
    codes = snt.nets.VectorQuantizerEMA(embedding_dim=32, num_embeddings=128, commitment_cost=0.25, decay=0.99)
    parts = [down, up]

    def loss_of(x):
        found = codes(down(x), is_training=True)
        return tf.reduce_mean(tf.square(up(found["quantize"]) - x)) + found["loss"]

    data = batches(normal(64, 32, 32, 3), size=16)
else:
    core, table, head = snt.UnrolledLSTM(256), snt.Embed(1000, 128), snt.Linear(1000)
    norm = snt.LayerNorm(-1, True, True)
    parts = [core, table, head, norm]

    def loss_of(ids):
        output, _ = core(table(tf.transpose(ids[:, :-1])), core.initial_state(32))
        logits = head(tf.reshape(norm(output), [-1, 256]))
        labels = tf.reshape(tf.transpose(ids[:, 1:]), [-1])
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))

    data = batches(integers(1000, 128, 33), size=32)


@tf.function(jit_compile=arguments.xla or None)
def train_step(*batch):
    with tf.GradientTape() as tape:
        loss = loss_of(*batch)
    weights = [v for part in parts for v in part.trainable_variables]
    optimizer.apply(tape.gradient(loss, weights), weights)
    return loss


for first in data:  # Sonnet's layers make their variables in the first call
    loss_of(*first)
    break
steps.run(train_step, data, arguments)
