"""Forecasts of several series by `kerasfactory`, on Keras 3, through `fit`."""

import kerasfactory.models
from job import fit, normal, options

arguments = options("tsmixer", "timemixer")
networks = {"tsmixer": kerasfactory.models.TSMixer, "timemixer": kerasfactory.models.TimeMixer}
model = networks[arguments.model](seq_len=96, pred_len=24, n_features=8)
fit(model, normal(2048, 96, 8), normal(2048, 24, 8), arguments, 64, "mse")
