"""TensorFlow Probability: a network with Flipout layers, an autoregressive flow, and a Hamiltonian sampler."""

import tensorflow_probability as tfp
from job import batches, integers, normal, options, steps, tf, train

arguments = options("flipout", "flow", "nuts")
tfd, tfb, tfpl = tfp.distributions, tfp.bijectors, tfp.layers
if arguments.model == "flipout":
    model = tf.keras.Sequential(
        [tfpl.DenseFlipout(256, activation="relu"), tfpl.DenseFlipout(256, activation="relu"), tfpl.DenseFlipout(10)]
    )

    def loss_of(x, labels):
        logits = model(x)
        return (
            tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
            + tf.add_n(model.losses) / 1e4
        )

    train(
        loss_of,
        lambda: model.trainable_variables,
        tf.keras.optimizers.Adam(1e-3),
        batches(normal(1024, 64), integers(10, 1024), size=256),
        arguments,
    )
elif arguments.model == "flow":
    bijectors = []
    for _ in range(6):
        bijectors += [
            tfb.MaskedAutoregressiveFlow(tfb.AutoregressiveNetwork(2, hidden_units=[128, 128], activation="relu")),
            tfb.Permute(list(range(31, -1, -1))),
        ]
    flow = tfd.TransformedDistribution(tfd.MultivariateNormalDiag(tf.zeros(32)), tfb.Chain(bijectors))
    flow.log_prob(normal(2, 32))
    train(
        lambda x: -tf.reduce_mean(flow.log_prob(x)),
        lambda: flow.trainable_variables,
        tf.keras.optimizers.Adam(1e-3),
        batches(normal(65_536, 32), size=512),
        arguments,
    )
else:
    x, y = tf.constant(normal(1000, 16)), tf.constant(integers(2, 1000).astype("float32"))

    def log_prob(w):
        logits = tf.linalg.matvec(x, w[..., :16]) + w[..., 16:]
        return -0.5 * tf.reduce_sum(w**2, -1) - tf.reduce_sum(
            tf.nn.sigmoid_cross_entropy_with_logits(tf.broadcast_to(y, tf.shape(logits)), logits), -1
        )

    kernel = tfp.mcmc.NoUTurnSampler(log_prob, step_size=0.02, max_tree_depth=4)
    state = tf.Variable(tf.zeros([16, 17]))

    @tf.function(jit_compile=arguments.xla or None)
    def sample(seed):
        draws = tfp.mcmc.sample_chain(2, state, kernel=kernel, trace_fn=None, seed=seed)
        state.assign(draws[-1])
        return tf.reduce_mean(draws)

    steps.run(sample, ((tf.constant([0, i]),) for i in range(arguments.steps)), arguments)
