"""N-BEATS (Philippe Remy's nbeats-keras) for time series, through `fit`."""

from job import fit, normal, options
from nbeats_keras.model import NBeatsNet

arguments = options()
net = NBeatsNet(
    backcast_length=96,
    forecast_length=24,
    stack_types=("trend", "seasonality", "generic"),
    nb_blocks_per_stack=3,
    thetas_dim=(4, 8, 8),
    hidden_layer_units=128,
)
fit(net.models["forecast"], normal(2048, 96, 1), normal(2048, 24, 1), arguments, 128, "mae")
