"""Segmentation by `medicai`, on Keras 3: a Swin transformer and a convolutional U-Net, with its Dice loss."""

import medicai.losses
import medicai.models
from job import fit, integers, normal, options

arguments = options("swin", "unet")
SHAPE = (64, 64, 1)
if arguments.model == "swin":
    model = medicai.models.SwinUNETR(input_shape=SHAPE, encoder_name="swin_tiny", num_classes=3, feature_size=24)
else:
    model = medicai.models.UNet(input_shape=SHAPE, encoder_name="resnet18", num_classes=3)
loss = medicai.losses.SparseDiceCELoss(from_logits=True, num_classes=3)
fit(model, normal(32, *SHAPE), integers(3, 32, *SHAPE), arguments, 4, loss, "adamw")
