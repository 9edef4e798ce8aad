"""Image models of `kimm`, on Keras 3, through `fit`."""

import kimm
from job import fit, integers, normal, options

NETWORKS = {
    "ghostnet": kimm.models.GhostNetW050,
    "mobilevit": kimm.models.MobileViTXXS,
    "convnext": kimm.models.ConvNeXtAtto,
}
arguments = options(*NETWORKS)
model = NETWORKS[arguments.model](weights=None, input_shape=(64, 64, 3), classes=10, include_preprocessing=False)
fit(
    model,
    normal(64, 64, 64, 3),
    integers(10, 64),
    arguments,
    16,
    "sparse_categorical_crossentropy",
    "adamw",
    ["accuracy"],
)
