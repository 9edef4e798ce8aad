"""Neural posteriors of `bayesflow`, on Keras 3: the parameters of a series, by a coupling flow or by flow matching."""

import bayesflow
import keras
from job import batches, normal, options, train

arguments = options("coupling", "matching")
networks = bayesflow.networks
flow = networks.CouplingFlow(depth=4) if arguments.model == "coupling" else networks.FlowMatching()
summary = networks.SetTransformer(summary_dim=16)
approximator = bayesflow.ContinuousApproximator(inference_network=flow, summary_network=summary, standardize=None)
rows = {"inference_variables": normal(1024, 6), "summary_variables": normal(1024, 50, 4)}
approximator.build({name: array[:64].shape for name, array in rows.items()})


def loss_of(variables, series):
    return approximator.compute_metrics(inference_variables=variables, summary_variables=series, stage="training")[
        "loss"
    ]


optimizer = keras.optimizers.AdamW(5e-4)
train(
    loss_of, lambda: approximator.trainable_variables, optimizer, batches(*rows.values(), size=64), arguments, clip=1.5
)
