"""Segmentation models (qubvel): a U-Net and a feature pyramid over a residual network, with its dice and focal losses."""

import os

os.environ["SM_FRAMEWORK"] = "tf.keras"
import segmentation_models as sm
from job import fit, normal, options

arguments = options("unet", "fpn")
build = {"unet": sm.Unet, "fpn": sm.FPN}[arguments.model]
model = build("resnet18", encoder_weights=None, input_shape=(64, 64, 3), classes=1, activation="sigmoid")
masks = (normal(32, 64, 64, 1) > 0.5).astype("float32")
loss = sm.losses.DiceLoss() + sm.losses.BinaryFocalLoss()
fit(model, normal(32, 64, 64, 3), masks, arguments, 8, loss, metrics=[sm.metrics.IOUScore()])
