"""GPflow: a sparse variational Gaussian process in float64, and Bayesian regression with a full kernel matrix."""

import gpflow
import numpy as np
from job import batches, normal, options, tf, train

arguments = options("svgp", "gpr")
x = normal(2048, 8).astype(np.float64)
y = np.sin(x.sum(-1, keepdims=True)) + 0.1 * normal(2048, 1)
kernel = gpflow.kernels.Matern52(lengthscales=np.ones(8)) + gpflow.kernels.RBF()
if arguments.model == "svgp":
    model = gpflow.models.SVGP(kernel, gpflow.likelihoods.StudentT(), x[:128].copy(), num_data=2048)
    data, loss_of = batches(x, y, size=256), lambda x, y: model.training_loss((x, y))
else:
    model = gpflow.models.GPR((x[:300], y[:300]), kernel)
    data, loss_of = batches(x[:300], y[:300], size=300), lambda x, y: model.training_loss()
train(loss_of, lambda: model.trainable_variables, tf.keras.optimizers.Adam(0.01), data, arguments)
