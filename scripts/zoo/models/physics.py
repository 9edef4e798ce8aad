"""DeepXDE (Lu Lu): Burgers' equation with a network whose loss has second derivatives, by DeepXDE's own training loop."""

import os

os.environ["DDE_BACKEND"] = "tensorflow"
import time

import deepxde as dde
import numpy as np
from job import options, steps

arguments = options()
geometry = dde.geometry.GeometryXTime(dde.geometry.Interval(-1, 1), dde.geometry.TimeDomain(0, 0.99))


def equation(x, y):
    dy_x, dy_t = dde.grad.jacobian(y, x, i=0, j=0), dde.grad.jacobian(y, x, i=0, j=1)
    return dy_t + y * dy_x - 0.01 / np.pi * dde.grad.hessian(y, x, i=0, j=0)


edges = dde.icbc.DirichletBC(geometry, lambda x: 0, lambda _, on: on)
start = dde.icbc.IC(geometry, lambda x: -np.sin(np.pi * x[:, :1]), lambda _, on: on)
problem = dde.data.TimePDE(geometry, equation, [edges, start], num_domain=2540, num_boundary=80, num_initial=160)
model = dde.Model(problem, dde.nn.FNN([2, *[32] * 4, 1], "tanh", "Glorot normal"))
if not arguments.xla:
    dde.config.disable_xla_jit()
model.compile("adam", lr=1e-3)
with steps.step_log(arguments.log) as log:

    class Note(dde.callbacks.Callback):
        def on_batch_begin(self):
            self.began = time.monotonic()

        def on_batch_end(self):
            losses = self.model.train_state.loss_train  # new in every twentieth step
            log.note(self.began, time.monotonic() - self.began, 0.0 if losses is None else float(np.sum(losses)))

    model.train(iterations=arguments.steps, display_every=20, callbacks=[Note()])
